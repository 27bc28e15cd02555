#include "runtime/tensor/storage.h"

#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/reduction.h"
#include "runtime/tensor/tensor.h"
#include "runtime/tensor/views.h"

namespace fsdptrain {
namespace {

std::byte* address(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

}  // namespace

TEST_SUITE("runtime/tensor/storage") {
  TEST_CASE("own bytes go and come back under every tensor that shares them") {
    const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
    const std::int64_t before = counters.live_of(MemoryCategory::Data);
    Tensor x = Tensor::full({2, 3}, 5, DType::Float32, Device::cpu(), MemoryCategory::Data);
    const Tensor row = views::narrow(x, 0, 1, 1);
    CHECK(counters.live_of(MemoryCategory::Data) == before + 64);
    x.storage()->release();
    CHECK(x.storage()->released());
    CHECK(counters.live_of(MemoryCategory::Data) == before);
    CHECK_THROWS_WITH_AS(row.view(), doctest::Contains("data: the storage of 24 bytes is released"),
                         StorageError);
    x.storage()->set_name("h.0.attn.c_attn.weight");
    CHECK_THROWS_WITH_AS(
        row.item(0),
        doctest::Contains("data: the storage of h.0.attn.c_attn.weight of 24 bytes is released"),
        StorageError);
    CHECK_NOTHROW(x.storage()->release());
    x.storage()->restore();
    CHECK(counters.live_of(MemoryCategory::Data) == before + 64);
    CHECK_FALSE(x.storage()->released());
    x.set_item(4, 7);
    CHECK(row.item(1) == 7);
    std::byte* const at = x.storage()->data();
    x.storage()->restore();
    CHECK(x.storage()->data() == at);
  }

  TEST_CASE("a storage keeps the allocation that it was given, until its release and no longer") {
    Allocator& allocator = current_context().allocator(Device::cpu());
    const std::int64_t before = allocator.counters().live_of(MemoryCategory::Data);
    Allocation allocation = allocator.allocate(16, MemoryCategory::Data);
    std::byte* const at = allocation.data();
    const auto storage = Storage::holding(Device::cpu(), 16, std::move(allocation));
    CHECK_FALSE(storage->released());
    CHECK(storage->data() == at);
    CHECK_THROWS_WITH_AS(storage->restore(at), doctest::Contains("owns its bytes"), StorageError);
    CHECK(allocator.counters().live_of(MemoryCategory::Data) == before + 64);
    storage->release();
    CHECK(allocator.counters().live_of(MemoryCategory::Data) == before);
    CHECK_THROWS_WITH_AS(storage->restore(), doctest::Contains("has no bytes of its own"),
                         StorageError);
  }

  TEST_CASE("a placed storage is where its owner says, here today and there tomorrow") {
    std::vector<float> here{1, 2, 3, 4};
    std::vector<float> there{5, 6, 7, 8};
    const auto storage = Storage::placed(Device::cpu(), 16);
    CHECK(storage->released());
    Tensor x = Tensor::over(storage, DType::Float32, {2, 2}, {2, 1}, 0);
    const Tensor column = views::narrow(x, 1, 1, 1);
    CHECK_THROWS_AS(x.item(0), StorageError);
    storage->restore(address(here));
    CHECK(column.to_vector() == std::vector<double>{2, 4});
    const std::uint64_t version = storage->version();
    storage->release();
    CHECK_THROWS_AS(column.item(0), StorageError);
    storage->restore(address(there));
    CHECK(column.to_vector() == std::vector<double>{6, 8});
    CHECK(storage->version() == version);
    x.set_item(3, 9);
    CHECK(there[3] == 9);
    CHECK(storage->version() == version + 1);
  }

  TEST_CASE("a saved tensor reads its bytes at their new address") {
    std::vector<float> here{2, 3};
    std::vector<float> there{2, 3};
    const auto storage = Storage::placed(Device::cpu(), 8);
    storage->restore(address(here));
    const Tensor factor = Tensor::over(storage, DType::Float32, {2}, {1}, 0);
    Tensor x = Tensor::of({1, 1});
    x.set_requires_grad(true);
    const Tensor y = ops::sum(ops::multiply(x, factor));
    storage->release();
    here = {-1, -1};
    CHECK_THROWS_WITH_AS(autograd::backward(y, {.grad_output = {}, .retain_graph = true}),
                         doctest::Contains("backward of multiply: data: the storage"),
                         StorageError);
    storage->restore(address(there));
    autograd::backward(y);
    CHECK(x.grad().to_vector() == std::vector<double>{2, 3});
  }

  TEST_CASE("each kind of storage is restored in its own way") {
    std::vector<float> bytes{0};
    const auto own = Storage::allocate(Device::cpu(), 4, MemoryCategory::Data);
    own->set_name("own");
    CHECK_THROWS_WITH_AS(own->restore(address(bytes)),
                         doctest::Contains("the storage own owns its bytes and takes no address"),
                         StorageError);
    const auto placed = Storage::placed(Device::cpu(), 4);
    placed->set_name("placed");
    CHECK_THROWS_WITH_AS(placed->restore(),
                         doctest::Contains("the storage placed has no bytes of its own"),
                         StorageError);
    CHECK_THROWS_WITH_AS(placed->restore(nullptr),
                         doctest::Contains("the storage placed needs an address on cpu"),
                         StorageError);
    CHECK_NOTHROW(Storage::placed(Device::meta(), 4)->restore(nullptr));
    CHECK_NOTHROW(Storage::placed(Device::cpu(), 0)->restore(nullptr));
  }

  TEST_CASE("storage on meta has sizes and lifetimes but no bytes") {
    const MemoryCounters& counters = current_context().allocator(Device::meta()).counters();
    const std::int64_t before = counters.live_total;
    {
      const Tensor x = Tensor::zeros({1 << 20, 1 << 20}, DType::Float64, Device::meta());
      CHECK(x.view().data == nullptr);
      CHECK(counters.live_total == before + (std::int64_t{1} << 43));
      x.storage()->release();
      CHECK(counters.live_total == before);
      CHECK_THROWS_AS(x.view(), StorageError);
      x.storage()->restore();
    }
    CHECK(counters.live_total == before);
  }
}

}  // namespace fsdptrain
