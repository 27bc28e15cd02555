#include <cstdint>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/load/fit.h"
#include "checkpoint/state/agreement.h"
#include "checkpoint/state/full_state.h"
#include "checkpoint/state/model_ranks.h"
#include "kernels/copy.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"
#include "runtime/tensor/transfer.h"

namespace fsdptrain::checkpoint {
namespace {

using Json = nlohmann::json;
// Plane and parameter.
using Key = std::pair<std::string, std::string>;

Key key_of(const StateEntry& entry) {
  return {entry.plane, entry.name};
}

std::string text_of(const StateEntry& entry) {
  return entry.plane == kParameters ? printable(entry.name)
                                    : printable(fmt::format("{} of {}", entry.plane, entry.name));
}

Json to_json(const StateEntry& entry) {
  return {{"plane", entry.plane},
          {"name", entry.name},
          {"shape", std::vector<std::int64_t>(entry.shape.begin(), entry.shape.end())},
          {"dtype", static_cast<int>(entry.dtype)},
          {"updates", entry.updates ? Json(*entry.updates) : Json()}};
}

StateEntry parse_entry(const Json& json) {
  const Json& updates = json.at("updates");
  return {.plane = json.at("plane"),
          .name = json.at("name"),
          .shape = Shape(json.at("shape").get<std::vector<std::int64_t>>()),
          .dtype = static_cast<DType>(json.at("dtype").get<int>()),
          .updates = updates.is_null() ? std::nullopt : std::optional(updates.get<std::int64_t>())};
}

class Loading {
 public:
  Loading(comm::World& world, const TrainingState& state, const LoadFullOptions& options)
      : world_(world), state_(state), options_(options) {}

  // All ranks know what the source has, and that it fits.
  void begin(const FullStateSource* source) {
    const std::vector<std::string> texts = agree_on(world_, [&] {
      prepare();
      return opening_of(source);
    });
    agree_on(world_, [&] {
      take_openings(texts);
      const std::vector<std::string> misfits = misfits_of_items();
      check<ConfigError>(misfits.empty(), "full state: it does not fit what is trained: {}",
                         shown_lines(misfits));
      return std::string();
    });
  }

  void load(const FullStateSource* source) {
    for (const StateItem& item : items_) {
      Tensor whole;
      agree_on(world_, [&] {
        if (source != nullptr) {
          whole = take(*source, item);
        }
        return std::string();
      });
      give_out(item, whole);
    }
    if (options_.planes.optimizer) {
      take_updates();
    }
  }

 private:
  void prepare() {
    tensors_ = tensors_of(state_);
    root_ = root_of(*state_.model, world_);
    items_ = items_of(tensors_, options_.planes);
  }

  // What this rank tells the others.
  std::string opening_of(const FullStateSource* source) const {
    check<ConfigError>((source != nullptr) == (world_.rank() == 0),
                       "full state: rank 0 has the source and no other rank, got {}",
                       source == nullptr ? "none" : "one");
    Json entries = Json::array();
    if (source != nullptr) {
      for (const StateEntry& entry : source->entries) {
        entries.push_back(to_json(entry));
      }
    }
    const std::string dtypes = options_.convert_dtypes ? "any dtype " : "one dtype ";
    try {
      return Json{{"wanted", dtypes + digest_of_entries(items_)}, {"source", entries}}.dump();
    } catch (const Json::exception&) {
      fail<ConfigError>("full state: the source has a name that is not UTF-8");
    }
  }

  void take_openings(const std::vector<std::string>& texts) {
    std::string wanted;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      const Json opening = Json::parse(texts[rank]);
      const auto own = opening.at("wanted").get<std::string>();
      wanted = rank == 0 ? own : wanted;
      check<ConfigError>(own == wanted,
                         "full state: rank {} has other tensors than rank 0, or loads other "
                         "planes or dtypes",
                         rank);
      if (rank == 0) {
        take_entries(opening.at("source"));
      }
    }
  }

  void take_entries(const Json& entries) {
    for (const Json& json : entries) {
      StateEntry entry = parse_entry(json);
      if (options_.planes.has(entry.plane)) {
        const Key key = key_of(entry);
        check<ConfigError>(entries_.emplace(key, entry).second,
                           "full state: the source has {} twice", text_of(entry));
        order_.push_back(key);
      }
    }
    // Of an optimizer without states the parameters may tell.
    for (const bool of_states : {true, false}) {
      for (const auto& [key, entry] : entries_) {
        if (entry.updates && has_updates(entry) == of_states) {
          updates_.emplace(entry.name, *entry.updates);
        }
      }
    }
  }

