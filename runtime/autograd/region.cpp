#include "runtime/autograd/region.h"

#include <algorithm>
#include <utility>

#include "runtime/autograd/node.h"
#include "runtime/autograd/value_watch.h"
#include "runtime/base/error.h"

namespace fsdptrain::autograd {
namespace {

// What name_saved() calls the tensors that a region itself saves where it lies in another one.
constexpr std::string_view kRegion = "a recomputed region";

// Makes a frame the innermost one for the lifetime of the guard.
class FrameGuard {
 public:
  explicit FrameGuard(RegionFrame* frame)
      : state_(current_context().autograd), previous_(state_.region) {
    state_.region = frame;
  }
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;
  ~FrameGuard() { state_.region = previous_; }

 private:
  AutogradState& state_;
  RegionFrame* previous_;
};

// The random keys and the gradient mode of a forward for the lifetime of the guard.
class ForwardStateGuard {
 public:
  explicit ForwardStateGuard(const RandomKeys& random)
      : context_(current_context()),
        random_(context_.random),
        grad_enabled_(context_.autograd.grad_enabled) {
    context_.random = random;
    context_.autograd.grad_enabled = true;
  }
  ForwardStateGuard(const ForwardStateGuard&) = delete;
  ForwardStateGuard& operator=(const ForwardStateGuard&) = delete;
  ~ForwardStateGuard() {
    context_.random = random_;
    context_.autograd.grad_enabled = grad_enabled_;
  }

