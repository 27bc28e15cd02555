#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string_view>

namespace fsdptrain {

// Where the time of a rank goes, by the names of its kernels and of the ops that put a scope
// around them. A rank context that points to one is measured; kernels on the CPU are, because
// they are done when their launch returns. Used by the thread that launches, and by no other.
class KernelProfile {
 public:
  struct Entry {
    double seconds = 0;
    std::int64_t scopes = 0;
  };

  // By name. Scopes within a scope add to the time of the outermost and to no other entry.
  const std::map<std::string_view, Entry>& entries() const { return entries_; }
  // All scopes, inner ones too: about the number of kernels that were launched.
  std::int64_t num_scopes() const { return num_scopes_; }
  void reset();

 private:
  friend class ProfileScope;
  using Clock = std::chrono::steady_clock;

  void enter();
  void leave(const char* name);

  std::map<std::string_view, Entry> entries_;
  std::int64_t num_scopes_ = 0;
  int depth_ = 0;
  Clock::time_point start_;
};

// Counts its lifetime under `name`, which must have static storage; nothing for a null profile.
class ProfileScope {
 public:
  ProfileScope(KernelProfile* profile, const char* name) : profile_(profile), name_(name) {
    if (profile_ != nullptr) {
      profile_->enter();
    }
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;
  ~ProfileScope() {
    if (profile_ != nullptr) {
      profile_->leave(name_);
    }
  }

 private:
  KernelProfile* profile_;
  const char* name_;
};

}  // namespace fsdptrain
