#include <vector>

#include "checkpoint/safetensors/file.h"
#include "tests/fuzz/fuzz.h"

void fsdptrain::fuzz::read_hostile(std::span<const std::byte> bytes) {
  const BytesFile file(bytes);
  const checkpoint::SafetensorsReader reader(file.path());
  std::vector<std::byte> out;
  for (const checkpoint::TensorEntry& entry : reader.entries()) {
    // The header was checked against the size of the file: this is never more.
    out.resize(entry.nbytes());
    reader.read(reader.find(entry.name), out);
  }
}