 private:
  RankContext& context_;
  RandomKeys random_;
  bool grad_enabled_;
};

std::shared_ptr<Node> make_replay_producer() {
  auto node = std::make_shared<Node>();
  node->op = "a replay";
  node->backward = [](const Tensor&, GradientSink&) -> Gradients {
    fail<AutogradError>("tensors of a replay have no graph: the forward has recorded it");
  };
  return node;
}

// Calls fn(region) for every region whose forward is under way.
template <class Fn>
void for_recording(const Fn& fn) {
  for (const RegionFrame* frame = current_context().autograd.region;
       frame != nullptr && frame->mode == RegionMode::Record; frame = frame->outer) {
    fn(frame->region);
  }
}

void name_saved_here(std::string_view op) {
  if (const RegionFrame* const frame = current_context().autograd.region) {
    frame->region.name_saved(frame->mode, op);
  }
}

}  // namespace

const Tensor& Cell::read() {
  if (!value_.defined()) {
    region_->replay();
  }
  return value_.get();
}

Region::Region(const std::vector<Tensor>& inputs, RegionBody body, RecomputeOptions options)
    : body_(std::move(body)),
      options_(std::move(options)),
      random_(current_context().random),
      module_(watched_module_path()) {
  for (const Tensor& input : inputs) {
    Input& saved = inputs_.emplace_back();
    saved.values = SavedTensor(input);
    if (input.requires_grad()) {
      saved.has_history = !input.is_leaf();
      saved.leaf = saved.has_history ? nullptr : input.autograd_meta();
    }
  }
  for (const ParameterOwner* const owner : current_context().autograd.open_owners) {
    note_owner(*owner);
  }
  if (!options_.keep_optional) {
    unseen_ = options_.keep;
  }
  name_saved_here(kRegion);
}

std::vector<Tensor> Region::run(const std::vector<Tensor>& inputs) {
  RegionFrame* const outer = current_context().autograd.region;
  RegionFrame frame{*this, RegionMode::Record, outer, nullptr};
  if (replaying()) {
    frame.mode = RegionMode::Discard;
    frame.producer = outer->producer;
  }
  const FrameGuard inside(&frame);
  std::vector<Tensor> outputs = body_(inputs);
  for (Constant& constant : constants_) {
    if (const auto storage = constant.storage.lock()) {
      constant.version = storage->version();
    }
  }
  check<AutogradError>(unseen_.empty(),
                       "recompute of {}: the outputs of {} are to be kept, but its forward ran no "
                       "such op: correct the name, or set keep_optional",
                       options_.name, unseen_.empty() ? "" : unseen_.front());
  state_ = State::Ready;
  return outputs;
}

void Region::replay() {
  check<AutogradError>(state_ != State::Forward,
                       "recompute of {}: a saved tensor was read before its forward was done",
                       options_.name);
  // The replay under way names the region.
  check<AutogradError>(state_ != State::Replaying,
                       "the body reads a saved tensor that its replay is to bring back");
  const std::shared_ptr<Node> producer = make_replay_producer();
  try {
    const std::vector<Tensor> inputs = inputs_again(producer);
    check_unchanged();
    state_ = State::Replaying;
    replay_body(inputs, producer);
    state_ = State::Ready;
  } catch (Error& error) {
    state_ = State::Ready;
    empty_cells();
    error.add_context(fmt::format("recompute of {}", options_.name));
    throw;
  } catch (...) {
    state_ = State::Ready;
    empty_cells();
    throw;
  }
  AutogradState& state = current_context().autograd;
  if (state.pass != nullptr) {
    state.replayed.push_back(weak_from_this());
  }
}

void Region::replay_body(const std::vector<Tensor>& inputs, const std::shared_ptr<Node>& producer) {
  num_saved_ = num_named_ = num_kept_ = 0;
  RegionFrame frame{*this, RegionMode::Replay, current_context().autograd.region, producer};
  const FrameGuard inside(&frame);
  const ForwardStateGuard as_in_forward(random_);
  const ModuleScope where(module_, nullptr);
  body_(inputs);
  check<AutogradError>(num_saved_ == saved_.size(),
                       "the forward saved {} tensors and the replay {}: saved tensor {}, of {}, is "
                       "missing",
                       saved_.size(), num_saved_, num_saved_, saved_[num_saved_].op);
}

std::vector<Tensor> Region::inputs_again(const std::shared_ptr<Node>& producer) const {
  std::vector<Tensor> inputs;
  for (const Input& input : inputs_) {
    Tensor& tensor = inputs.emplace_back();
    if (!input.values.defined()) {
      continue;
    }
    tensor = input.values.get();
    if (input.has_history) {
      auto meta = make_leaf(tensor);
      meta->producer = producer;
      tensor.set_autograd_meta(std::move(meta));
    } else {
      tensor.set_autograd_meta(input.leaf);
    }
  }
  return inputs;
}

void Region::empty_cells() {
  for (const Saved& saved : saved_) {
    if (const auto cell = saved.cell.lock()) {
      cell->empty();
    }
  }
}

std::shared_ptr<Cell> Region::save(RegionMode mode, const Tensor& tensor) {
  if (mode == RegionMode::Record) {
    auto cell = std::make_shared<Cell>(shared_from_this());
    saved_.push_back({cell, tensor.shape(), tensor.dtype(), "an unknown op"});
    ++num_saved_;
    return cell;
  }
  const std::size_t index = num_saved_++;
  check<AutogradError>(index < saved_.size(),
                       "the forward saved {} tensors, but the replay one more, of shape {} and {}",
                       saved_.size(), tensor.shape(), tensor.dtype());
  const Saved& expected = saved_[index];
  check<AutogradError>(
      tensor.shape() == expected.shape && tensor.dtype() == expected.dtype,
      "saved tensor {}, of {}, had shape {} and {} in the forward, but has {} and {} in the replay",
      index, expected.op, expected.shape, expected.dtype, tensor.shape(), tensor.dtype());
  if (const auto cell = expected.cell.lock()) {
    cell->fill(tensor);
  }
  return nullptr;
}

void Region::name_saved(RegionMode mode, std::string_view op) {
  for (; num_named_ < num_saved_; ++num_named_) {
    std::string_view& named = saved_[num_named_].op;
    if (mode == RegionMode::Record) {
      named = op;
    }
    check<AutogradError>(named == op,
                         "saved tensor {} was of {} in the forward, but is of {} in the replay",
                         num_named_, named, op);
  }
}

void Region::note_read(const std::vector<Tensor>& inputs) {
  for (const Tensor& input : inputs) {
    const auto& meta = input.autograd_meta();
    if (input.defined() && !meta) {
      constants_.push_back({input.storage(), input.shape(), input.storage()->version()});
    } else if (meta && meta->producer == nullptr &&
               std::ranges::find(leaves_, meta, &Leaf::meta) == leaves_.end()) {
      leaves_.push_back({meta, SavedTensor::holding(input)});
    }
  }
}

void Region::note_owner(const ParameterOwner& owner) {
  owners_.push_back({owner.reference(), owner.epoch()});
}

void Region::check_unchanged() const {
  for (const auto& [owner, epoch] : owners_) {
    const std::uint64_t now = owner.of("of a recomputed region").epoch();
    check<AutogradError>(now == epoch,
                         "parameters were changed between forward and backward (parameter epoch "
                         "{} then, {} now): run the backward before the optimizer step",
                         epoch, now);
  }
  for (const Leaf& leaf : leaves_) {
    leaf.values.get();
  }
  for (const Constant& constant : constants_) {
    const auto storage = constant.storage.lock();
    check<AutogradError>(!storage || storage->version() == constant.version,
                         "a tensor of shape {} that the region reads was changed in place between "
                         "forward and backward (version {} then, {} now)",
                         constant.shape, constant.version, storage ? storage->version() : 0);
  }
}

bool Region::keeps(std::string_view op) const {
  return std::ranges::find(options_.keep, op) != options_.keep.end();
}

void Region::keep(const RegionFrame& frame, std::string_view op,
                  const std::vector<Tensor>& outputs) {
  // A region around this one may leave them out in its turn.
  const FrameGuard outside(frame.outer);
  std::vector<SavedTensor> saved(outputs.begin(), outputs.end());
  name_saved_here(kRegion);
  if (frame.mode == RegionMode::Record) {
    kept_.push_back({op, std::move(saved)});
  }
}

std::vector<Tensor> Region::hand_back(std::string_view op) {
  const std::size_t index = num_kept_++;
  check<AutogradError>(index < kept_.size() && kept_[index].op == op,
                       "the replay wants kept output {} of {}, but the forward kept {}", index, op,
                       index < kept_.size() ? kept_[index].op : "no more");
  std::vector<Tensor> outputs;
  for (const SavedTensor& output : kept_[index].outputs) {
    outputs.push_back(output.get());
  }
  return outputs;
}

std::shared_ptr<Cell> save_in_region(const Tensor& tensor) {
  const RegionFrame* const frame = current_context().autograd.region;
  if (frame == nullptr || frame->mode == RegionMode::Discard) {
    return nullptr;
  }
  return frame->region.save(frame->mode, tensor);
}

void note_recorded(std::string_view op, const std::vector<Tensor>& inputs) {
  name_saved_here(op);
  note_read(inputs);
}

void note_read(const std::vector<Tensor>& inputs) {
  for_recording([&](Region& region) { region.note_read(inputs); });
}

void note_owner(const ParameterOwner& owner) {
  for_recording([&](Region& region) { region.note_owner(owner); });
}

std::shared_ptr<Node> replay_producer() {
  const RegionFrame* const frame = current_context().autograd.region;
  return frame == nullptr ? nullptr : frame->producer;
}

void empty_replayed_regions(AutogradState& state) {
  for (const auto& replayed : std::exchange(state.replayed, {})) {
    if (const auto region = replayed.lock()) {
      region->empty_cells();
    }
  }
}

}  // namespace fsdptrain::autograd
