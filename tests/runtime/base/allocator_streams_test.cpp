#include <map>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/allocator.h"
#include "runtime/base/device_context.h"
#include "runtime/base/error.h"
#include "tests/support/sim_device.h"

namespace fsdptrain {
namespace {

using test::SimDevice;

// A random program over streams: requests, uses, returns. Every use of a block in one life has to
// come after every use of it in the lives before.
class Program {
 public:
  Program(std::uint64_t seed, MemoryKind kind)
      : random_(seed), kind_(kind), allocator_(Allocator::create(device_, kind, current_)) {
    for (const char* name : {"compute", "gather", "reduce"}) {
      streams_.emplace_back(device_, name);
    }
  }

  void run(int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      const std::size_t which = random_() % held_.size();
      Held& held = held_[which];
      if (!held.allocation) {
        request(held);
      } else if (random_() % 3 == 0) {
        give_back(held);
      } else {
        use(held);
      }
    }
  }

  // Blocks that were used while others still might have.
  int num_faults() const { return num_faults_; }
  const std::vector<std::byte*>& blocks() const { return blocks_; }
  const MemoryCounters& counters() const { return allocator_->counters(); }

 private:
  struct Held {
    Allocation allocation;
    std::vector<SimDevice::Moment> uses;
  };

  bool is_pinned() const { return kind_ == MemoryKind::Pinned; }
  const Stream& any_stream() { return streams_[random_() % streams_.size()]; }

  void request(Held& held) {
    if (!is_pinned()) {
      *current_ = any_stream();
    }
    held.allocation = allocator_->allocate(random_() % 2 * 500 + 100, MemoryCategory::Activation);
    blocks_.push_back(held.allocation.data());
    touch(held, *current_);
  }

  void give_back(Held& held) {
    std::vector<SimDevice::Moment>& past = past_[held.allocation.data()];
    past.insert(past.end(), held.uses.begin(), held.uses.end());
    held = {};
  }

  void use(Held& held) {
    const Stream& stream = any_stream();
    // What every program does: bytes are written before another stream reads them.
    SimDevice::Moment last = held.uses.front();
    if (!device_->is_before(last, stream.handle())) {
      const Stream& writer = streams_[last.who % streams_.size()];
      Event written(device_);
      written.record(writer);
      stream.wait(written);
    }
    if (is_pinned()) {
      held.allocation.note_use(stream);
    } else {
      *current_ = stream;
      held.allocation.note_use();
    }
    touch(held, stream);
  }

  void touch(Held& held, const Stream& stream) {
    for (const SimDevice::Moment& moment : past_[held.allocation.data()]) {
      num_faults_ += !device_->is_before(moment, stream.handle());
    }
    held.uses.push_back(device_->operate(stream.handle()));
  }

  std::mt19937_64 random_;
  MemoryKind kind_;
  std::shared_ptr<SimDevice> device_ = std::make_shared<SimDevice>(3);
  // Where requests come from; the host's own order for pinned memory.
  std::shared_ptr<Stream> current_ = std::make_shared<Stream>();
  std::shared_ptr<Allocator> allocator_;
  std::vector<Stream> streams_;
  std::vector<Held> held_ = std::vector<Held>(7);
  std::map<std::byte*, std::vector<SimDevice::Moment>> past_;
  std::vector<std::byte*> blocks_;
  int num_faults_ = 0;
};

// Gives one place, or nothing for the first requests.
class OnePlace final : public BlockSource {
 public:
  explicit OnePlace(int num_refusals = 0) : num_refusals_(num_refusals) {}

  std::byte* allocate(std::size_t nbytes) override {
    CHECK(nbytes <= sizeof place_);
    return num_refusals_-- > 0 ? nullptr : place_;
  }
  void give_back(std::byte* data, std::vector<Event> uses) noexcept override {
    given_back = data == place_;
    last_uses = std::move(uses);
  }

  bool given_back = false;
  std::vector<Event> last_uses;

 private:
  int num_refusals_;
  alignas(kAlignment) std::byte place_[1024]{};
};

}  // namespace

