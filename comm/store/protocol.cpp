#include "comm/store/protocol.h"

#include <algorithm>
#include <fmt/format.h>

#include "comm/store/wire.h"

namespace fsdptrain::comm::store {
namespace {

constexpr std::size_t kLengthBytes = 4;

bool is_known(std::uint8_t type) {
  return (type >= static_cast<std::uint8_t>(FrameType::Hello) &&
          type <= static_cast<std::uint8_t>(FrameType::Refused)) ||
         (type >= static_cast<std::uint8_t>(FrameType::Set) &&
          type <= static_cast<std::uint8_t>(FrameType::Goodbye)) ||
         (type >= static_cast<std::uint8_t>(FrameType::Welcome) &&
          type <= static_cast<std::uint8_t>(FrameType::Farewell));
}

}  // namespace

std::string encode_frame(FrameType type, std::string_view body) {
  const std::size_t length = kHeaderBytes - kLengthBytes + body.size();
  return WireWriter()
      .u32(static_cast<std::uint32_t>(length))
      .u8(static_cast<std::uint8_t>(type))
      .u8(kVersion)
      .raw(body)
      .take();
}

bool FrameReader::fill(std::string_view& bytes, std::size_t nbytes) {
  const std::size_t missing = nbytes - std::min(nbytes, buffer_.size());
  const std::size_t taken = std::min(missing, bytes.size());
  buffer_.append(bytes.substr(0, taken));
  bytes.remove_prefix(taken);
  return taken == missing;
}

void FrameReader::check_length() const {
  const std::size_t length = frame_bytes_ - kLengthBytes;
  check<ProtocolError>(frame_bytes_ >= kHeaderBytes && frame_bytes_ <= max_frame_,
                       "store: a frame must be of length {} to {}, got {}",
                       kHeaderBytes - kLengthBytes, max_frame_ - kLengthBytes, length);
}

void FrameReader::check_header() const {
  WireReader header(std::string_view(buffer_).substr(kLengthBytes), "header");
  const int type = header.u8();
  const int version = header.u8();
  check<ProtocolError>(
      version == kVersion,
      "store: the protocol's version must be {}, got {}; use the same build of the "
      "program for all ranks",
      kVersion, version);
  check<ProtocolError>(is_known(static_cast<std::uint8_t>(type)),
                       "store: the type of a frame must be known, got {}", type);
}

std::optional<Frame> FrameReader::read(std::string_view& bytes) {
  if (frame_bytes_ == 0) {
    if (!fill(bytes, kLengthBytes)) {
      return std::nullopt;
    }
    frame_bytes_ = kLengthBytes + WireReader(buffer_, "length").u32();
    check_length();
  }
  if (!header_is_checked_) {
    if (!fill(bytes, kHeaderBytes)) {
      return std::nullopt;
    }
    check_header();
    header_is_checked_ = true;
  }
  if (!fill(bytes, frame_bytes_)) {
    return std::nullopt;
  }
  Frame frame{static_cast<FrameType>(buffer_[kLengthBytes]), std::move(buffer_)};
  buffer_ = {};
  frame_bytes_ = 0;
  header_is_checked_ = false;
  return frame;
}

void check_key(std::string_view key) {
  check<ProtocolError>(!key.empty() && key.size() <= kMaxKey,
                       "store: a key must have 1 to {} bytes, got {}", kMaxKey, key.size());
  check<ProtocolError>(std::ranges::all_of(key, [](char c) { return c > ' ' && c <= '~'; }),
                       "store: a key must be printable ASCII without spaces, got '{}'",
                       printable(key));
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('/', begin), key.size());
    const std::string_view component = key.substr(begin, end - begin);
    check<ProtocolError>(!component.empty() && component != "." && component != "..",
                         "store: no component of a key may be empty, '.' or '..', got '{}'", key);
    begin = end + 1;
  }
}

bool may_write(int rank, std::string_view key) {
  constexpr std::string_view kOwned = "rank/";
  return !key.starts_with(kOwned) ||
         key.substr(kOwned.size()).starts_with(fmt::format("{}/", rank));
}

}  // namespace fsdptrain::comm::store
