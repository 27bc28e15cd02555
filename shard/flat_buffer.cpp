#include "shard/flat_buffer.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <utility>

#include "kernels/copy.h"
#include "kernels/segments.h"
#include "runtime/autograd/meta.h"
#include "runtime/nn/init.h"

namespace fsdptrain::shard {
namespace {

// Elements of a flat tensor.
Tensor part_of(const Tensor& flat, const Range& range) {
  return flat.alias({range.size()}, Strides::contiguous({range.size()}),
                    flat.offset() + range.begin);
}

// Puts a window at its place in `whole`; on meta there is no address.
void place(Storage& window, const Range& in_buffer, const Tensor& whole) {
  auto* const base = static_cast<std::byte*>(whole.view().data);
  const std::int64_t offset = in_buffer.begin * static_cast<std::int64_t>(size_of(whole.dtype()));
  window.restore(base == nullptr ? nullptr : base + offset);
}

std::shared_ptr<Storage> make_window(const Range& in_buffer, DType dtype, Device device,
                                     std::string name) {
  auto storage =
      Storage::placed(device, static_cast<std::size_t>(in_buffer.size()) * size_of(dtype));
  storage->set_name(std::move(name));
  return storage;
}

}  // namespace

FlatBuffer::FlatBuffer(BufferLayout layout, std::span<const nn::Parameter> parameters,
                       std::span<const std::vector<std::string>> adjacent, const Options& options)
    : layout_(std::move(layout)), rank_(options.rank) {
  const Shape shape{layout_.chunk_numel()};
  const DType original = layout_.key().original;
  chunk_ = Tensor::zeros(shape, original, options.device, MemoryCategory::Parameter);
  if (trainable()) {
    gradients_ =
        ChunkGradients(Tensor::zeros(shape, original, options.device, MemoryCategory::Gradient),
                       options.accumulation);
  }
  add_windows(parameters, adjacent, options.device);
  for (std::size_t i = 0; i < layout_.placements().size(); ++i) {
    const nn::Parameter& parameter = parameters[layout_.placements()[i].parameter];
    initialize_part(i, parameter, options.seed);
    add_member(i, parameter, options.owner);
  }
}

Tensor FlatBuffer::own_part(const Tensor& whole) const {
  const std::int64_t begin = layout_.chunk_numel() * rank_;
  return part_of(whole, {begin, begin + layout_.chunk_numel()});
}

void FlatBuffer::add_windows(std::span<const nn::Parameter> parameters,
                             std::span<const std::vector<std::string>> adjacent, Device device) {
  std::vector<std::vector<std::string>> names;
  for (const Placement& placement : layout_.placements()) {
    const std::string& name = parameters[placement.parameter].name;
    // The layout has kept sets together, in their order.
    const bool follows = std::ranges::any_of(adjacent, [&](const std::vector<std::string>& set) {
      return std::ranges::find(set, name) > set.begin() &&
             std::ranges::find(set, name) != set.end();
    });
    if (!follows) {
      windows_.push_back({.in_buffer = placement.in_buffer, .parameters = {}, .gradients = {}});
      names.emplace_back();
    }
    windows_.back().in_buffer.end = placement.in_buffer.end;
    names.back().push_back(name);
    window_of_.push_back(windows_.size() - 1);
  }
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    Window& window = windows_[i];
    const std::string all = fmt::format("{}", fmt::join(names[i], ", "));
    window.parameters =
        make_window(window.in_buffer, layout_.key().gathered, device,
                    "the sharded parameter " + all +
                        ", gathered only within its module's forward and backward,");
    if (trainable()) {
      window.gradients =
          make_window(window.in_buffer, *layout_.key().reduce, device, "the gradient of " + all);
    }
  }
}

