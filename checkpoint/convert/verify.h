#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/folder/scan.h"
#include "checkpoint/io/file_system.h"

namespace fsdptrain::checkpoint {

// Reads every byte of a checkpoint whose manifest was read and looks for what is not as that says:
// files, their headers, tables and blocks, and what tensors are in them. One text per problem, each
// naming its file; none where all is right. What the system refuses is an IoError.
// `each` gets the bytes of each block behind it.
std::vector<std::string> verify(FileSystem& files, const ValidCheckpoint& checkpoint,
                                const std::function<void(std::uint64_t nbytes)>& each);

}  // namespace fsdptrain::checkpoint
