#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/clock.h"
#include "runtime/base/quoted.h"

// What the store and its clients send each other: frames, and the limits of everything. No I/O.
namespace fsdptrain::comm::store {

// In every frame. Ranks of different versions refuse each other.
inline constexpr std::uint8_t kVersion = 1;

inline constexpr std::size_t kMaxKey = 1024;
inline constexpr std::size_t kMaxValue = std::size_t{8} << 20;
// Keys and values of the whole store.
inline constexpr std::size_t kMaxStored = std::size_t{64} << 20;
inline constexpr std::size_t kMaxKeys = std::size_t{64} << 10;
// Keys that one client waits for.
inline constexpr std::size_t kMaxWaits = 1024;
inline constexpr std::size_t kMaxFailureText = 4096;
inline constexpr std::size_t kMaxJobId = 64;
inline constexpr int kMaxWorldSize = 1 << 20;

// What a peer may send, and how long it may take, until it has proved that it knows the token.
inline constexpr std::size_t kMaxBytesBeforeAuth = 256;
inline constexpr std::chrono::seconds kAuthTimeout{5};

// More than each rank once: a rank that was restarted may come before its old connection is gone.
constexpr std::size_t max_connections(int world_size) {
  return 2 * static_cast<std::size_t>(world_size) + 16;
}

// On the wire: never renumber.
enum class FrameType : std::uint8_t {
  // In the clear, until both sides have proved themselves.
  Hello = 1,
  Challenge = 2,
  Proof = 3,
  Refused = 4,
  // Sealed (auth.h). From a client:
  Set = 16,
  Get = 17,
  Wait = 18,
  Add = 19,
  CompareSet = 20,
  ReportFailure = 21,
  Cancel = 22,
  Goodbye = 23,
  // From the server:
  Welcome = 32,
  Reply = 33,
  Failure = 34,
  Farewell = 35,
};

// u32 length of what follows, u8 type, u8 version.
inline constexpr std::size_t kHeaderBytes = 6;
// What sealing adds: u64 sequence number, HMAC-SHA256.
inline constexpr std::size_t kSealBytes = 8 + 32;
// The largest frame is a compare_set: two values, a key and a few numbers.
inline constexpr std::size_t kMaxFrame = kHeaderBytes + kSealBytes + 2 * kMaxValue + kMaxKey + 64;

struct Frame {
  FrameType type;
  // The whole frame as it was sent.
  std::string bytes;

  std::string_view body() const { return std::string_view(bytes).substr(kHeaderBytes); }
};

// REQUIRES: the frame fits kMaxFrame.
std::string encode_frame(FrameType type, std::string_view body);

// Cuts a stream of bytes into frames, in time linear in the bytes. Holds the frame that is not
// whole yet, and never more than was fed.
class FrameReader {
 public:
  explicit FrameReader(std::size_t max_frame) : max_frame_(max_frame) {}

  // Takes bytes from the front of `bytes`, at most to the end of one frame, and returns that frame
  // once it is whole. ProtocolError as soon as the header shows a length that no frame may have, an
  // unknown type or another version; the reader is of no use then.
  std::optional<Frame> read(std::string_view& bytes);

  void set_max_frame(std::size_t nbytes) { max_frame_ = nbytes; }
  std::size_t buffered_bytes() const { return buffer_.size(); }

 private:
  // Moves bytes to the buffer until it has `nbytes`; whether it does.
  bool fill(std::string_view& bytes, std::size_t nbytes);
  void check_length() const;
  void check_header() const;

  std::size_t max_frame_;
  std::size_t frame_bytes_ = 0;
  bool header_is_checked_ = false;
  std::string buffer_;
};

// ProtocolError unless the key is 1 to kMaxKey printable ASCII characters without spaces:
// components separated by "/", none of them empty, "." or "..". What passes can be shown as it is.
void check_key(std::string_view key);

// Whether `rank` may write `key`: what is below "rank/R/" belongs to rank R.
bool may_write(int rank, std::string_view key);

}  // namespace fsdptrain::comm::store
