#include "runtime/base/host_name.h"

#include <sys/utsname.h>

namespace fsdptrain {

std::string host_name() {
  utsname name{};
  return ::uname(&name) == 0 ? name.nodename : "unknown";
}

}  // namespace fsdptrain
