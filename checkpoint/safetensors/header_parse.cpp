#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "checkpoint/safetensors/dtype_names.h"
#include "checkpoint/safetensors/header.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

using nlohmann::json;

// In the format, but not here.
constexpr std::array<std::string_view, 14> kOtherDTypes = {
    "BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "I8",  "F8_E5M2", "F8_E4M3",
    "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U32", "C64",     "U64"};

// Takes the JSON events one by one and builds no tree: the memory follows the tensors found, and
// whatever the format does not allow ends the parse where it stands.
class HeaderParser final : public nlohmann::json_sax<json> {
 public:
  HeaderParser(std::string file, std::uint64_t data_nbytes)
      : file_(std::move(file)), data_nbytes_(data_nbytes) {}

  SafetensorsHeader finish();

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { unexpected(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t /*value*/, const string_t& text) override { unexpected(text); }
  bool string(string_t& value) override;
  bool binary(binary_t& /*value*/) override { unexpected("binary data"); }
  bool start_object(std::size_t /*size*/) override;
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(std::size_t /*size*/) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& last_token,
                   const json::exception& error) override;

 private:
  // What surrounds the next event.
  enum class Place { Outside, Root, Metadata, Tensor, Shape, Offsets };

  // The fields of the tensor at hand, as far as they have been read.
  struct Fields {
    std::optional<std::string> dtype;
    std::optional<std::vector<std::uint64_t>> shape;
    std::optional<std::vector<std::uint64_t>> offsets;
  };

  // Says what belongs here instead of `got`.
  [[noreturn]] void unexpected(const std::string& got) const;
  // "FILE: tensor NAME", the beginning of a message.
  std::string tensor() const { return fmt::format("{}: tensor {}", file_, shown(name_)); }
  TensorEntry make_entry() const;
  DType make_dtype() const;
  Shape make_shape() const;

  std::string file_;
  std::uint64_t data_nbytes_;
  SafetensorsHeader header_;
  std::unordered_set<std::string> names_;
  Place place_ = Place::Outside;
  std::string name_;   // the last key of Root
  std::string field_;  // the last key of Metadata or Tensor
  Fields fields_;
};

void HeaderParser::unexpected(const std::string& got) const {
  switch (place_) {
    case Place::Outside:
      break;
    case Place::Root:
      fail<DataError>("{} must be an object, got {}", tensor(), got);
    case Place::Metadata:
      fail<DataError>("{}: __metadata__ must map strings to strings, got {} for {}", file_, got,
                      shown(field_));
    case Place::Tensor:
      fail<DataError>("{}: {} must be {}, got {}", tensor(), field_,
                      field_ == "dtype" ? "a string" : "an array", got);
    case Place::Shape:
      fail<DataError>("{}: shape must hold integers >= 0, got {}", tensor(), got);
    case Place::Offsets:
      fail<DataError>("{}: data_offsets must hold integers >= 0, got {}", tensor(), got);
  }
  fail<DataError>("{}: the header must be a JSON object, got {}", file_, got);
}

bool HeaderParser::number_unsigned(number_unsigned_t value) {
  if (place_ == Place::Shape) {
    check<DataError>(fields_.shape->size() < kMaxDims,
                     "{}: a tensor has at most {} dimensions here, got more", tensor(), kMaxDims);
    fields_.shape->push_back(value);
  } else if (place_ == Place::Offsets) {
    check<DataError>(fields_.offsets->size() < 2,
                     "{}: data_offsets must be [begin, end], got more than two numbers", tensor());
    fields_.offsets->push_back(value);
  } else {
    unexpected(std::to_string(value));
  }
  return true;
}

bool HeaderParser::string(string_t& value) {
  if (place_ == Place::Metadata) {
    header_.metadata.emplace(field_, std::move(value));
  } else if (place_ == Place::Tensor && field_ == "dtype") {
    fields_.dtype = std::move(value);
  } else {
    unexpected(shown(value));
  }
  return true;
}

bool HeaderParser::start_object(std::size_t /*size*/) {
  if (place_ == Place::Outside) {
    place_ = Place::Root;
  } else if (place_ == Place::Root) {
    place_ = name_ == kMetadataKey ? Place::Metadata : Place::Tensor;
    fields_ = {};
  } else {
    unexpected("an object");
  }
  return true;
}

bool HeaderParser::key(string_t& value) {
  if (place_ == Place::Root) {
    check<DataError>(names_.insert(value).second, "{}: the header names {} twice", file_,
                     shown(value));
    name_ = std::move(value);
    return true;
  }
  field_ = std::move(value);
  if (place_ == Place::Metadata) {
    check<DataError>(!header_.metadata.contains(field_), "{}: __metadata__ names {} twice", file_,
                     shown(field_));
    return true;
  }
  const bool seen = field_ == "dtype"          ? fields_.dtype.has_value()
                    : field_ == "shape"        ? fields_.shape.has_value()
                    : field_ == "data_offsets" ? fields_.offsets.has_value()
                                               : false;
  check<DataError>(!seen, "{}: {} is given twice", tensor(), field_);
  check<DataError>(field_ == "dtype" || field_ == "shape" || field_ == "data_offsets",
                   "{}: fields are dtype, shape and data_offsets, got {}", tensor(), shown(field_));
  return true;
}

bool HeaderParser::end_object() {
  if (place_ == Place::Tensor) {
    header_.entries.push_back(make_entry());
    place_ = Place::Root;
  } else {
    place_ = place_ == Place::Metadata ? Place::Root : Place::Outside;
  }
  return true;
}

