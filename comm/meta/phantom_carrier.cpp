#include "comm/meta/phantom_carrier.h"

#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <utility>

#include "comm/error.h"

namespace fsdptrain::comm {

// What was issued together, done from the start.
class PhantomCarrier::Done final : public Pending {
 public:
  Done(PhantomCarrier& carrier, const Frame& first) : carrier_(carrier), first_(first) {}

  void wait() override { carrier_.check_usable(); }
  void drop() noexcept override {
    if (!carrier_.dropped_) {
      carrier_.dropped_ = to_string(first_);
    }
  }

 private:
  PhantomCarrier& carrier_;
  Frame first_;
};

void PhantomCarrier::check_usable() {
  check<MisuseError>(!dropped_,
                     "rank {}: the Work of {} was dropped without a wait; the other ranks would "
                     "wait for it forever",
                     rank_, dropped_.value_or(""));
  const std::lock_guard lock(mutex_);
  check<PeerError>(!aborted_, "rank {} failed: {}", rank_, aborted_.value_or(""));
}

Work PhantomCarrier::issue(std::vector<Call> calls, Nanoseconds /*timeout*/) {
  for (const Call& call : calls) {
    traffic_.add(call);
  }
  return Work(std::make_shared<Done>(*this, calls.front().frame));
}

std::shared_ptr<Storage> PhantomCarrier::allocate(std::uint64_t /*group_hash*/, std::size_t nbytes,
                                                  bool /*is_symmetric*/) {
  auto storage = Storage::allocate(device_, nbytes, MemoryCategory::Communication);
  if (device_ == Device::cpu() && nbytes > 0) {
    // What others would fill stays as it is: numbers, and no slow ones.
    std::memset(storage->data(), 0, nbytes);
  }
  return storage;
}

void PhantomCarrier::abort(std::string_view reason) const noexcept {
  const std::lock_guard lock(mutex_);
  if (!aborted_) {
    aborted_ = reason;
  }
}

}  // namespace fsdptrain::comm
