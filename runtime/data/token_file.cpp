#include "runtime/data/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/base/error.h"

namespace fsdptrain::data {
namespace {

// Copies tokens of one width; returns the place of the first outside the vocabulary, or their
// number. Bytes need not be aligned.
template <class Stored>
std::size_t widen(std::span<const std::byte> bytes, std::span<std::int64_t> out,
                  std::uint32_t vocab_size) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored token;
    std::memcpy(&token, bytes.data() + i * sizeof token, sizeof token);
    largest = std::max<std::uint32_t>(largest, token);
    out[i] = token;
  }
  if (largest < vocab_size) {
    return out.size();
  }
  return static_cast<std::size_t>(std::ranges::find_if(out,
                                                       [vocab_size](std::int64_t token) {
                                                         return token >= static_cast<std::int64_t>(
                                                                             vocab_size);
                                                       }) -
                                  out.begin());
}

void widen_checked(const TokenFile& file, std::uint64_t begin, std::span<const std::byte> bytes,
                   std::span<std::int64_t> out) {
  const std::uint32_t vocab_size = file.header().vocabulary.size;
  const std::size_t bad = file.header().bytes_per_token == 2
                              ? widen<std::uint16_t>(bytes, out, vocab_size)
                              : widen<std::uint32_t>(bytes, out, vocab_size);
  check<DataError>(bad == out.size(),
                   "{}: token {} at offset {} is outside the vocabulary of {}: the file is damaged",
                   file.path().native(), bad == out.size() ? 0 : out[bad], begin + bad, vocab_size);
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path)
    : mapping_(path),
      header_(parse_token_header(path.native(), mapping_.bytes(), mapping_.bytes().size())) {}

void TokenFile::read(std::uint64_t begin, std::span<std::int64_t> out) const {
  const std::uint64_t num_left = num_tokens() - std::min(begin, num_tokens());
  check<ShapeError>(out.size() <= num_left, "{}: {} tokens from {} on are not within its {} tokens",
                    path().native(), out.size(), begin, num_tokens());
  mapping_.check_size();
  const std::uint64_t width = header_.bytes_per_token;
  widen_checked(*this, begin,
                mapping_.bytes().subspan(kTokenHeaderBytes + begin * width, out.size() * width),
                out);
}

std::uint64_t TokenFile::check_tokens(std::uint64_t begin,
                                      std::span<const std::byte> tokens) const {
  constexpr std::size_t kTokensPerPart = 4096;
  const std::int64_t end = header_.vocabulary.end_of_document.value_or(kNoToken);
  std::uint64_t num_ends = 0;
  std::array<std::int64_t, kTokensPerPart> part{};
  const std::size_t width = header_.bytes_per_token;
  for (std::size_t done = 0; done < tokens.size() / width; done += kTokensPerPart) {
    const std::size_t count = std::min(kTokensPerPart, tokens.size() / width - done);
    widen_checked(*this, begin + done, tokens.subspan(done * width, count * width),
                  std::span(part).first(count));
    num_ends += static_cast<std::uint64_t>(std::ranges::count(std::span(part).first(count), end));
  }
  return num_ends;
}

void TokenFile::check_num_documents(std::uint64_t num_ends) const {
  const std::int64_t end = header_.vocabulary.end_of_document.value_or(kNoToken);
  std::array<std::int64_t, 1> last{end};
  read(num_tokens() - std::min<std::uint64_t>(num_tokens(), 1),
       std::span(last).first(num_tokens() == 0 ? 0 : 1));
  const std::uint64_t num_documents = num_ends + (last[0] == end ? 0 : 1);
  check<DataError>(
      header_.num_documents == num_documents,
      "{}: the header counts {} documents, but its tokens are {}: the file is damaged, "
      "or its writer counts otherwise: prepare it again",
      path().native(), header_.num_documents, num_documents);
}

}  // namespace fsdptrain::data
