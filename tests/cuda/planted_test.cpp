#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "runtime/base/error.h"
#include "tests/cuda/copies.h"
#include "tests/fakecuda/child.h"
#include "tests/fakecuda/expect.h"

// Mistakes of a program over the device layer, each found on the fake in every order; and the
// program without them, of which nothing is reported.
namespace fsdptrain::testing {
namespace {

constexpr std::int64_t kNumel = 300;
constexpr std::size_t kNbytes = kNumel * sizeof(float);

// What a small step may do wrong.
struct Plan {
  bool records_after_copy = true;
  bool waits_for_copy = true;
  bool waits_for_kernel = true;
  bool synchronises = true;
};

// Pinned memory, by a stream for copies, to the device; squares on the compute stream; and back.
// What the host has got when all has ended.
Tensor run_step(const Plan& plan) {
  const Stream copy = gpu().make_stream("copy");
  const Stream& compute = gpu().compute_stream();
  Event copied(gpu().api());
  const Tensor x = empty_on_gpu(kNumel);
  const Tensor y = empty_on_gpu(kNumel);
  const Tensor output = pinned({kNumel}, DType::Float32, kGpu);
  copy.wait(compute);
  if (!plan.records_after_copy) {
    copied.record(copy);
  }
  {
    const StreamGuard guard(copy);
    copy_async(x, counted(kNumel));
  }
  if (plan.records_after_copy) {
    copied.record(copy);
  }
  if (plan.waits_for_copy) {
    compute.wait(copied);
  }
  kernels::map(y.launch(), kernels::Square{}, y.view(), x.view());
  if (plan.waits_for_kernel) {
    copy.wait(compute);
  }
  {
    const StreamGuard guard(copy);
    copy_async(output, y);
  }
  if (plan.synchronises) {
    copy.synchronize();
  }
  fakecuda::check_host_access(output.view().data, kNbytes, fakecuda::Access::Read);
  compute.synchronize();
  copy.synchronize();
  return output;
}

// One report has all the texts, whatever the order.
template <class Body>
void expect_reported(const std::vector<std::string_view>& texts, Body body) {
  for (std::uint64_t seed = 0; seed < num_orders(); ++seed) {
    CAPTURE(seed);
    fakecuda::Session session(fakecuda::checked({.seed = seed}));
    {
      RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
      const ContextGuard bound(context);
      body();
    }
    session.finish();
    fakecuda::expect_among_reports(session, texts);
  }
}

void expect_planted(const Plan& plan, const std::vector<std::string_view>& texts) {
  expect_reported(texts, [&] { run_step(plan); });
}

void fill(const View& view) {
  kernels::fill(current_context().launch(kGpu), view, 1);
}

// One element more than the tensor has.
View too_long(const Tensor& tensor) {
  View view = tensor.view();
  ++view.sizes[0];
  return view;
}

}  // namespace

TEST_SUITE("cuda/planted") {
  TEST_CASE("of a step with all its waits nothing is reported, and it computes") {
    on_gpu([] {
      for (int round = 0; round < 3; ++round) {
        const Tensor output = run_step({});
        CHECK(output.values<float>()[17] == 17 * 17);
      }
    });
  }

  TEST_CASE("a wait that is missing between a copy and a kernel is reported") {
    expect_planted(
        {.waits_for_copy = false},
        {"unordered access", "'square'", "'cudaMemcpyAsync host to device'", "planted_test.cpp:"});
  }

  TEST_CASE("an event that is recorded before the copy was launched orders nothing") {
    expect_planted({.records_after_copy = false},
                   {"unordered access", "'square'", "'cudaMemcpyAsync host to device'"});
  }

  TEST_CASE("a wait that is missing between a kernel and the copy back is reported") {
    expect_planted({.waits_for_kernel = false},
                   {"unordered access", "'square'", "'cudaMemcpyAsync device to host'"});
  }

  TEST_CASE("a result that the host reads before it waited is reported") {
    expect_planted({.synchronises = false}, {"unordered access", "'host read' (the host)",
                                             "'cudaMemcpyAsync device to host'"});
  }

  TEST_CASE("a block that is used again while another stream reads it unnoted is reported") {
    expect_reported({"unordered access", "device 0, stream 0 'compute')",
                     "the read by 'cudaMemcpyAsync device to host' (op 8, device 0, stream 1 "
                     "'copy')"},
                    [] {
                      const Stream copy = gpu().make_stream("copy");
                      const Tensor received = pinned({kNumel}, DType::Float32, kGpu);
                      Tensor sent = counted_on_gpu(kNumel);
                      const void* const address = sent.view().data;
                      copy.wait(gpu().compute_stream());
                      // The address was asked for under another stream than this one.
                      gpu().api()->copy(received.view().data, address, kNbytes, copy.handle());
                      sent = {};
                      CHECK(counted_on_gpu(kNumel, 5).view().data == address);
                      copy.synchronize();
                    });
  }

  TEST_CASE("bytes that the next owner writes while another stream reads them are reported") {
    expect_reported({"unordered access", "'cudaMemcpyAsync host to device'",
                     "'cudaMemcpyAsync device to host'"},
                    [] {
                      const Stream copy = gpu().make_stream("copy");
                      const Tensor received = pinned({kNumel}, DType::Float32, kGpu);
                      const Tensor x = counted_on_gpu(kNumel);
                      copy.wait(gpu().compute_stream());
                      gpu().api()->copy(received.view().data, x.view().data, kNbytes,
                                        copy.handle());
                      copy_async(x, counted(kNumel, 5));
                      copy.synchronize();
                    });
  }

  TEST_CASE("a pinned tensor that is used again before its copy ended is reported") {
    expect_reported({"unordered access", "'host write' (the host)",
                     "'cudaMemcpyAsync host to device'", "cudaMallocHost #1"},
                    [] {
                      const Tensor x = empty_on_gpu(kNumel);
                      {
                        const Tensor host = counted(kNumel);
                        // As copy_async(), without its notes.
                        gpu().api()->copy(x.view().data, host.view().data, kNbytes,
                                          gpu().compute_stream().handle());
                      }
                      CHECK(counted(kNumel, 9).numel() == kNumel);
                      gpu().compute_stream().synchronize();
                    });
  }

  TEST_CASE("a read of a tensor that nobody wrote is reported") {
    expect_reported(
        {"uninitialised read", "'cudaMemcpyAsync device to host'", "byte 0 of cudaMalloc #1"},
        [] { empty_on_gpu(kNumel).to_vector(); });
  }

  TEST_CASE("what the last owner of a block wrote is not the next one's") {
    expect_reported({"uninitialised read", "'square'", "byte 0 of cudaMalloc #1"}, [] {
      counted_on_gpu(kNumel);
      const Tensor x = empty_on_gpu(kNumel);
      const Tensor y = empty_on_gpu(kNumel);
      kernels::map(y.launch(), kernels::Square{}, y.view(), x.view());
    });
  }

  TEST_CASE("one element behind a tensor is reported, though the block has room for it") {
    const std::vector<std::string_view> texts{"out of bounds", "byte 20 of cudaMalloc #1",
                                              "belongs to nobody"};
    static_assert(5 * sizeof(float) < kAlignment);
    expect_reported({"write by 'fill'", texts[0], texts[1], texts[2]},
                    [] { fill(too_long(empty_on_gpu(5))); });
    expect_reported({"read by 'copy'", texts[0], texts[1], texts[2]}, [] {
      const Tensor x = counted_on_gpu(5);
      const Tensor y = empty_on_gpu(6);
      kernels::copy(y.launch(), y.view(), too_long(x));
    });
  }

  TEST_CASE("bytes that are used after their release are reported") {
    expect_reported({"out of bounds: write by 'fill'", "byte 0 of cudaMalloc #1", "was given back"},
                    [] {
                      const Tensor x = counted_on_gpu(kNumel);
                      const View view = x.view();
                      x.storage()->release();
                      CHECK_THROWS_AS(x.view(), StorageError);
                      fill(view);
                    });
    expect_reported({"use after free", "write by 'fill'", "byte 0 of cudaMalloc #1", "freed"}, [] {
      const Tensor x = counted_on_gpu(kNumel);
      const View view = x.view();
      x.storage()->release();
      gpu().allocator().release_cached();
      fill(view);
    });
  }

  TEST_CASE("memory of the device that the host reads is reported") {
    expect_reported({"host access to device memory", "host read of byte 0 of cudaMalloc #1"}, [] {
      const Tensor x = counted_on_gpu(kNumel);
      gpu().compute_stream().synchronize();
      fakecuda::check_host_access(x.view().data, sizeof(float), fakecuda::Access::Read);
    });
  }

  TEST_CASE("a program that reads memory of the device on the host ends, and is told where") {
    for (std::uint64_t seed = 0; seed < num_orders(); ++seed) {
      CAPTURE(seed);
      const fakecuda::Ending ending = fakecuda::run_in_child([&] {
        const fakecuda::Session session({.seed = seed});
        RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
        const ContextGuard bound(context);
        const Tensor x = counted_on_gpu(kNumel);
        gpu().compute_stream().synchronize();
        const float value = static_cast<const volatile float*>(x.view().data)[2];
        static_cast<void>(value);
      });
      CAPTURE(ending.text);
      CHECK(ending.status == fakecuda::kHostAccessExit);
      CHECK(ending.text.find("host read of device memory: byte 8 of cudaMalloc #1") !=
            std::string::npos);
    }
  }
}

}  // namespace fsdptrain::testing
