#include "runtime/base/rank_context.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/base/error.h"

namespace fsdptrain {
namespace {

// Sets FSDPTRAIN_ISA while it lives.
class IsaVariable {
 public:
  explicit IsaVariable(const char* value) {
    const char* const old = std::getenv(kName);
    had_ = old != nullptr;
    old_ = had_ ? old : "";
    setenv(kName, value, 1);
  }
  IsaVariable(const IsaVariable&) = delete;
  IsaVariable& operator=(const IsaVariable&) = delete;
  ~IsaVariable() {
    if (had_) {
      setenv(kName, old_.c_str(), 1);
    } else {
      unsetenv(kName);
    }
  }

 private:
  static constexpr const char* kName = "FSDPTRAIN_ISA";
  bool had_ = false;
  std::string old_;
};

}  // namespace

TEST_SUITE("runtime/base/rank_context") {
  TEST_CASE("a thread without a context is told to bind one") {
    std::string text;
    std::thread([&] {
      try {
        current_context();
      } catch (const Error& error) {
        text = error.what();
      }
      CHECK(bound_log_prefix().empty());
    }).join();
    CHECK(text.starts_with("no rank context is bound to this thread: create a RankContext"));
  }

  TEST_CASE("guards nest and unbind in reverse order") {
    RankContext* const outermost = &current_context();
    RankContext first({.threads = 1, .isa = {}, .log_prefix = "[rank 1] "});
    RankContext second({.threads = 3, .isa = {}, .log_prefix = "[rank 2] "});
    {
      const ContextGuard outer(first);
      CHECK(&current_context() == &first);
      {
        const ContextGuard inner(second);
        CHECK(&current_context() == &second);
        CHECK(bound_log_prefix() == "[rank 2] ");
        CHECK(current_context().pool().threads() == 3);
      }
      CHECK(&current_context() == &first);
      CHECK(bound_log_prefix() == "[rank 1] ");
    }
    CHECK(&current_context() == outermost);
  }

  TEST_CASE("a context is bound to one thread at a time") {
    RankContext context({.threads = 1, .isa = {}, .log_prefix = "[rank 7] "});
    const auto bind_elsewhere = [&] {
      std::string text;
      std::thread([&] {
        try {
          const ContextGuard guard(context);
        } catch (const Error& error) {
          text = error.what();
        }
      }).join();
      return text;
    };
    CHECK(bind_elsewhere().empty());
    {
      const ContextGuard outer(context);
      { const ContextGuard inner(context); }
      CHECK(bind_elsewhere().starts_with(
          "ContextGuard: the rank context [rank 7] is bound on another thread"));
    }
    CHECK(bind_elsewhere().empty());
    const ContextGuard again(context);
    CHECK(&current_context() == &context);
  }

  TEST_CASE("a variant that this CPU cannot run is refused") {
    CHECK_THROWS_WITH_AS(
        RankContext({.threads = 1, .isa = static_cast<Isa>(200), .log_prefix = {}}),
        doctest::Contains("isa: this CPU cannot run invalid isa"), ConfigError);
  }

  TEST_CASE("contexts share no allocator and know no memory on CUDA") {
    RankContext first({.threads = 1, .isa = {}, .log_prefix = {}});
    RankContext second({.threads = 1, .isa = {}, .log_prefix = {}});
    CHECK(&first.allocator(Device::cpu()) != &second.allocator(Device::cpu()));
    CHECK(&first.allocator(Device::cpu()) != &first.allocator(Device::meta()));
    const Launch launch = first.launch(Device::cpu());
    CHECK(launch.pool == &first.pool());
    CHECK(launch.allocator == &first.allocator(Device::cpu()));
    CHECK(launch.isa == first.isa());
    CHECK_THROWS_WITH_AS(first.allocator(Device::cuda(0)),
                         doctest::Contains("cuda:0: this program was built without CUDA"),
                         DeviceError);
  }

  TEST_CASE("FSDPTRAIN_ISA takes a variant that this CPU has and refuses one that it lacks") {
    for (const Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512}) {
      const std::string name(name_of(isa));
      CAPTURE(name);
      const IsaVariable variable(name.c_str());
      if (std::ranges::count(supported_isas(), isa) == 1) {
        CHECK(select_isa() == isa);
      } else {
        CHECK_THROWS_WITH_AS(select_isa(), doctest::Contains(("got \"" + name + "\"").c_str()),
                             ConfigError);
      }
    }
  }

  TEST_CASE("FSDPTRAIN_ISA chooses the variant and refuses unknown names") {
    {
      const IsaVariable variable("baseline");
      CHECK(select_isa() == Isa::Baseline);
      CHECK(RankContext({.threads = 1, .isa = {}, .log_prefix = {}}).isa() == Isa::Baseline);
    }
    const IsaVariable variable("avx1024");
    CHECK_THROWS_WITH_AS(
        select_isa(), doctest::Contains("FSDPTRAIN_ISA: this CPU can run baseline"), ConfigError);
    CHECK_THROWS_WITH_AS(RankContext({.threads = 1, .isa = {}, .log_prefix = {}}),
                         doctest::Contains("got \"avx1024\""), ConfigError);
  }
}

}  // namespace fsdptrain
