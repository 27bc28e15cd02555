#include "comm/error.h"

namespace fsdptrain::comm {

std::string text_of(const std::exception_ptr& error) noexcept {
  if (!error) {
    return "";
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception of no known type";
  }
}

}  // namespace fsdptrain::comm
