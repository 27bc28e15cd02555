#include "checkpoint/state/full_state.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "checkpoint/state/agreement.h"
#include "checkpoint/state/model_ranks.h"
#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {
namespace {

using Json = nlohmann::json;

std::int64_t nbytes_of(const StateEntry& entry) {
  return entry.shape.numel() * static_cast<std::int64_t>(size_of(entry.dtype));
}

class Streaming {
 public:
  Streaming(comm::World& world, const TrainingState& state, const FullStateOptions& options)
      : world_(world), state_(state), options_(options) {}

  // What ranks differ in, and memory that is not to be had, ends here on all of them.
  void begin() {
    const std::vector<std::string> texts = agree_on(world_, [this] {
      prepare();
      const std::string receiver = options_.on_all_ranks ? "all ranks " : "rank 0 ";
      return Json{{"entries", receiver + digest_of_entries(items_)}, {"updates", own_updates()}}
          .dump();
    });
    agree_on(world_, [this, &texts] {
      take_openings(texts);
      return std::string();
    });
  }

  void stream(const StateSink& sink) {
    std::exception_ptr failure;
    for (const StateItem& item : items_) {
      const Tensor whole = gather(item);
      if (is_given_ && !failure) {
        try {
          sink(item.entry, whole);
        } catch (...) {
          failure = std::current_exception();
        }
      }
    }
    agree_on(world_, [&failure] {
      if (failure) {
        std::rethrow_exception(failure);
      }
      return std::string();
    });
  }

 private:
  void prepare() {
    tensors_ = tensors_of(state_);
    root_ = root_of(*state_.model, world_);
    is_given_ = options_.on_all_ranks || world_.rank() == 0;
    items_ = items_of(tensors_, options_.planes);
    if (options_.wants) {
      std::erase_if(items_, [this](const StateItem& item) {
        StateEntry entry = item.entry;
        entry.updates.reset();
        return !options_.wants(entry);
      });
    }
    allocate_room();
  }

  // For the largest of those that come from other ranks.
  void allocate_room() {
    std::int64_t nbytes = 0;
    for (const StateItem& item : items_) {
      const bool has_all =
          tensors_.tensors[item.tensor].part.local.in_parameter.size() == item.entry.shape.numel();
      if (options_.on_all_ranks || !has_all) {
        nbytes = std::max(nbytes, nbytes_of(item.entry));
      }
    }
    comm::ProcessGroup& ranks = state_.model->ranks();
    if (is_given_ && ranks.size() > 1 && nbytes > 0) {
      room_ = ranks.allocate({nbytes}, DType::UInt8);
    }
  }

  // By the number of the tensor; of replicas one tells.
  std::vector<std::pair<std::size_t, std::int64_t>> own_updates() const {
    std::vector<std::pair<std::size_t, std::int64_t>> updates;
    const bool tells = state_.model->ranks().size() > 1 || world_.rank() == 0;
    for (std::size_t i = 0; tells && i < tensors_.tensors.size(); ++i) {
      if (tensors_.tensors[i].segment != nullptr) {
        updates.emplace_back(i, tensors_.tensors[i].segment->step);
      }
    }
    return updates;
  }

  void take_openings(const std::vector<std::string>& texts) {
    std::vector<std::optional<std::int64_t>> updates(tensors_.tensors.size());
    std::string first;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      const Json opening = Json::parse(texts[rank]);
      const auto entries = opening.at("entries").get<std::string>();
      first = rank == 0 ? entries : first;
      check<ConfigError>(entries == first,
                         "full state: rank {} has other tensors than rank 0, or wants others",
                         rank);
      for (const auto& [tensor, count] :
           opening.at("updates").get<std::vector<std::pair<std::size_t, std::int64_t>>>()) {
        std::optional<std::int64_t>& known = updates.at(tensor);
        check<ConfigError>(!known || *known == count,
                           "full state: {} has {} updates on one rank and {} on another",
                           tensors_.tensors[tensor].part.name, known.value_or(0), count);
        known = count;
      }
    }
    for (StateItem& item : items_) {
      item.entry.updates = updates[item.tensor];
    }
  }

  Tensor gather(const StateItem& item) const {
    const shard::ParameterPart& part = tensors_.tensors[item.tensor].part;
    comm::ProcessGroup& ranks = state_.model->ranks();
    const Tensor room = room_.defined() ? room_for(item.entry) : Tensor();
    return options_.on_all_ranks ? shard::gather_to_all(part, item.like_chunk, ranks, room)
                                 : shard::gather_to(root_, part, item.like_chunk, ranks, room);
  }
  Tensor room_for(const StateEntry& entry) const {
    const std::int64_t numel = entry.shape.numel();
    if (nbytes_of(entry) > room_.numel()) {
      // It is all here.
      return {};
    }
    return Tensor::over(room_.storage(), entry.dtype, {numel}, Strides::contiguous({numel}), 0);
  }

  comm::World& world_;
  const TrainingState& state_;
  const FullStateOptions& options_;
  StateTensors tensors_;
  std::vector<StateItem> items_;
  // Which of the model's ranks is rank 0.
  int root_ = 0;
  bool is_given_ = false;
  // Bytes; undefined where nothing is received.
  Tensor room_;
};

}  // namespace

void stream_full_state(comm::World& world, const TrainingState& state, const StateSink& sink,
                       const FullStateOptions& options) {
  Streaming streaming(world, state, options);
  streaming.begin();
  streaming.stream(sink);
}

}  // namespace fsdptrain::checkpoint
