#include "tools/config/fields.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "runtime/base/edit_distance.h"
#include "runtime/base/error.h"
#include "tools/model/presets.h"

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

Allowed one_of(std::span<const std::string_view> words) {
  return {.words = words};
}

constexpr std::string_view kDevices[] = {"cpu", "cuda"};
constexpr std::string_view kStreams[] = {"separate", "shared"};
constexpr std::string_view kReshard[] = {"auto", "yes", "no"};
constexpr std::string_view kAccumulations[] = {"sharded", "exact", "unsharded"};
constexpr std::string_view kNonFinite[] = {"stop", "skip"};
constexpr std::string_view kOnError[] = {"continue", "stop"};
constexpr std::string_view kOptimizers[] = {"adamw", "sgd"};
constexpr std::string_view kSchedules[] = {"cosine", "linear", "constant", "wsd"};
constexpr std::string_view kRopeScalings[] = {"none", "linear", "llama3"};

// Values that other fields need to have an effect.
constexpr std::string_view kAdamW[] = {"adamw"};
constexpr std::string_view kSgd[] = {"sgd"};
constexpr std::string_view kDecaying[] = {"cosine", "linear", "wsd"};
constexpr std::string_view kWsd[] = {"wsd"};
constexpr std::string_view kScaled[] = {"linear", "llama3"};
constexpr std::string_view kLlama3[] = {"llama3"};
constexpr std::string_view kSkip[] = {"skip"};
constexpr std::string_view kCuda[] = {"cuda"};
constexpr std::string_view kContinue[] = {"continue"};

