#include "checkpoint/load/restore.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "kernels/copy.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/transfer.h"

namespace fsdptrain::checkpoint {
namespace {

// Of host memory that values pass through; more where one tensor's part is larger.
constexpr std::int64_t kMaxDetourBytes = std::int64_t{64} << 20;

// Values that do not go straight to where they are wanted.
struct Detour {
  Tensor stored;
  Tensor target;
};

class Reading {
 public:
  explicit Reading(CheckpointReader& reader) : reader_(reader) {}

  void add(const Match& match, const StatePlane& plane, const StateTensor& tensor) {
    const Tensor target = tensor.part.values_in(plane.values);
    if (target.numel() == 0) {
      return;
    }
    Tensor stored = target;
    if (target.device() != Device::cpu() || target.dtype() != match.saved_dtype) {
      stored = pinned_like(target, match.saved_dtype);
      detours_.push_back({stored, target});
      detour_nbytes_ += static_cast<std::int64_t>(stored.bytes().size());
    }
    wants_.push_back({.tensor = match.saved,
                      .plane = plane.name,
                      .elements = tensor.part.local.in_parameter,
                      .out = stored.mutable_bytes()});
    if (detour_nbytes_ > kMaxDetourBytes) {
      carry_out();
    }
  }

  void carry_out() {
    reader_.read(wants_);
    wants_.clear();
    for (const Detour& detour : detours_) {
      arrive(detour);
    }
    if (!detours_.empty() && detours_.front().target.device() != Device::cpu()) {
      current_context().device(detours_.front().target.device()).current_stream().synchronize();
    }
    converted_.clear();
    detours_.clear();
    detour_nbytes_ = 0;
  }

 private:
  static Tensor pinned_like(const Tensor& target, DType dtype) {
    return target.device() == Device::cpu()
               ? Tensor::empty(target.shape(), dtype, Device::cpu(), MemoryCategory::Workspace)
               : pinned(target.shape(), dtype, target.device(), MemoryCategory::Workspace);
  }

  void arrive(const Detour& detour) {
    const bool on_host = detour.target.device() == Device::cpu();
    Tensor values = detour.stored;
    if (values.dtype() != detour.target.dtype()) {
      values = on_host ? detour.target : pinned_like(detour.target, detour.target.dtype());
      kernels::copy(values.launch(), values.view(), detour.stored.view());
      values.storage()->bump_version();
    }
    if (!on_host) {
      copy_async(detour.target, values);
      converted_.push_back(std::move(values));
    }
  }

  CheckpointReader& reader_;
  std::vector<CheckpointReader::Want> wants_;
  std::vector<Detour> detours_;
  // Until the device has read them.
  std::vector<Tensor> converted_;
  std::int64_t detour_nbytes_ = 0;
};

bool is_of_optimizer(const StatePlane& plane) {
  return plane.name != kParameters && plane.name != kAverage;
}

}  // namespace

void read_values(CheckpointReader& reader, const StateTensors& tensors,
                 std::span<const Match> matches) {
  Reading reading(reader);
  for (const Match& match : matches) {
    const StateTensor& tensor = tensors.tensors[match.tensor];
    reading.add(match, tensors.groups[tensor.group].planes[match.plane], tensor);
  }
  reading.carry_out();
}

void restore_steps(const StateTensors& tensors, std::span<const Match> matches) {
  // By tensor: planes of the optimizer that are to come.
  std::map<std::size_t, std::size_t> num_missing;
  for (const Match& match : matches) {
    const std::vector<StatePlane>& planes =
        tensors.groups[tensors.tensors[match.tensor].group].planes;
    const auto [missing, is_first] = num_missing.try_emplace(match.tensor);
    if (is_first) {
      missing->second = static_cast<std::size_t>(std::ranges::count_if(planes, is_of_optimizer));
    }
    missing->second -= is_of_optimizer(planes[match.plane]) ? 1 : 0;
  }
  for (const Match& match : matches) {
    nn::Segment* const segment = tensors.tensors[match.tensor].segment;
    if (segment != nullptr && match.saved->step && num_missing.at(match.tensor) == 0) {
      segment->step = *match.saved->step;
    }
  }
}

void restore_object(Stateful& object, const SavedObject& saved, int rank, int num_ranks) {
  if (saved.kind == SavedObject::Kind::Replicated) {
    object.load(saved.values.front());
  } else if (saved.values.size() == static_cast<std::size_t>(num_ranks)) {
    object.load(saved.values[static_cast<std::size_t>(rank)]);
  } else {
    object.merge(saved.values, rank, num_ranks);
  }
}

}  // namespace fsdptrain::checkpoint
