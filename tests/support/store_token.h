#pragma once

#include <string_view>

namespace fsdptrain::testing {

// What all who use the store of a test share.
inline constexpr std::string_view kStoreJob = "job";
inline constexpr std::string_view kStoreToken = "the token of the job, 32 bytes!!";

}  // namespace fsdptrain::testing
