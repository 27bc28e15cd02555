#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/io/file_system.h"

// A checkpoint of which every byte is known: the committed fixture of the format's version.
namespace fsdptrain::testing {

inline constexpr const char* kFixtureFolder = "step-00000020";

// Two groups, planes of several dtypes, tensors of every form, three files.
checkpoint::SavedLayout fixture_layout();

// Element by element, of a plane of a tensor as a whole.
std::vector<std::byte> fixture_values(std::size_t tensor, std::size_t plane);

// Makes the folder step-00000020 in `folder`, with all that is in it.
void write_fixture(checkpoint::FileSystem& files, const std::filesystem::path& folder);

}  // namespace fsdptrain::testing
