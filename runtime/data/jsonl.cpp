#include "runtime/data/jsonl.h"

#include <algorithm>
#include <fmt/format.h>
#include <simdjson.h>
#include <span>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/text_files.h"

namespace fsdptrain::data {
namespace {

// How far a search for the end of a line reads at first, and then twice as far each time.
constexpr std::uint64_t kFirstSearchBytes = std::uint64_t{1} << 14;
constexpr std::uint64_t kAlignment = 64;

const char* name_of(simdjson::dom::element_type type) {
  using simdjson::dom::element_type;
  switch (type) {
    case element_type::ARRAY:
      return "an array";
    case element_type::OBJECT:
      return "an object";
    case element_type::INT64:
    case element_type::UINT64:
    case element_type::DOUBLE:
      return "a number";
    case element_type::STRING:
      return "a string";
    case element_type::BOOL:
      return "true or false";
    case element_type::NULL_VALUE:
      return "null";
  }
  fail("jsonl: {} is no type of JSON", static_cast<int>(type));
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// How many of the first characters are a number by the grammar of JSON; 0: none.
std::size_t number_length(std::string_view text) {
  std::size_t end = 0;
  const auto skip = [&](std::string_view letters) {
    const bool found = end < text.size() && letters.find(text[end]) != std::string_view::npos;
    end += found ? 1 : 0;
    return found;
  };
  const auto skip_digits = [&] {
    const std::size_t begin = end;
    end = std::min(text.find_first_not_of("0123456789", end), text.size());
    return end > begin;
  };
  skip("-");
  if (!skip("0") && !skip_digits()) {
    return 0;
  }
  if (skip(".") && !skip_digits()) {
    return 0;
  }
  if (skip("eE")) {
    skip("+-");
    if (!skip_digits()) {
      return 0;
    }
  }
  return end;
}

// Puts 0 and white space in the place of every number; what is none stays, for the parser to find.
void zero_numbers(std::span<char> line) {
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char letter = line[i];
    if (letter == '"') {
      in_string = !in_string;
    } else if (in_string) {
      i += letter == '\\' ? 1 : 0;
    } else if (letter == '-' || (letter >= '0' && letter <= '9')) {
      const auto text = std::string_view(line.data(), line.size()).substr(i);
      const std::size_t length = number_length(text);
      // Of the run that the parser takes for one.
      const std::size_t run = std::min(text.find_first_not_of("+-.0123456789eE"), text.size());
      if (length == run) {
        std::ranges::fill(line.subspan(i, run), ' ');
        line[i] = '0';
      }
      i += run - 1;
    }
  }
}

}  // namespace

JsonlReader::JsonlReader(std::string field)
    : field_(std::move(field)), parser_(std::make_unique<simdjson::dom::parser>()) {}

JsonlReader::~JsonlReader() = default;

// The lines that start in [begin, end), with their ends, in buffer_ with the padding of the parser
// behind them.
std::string_view JsonlReader::load_lines(const File& file, std::uint64_t nbytes,
                                         std::uint64_t begin, std::uint64_t end) {
  // A line starts behind the end of one: the byte before says whether one starts at `begin`. Copies
  // out of the system's pages are twice as fast from aligned places.
  const std::uint64_t from = begin == 0 ? 0 : (begin - 1) / kAlignment * kAlignment;
  std::size_t filled = 0;
  const auto load_up_to = [&](std::uint64_t offset) {
    const auto wanted = static_cast<std::size_t>(std::min(offset, nbytes) - from);
    buffer_.resize(std::max(buffer_.size(), wanted + simdjson::SIMDJSON_PADDING));
    const auto part = std::span(buffer_).subspan(filled, wanted - filled);
    const std::size_t read = file.read_at(from + filled, std::as_writable_bytes(part));
    check<DataError>(read == part.size(), "{}: became shorter while it was read: {} bytes are left",
                     file.path().native(), from + filled + read);
    filled = wanted;
  };
  load_up_to(end);
  const auto loaded = [&] { return std::string_view(buffer_.data(), filled); };
  std::size_t first = 0;
  if (begin > 0) {
    const std::size_t before = loaded().find('\n', begin - 1 - from);
    if (before == std::string_view::npos) {
      return {};
    }
    // Behind an end in the last place begins a line of the next part: nothing is left of this one.
    first = before + 1;
  }
  std::size_t last = filled;
  if (loaded().empty() || loaded().back() != '\n') {
    std::size_t searched = filled;
    std::uint64_t step = kFirstSearchBytes;
    while (from + filled < nbytes && loaded().find('\n', searched) == std::string_view::npos) {
      searched = filled;
      load_up_to(from + filled + step);
      step *= 2;
    }
    last = std::min(loaded().find('\n', searched), filled);
  }
  return loaded().substr(first, last - first);
}

// Its value; where it is none, what is wrong with it.
simdjson::dom::element JsonlReader::parse(std::string_view line, std::string& defect) {
  simdjson::dom::element root;
  auto error = parser_->parse(line.data(), line.size(), false).get(root);
  if (error == simdjson::NUMBER_ERROR) {
    // JSON knows no limits to numbers, the parser those of its types.
    line_.assign(line.begin(), line.end());
    zero_numbers(line_);
    line_.resize(line.size() + simdjson::SIMDJSON_PADDING);
    error = parser_->parse(line_.data(), line.size(), false).get(root);
  }
  if (error) {
    check<OutOfMemoryError>(error != simdjson::MEMALLOC,
                            "a line of {} bytes takes more memory than the system has",
                            line.size());
    defect = fmt::format(
        "not valid JSON: {} Every line must be one object, such as {{\"{}\": "
        "\"...\"}}",
        simdjson::error_message(error), field_);
  }
  return root;
}

// The text of one line; where there is none, what is wrong with it.
std::string_view JsonlReader::read_text(std::string_view line, std::string& defect) {
  const simdjson::dom::element root = parse(line, defect);
  if (!defect.empty()) {
    return {};
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    defect =
        fmt::format("must be an object with a field \"{}\", got {}", field_, name_of(root.type()));
    return {};
  }
  std::optional<simdjson::dom::element> found;
  for (const auto& [key, value] : object) {
    if (key == field_) {
      if (found) {
        defect = fmt::format("the field \"{}\" occurs twice: leave one of them", field_);
        return {};
      }
      found = value;
    }
  }
  if (!found) {
    defect = fmt::format("has no field \"{}\": name the field of the text (--jsonl-field)", field_);
    return {};
  }
  std::string_view text;
  if (found->get(text) != simdjson::SUCCESS) {
    defect =
        fmt::format("the field \"{}\" must be a string, got {}", field_, name_of(found->type()));
  }
  return text;
}

JsonlLines JsonlReader::read(const File& file, std::uint64_t nbytes, std::uint64_t begin,
                             std::uint64_t end,
                             const std::function<void(std::string_view text)>& document) {
  JsonlLines lines;
  std::string_view rest = load_lines(file, nbytes, begin, end);
  if (begin == 0 && rest.starts_with(kByteOrderMark)) {
    rest.remove_prefix(kByteOrderMark.size());
  }
  while (!rest.empty()) {
    const std::size_t length = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, length);
    rest.remove_prefix(std::min(length + 1, rest.size()));
    ++lines.num_lines;
    if (is_blank(line)) {
      continue;
    }
    std::string defect;
    const std::string_view text = read_text(line, defect);
    if (!defect.empty()) {
      lines.defect = {lines.num_lines, defect};
      break;
    }
    document(text);
  }
  return lines;
}

}  // namespace fsdptrain::data
