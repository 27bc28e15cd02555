#pragma once

#include <array>
#include <filesystem>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include <doctest/doctest.h>

namespace fsdptrain::testing {

// A folder in which files can be made, renamed and removed, but that cannot be opened: its mode
// says so, and this thread gives up root's right to pass over modes. The destructor takes both
// back.
class UnreadableFolder {
 public:
  explicit UnreadableFolder(std::filesystem::path path) : path_(std::move(path)) {
    std::filesystem::permissions(path_, std::filesystem::perms{0300});
    REQUIRE(::syscall(SYS_capget, &header_, before_.data()) == 0);
    auto without = before_;
    without[CAP_TO_INDEX(CAP_DAC_OVERRIDE)].effective &= ~CAP_TO_MASK(CAP_DAC_OVERRIDE);
    without[CAP_TO_INDEX(CAP_DAC_READ_SEARCH)].effective &= ~CAP_TO_MASK(CAP_DAC_READ_SEARCH);
    REQUIRE(::syscall(SYS_capset, &header_, without.data()) == 0);
  }
  UnreadableFolder(const UnreadableFolder&) = delete;
  UnreadableFolder& operator=(const UnreadableFolder&) = delete;
  ~UnreadableFolder() {
    ::syscall(SYS_capset, &header_, before_.data());
    std::filesystem::permissions(path_, std::filesystem::perms{0700});
  }

 private:
  std::filesystem::path path_;
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> before_{};
};

}  // namespace fsdptrain::testing
