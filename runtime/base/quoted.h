#pragma once

#include <string>
#include <string_view>

// Text of others in messages: of files, of command lines, of peers.
namespace fsdptrain {

// One line that a terminal takes for nothing but text: control characters, and bytes that are not
// UTF-8, as \n, \r, \t or \xNN; all else as it is.
std::string printable(std::string_view text);

// The same between quotes, with \" for those inside.
std::string in_quotes(std::string_view text);

// The same of a name, cut where it is very long, with "..." behind it.
std::string shown(std::string_view name);

}  // namespace fsdptrain
