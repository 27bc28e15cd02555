#pragma once

#include <concepts>
#include <exception>
#include <fmt/core.h>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

// Every failure of the library is an exception of a type below, raised through check() or fail().
// The text reads "<op>: <what must hold>, got <values>"; a wrong format string does not compile.
namespace fsdptrain {

class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}

  const char* what() const noexcept override { return message_.c_str(); }

  // Puts "<context>: " in front of the text, for a handler that rethrows: unlike a nested
  // exception, the error keeps its type on the way up.
  void add_context(std::string_view context);

 private:
  std::string message_;
};

// Sizes, strides or indices that do not fit.
class ShapeError : public Error {
 public:
  using Error::Error;
};

class DTypeError : public Error {
 public:
  using Error::Error;
};

// A device that does not fit, or that failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// A rule of autograd was broken: in-place on a leaf, a second backward, a stale parameter.
class AutogradError : public Error {
 public:
  using Error::Error;
};

// A tensor whose bytes are not there: undefined, released, or on the meta device.
class StorageError : public Error {
 public:
  using Error::Error;
};

class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

// A configuration, command line or environment variable that cannot be used.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// Input data that is missing, empty or malformed: the user must change it.
class DataError : public Error {
 public:
  using Error::Error;
};

// The system refused a read or a write: disk full, I/O error, no permission.
class IoError : public Error {
 public:
  using Error::Error;
};

// A place in the source. std::source_location is missing from clang 14, and so from the
// clang-tidy of Debian 12.
struct SourceLocation {
  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          int line = __builtin_LINE()) {
    return {file, line};
  }

  const char* file;
  int line;
};

// "comm/exchange.cpp:99": the path of this repository on the machine that compiled it says nothing
// to a reader, so only the part from the top folder on is there.
std::string to_string(const SourceLocation& where);

namespace detail {

std::string render_error(fmt::string_view text, fmt::format_args args, SourceLocation where);

template <class... Args>
struct Message {
  // NOLINTNEXTLINE(google-explicit-constructor): callers pass a literal.
  consteval Message(const char* message, SourceLocation where = SourceLocation::current())
      : text(message), location(where) {}

  fmt::format_string<Args...> text;
  SourceLocation location;
};

}  // namespace detail

// Throws `E` with the formatted message and the caller's file:line.
template <std::derived_from<Error> E = Error, class... Args>
[[noreturn]] void fail(std::type_identity_t<detail::Message<Args...>> message,
                       const Args&... args) {
  throw E(detail::render_error(message.text, fmt::make_format_args(args...), message.location));
}

template <std::derived_from<Error> E = Error, class... Args>
void check(bool condition, std::type_identity_t<detail::Message<Args...>> message,
           const Args&... args) {
  if (!condition) [[unlikely]] {
    throw E(detail::render_error(message.text, fmt::make_format_args(args...), message.location));
  }
}

}  // namespace fsdptrain
