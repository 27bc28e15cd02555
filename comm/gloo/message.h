#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "comm/link/frame.h"
#include "comm/link/link.h"

namespace fsdptrain::comm {

// What two ranks tell each other over gloo, in order. It travels as its bytes between processes of
// one build.
struct Message {
  enum class Kind : std::uint8_t {
    // `frame` of operation `sequence`.
    Post,
    // `nbytes` are there: few are in `bytes`, more are sent to what is posted for them.
    Offer,
    // The sender reads nothing more of it.
    Finish,
    // Answer with a Position.
    Ask,
    // `progress`, `frame`, `waits_for`, and `age` nanoseconds since then.
    Position,
    // `bytes` has the next `num_bytes` of a text of `nbytes` that ends the world, of rank
    // `waits_for`.
    Failure,
    // The last one; the peer answers Seen.
    Leave,
    Seen,
  };
  static constexpr std::size_t kBytes = 512;

  Kind kind = Kind::Post;
  Progress progress = Progress::Idle;
  std::int32_t phase = 0;
  std::int32_t waits_for = -1;
  std::uint64_t sequence = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t num_bytes = 0;
  std::int64_t age = 0;
  Frame frame;
  std::array<std::byte, kBytes> bytes{};
};
static_assert(std::is_trivially_copyable_v<Message>);

}  // namespace fsdptrain::comm
