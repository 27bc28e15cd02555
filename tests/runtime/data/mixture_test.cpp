#include "runtime/data/mixture.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace fsdptrain::data {
namespace {

TEST_SUITE_BEGIN("runtime/data/mixture");

std::vector<std::uint64_t> slots(const std::vector<double>& weights) {
  const Mixture mixture(weights, 1);
  std::vector<std::uint64_t> slots;
  for (std::size_t source = 0; source < weights.size(); ++source) {
    slots.push_back(mixture.num_slots(source));
  }
  return slots;
}

TEST_CASE("slots follow the weights, by largest remainder") {
  CHECK(slots({1}) == std::vector<std::uint64_t>{1024});
  CHECK(slots({0.5, 0.5}) == std::vector<std::uint64_t>{512, 512});
  CHECK(slots({3, 1}) == std::vector<std::uint64_t>{768, 256});
  // 341.33 each: the remaining slot goes to the first.
  CHECK(slots({7, 7, 7}) == std::vector<std::uint64_t>{342, 341, 341});
  // 102.4, 204.8, 716.8: the remaining two go to the larger remainders.
  CHECK(slots({0.1, 0.2, 0.7}) == std::vector<std::uint64_t>{102, 205, 717});
  CHECK(slots({1, 0, 1}) == std::vector<std::uint64_t>{512, 0, 512});
  CHECK(slots({1023, 1}) == std::vector<std::uint64_t>{1023, 1});
}

TEST_CASE("every block has the slots of the weights exactly, in an order of its own") {
  const std::vector<double> weights{0.1, 0, 0.2, 0.7};
  const Mixture mixture(weights, 3);
  std::vector<std::size_t> last_order;
  for (std::uint64_t block = 0; block < 20; ++block) {
    std::vector<std::uint64_t> counts(weights.size());
    std::vector<std::size_t> order;
    for (std::uint64_t slot = 0; slot < Mixture::kSlots; ++slot) {
      order.push_back(mixture(block * Mixture::kSlots + slot).source);
      ++counts[order.back()];
    }
    CHECK(counts == slots(weights));
    CHECK(order != last_order);
    last_order = order;
  }
}

TEST_CASE("a source's samples are numbered without a gap, block after block") {
  const Mixture mixture(std::vector<double>{3, 2, 1}, 8);
  std::vector<std::vector<bool>> seen(3, std::vector<bool>(10 * Mixture::kSlots));
  for (std::uint64_t number = 0; number < 10 * Mixture::kSlots; ++number) {
    const Mixture::Place place = mixture(number);
    CHECK(place.number / mixture.num_slots(place.source) == number / Mixture::kSlots);
    REQUIRE_FALSE(seen[place.source][place.number]);
    seen[place.source][place.number] = true;
  }
  for (std::size_t source = 0; source < 3; ++source) {
    const auto count = static_cast<std::ptrdiff_t>(10 * mixture.num_slots(source));
    CHECK(std::count(seen[source].begin(), seen[source].begin() + count, true) == count);
  }
}

TEST_CASE("slots add up for random weights, and none is off by one or more") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::vector<double> weights;
    double sum = 0;
    for (std::uint64_t i = 0; i <= seed % 9; ++i) {
      weights.push_back(0.05 + to_unit_interval(philox(i, seed, 1).word[0]));
      sum += weights.back();
    }
    std::uint64_t all = 0;
    const auto counts = slots(weights);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double quota = weights[i] / sum * 1024;
      CHECK(static_cast<double>(counts[i]) > quota - 1);
      CHECK(static_cast<double>(counts[i]) < quota + 1);
      all += counts[i];
    }
    CHECK(all == 1024);
  }
}

TEST_CASE("the seed decides the order") {
  const std::vector<double> weights{1, 1};
  int equal = 0;
  for (std::uint64_t number = 0; number < 1024; ++number) {
    equal += Mixture(weights, 1)(number).source == Mixture(weights, 2)(number).source ? 1 : 0;
  }
  CHECK(equal > 400);
  CHECK(equal < 624);
}

TEST_CASE("weights that cannot be are refused, and one too small is told the least") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& weights :
       {std::vector<double>{-1, 2}, {nan}, {std::numeric_limits<double>::infinity()}}) {
    CHECK_THROWS_WITH_AS(Mixture(weights, 1), doctest::Contains("must be a number from 0 on, got"),
                         ConfigError);
  }
  for (const std::vector<double>& weights : {std::vector<double>{}, {0, 0}}) {
    CHECK_THROWS_WITH_AS(Mixture(weights, 1), doctest::Contains("a positive sum, got 0"),
                         ConfigError);
  }
  try {
    const Mixture mixture(std::vector<double>{1, 1e-6, 2}, 1);
    FAIL("a weight without a slot was taken");
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    const std::string before = "the smallest possible weight beside the others is ";
    CHECK(text.find("the weight 1e-06 of source 1 is less than one of 1024") != std::string::npos);
    REQUIRE(text.find(before) != std::string::npos);
    const double least = std::strtod(text.c_str() + text.find(before) + before.size(), nullptr);
    CHECK(least == doctest::Approx(3.0 / 1023).epsilon(1e-5));
    CHECK(slots({1, least, 2})[1] == 1);
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