TEST_SUITE("runtime/base/allocator_streams") {
  TEST_CASE("no block is reused before the streams that used it have passed") {
    for (const MemoryKind kind : {MemoryKind::Device, MemoryKind::Pinned}) {
      int num_faults = 0;
      std::int64_t num_requests = 0;
      std::int64_t num_raw = 0;
      for (std::uint64_t seed = 0; seed < 10000; ++seed) {
        Program program(seed, kind);
        program.run(200);
        num_faults += program.num_faults();
        num_requests += static_cast<std::int64_t>(program.blocks().size());
        num_raw += program.counters().raw_allocations;
      }
      CHECK(num_faults == 0);
      // Else nothing was reused.
      CHECK(num_requests > 2 * num_raw);
    }
  }

  TEST_CASE("which block a request gets does not depend on what has passed") {
    // Blocks by the order of their first appearance: addresses are the system's.
    const auto order_of = [](const Program& program) {
      std::map<std::byte*, std::size_t> numbers;
      std::vector<std::size_t> order;
      for (std::byte* const block : program.blocks()) {
        order.push_back(numbers.emplace(block, numbers.size()).first->second);
      }
      return order;
    };
    Program first(5, MemoryKind::Device);
    Program again(5, MemoryKind::Device);
    first.run(500);
    again.run(500);
    CHECK(order_of(first) == order_of(again));
  }

  TEST_CASE("a block serves its own stream alone, and events are used again") {
    const auto device = std::make_shared<SimDevice>(2);
    const auto current = std::make_shared<Stream>();
    const auto allocator = Allocator::create(device, MemoryKind::Device, current);
    const Stream compute(device, "compute");
    const Stream gather(device, "gather");
    *current = compute;
    std::byte* const block = allocator->allocate(100, MemoryCategory::Activation).data();
    *current = gather;
    CHECK(allocator->allocate(100, MemoryCategory::Activation).data() != block);
    for (int step = 0; step < 5; ++step) {
      *current = compute;
      Allocation used = allocator->allocate(100, MemoryCategory::Activation);
      CHECK(used.data() == block);
      *current = gather;
      used.note_use();
    }
    CHECK(device->num_events() == 1);
    CHECK(allocator->counters().raw_allocations == 2);
  }

  TEST_CASE("memory that the device does not have is named with its five largest holders") {
    const auto device = std::make_shared<SimDevice>(1, 8192);
    const auto current = std::make_shared<Stream>();
    const auto allocator = Allocator::create(device, MemoryKind::Device, current);
    *current = Stream(device, "compute");
    std::vector<Allocation> held;
    for (const std::size_t nbytes : {256, 1024, 512, 2048, 128, 64}) {
      held.push_back(allocator->allocate(nbytes, MemoryCategory::Activation));
    }
    held[3].set_label("wte.weight");
    CHECK_THROWS_WITH_AS(
        allocator->allocate(8000, MemoryCategory::Gradient),
        doctest::Contains("allocate: there are no 8192 bytes more of cuda:0 for gradient on stream "
                          "compute: 4032 are in use; the largest of them: 2048 activation of "
                          "wte.weight, 1024 activation, 512 activation, 256 activation, 128 "
                          "activation"),
        OutOfMemoryError);
    // Cached blocks go back to the device before it says no.
    held.clear();
    CHECK_NOTHROW(allocator->allocate(8000, MemoryCategory::Gradient));
    CHECK(allocator->counters().raw_bytes == 8192);
  }

  TEST_CASE("a block of another source is counted, and goes back with who used it, to no cache") {
    const auto device = std::make_shared<SimDevice>(3);
    const Stream compute(device, "compute");
    const auto current = std::make_shared<Stream>(compute);
    const Stream gather(device, "gather");
    const Stream side(device, "side");
    const auto allocator = Allocator::create(device, MemoryKind::Device, current);
    const auto source = std::make_shared<OnePlace>();
    Allocation block = allocator->allocate_from(source, 1000, MemoryCategory::Communication);
    CHECK(allocator->counters().live_of(MemoryCategory::Communication) == 1024);
    CHECK(allocator->counters().raw_allocations == 1);
    CHECK(allocator->counters().raw_bytes == 1024);
    block.note_use(gather);
    *current = side;
    block.note_use();
    const std::vector<SimDevice::Moment> uses{device->operate(gather.handle()),
                                              device->operate(side.handle())};
    CHECK_FALSE(source->given_back);
    block.reset();
    CHECK(source->given_back);
    CHECK(allocator->counters().live_total == 0);
    CHECK(allocator->counters().raw_bytes == 0);
    // Its own stream's event, too.
    CHECK(source->last_uses.size() == 3);
    for (const Event& use : source->last_uses) {
      use.synchronize();
    }
    for (const SimDevice::Moment& use : uses) {
      CHECK(device->is_before(use, nullptr));
    }
    *current = compute;
    static_cast<void>(allocator->allocate(1000, MemoryCategory::Activation));
    CHECK(allocator->counters().raw_allocations == 2);
  }

  TEST_CASE("another source is asked again without the cache, and what it lacks is named as any") {
    const auto device = std::make_shared<SimDevice>(1);
    const auto current = std::make_shared<Stream>(device, "compute");
    const auto allocator = Allocator::create(device, MemoryKind::Device, current);
    allocator->allocate(2048, MemoryCategory::Activation).reset();
    const Allocation held = allocator->allocate_from(std::make_shared<OnePlace>(1), 1000,
                                                     MemoryCategory::Communication);
    CHECK(allocator->counters().raw_bytes == 1024);
    CHECK_THROWS_WITH_AS(
        static_cast<void>(allocator->allocate_from(std::make_shared<OnePlace>(2), 500,
                                                   MemoryCategory::Communication)),
        doctest::Contains("there are no 512 bytes more of cuda:0 for communication on stream "
                          "compute: 1024 are in use; the largest of them: 1024 communication"),
        OutOfMemoryError);
    CHECK(allocator->counters().live_total == 1024);
  }

  TEST_CASE("a device begins on its compute stream, and other streams are others") {
    DeviceContext context(std::make_shared<SimDevice>(2));
    CHECK(context.current_stream() == context.compute_stream());
    CHECK(context.compute_stream().name() == "compute");
    CHECK(context.compute_stream().device() == Device::cuda(0));
    const Stream other = context.make_stream("gather");
    CHECK(!(other == context.compute_stream()));
  }
}

}  // namespace fsdptrain
