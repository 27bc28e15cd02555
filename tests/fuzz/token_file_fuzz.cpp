#include <vector>

#include "runtime/data/token_file.h"
#include "tests/fuzz/fuzz.h"

void fsdptrain::fuzz::read_hostile(std::span<const std::byte> bytes) {
  const BytesFile file(bytes);
  const data::TokenFile tokens(file.path());
  std::vector<std::int64_t> out(tokens.num_tokens());
  tokens.read(0, out);
}
