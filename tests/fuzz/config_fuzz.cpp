#include <string_view>

#include "tests/fuzz/fuzz.h"
#include "tools/config/config.h"
#include "tools/config/print.h"

void fsdptrain::fuzz::read_hostile(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const tools::Config config = tools::parse_config(text, "hostile.toml");
  // What was taken is printed as something that is taken again.
  tools::parse_config(tools::to_toml(config), "printed.toml");
}
