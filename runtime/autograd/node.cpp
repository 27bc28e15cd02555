#include "runtime/autograd/node.h"

#include <algorithm>
#include <utility>

#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/region.h"
#include "runtime/autograd/value_watch.h"

namespace fsdptrain::autograd {

GradientSink::GradientSink(const std::vector<Edge>& edges)
    : edges_(edges), in_slot_(edges.size()), posted_(edges.size()) {}

bool GradientSink::wants(int input) const {
  return edges_[static_cast<std::size_t>(input)].to != nullptr;
}

void GradientSink::post(int input, const std::function<void(const GradientTarget&)>& write) {
  if (wants(input)) {
    write(open(input));
  }
}

GradientTarget GradientSink::open(int input) {
  const auto index = static_cast<std::size_t>(input);
  const Meta& meta = *edges_[index].to;
  if (meta.slot) {
    in_slot_[index] = true;
    GradientTarget target = meta.slot->open();
    opened_.emplace_back(&*meta.slot, target);
    return target;
  }
  if (posted_[index].defined()) {
    return {posted_[index], true};
  }
  posted_[index] = Tensor::empty(meta.shape, meta.dtype, meta.device, gradient_category(meta));
  return {posted_[index], false};
}

void GradientSink::abandon() const {
  for (const auto& [slot, target] : opened_) {
    slot->abandon(target);
  }
}

Node::~Node() {
  std::vector<std::shared_ptr<Meta>> doomed;
  const auto take_edges = [&doomed](std::vector<Edge>& taken) {
    for (Edge& edge : taken) {
      doomed.push_back(std::move(edge.to));
    }
    taken.clear();
  };
  take_edges(edges);
  while (!doomed.empty()) {
    const std::shared_ptr<Meta> meta = std::move(doomed.back());
    doomed.pop_back();
    // Only the last owner of a meta and of its producer goes on down.
    if (meta.use_count() == 1 && meta->producer.use_count() == 1) {
      take_edges(meta->producer->edges);
    }
  }
}

bool records(const std::vector<Tensor>& inputs) {
  return grad_enabled() && std::ranges::any_of(inputs, &Tensor::requires_grad);
}

Tensor record(std::string_view op, Tensor output, const std::vector<Tensor>& inputs,
              BackwardFn backward) {
  note_recorded(op, inputs);
  show_op(op, output, inputs);
  if (!records(inputs)) {
    return output;
  }
  if (std::shared_ptr<Node> producer = replay_producer()) {
    auto meta = make_leaf(output);
    meta->producer = std::move(producer);
    output.set_autograd_meta(std::move(meta));
    return output;
  }
  auto node = std::make_shared<Node>();
  node->op = op;
  node->module = watched_module_path();
  node->sequence = current_context().autograd.next_sequence++;
  node->backward = std::move(backward);
  for (const Tensor& input : inputs) {
    const std::shared_ptr<Meta>& meta = input.autograd_meta();
    Edge edge{meta, {}};
    if (meta && meta->owner) {
      edge.invocation = meta->owner.of(meta->name).current_invocation();
    }
    node->edges.push_back(std::move(edge));
  }
  auto meta = make_leaf(output);
  meta->producer = std::move(node);
  output.set_autograd_meta(std::move(meta));
  return output;
}

Tensor record_view(std::string_view op, const Tensor& base,
                   const std::function<Tensor(const Tensor&)>& view, BackwardFn backward) {
  Tensor output = view(base.detach());
  const std::shared_ptr<Meta>& meta = base.autograd_meta();
  if (!grad_enabled() || !meta) {
    note_read({base});
    return output;
  }
  if (!meta->slot) {
    return record(op, std::move(output), {base}, std::move(backward));
  }
  auto shown = make_leaf(output);
  shown->name = meta->name;
  shown->owner = meta->owner;
  shown->leaves = meta->leaves.empty() ? std::vector{meta} : meta->leaves;
  shown->slot = SlotView{view(meta->slot->destination), meta->slot->slots,
                         meta->slot->whole && output.numel() == base.numel()};
  output.set_autograd_meta(std::move(shown));
  return output;
}

}  // namespace fsdptrain::autograd
