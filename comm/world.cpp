#include "comm/world.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <utility>

#include "comm/error.h"
#include "comm/ranks.h"

namespace fsdptrain::comm {
namespace {

// Of a ring that nobody keeps after the process: the last operations are enough for its own errors,
// and limits on the size of files count its memory.
constexpr std::uint32_t kOwnFlightCapacity = 64;
constexpr std::uint32_t kOwnFlightNames = 8 << 10;

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

bool checks_from_environment() {
  const char* value = std::getenv("FSDPTRAIN_DEBUG");
  const std::string_view wanted = value == nullptr ? "" : value;
  check<ConfigError>(wanted.empty() || wanted == "detail",
                     "FSDPTRAIN_DEBUG: 'detail' is the one value that it may have, got '{}'",
                     wanted);
  return !wanted.empty();
}

World::World(Links links, Options options, std::optional<FlightMemory> flight)
    : options_(std::move(options)),
      ring_(flight ? std::move(*flight)
                   : FlightMemory::create(
                         {.rank = links.training->rank(), .world_size = links.training->size()},
                         {.capacity = kOwnFlightCapacity, .names_capacity = kOwnFlightNames}),
            links.training->clock()),
      // On CUDA it carries no operation of training.
      channel_(std::move(links.training),
               channel_options(options_.device == Device::cpu() ? &ring_ : nullptr)),
      control_channel_(std::move(links.control), channel_options(&ring_)) {
  const Members all{all_ranks(channel_.link().size()), channel_.link().rank()};
  control_ = make_group(control_channel_, all, "control", options_.timeout, false);
  if (options_.device != Device::cpu()) {
    device_carrier_ = nccl::make_carrier({.device = options_.device,
                                          .streams = options_.streams,
                                          .channel = &channel_,
                                          .ring = &ring_,
                                          .order = &order_,
                                          .tell_all = [this](std::string_view text) { fail(text); },
                                          .delay = options_.delay});
  }
  group_ = make_group(carrier(), all, "world", options_.timeout, options_.checks);
}

Channel::Options World::channel_options(FlightRing* ring) {
  return {.tell_all = [this](std::string_view text) { fail(text); },
          .ring = ring,
          .delay = options_.delay};
}

Carrier& World::carrier() {
  return device_carrier_ ? *device_carrier_ : channel_;
}

std::unique_ptr<ProcessGroup> World::make_group(Carrier& carrier, Members members, std::string name,
                                                Nanoseconds timeout, bool checks) {
  const std::uint64_t generation = num_made_[group_hash(name, members.ranks, 0)]++;
  return std::make_unique<ProcessGroup>(carrier, std::move(members),
                                        ProcessGroup::Options{.name = std::move(name),
                                                              .timeout = timeout,
                                                              .checks = checks,
                                                              .generation = generation,
                                                              .names = &names_});
}

std::unique_ptr<ProcessGroup> World::new_group(std::vector<int> ranks, std::string name) {
  return new_group(std::move(ranks), std::move(name), options_.timeout);
}

std::unique_ptr<ProcessGroup> World::new_group(std::vector<int> ranks, std::string name,
                                               Nanoseconds timeout) {
  const int index = index_in_group(name, ranks, rank(), size());
  return make_group(carrier(), Members{std::move(ranks), index}, std::move(name), timeout,
                    options_.checks);
}

std::vector<std::string> World::exchange(std::string_view text) {
  const auto num_ranks = static_cast<std::size_t>(size());
  const Tensor size_tensor = Tensor::of({static_cast<double>(text.size())}, DType::Int64);
  const Tensor sizes = Tensor::empty({size()}, DType::Int64);
  control_->issue(all_gather(sizes, size_tensor)).wait();
  const auto values = sizes.values<std::int64_t>();
  Counts counts(values.begin(), values.end());
  const Tensor mine = Tensor::empty({counts[static_cast<std::size_t>(rank())]}, DType::UInt8);
  std::ranges::copy(std::as_bytes(std::span(text)), mine.mutable_bytes().begin());
  const Tensor all =
      Tensor::empty({std::accumulate(counts.begin(), counts.end(), std::int64_t{0})}, DType::UInt8);
  control_->issue(all_gatherv(all, mine, counts)).wait();
  std::vector<std::string> texts;
  std::string_view rest(reinterpret_cast<const char*>(all.bytes().data()), all.bytes().size());
  for (std::size_t i = 0; i < num_ranks; ++i) {
    texts.emplace_back(rest.substr(0, static_cast<std::size_t>(counts[i])));
    rest.remove_prefix(static_cast<std::size_t>(counts[i]));
  }
  return texts;
}

void World::name_group(std::uint32_t root, std::uint32_t group, const std::string& name) {
  names_.set(root, group, name);
  ring_.name_group(root, group, name);
}

void World::finish() {
  carrier().finish();
}

void World::check_order() {
  if (!device_carrier_) {
    return;
  }
  const OrderDigest& mine = order_.digest();
  std::vector<OrderDigest> digests;
  for (const std::string& text : exchange({reinterpret_cast<const char*>(&mine), sizeof mine})) {
    check<ProtocolError>(text.size() == sizeof mine, "the digest of an order has {} bytes, got {}",
                         sizeof mine, text.size());
    std::memcpy(&digests.emplace_back(), text.data(), sizeof mine);
  }
  // All ranks see the same, and so all of them go on or none.
  if (orders_differ(digests)) {
    fsdptrain::fail<MismatchError>("{}", order_difference(digests, exchange(order_.recent())));
  }
}

void World::fail(std::string_view reason) noexcept {
  channel_.link().report_failure(reason);
  control_channel_.link().report_failure(reason);
}

}  // namespace fsdptrain::comm
