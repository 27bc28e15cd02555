#pragma once

#include <exception>
#include <string>

#include "runtime/base/error.h"

// What goes wrong between ranks. Each text names the rank, and for a collective its op, tag and
// sequence number.
namespace fsdptrain::comm {

class CommError : public Error {
 public:
  using Error::Error;
};

// A deadline passed; the text says who had not arrived.
class TimeoutError : public CommError {
 public:
  using CommError::CommError;
};

// Another rank threw, left, died or aborted; the text is its own where it left one.
class PeerError : public CommError {
 public:
  using CommError::CommError;
};

// Ranks disagree about a collective, a group or a mesh; the text has both sides.
class MismatchError : public CommError {
 public:
  using CommError::CommError;
};

// A rule that this rank broke by itself: a dropped Work, a second issuing thread, a closed group.
class MisuseError : public CommError {
 public:
  using CommError::CommError;
};

// Bytes from a peer that are not what the protocol says.
class ProtocolError : public CommError {
 public:
  using CommError::CommError;
};

// For people: what() of a std::exception, empty for none.
std::string text_of(const std::exception_ptr& error) noexcept;

}  // namespace fsdptrain::comm