  std::vector<std::string> misfits_of_items() const {
    std::vector<std::string> lines;
    std::set<Key> wanted;
    std::set<std::string> names;
    for (const StateItem& item : items_) {
      wanted.insert(key_of(item.entry));
      add_misfits(item.entry, lines);
    }
    for (const StateTensor& tensor : tensors_.tensors) {
      names.insert(tensor.part.name);
    }
    for (const Key& key : order_) {
      if (!wanted.contains(key)) {
        lines.push_back(fmt::format(
            "{} {}", text_of(entries_.at(key)),
            names.contains(key.second) ? "has no place here" : "is of no parameter of the model"));
      }
    }
    return lines;
  }

  void add_misfits(const StateEntry& wanted, std::vector<std::string>& lines) const {
    const auto found = entries_.find(key_of(wanted));
    const std::string text = text_of(wanted);
    if (found == entries_.end()) {
      lines.push_back(fmt::format("{} is missing", text));
      return;
    }
    const StateEntry& given = found->second;
    if (given.shape != wanted.shape) {
      lines.push_back(fmt::format("{} has shape {}, not {}", text, given.shape, wanted.shape));
    }
    if (has_updates(wanted)) {
      add_misfits_of_updates(given, lines);
    }
    const bool converts =
        options_.convert_dtypes && is_floating(given.dtype) && is_floating(wanted.dtype);
    if (given.dtype != wanted.dtype && !converts) {
      lines.push_back(fmt::format("{} is {}, not {}", text, given.dtype, wanted.dtype));
    }
  }

  // Whether counts of updates are to come with it, which the states of an optimizer are wrong
  // without.
  static bool has_updates(const StateEntry& entry) {
    return entry.plane != kParameters && entry.plane != kAverage;
  }

  void add_misfits_of_updates(const StateEntry& given, std::vector<std::string>& lines) const {
    const std::string text = text_of(given);
    if (!given.updates) {
      lines.push_back(fmt::format("{} has no count of updates", text));
    } else if (*given.updates < 0) {
      lines.push_back(fmt::format("{} has {} updates", text, *given.updates));
    } else if (const std::int64_t known = updates_.at(given.name); known != *given.updates) {
      lines.push_back(fmt::format("{} has {} updates, and another state of that parameter {}", text,
                                  *given.updates, known));
    }
  }

  // On rank 0: as the ranks are to have it.
  Tensor take(const FullStateSource& source, const StateItem& item) const {
    const StateEntry& entry = entries_.at(key_of(item.entry));
    Tensor values = source.values(entry);
    check<ConfigError>(values.defined(), "full state: the source gives {} for {}", "nothing",
                       text_of(entry));
    check<ConfigError>(values.shape() == entry.shape && values.dtype() == entry.dtype,
                       "full state: the source gives {} {} for {}, which is {} {}", values.dtype(),
                       values.shape(), text_of(entry), entry.dtype, entry.shape);
    if (entry.dtype != item.entry.dtype) {
      const Tensor converted = Tensor::empty(values.shape(), item.entry.dtype, values.device(),
                                             MemoryCategory::Workspace);
      kernels::copy(converted.launch(), converted.view(), values.view());
      values = converted;
    }
    return to_device(values, world_.device());
  }

  void give_out(const StateItem& item, const Tensor& whole) const {
    const shard::ParameterPart& part = tensors_.tensors[item.tensor].part;
    comm::ProcessGroup& ranks = state_.model->ranks();
    const bool is_replicated = ranks.size() < world_.size();
    if (world_.rank() == 0 || !is_replicated) {
      shard::scatter_from(root_, part, whole, item.like_chunk, ranks);
    }
    if (is_replicated && part.shape.numel() > 0) {
      const Tensor own = part.values_in(item.like_chunk);
      world_.group().issue(comm::broadcast(own, 0)).wait();
      own.storage()->bump_version();
    }
  }

  void take_updates() {
    for (const StateTensor& tensor : tensors_.tensors) {
      const auto found = updates_.find(tensor.part.name);
      if (tensor.segment != nullptr && found != updates_.end()) {
        tensor.segment->step = found->second;
      }
    }
  }

  comm::World& world_;
  const TrainingState& state_;
  const LoadFullOptions& options_;
  StateTensors tensors_;
  std::vector<StateItem> items_;
  // Which of the model's ranks is rank 0.
  int root_ = 0;
  // Of the source: what is to be loaded, and in which order it was named.
  std::map<Key, StateEntry> entries_;
  std::vector<Key> order_;
  // By parameter, as the first of its states has it.
  std::map<std::string, std::int64_t> updates_;
};

}  // namespace

void load_full_state(comm::World& world, const TrainingState& state, const FullStateSource* source,
                     const LoadFullOptions& options) {
  Loading loading(world, state, options);
  loading.begin(source);
  try {
    loading.load(source);
  } catch (...) {
    // What was loaded counts.
    state.model->bump_epoch();
    throw;
  }
  state.model->bump_epoch();
}

}  // namespace fsdptrain::checkpoint