void FlatBuffer::initialize_part(std::size_t index, const nn::Parameter& parameter,
                                 std::uint64_t seed) {
  const LocalRange local = layout_.local_range(layout_.placements()[index], rank_);
  if (local.in_chunk.size() == 0) {
    return;
  }
  nn::initialize(part_of(chunk_, local.in_chunk), parameter.name, parameter.spec.init, seed,
                 local.in_parameter.begin);
  segments_.push_back({.name = parameter.name,
                       .begin = local.in_chunk.begin,
                       .end = local.in_chunk.end,
                       .lr_scale = parameter.spec.lr_scale,
                       .decay = parameter.spec.decay});
  member_of_.push_back(index);
}

void FlatBuffer::add_member(std::size_t index, const nn::Parameter& parameter,
                            const autograd::OwnerRef& owner) {
  const Placement& placement = layout_.placements()[index];
  const Window& window = windows_[window_of_[index]];
  const Shape shape = parameter.tensor->shape();
  const auto seen_through = [&](const std::shared_ptr<Storage>& storage, DType dtype) {
    return Tensor::over(storage, dtype, shape, Strides::contiguous(shape),
                        placement.in_buffer.begin - window.in_buffer.begin);
  };
  Member& member = members_.emplace_back();
  member.parameter = placement.parameter;
  member.values = seen_through(window.parameters, layout_.key().gathered);
  if (!trainable()) {
    return;
  }
  member.slot = std::make_shared<autograd::GradientSlot>();
  member.slot->buffer = seen_through(window.gradients, *layout_.key().reduce);
  member.slot->owner = owner;
  member.values.set_requires_grad(true);
  autograd::Meta& meta = *member.values.autograd_meta();
  meta.name = parameter.name;
  meta.owner = owner;
  meta.slot = autograd::SlotView{member.slot->buffer, {member.slot}, true};
}

void FlatBuffer::mark_active(std::span<nn::Segment> segments) const {
  for (std::size_t i = 0; i < segments.size(); ++i) {
    segments[i].active = members_[member_of_[i]].has_gradient;
  }
}

std::vector<Range> FlatBuffer::ranges_of_gradients() const {
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    // A reduction brings zeros where no rank has a gradient.
    if (gradients_.has_sum() || members_[member_of_[i]].has_gradient) {
      ranges.push_back({segments_[i].begin, segments_[i].end});
    }
  }
  return ranges;
}

void FlatBuffer::place_parameters(const Tensor& whole) {
  for (const Window& window : windows_) {
    place(*window.parameters, window.in_buffer, whole);
  }
}

void FlatBuffer::release_parameters() {
  for (const Window& window : windows_) {
    window.parameters->release();
  }
}

void FlatBuffer::place_gradients(const Tensor& whole) {
  for (const Window& window : windows_) {
    place(*window.gradients, window.in_buffer, whole);
  }
  gradients_placed_ = true;
}

void FlatBuffer::release_gradients() {
  if (!gradients_placed_) {
    return;
  }
  for (const Window& window : windows_) {
    window.gradients->release();
  }
  gradients_placed_ = false;
}

void FlatBuffer::note_gradients() {
  for (Member& member : members_) {
    member.has_gradient = member.has_gradient || member.slot->written;
  }
}

void FlatBuffer::complete_gradients(const Tensor& whole) {
  note_gradients();
  std::vector<Range> unwritten = layout_.gaps();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    autograd::GradientSlot& slot = *members_[i].slot;
    if (!slot.written && slot.buffer.numel() > 0) {
      unwritten.push_back(layout_.placements()[i].in_buffer);
    }
    slot.written = false;
    slot.ahead = 0;
  }
  kernels::zero_segments(whole.launch(), whole.view(), unwritten);
}

void FlatBuffer::accumulate(const Tensor& whole, std::size_t number) {
  gradients_.add(own_part(whole), number);
}

void FlatBuffer::forget_gradients() {
  gradients_.forget();
  for (Member& member : members_) {
    member.has_gradient = false;
    if (member.slot) {
      member.slot->written = false;
      member.slot->ahead = 0;
    }
  }
}

}  // namespace fsdptrain::shard
