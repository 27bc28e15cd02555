#include "shard/sharded_model.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <set>
#include <span>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/tensor/transfer.h"

// What units do together.
namespace fsdptrain::shard {

namespace {

ShardedModel::Options checked(ShardedModel::Options options, const comm::ProcessGroup& ranks) {
  const int num_replicas = options.replicas == nullptr ? 1 : options.replicas->size();
  check<ConfigError>(ranks.size() == 1 || num_replicas == 1,
                     "fully_shard: {} replicas of a model that is sharded over {} ranks: hybrid "
                     "sharding is not there yet, one of the two must be 1",
                     num_replicas, ranks.size());
  if (num_replicas == 1) {
    options.replicas = nullptr;
  }
  return options;
}

}  // namespace

ShardedModel::ShardedModel(nn::Module& model, comm::ProcessGroup& ranks, const Options& options)
    : model_(model),
      ranks_(ranks),
      options_(checked(options, ranks)),
      parameters_(nn::with_rules(model.parameters(), options.rules)),
      pool_(ranks),
      context_(pool_, {.prefetch = options.prefetch}) {}

ShardedModel::~ShardedModel() {
  // The whole before its parts, as hooks were added the other way round.
  while (!units_.empty()) {
    units_.pop_back();
  }
}

void ShardedModel::decide_root(ShardedUnit& unit) {
  for (const auto& other : units_) {
    check<AutogradError>(unit.contains(*other),
                         "fully_shard: {} runs before the model that it and {} are part of: call "
                         "the model, and shard it by the last call of fully_shard()",
                         unit.name(), other->name());
  }
  check<ConfigError>(unit.modules().size() == 1,
                     "fully_shard: {} are a list and contain all other units: the root is one "
                     "module",
                     unit.name());
  std::vector<std::string> unowned;
  for (const nn::Parameter& parameter : parameters_) {
    if (nn::is_unplaced(*parameter.tensor)) {
      unowned.push_back(parameter.name);
    }
  }
  check<AutogradError>(unowned.empty(),
                       "fully_shard: no call has taken {}: they have no values. Shard the model by "
                       "the last call, and place parameters that you ignore",
                       fmt::join(unowned, ", "));
  root_ = &unit;
  for (const auto& other : units_) {
    other->become_part(other.get() == root_);
  }
  warn_of_single_unit();
}

void ShardedModel::warn_of_single_unit() const {
  std::set<std::string> parts;
  std::size_t nbytes = 0;
  for (const nn::Parameter& parameter : parameters_) {
    parts.insert(parameter.name.substr(0, parameter.name.rfind('.')));
    nbytes +=
        static_cast<std::size_t>(parameter.tensor->numel()) * size_of(parameter.tensor->dtype());
  }
  if (units_.size() == 1 && parts.size() > 2) {
    log_warning(
        "fully_shard: the model is one unit: each rank holds all of its {} bytes of parameters "
        "during forward and backward, and no gather runs beside a computation. Shard its blocks "
        "first",
        nbytes);
  }
}

void ShardedModel::enter_forward(ShardedUnit& unit) {
  if (root_ == nullptr) {
    decide_root(unit);
  }
  if (&unit == root_) {
    if (num_running_ == 0) {
      context_.begin_forward();
    }
    ++num_running_;
    return;
  }
  check<AutogradError>(num_running_ > 0,
                       "fully_shard: {} runs outside of a forward of the model: call the model "
                       "that was sharded as a whole",
                       unit.name());
}

void ShardedModel::leave_forward(const ShardedUnit& unit) {
  if (&unit == root_ && --num_running_ == 0) {
    context_.end_forward();
  }
}

void ShardedModel::forward_failed(const ShardedUnit& unit) {
  if (&unit == root_ && --num_running_ == 0) {
    context_.forward_failed();
  }
}

std::vector<nn::FlatChunk>& ShardedModel::chunks() {
  if (!std::exchange(gave_chunks_, true)) {
    for (const auto& unit : units_) {
      const auto& of_unit = unit->group().chunks();
      chunks_.insert(chunks_.end(), of_unit.begin(), of_unit.end());
    }
  }
  mark_used();
  return chunks_;
}

void ShardedModel::bump_epoch() {
  for (const auto& unit : units_) {
    unit->group().bump_epoch();
  }
}

void ShardedModel::zero_grad() {
  reduced_used_ = {};
  for (const auto& unit : units_) {
    unit->group().zero_grad();
  }
}

std::int64_t ShardedModel::num_parameters() const {
  std::int64_t count = 0;
  for (const auto& unit : units_) {
    for (const nn::Parameter& parameter : unit->group().parameters()) {
      count += parameter.tensor->numel();
    }
  }
  return count;
}

std::vector<std::string> ShardedModel::tag_group_names() const {
  std::vector<std::string> names;
  for (const auto& unit : units_) {
    names.push_back(unit->name());
  }
  names.emplace_back("the gradient norm");
  return names;
}

void ShardedModel::set_requires_gradient_sync(bool sync) {
  for (const auto& unit : units_) {
    unit->set_requires_gradient_sync(sync, Recurse::No);
  }
}

void ShardedModel::mark_active_segments() {
  reduce_used(used(), comm::ReduceOp::Sum);
}

void ShardedModel::check_gradients_are_final() const {
  for (const auto& unit : units_) {
    check<AutogradError>(unit->group().gradients_are_final(),
                         "fully_shard: the gradients of {} are not final: "
                         "set_is_last_backward(true) comes before the last backward of a step",
                         unit->name());
  }
}

Tensor ShardedModel::used() const {
  check_gradients_are_final();
  std::vector<double> used{0};
  for (const auto& unit : units_) {
    unit->group().append_used(used);
  }
  const Shape shape{static_cast<std::int64_t>(used.size())};
  if (ranks_.device() == Device::meta()) {
    return Tensor::zeros(shape, DType::Float64, Device::meta());
  }
  Tensor numbers = Tensor::zeros(shape, DType::Float64);
  std::ranges::copy(used, numbers.mutable_values<double>().begin());
  return to_device(numbers, ranks_.device());
}

void ShardedModel::reduce_used(Tensor used, comm::ReduceOp op) {
  // Behind the groups of the units.
  const comm::Tag tag{.root = options_.root, .group = static_cast<std::uint32_t>(units_.size())};
  if (ranks_.size() > 1) {
    ranks_.issue(comm::all_reduce(used, {.op = op}, tag)).wait();
  }
  if (options_.replicas != nullptr) {
    // Not the norm, which is that of each.
    const Tensor flags = used.alias({used.numel() - 1}, Strides::contiguous({used.numel() - 1}), 1);
    options_.replicas->issue(comm::all_reduce(flags, {.op = comm::ReduceOp::Max}, tag)).wait();
  }
  reduced_used_ = std::move(used);
}

void ShardedModel::mark_used() {
  const Tensor used = std::exchange(reduced_used_, Tensor());
  if (!used.defined()) {
    return;
  }
  const bool has_others = ranks_.size() > 1 || options_.replicas != nullptr;
  // On meta they have what this one has.
  if (has_others && ranks_.device() != Device::meta()) {
    const std::vector<double> on_all = used.to_vector();
    std::span<const double> rest = std::span(on_all).subspan(1);
    for (const auto& unit : units_) {
      rest = unit->group().note_used(rest);
    }
  }
  auto chunk = chunks_.begin();
  for (const auto& unit : units_) {
    unit->group().mark_active_segments();
    for (const nn::FlatChunk& of_unit : unit->group().chunks()) {
      for (std::size_t i = 0; i < of_unit.segments.size(); ++i) {
        chunk->segments[i].active = of_unit.segments[i].active;
      }
      ++chunk;
    }
  }
}

void ShardedModel::reset_iter_state() {
  for (const auto& unit : units_) {
    unit->group().reset_iter_state();
  }
  context_.reset();
}

}  // namespace fsdptrain::shard