std::vector<Field> make_fields() {
  static const std::vector<std::string_view> models = model_names();
  static const std::vector<std::string_view> gpt2_models = names_of_family("gpt2");
  static const std::vector<std::string_view> llama_models = names_of_family("llama");
  const Field::Condition adamw{"optimizer.name", kAdamW};
  const Field::Condition sgd{"optimizer.name", kSgd};
  const Field::Condition decaying{"schedule.name", kDecaying};
  const Field::Condition wsd{"schedule.name", kWsd};
  const Field::Condition gpt2{"model.name", gpt2_models};
  const Field::Condition llama{"model.name", llama_models};
  const Field::Condition scaled{"model.rope_scaling", kScaled};
  const Field::Condition llama3{"model.rope_scaling", kLlama3};
  const Field::Condition skipping{"train.non_finite", kSkip};
  const Field::Condition on_cuda{"run.device", kCuda};
  const Field::Condition continuing{"checkpoint.on_error", kContinue};
  // One line is one key.
  // clang-format off
  return {
      {"run", "dir", "folder of all that the run leaves: configuration, record, metrics, samples, weights, checkpoints; a run that is there goes on", [](Config& c) -> Slot { return &c.run.dir; }, not_empty()},
      {"run", "seed", "key of initial weights, data order and dropout", [](Config& c) -> Slot { return &c.run.seed; }, at_least(0)},
      {"run", "threads", "compute threads of a process; 0: one per processor that it may use, shared evenly with the other ranks of the host", [](Config& c) -> Slot { return &c.run.threads; }, between(0, 4096)},
      {"run", "device", "where the model and its training are; cuda: rank r of this process on the r-th GPU, in a program that was built for it; eval and generate always run on the CPU", [](Config& c) -> Slot { return &c.run.device; }, one_of(kDevices)},

      {"model", "name", "model family, or a member of it with fixed sizes", [](Config& c) -> Slot { return &c.model.name; }, one_of(models)},
      {"model", "num_layers", "transformer blocks", [](Config& c) -> Slot { return &c.model.num_layers; }, between(1, 10000)},
      {"model", "num_heads", "attention heads per block; divides embed_dim unless head_dim is given", [](Config& c) -> Slot { return &c.model.num_heads; }, between(1, 65536)},
      {"model", "num_kv_heads", "heads of keys and values, shared by groups of attention heads; divides num_heads; 0: as many", [](Config& c) -> Slot { return &c.model.num_kv_heads; }, between(0, 65536), llama},
      {"model", "embed_dim", "features per token", [](Config& c) -> Slot { return &c.model.embed_dim; }, between(1, 1048576)},
      {"model", "head_dim", "features of one head, even; 0: embed_dim / num_heads", [](Config& c) -> Slot { return &c.model.head_dim; }, between(0, 65536), llama},
      {"model", "ffn_dim", "features inside the feed-forward part; 0: 8/3 embed_dim, rounded up to a multiple of 256", [](Config& c) -> Slot { return &c.model.ffn_dim; }, between(0, 16777216), llama},
      {"model", "vocab_size", "tokens that the model knows; 257 for byte tokens", [](Config& c) -> Slot { return &c.model.vocab_size; }, between(1, 16777216)},
      {"model", "max_seq_len", "positions that the model knows", [](Config& c) -> Slot { return &c.model.max_seq_len; }, between(1, 16777216)},
      {"model", "window", "tokens that a token sees, itself and those just before it; 0: all before it", [](Config& c) -> Slot { return &c.model.window; }, between(0, 16777216)},
      {"model", "norm_eps", "added to the variance, or mean square, in norms", [](Config& c) -> Slot { return &c.model.norm_eps; }, positive()},
      {"model", "dropout", "fraction of features dropped in training; 0: none", [](Config& c) -> Slot { return &c.model.dropout; }, fraction(), gpt2},
      {"model", "bias", "whether linear layers and norms have a bias", [](Config& c) -> Slot { return &c.model.bias; }, {}, gpt2},
      {"model", "tie_embeddings", "whether the head uses the weights of the token embedding", [](Config& c) -> Slot { return &c.model.tie_embeddings; }, {}, llama},
      {"model", "rope_theta", "base of the wavelengths of rotary positions", [](Config& c) -> Slot { return &c.model.rope_theta; }, between(1, kLargest), llama},
      {"model", "rope_scaling", "how wavelengths are stretched beyond the length first trained on", [](Config& c) -> Slot { return &c.model.rope_scaling; }, one_of(kRopeScalings), llama},
      {"model", "rope_factor", "stretch of (long) wavelengths", [](Config& c) -> Slot { return &c.model.rope_factor; }, between(1, kLargest), scaled},
      {"model", "rope_low_freq_factor", "wavelengths above rope_original_seq_len / this are stretched whole", [](Config& c) -> Slot { return &c.model.rope_low_freq_factor; }, positive(), llama3},
      {"model", "rope_high_freq_factor", "wavelengths below rope_original_seq_len / this are left; above rope_low_freq_factor", [](Config& c) -> Slot { return &c.model.rope_high_freq_factor; }, positive(), llama3},
      {"model", "rope_original_seq_len", "length first trained on", [](Config& c) -> Slot { return &c.model.rope_original_seq_len; }, between(1, 16777216), llama3},
      {"model", "init_from", "safetensors file, or folder of a checkpoint (checkpoints/step-N of a run), to take the initial weights from; of a checkpoint, what differs is listed; empty: random ones by run.seed", [](Config& c) -> Slot { return &c.model.init_from; }},

      {"data", "tokens", "sources of tokens, each a file of fsdptrain data prepare or a folder of them; needed for training", [](Config& c) -> Slot { return &c.data.tokens; }, not_empty()},
      {"data", "weights", "share of each source in the samples, in any unit; empty: by their numbers of tokens", [](Config& c) -> Slot { return &c.data.weights; }, between(0, kLargest)},
      {"data", "validation", "sources to validate on, each a file or a folder; empty: the last part of each source of data.tokens", [](Config& c) -> Slot { return &c.data.validation; }, not_empty()},
      {"data", "validation_fraction", "part of each source, at its end, kept for validation; unused where data.validation is given", [](Config& c) -> Slot { return &c.data.validation_fraction; }, fraction()},
      {"data", "mask_documents", "whether positions and attention begin anew with each document; targets never cross documents", [](Config& c) -> Slot { return &c.data.mask_documents; }},

      {"train", "steps", "optimizer steps", [](Config& c) -> Slot { return &c.train.steps; }, at_least(0)},
      {"train", "global_batch", "sequences per optimizer step; a multiple of micro_batch", [](Config& c) -> Slot { return &c.train.global_batch; }, between(1, 16777216)},
      {"train", "micro_batch", "sequences per forward and backward pass", [](Config& c) -> Slot { return &c.train.micro_batch; }, between(1, 65536)},
      {"train", "seq_len", "tokens per sequence; at most max_seq_len of the model", [](Config& c) -> Slot { return &c.train.seq_len; }, between(1, 1048576)},
      {"train", "compute_dtype", "element type of forward and backward; weights stay float32", [](Config& c) -> Slot { return &c.train.compute_dtype; }, one_of(kDtypeWords)},
      {"train", "recompute", "activations computed again in backward instead of kept; selective: all but the outputs of attention", [](Config& c) -> Slot { return &c.train.recompute; }, one_of(kRecomputeWords)},
      {"train", "grad_clip", "largest norm of the gradient; 0: no limit", [](Config& c) -> Slot { return &c.train.grad_clip; }, between(0, kLargest)},
      {"train", "label_smoothing", "part of the target probability that is spread over the whole vocabulary", [](Config& c) -> Slot { return &c.train.label_smoothing; }, fraction()},
      {"train", "z_loss", "weight of the squared log-sum-exp of the logits in the loss", [](Config& c) -> Slot { return &c.train.z_loss; }, between(0, kLargest)},
      {"train", "ema_decay", "decay per step of an average of the weights, written beside them; 0: none", [](Config& c) -> Slot { return &c.train.ema_decay; }, fraction()},
      {"train", "non_finite", "what a loss or gradient that is not finite does, once it is located: end the run, or skip the update", [](Config& c) -> Slot { return &c.train.non_finite; }, one_of(kNonFinite)},
      {"train", "non_finite_limit", "skipped updates in a row that end the run all the same", [](Config& c) -> Slot { return &c.train.non_finite_limit; }, at_least(1), skipping},

      {"optimizer", "name", "update rule", [](Config& c) -> Slot { return &c.optimizer.name; }, one_of(kOptimizers)},
      {"optimizer", "lr", "peak learning rate", [](Config& c) -> Slot { return &c.optimizer.lr; }, positive()},
      {"optimizer", "beta1", "decay of the mean of gradients", [](Config& c) -> Slot { return &c.optimizer.beta1; }, fraction(), adamw},
      {"optimizer", "beta2", "decay of the mean of squared gradients", [](Config& c) -> Slot { return &c.optimizer.beta2; }, fraction(), adamw},
      {"optimizer", "eps", "added to the root of the mean of squares", [](Config& c) -> Slot { return &c.optimizer.eps; }, positive(), adamw},
      {"optimizer", "weight_decay", "decay of weight matrices per unit of learning rate", [](Config& c) -> Slot { return &c.optimizer.weight_decay; }, between(0, kLargest)},
      {"optimizer", "momentum", "decay of the velocity; 0: none", [](Config& c) -> Slot { return &c.optimizer.momentum; }, fraction(), sgd},

      {"schedule", "name", "course of the learning rate behind the warmup; wsd: constant, then linear", [](Config& c) -> Slot { return &c.schedule.name; }, one_of(kSchedules)},
      {"schedule", "warmup_steps", "steps of linear growth to the peak; at most train.steps", [](Config& c) -> Slot { return &c.schedule.warmup_steps; }, at_least(0)},
      {"schedule", "final_lr_fraction", "learning rate at the last step, as a part of the peak", [](Config& c) -> Slot { return &c.schedule.final_lr_fraction; }, between(0, 1), decaying},
      {"schedule", "decay_fraction", "part of all steps, at their end, in which the learning rate falls", [](Config& c) -> Slot { return &c.schedule.decay_fraction; }, between(0, 1), wsd},

      {"eval", "every", "steps between validations; 0: only at the end", [](Config& c) -> Slot { return &c.eval.every; }, at_least(0)},
      {"eval", "batches", "micro-batches per validation; 0: all", [](Config& c) -> Slot { return &c.eval.batches; }, at_least(0)},
      {"eval", "prompts", "texts that the model continues at each validation, into samples.jsonl; byte tokens only", [](Config& c) -> Slot { return &c.eval.prompts; }, not_empty()},
      {"eval", "sample_tokens", "tokens to add to each prompt", [](Config& c) -> Slot { return &c.eval.sample_tokens; }, between(1, 1048576)},
      {"eval", "sample_temperature", "1: the own distribution of the model; 0: always the likeliest token", [](Config& c) -> Slot { return &c.eval.sample_temperature; }, between(0, 100)},

      {"mesh", "replicate", "groups of ranks that each hold the whole model, and share out the batch", [](Config& c) -> Slot { return &c.mesh.replicate; }, between(1, 1048576)},
      {"mesh", "shard", "ranks that a model is shared out over; 0: all that mesh.replicate leaves; mesh.replicate x mesh.shard is the number of ranks", [](Config& c) -> Slot { return &c.mesh.shard; }, between(0, 1048576)},

      {"shard", "reshard_after_forward", "whether a block's parameters are given back after its forward, and gathered again for its backward; auto: yes, but the last block's, which come first in the backward, and the head's; no: more memory, fewer gathers", [](Config& c) -> Slot { return &c.shard.reshard_after_forward; }, one_of(kReshard)},
      {"shard", "prefetch", "blocks whose parameters are gathered ahead of the one that computes", [](Config& c) -> Slot { return &c.shard.prefetch; }, between(0, 64)},
      {"shard", "reduce_dtype", "element type in which gradients are summed over ranks; sums over micro-batches are float32", [](Config& c) -> Slot { return &c.shard.reduce_dtype; }, one_of(kDtypeWords)},
      {"shard", "accumulate", "how gradients of the micro-batches of a step are added: sharded: each is summed over the ranks and added to the rank's part; exact: the same, and sums over ranks and micro-batches are one tree, so that 1, 2, 4, ... ranks give the same bits, for a few more parts of memory; unsharded: whole gradients are added on each rank and summed over the ranks once, for 4 bytes a parameter", [](Config& c) -> Slot { return &c.shard.accumulate; }, one_of(kAccumulations)},

      {"comm", "timeout", "seconds that a rank waits for the others, in a collective and to come to the start; then all end and say where each was; above what rank 0 takes to write one parameter of the weights to disk, while the others wait", [](Config& c) -> Slot { return &c.comm.timeout; }, between(1, 31536000)},
      {"comm", "streams", "whether reductions between GPUs run beside other transfers, on a stream and a communicator of their own, or shared: after each other", [](Config& c) -> Slot { return &c.comm.streams; }, one_of(kStreams), on_cuda},

      {"checkpoint", "every", "steps between checkpoints, from which the same command goes on; there is always one behind the last step, and where a signal ends the run; 0: no others", [](Config& c) -> Slot { return &c.checkpoint.every; }, at_least(0)},
      {"checkpoint", "every_minutes", "minutes between checkpoints, counted from the one before, whichever asked for it; 0: none for that", [](Config& c) -> Slot { return &c.checkpoint.every_minutes; }, between(0, 1e6)},
      {"checkpoint", "keep", "how many of the newest stay, beside the one that the run went on from; 0: all", [](Config& c) -> Slot { return &c.checkpoint.keep; }, at_least(0)},
      {"checkpoint", "async", "whether training goes on while a checkpoint is written, from a copy in memory; where the run ends it waits", [](Config& c) -> Slot { return &c.checkpoint.async; }},
      {"checkpoint", "on_error", "what a checkpoint that cannot be written does: warn, and train on, or end the run; behind the last step it always ends it", [](Config& c) -> Slot { return &c.checkpoint.on_error; }, one_of(kOnError)},
      {"checkpoint", "error_limit", "checkpoints that fail in a row and end the run all the same", [](Config& c) -> Slot { return &c.checkpoint.error_limit; }, at_least(1), continuing},
      {"checkpoint", "timeout", "seconds that a checkpoint may take until it counts as failed", [](Config& c) -> Slot { return &c.checkpoint.timeout; }, between(1, 31536000)},

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

template <class T>
std::string list_text(const std::vector<T>& elements) {
  std::vector<std::string> texts;
  for (const T& element : elements) {
    texts.push_back(toml_text(element));
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

}  // namespace

bool Allowed::contains(const Value& value) const {
  const auto all = [this](const auto& list) {
    return std::ranges::all_of(list, [this](const auto& element) { return contains(element); });
  };
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    return all(*texts);
  }
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    return all(*numbers);
  }
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
    return "not empty, without zero bytes";
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
  return type_name_of(value_in(Config{}));
}

bool Field::applies(const Config& config) const {
  if (condition.key.empty()) {
    return true;
  }
  const Field& other = *find_field(condition.key);
  const Value value = other.value_in(config);
  return other.applies(config) &&
         std::ranges::find(condition.values, std::get<std::string>(value)) !=
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

std::string suggestion_for(std::string_view key) {
  const std::string nearest = nearest_key(key);
  if (key.find('.') != std::string_view::npos) {
    return nearest;
  }
  const Field& field = *find_field(nearest);
  const Field& other = *std::ranges::min_element(
      config_fields(), {}, [key](const Field& one) { return edit_distance(key, one.section); });
  return edit_distance(key, other.section) < edit_distance(key, field.name)
             ? fmt::format("a key of [{}], like {}", other.section, other.key())
             : nearest;
}

std::string toml_text(const Value& value) {
  struct Print {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return float_text(number); }
    std::string operator()(const std::string& text) const { return quoted_text(text); }
    std::string operator()(const std::vector<std::string>& texts) const { return list_text(texts); }
    std::string operator()(const std::vector<double>& numbers) const { return list_text(numbers); }
  };
  return std::visit(Print{}, value);
}

std::string_view type_name_of(const Value& value) {
  struct Name {
    std::string_view operator()(bool) const { return "boolean"; }
    std::string_view operator()(std::int64_t) const { return "integer"; }
    std::string_view operator()(double) const { return "float"; }
    std::string_view operator()(const std::string&) const { return "string"; }
    std::string_view operator()(const std::vector<std::string>&) const { return "list of strings"; }
    std::string_view operator()(const std::vector<double>&) const { return "list of floats"; }
  };
  return std::visit(Name{}, value);
}

}  // namespace fsdptrain::tools
