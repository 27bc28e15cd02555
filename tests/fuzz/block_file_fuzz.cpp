#include <vector>

#include "checkpoint/format/blocks/block_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/file_bytes.h"
#include "tests/support/memory_files.h"

void fsdptrain::fuzz::read_hostile(std::span<const std::byte> bytes) {
  testing::MemoryFiles files;
  testing::put_file(files, "/file", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const checkpoint::BlockFileReader reader(files, "/file", std::nullopt);
  checkpoint::BlockFileReader::Ends ends;
  std::vector<std::byte> out;
  for (const checkpoint::TensorEntry& entry : reader.entries()) {
    // The header was checked against the size of the file: this is never more.
    out.resize(entry.nbytes());
    reader.read(entry.begin, out, ends);
  }
  reader.verify([](std::uint64_t) {});
}
