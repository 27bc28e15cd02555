#include "comm/flight/sentences.h"

#include <algorithm>
#include <fmt/format.h>

#include "comm/ranks.h"

namespace fsdptrain::comm {
namespace {

std::string seconds_text(double least, double most) {
  const std::string first = fmt::format("{:.1f}", least);
  const std::string last = fmt::format("{:.1f}", most);
  return first == last ? first + " s" : fmt::format("{}-{} s", first, last);
}

}  // namespace

void Sentences::add(int rank, const Sentence& sentence) {
  const double seconds = sentence.seconds.value_or(0);
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.sentence.verb_of_one == sentence.verb_of_one &&
           entry.sentence.before == sentence.before && entry.sentence.after == sentence.after;
  });
  Entry& entry = found == entries_.end()
                     ? entries_.emplace_back(Entry{sentence, {}, seconds, seconds})
                     : *found;
  entry.ranks.push_back(rank);
  entry.least = std::min(entry.least, seconds);
  entry.most = std::max(entry.most, seconds);
}

std::string Sentences::text() const {
  std::string text;
  for (const auto& [sentence, ranks, least, most] : entries_) {
    text += fmt::format("  {} {} {}{}{}\n", named_ranks(ranks),
                        ranks.size() == 1 ? sentence.verb_of_one : sentence.verb_of_many,
                        sentence.before, sentence.seconds ? seconds_text(least, most) : "",
                        sentence.after);
  }
  return text;
}

}  // namespace fsdptrain::comm
