#pragma once

#include <string_view>

namespace fsdptrain::tools {

// Hands text to the system at once, every byte of it; IoError with the system's reason.
void print_now(std::string_view text);

// IoError, with the reason, unless the system has taken all that was printed so far.
void finish_standard_output();

// Call first of all: standard streams that the caller has closed refuse every byte from then on.
// Without this, the next file opened would get their number, and with it what is printed.
void occupy_standard_streams();

}  // namespace fsdptrain::tools
