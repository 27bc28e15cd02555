#pragma once

#include <unistd.h>
#include <utility>

namespace fsdptrain {

// The number of an open file, socket or anything else of the system; closed with its owner. A
// negative number is none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = other.release();
    }
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  // The caller closes it from now on.
  int release() { return std::exchange(number_, -1); }
  void close() {
    if (is_open()) {
      ::close(release());
    }
  }

 private:
  int number_ = -1;
};

}  // namespace fsdptrain
