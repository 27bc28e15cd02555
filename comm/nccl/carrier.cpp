#include "comm/nccl/carrier.h"

#include <fmt/format.h>
#include <utility>

#include "comm/error.h"
#include "comm/nccl/launch.h"
#include "runtime/base/log.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm::nccl {
namespace {

// What needs no wait.
class Done final : public Pending {
 public:
  void wait() override {}
  void drop() noexcept override {}
};

}  // namespace

class NcclCarrier::Issued final : public Pending {
 public:
  Issued(NcclCarrier& carrier, std::shared_ptr<Batch> batch)
      : carrier_(carrier), batch_(std::move(batch)) {}

  void wait() override { carrier_.wait(*batch_); }
  void drop() noexcept override { carrier_.drop(*batch_); }

 private:
  NcclCarrier& carrier_;
  std::shared_ptr<Batch> batch_;
};

NcclCarrier::NcclCarrier(Options options)
    : options_(std::move(options)),
      device_(current_context().device(options_.device)),
      lanes_(device_, options_.streams),
      groups_(*options_.channel, HostWait(options_.channel->link()), lanes_.size()),
      in_flight_(options_.device, *options_.channel, groups_, *options_.ring, *options_.order),
      memory_(std::make_shared<RegisteredMemory>(device_, HostWait(options_.channel->link()))) {}

NcclCarrier::~NcclCarrier() {
  if (failure_) {
    // Told already, but where an exception dropped a Work and was caught.
    report();
  } else if (num_open_ > 0) {
    report_open();
  }
  // While the tensors of open operations are there.
  groups_.end();
  if (!failure_ && num_open_ == 0) {
    wait_for_streams();
  }
  memory_->end();
}

void NcclCarrier::report_open() const noexcept {
  const Batch* const open = in_flight_.first_open();
  options_.tell_all(open == nullptr
                        ? "it left with operations not waited for"
                        : fmt::format("it left with {} not waited for", to_string(open->frame)));
}

void NcclCarrier::wait_for_streams() const noexcept {
  try {
    lanes_.synchronize();
  } catch (const Error& error) {
    log_warning("NCCL: at the end of the world: {}", error.what());
  }
}

void NcclCarrier::check_usable() {
  if (failure_) {
    report();
    std::rethrow_exception(failure_);
  }
  try {
    options_.channel->check_usable();
    groups_.check();
    in_flight_.note_passed();
  } catch (const MisuseError&) {
    // Another thread, which may touch nothing here.
    throw;
  } catch (...) {
    fail_all();
  }
}

void NcclCarrier::create_group(const Call& call, Nanoseconds timeout) {
  try {
    in_flight_.on_host({&call, 1}, timeout, [&] {
      device_.api()->make_current();
      groups_.create(call, timeout);
    });
  } catch (...) {
    fail_all();
  }
}

Work NcclCarrier::issue(std::vector<Call> calls, Nanoseconds timeout) {
  if (calls.front().operation.op == Op::CreateGroup) {
    create_group(calls.front(), timeout);
    return Work(std::make_shared<Done>());
  }
  for (const Call& call : calls) {
    check_dtypes(call.operation);
  }
  std::shared_ptr<Batch> batch;
  try {
    if (options_.delay) {
      options_.delay();
    }
    batch = in_flight_.begin(std::move(calls), timeout);
    batch->ended = lanes_.launch(batch->calls, groups_);
  } catch (...) {
    fail_all();
  }
  ++num_open_;
  return Work(std::make_shared<Issued>(*this, std::move(batch)));
}

void NcclCarrier::wait(Batch& batch) {
  check_usable();
  try {
    for (const Event& event : batch.ended) {
      device_.current_stream().wait(event);
    }
  } catch (...) {
    fail_all();
  }
  batch.is_waited_for = true;
  --num_open_;
  batch.calls.clear();
}

void NcclCarrier::drop(const Batch& batch) noexcept {
  if (batch.is_waited_for || failure_) {
    return;
  }
  failure_ = std::make_exception_ptr(
      MisuseError(fmt::format("rank {}: the Work of {} was dropped without a wait; nothing orders "
                              "what uses its tensors behind it",
                              rank(), to_string(batch.frame))));
  // Where an exception drops it, that is what the others should hear.
  if (std::uncaught_exceptions() == 0) {
    report();
  }
  groups_.abort();
}

void NcclCarrier::finish() {
  check_usable();
  try {
    in_flight_.finish();
  } catch (...) {
    fail_all();
  }
}

void NcclCarrier::meet(std::vector<Call> calls, Nanoseconds timeout) {
  try {
    in_flight_.on_host(calls, timeout, [&] { options_.channel->meet(calls, timeout); });
  } catch (...) {
    fail_all();
  }
}

std::shared_ptr<Storage> NcclCarrier::allocate(std::uint64_t group_hash, std::size_t nbytes,
                                               bool is_symmetric) {
  check_usable();
  try {
    device_.api()->make_current();
    return memory_->allocate(groups_.of(group_hash), nbytes, is_symmetric);
  } catch (const OutOfMemoryError&) {
    // The other members wait for this one to register a symmetric block; another is of this rank
    // alone.
    if (is_symmetric) {
      fail_all();
    }
    throw;
  } catch (...) {
    fail_all();
  }
}

void NcclCarrier::fail_all() {
  failure_ = std::current_exception();
  report();
  groups_.abort();
  in_flight_.fail();
  throw;
}

void NcclCarrier::report() const noexcept {
  options_.tell_all(text_of(failure_));
}

}  // namespace fsdptrain::comm::nccl