bool HeaderParser::start_array(std::size_t /*size*/) {
  if (place_ == Place::Tensor && field_ == "shape") {
    place_ = Place::Shape;
    fields_.shape.emplace();
  } else if (place_ == Place::Tensor && field_ == "data_offsets") {
    place_ = Place::Offsets;
    fields_.offsets.emplace();
  } else {
    unexpected("an array");
  }
  return true;
}

bool HeaderParser::end_array() {
  place_ = Place::Tensor;
  return true;
}

bool HeaderParser::parse_error(std::size_t position, const std::string& /*last_token*/,
                               const json::exception& error) {
  std::string_view reason = error.what();
  // "[json.exception.parse_error.101] " is the library's own number.
  reason.remove_prefix(std::min(reason.size(), reason.find("] ") + 2));
  fail<DataError>("{}: the header is not JSON at its byte {}: {}", file_, position, shown(reason));
}

DType HeaderParser::make_dtype() const {
  const std::optional<DType> dtype = dtype_of_safetensors(*fields_.dtype);
  if (!dtype) {
    check<DataError>(std::ranges::find(kOtherDTypes, *fields_.dtype) == kOtherDTypes.end(),
                     "{}: dtype {} is not supported; supported are F64, F32, BF16, F16, I64, I32, "
                     "U16 and U8",
                     tensor(), *fields_.dtype);
    fail<DataError>("{}: dtype {} is not one of the format's", tensor(), shown(*fields_.dtype));
  }
  return *dtype;
}

Shape HeaderParser::make_shape() const {
  std::vector<std::int64_t> sizes;
  std::int64_t numel = 1;
  for (const std::uint64_t size : *fields_.shape) {
    check<DataError>(size <= std::numeric_limits<std::int64_t>::max(),
                     "{}: a size must be less than 2^63, got {}", tensor(), size);
    sizes.push_back(static_cast<std::int64_t>(size));
    // As in check_sizes(): a size of 0 does not hide an overflow in the others.
    check<DataError>(
        !__builtin_mul_overflow(numel, std::max<std::int64_t>(sizes.back(), 1), &numel),
        "{}: the number of elements of [{}] overflows 64 bits", tensor(),
        fmt::join(*fields_.shape, ", "));
  }
  return Shape(std::span<const std::int64_t>(sizes));
}

TensorEntry HeaderParser::make_entry() const {
  check<DataError>(fields_.dtype.has_value(), "{}: dtype is missing", tensor());
  check<DataError>(fields_.shape.has_value(), "{}: shape is missing", tensor());
  check<DataError>(fields_.offsets.has_value(), "{}: data_offsets is missing", tensor());
  check<DataError>(fields_.offsets->size() == 2,
                   "{}: data_offsets must be [begin, end], got {} numbers", tensor(),
                   fields_.offsets->size());
  TensorEntry entry{.name = name_,
                    .dtype = make_dtype(),
                    .shape = make_shape(),
                    .begin = (*fields_.offsets)[0],
                    .end = (*fields_.offsets)[1]};
  std::uint64_t nbytes = 0;
  check<DataError>(!__builtin_mul_overflow(static_cast<std::uint64_t>(entry.shape.numel()),
                                           size_of(entry.dtype), &nbytes),
                   "{}: the bytes of {} {} overflow 64 bits", tensor(), entry.dtype, entry.shape);
  check<DataError>(entry.begin <= entry.end, "{}: data_offsets must not go backwards, got [{}, {}]",
                   tensor(), entry.begin, entry.end);
  check<DataError>(entry.nbytes() == nbytes,
                   "{}: {} {} takes {} bytes, but data_offsets [{}, {}] span {}", tensor(),
                   entry.dtype, entry.shape, nbytes, entry.begin, entry.end, entry.nbytes());
  check<DataError>(entry.end <= data_nbytes_,
                   "{}: its bytes end at {}, but the file has {} bytes of data: it is cut short",
                   tensor(), entry.end, data_nbytes_);
  return entry;
}

SafetensorsHeader HeaderParser::finish() {
  std::ranges::sort(header_.entries, [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t covered = 0;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& entry : header_.entries) {
    check<DataError>(entry.begin <= covered,
                     "{}: bytes {} to {} of the data belong to no tensor; {} begins after them",
                     file_, covered, entry.begin, shown(entry.name));
    check<DataError>(entry.begin == covered, "{}: tensor {} begins at byte {}, inside {}", file_,
                     shown(entry.name), entry.begin,
                     previous == nullptr ? "" : shown(previous->name));
    covered = entry.end;
    previous = &entry;
  }
  check<DataError>(covered == data_nbytes_,
                   "{}: {} bytes follow the last tensor, which ends at byte {} of the data", file_,
                   data_nbytes_ - covered, covered);
  return std::move(header_);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& file, std::string_view text,
                                           std::uint64_t data_nbytes) {
  check<DataError>(text.starts_with('{'), "{}: the header must begin with {{, got {}", file,
                   shown(text.substr(0, 1)));
  // The JSON library takes it for the end of the text.
  check<DataError>(text.find('\0') == std::string_view::npos,
                   "{}: the header has a zero byte at its byte {}", file, text.find('\0'));
  HeaderParser parser(file, data_nbytes);
  json::sax_parse(text.begin(), text.end(), &parser);
  return parser.finish();
}

}  // namespace fsdptrain::checkpoint
