#include "tools/config_fields.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "runtime/base/edit_distance.h"
#include "runtime/base/error.h"
#include "tools/model_presets.h"

namespace fsdptrain::tools {
namespace {

Allowed at_least(double min) {
  return {.min = min};
}

Allowed between(double min, double max) {
  return {.min = min, .max = max};
}

// Beyond this and its inverse, float32 has no or only denormal values, and the kernels compute
// with float32.
constexpr double kLargest = 1e37;

// Factors: positive in float32 too.
Allowed positive() {
  return between(1 / kLargest, kLargest);
}

Allowed not_empty() {
  return {.empty_excluded = true};
}

// [0, 1)
Allowed fraction() {
  return {.min = 0, .max = 1, .max_excluded = true};
}

Allowed one_of(std::vector<std::string_view> words) {
  return {.words = std::move(words)};
}

std::vector<Field> make_fields() {
  const Field::Condition adamw{"optimizer.name", {"adamw"}};
  const Field::Condition sgd{"optimizer.name", {"sgd"}};
  const Field::Condition decaying{"schedule.name", {"cosine", "linear"}};
  // One line is one key.
  // clang-format off
  return {
      {"run", "dir", "folder of the run: config.toml, metrics.jsonl and weights.safetensors; new or empty", [](Config& c) -> Slot { return &c.run.dir; }, not_empty()},
      {"run", "seed", "key of initial weights, data order and dropout", [](Config& c) -> Slot { return &c.run.seed; }, at_least(0)},
      {"run", "threads", "compute threads; 0: one per processor that the process may use", [](Config& c) -> Slot { return &c.run.threads; }, between(0, 4096)},

      {"model", "name", "model family, or a member of it with fixed sizes", [](Config& c) -> Slot { return &c.model.name; }, one_of(model_names())},
      {"model", "num_layers", "transformer blocks", [](Config& c) -> Slot { return &c.model.num_layers; }, between(1, 10000)},
      {"model", "num_heads", "attention heads per block; divides embed_dim", [](Config& c) -> Slot { return &c.model.num_heads; }, between(1, 65536)},
      {"model", "embed_dim", "features per token", [](Config& c) -> Slot { return &c.model.embed_dim; }, between(1, 1048576)},
      {"model", "vocab_size", "tokens that the model knows; 257 for byte tokens", [](Config& c) -> Slot { return &c.model.vocab_size; }, between(1, 16777216)},
      {"model", "max_seq_len", "positions that the model knows", [](Config& c) -> Slot { return &c.model.max_seq_len; }, between(1, 16777216)},
      {"model", "dropout", "fraction of features dropped in training; 0: none", [](Config& c) -> Slot { return &c.model.dropout; }, fraction()},
      {"model", "bias", "whether linear layers and norms have a bias", [](Config& c) -> Slot { return &c.model.bias; }},

      {"data", "tokens", "token file, made by fsdptrain data prepare; needed for training", [](Config& c) -> Slot { return &c.data.tokens; }},
      {"data", "validation_fraction", "part of the tokens, at their end, kept for validation", [](Config& c) -> Slot { return &c.data.validation_fraction; }, fraction()},

      {"train", "steps", "optimizer steps", [](Config& c) -> Slot { return &c.train.steps; }, at_least(0)},
      {"train", "global_batch", "sequences per optimizer step; a multiple of micro_batch", [](Config& c) -> Slot { return &c.train.global_batch; }, between(1, 16777216)},
      {"train", "micro_batch", "sequences per forward and backward pass", [](Config& c) -> Slot { return &c.train.micro_batch; }, between(1, 65536)},
      {"train", "seq_len", "tokens per sequence; at most max_seq_len of the model", [](Config& c) -> Slot { return &c.train.seq_len; }, between(1, 1048576)},
      {"train", "compute_dtype", "element type of forward and backward; weights stay float32", [](Config& c) -> Slot { return &c.train.compute_dtype; }, one_of({"float32", "bfloat16"})},
      {"train", "recompute", "activations computed again in backward instead of kept; selective: all but the outputs of attention", [](Config& c) -> Slot { return &c.train.recompute; }, one_of({"none", "selective", "full"})},
      {"train", "grad_clip", "largest norm of the gradient; 0: no limit", [](Config& c) -> Slot { return &c.train.grad_clip; }, between(0, kLargest)},

      {"optimizer", "name", "update rule", [](Config& c) -> Slot { return &c.optimizer.name; }, one_of({"adamw", "sgd"})},
      {"optimizer", "lr", "peak learning rate", [](Config& c) -> Slot { return &c.optimizer.lr; }, positive()},
      {"optimizer", "beta1", "decay of the mean of gradients", [](Config& c) -> Slot { return &c.optimizer.beta1; }, fraction(), adamw},
      {"optimizer", "beta2", "decay of the mean of squared gradients", [](Config& c) -> Slot { return &c.optimizer.beta2; }, fraction(), adamw},
      {"optimizer", "eps", "added to the root of the mean of squares", [](Config& c) -> Slot { return &c.optimizer.eps; }, positive(), adamw},
      {"optimizer", "weight_decay", "decay of weight matrices per unit of learning rate", [](Config& c) -> Slot { return &c.optimizer.weight_decay; }, between(0, kLargest)},
      {"optimizer", "momentum", "decay of the velocity; 0: none", [](Config& c) -> Slot { return &c.optimizer.momentum; }, fraction(), sgd},

      {"schedule", "name", "course of the learning rate behind the warmup", [](Config& c) -> Slot { return &c.schedule.name; }, one_of({"cosine", "linear", "constant"})},
      {"schedule", "warmup_steps", "steps of linear growth to the peak; at most train.steps", [](Config& c) -> Slot { return &c.schedule.warmup_steps; }, at_least(0)},
      {"schedule", "final_lr_fraction", "learning rate at the last step, as a part of the peak", [](Config& c) -> Slot { return &c.schedule.final_lr_fraction; }, between(0, 1), decaying},

      {"eval", "every", "steps between validations; 0: only at the end", [](Config& c) -> Slot { return &c.eval.every; }, at_least(0)},
      {"eval", "batches", "micro-batches per validation; 0: all", [](Config& c) -> Slot { return &c.eval.batches; }, at_least(0)},

      {"log", "every", "steps between lines on the terminal and in metrics.jsonl", [](Config& c) -> Slot { return &c.log.every; }, at_least(1)},
  };
  // clang-format on
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::string quoted_text(std::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      text += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text + '"';
}

}  // namespace

bool Allowed::contains(const Value& value) const {
  if (const auto* word = std::get_if<std::string>(&value)) {
    return words.empty()
               ? word->find('\0') == std::string::npos && !(empty_excluded && word->empty())
               : std::ranges::find(words, *word) != words.end();
  }
  double number = 0;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    number = static_cast<double>(*integer);
  } else if (const auto* real = std::get_if<double>(&value)) {
    number = *real;
  }
  return std::isfinite(number) && number >= min && (max_excluded ? number < max : number <= max);
}

std::string Allowed::text() const {
  if (!words.empty()) {
    return fmt::format("one of {}", fmt::join(words, ", "));
  }
  if (empty_excluded) {
    return "not empty";
  }
  std::string text;
  if (std::isfinite(min)) {
    text = fmt::format("at least {}", min);
  }
  if (std::isfinite(max)) {
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", max_excluded ? "below" : "at most", max);
  }
  return text;
}

std::string Field::key() const {
  return fmt::format("{}.{}", section, name);
}

Value Field::value_in(const Config& config) const {
  Config copy = config;
  return std::visit([](const auto* member) { return Value(*member); }, slot(copy));
}

void Field::assign(Config& config, const Value& value) const {
  std::visit(
      [&value]<class T>(T* member) {
        check<ConfigError>(std::holds_alternative<T>(value), "config: {} has another type",
                           toml_text(value));
        *member = std::get<T>(value);
      },
      slot(config));
}

std::string_view Field::type_name() const {
  switch (value_in(Config{}).index()) {
    case 0:
      return "boolean";
    case 1:
      return "integer";
    case 2:
      return "float";
    default:
      return "string";
  }
}

bool Field::applies(const Config& config) const {
  if (condition.key.empty()) {
    return true;
  }
  const Value value = find_field(condition.key)->value_in(config);
  return std::ranges::find(condition.values, std::get<std::string>(value)) !=
         condition.values.end();
}

std::span<const Field> config_fields() {
  static const std::vector<Field> fields = make_fields();
  return fields;
}

const Field* find_field(std::string_view key) {
  const std::size_t dot = std::min(key.find('.'), key.size());
  const std::string_view section = key.substr(0, dot);
  const std::string_view name = key.substr(std::min(dot + 1, key.size()));
  const auto fields = config_fields();
  const auto found = std::ranges::find_if(
      fields, [&](const Field& field) { return field.section == section && field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

std::string nearest_key(std::string_view key) {
  // Without a section, the name alone counts.
  const bool has_section = key.find('.') != std::string_view::npos;
  const auto distance = [&](const Field& field) {
    return edit_distance(key, has_section ? field.key() : std::string(field.name));
  };
  return std::ranges::min_element(config_fields(), {}, distance)->key();
}

std::string toml_text(const Value& value) {
  struct Print {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return float_text(number); }
    std::string operator()(const std::string& text) const { return quoted_text(text); }
  };
  return std::visit(Print{}, value);
}

}  // namespace fsdptrain::tools
