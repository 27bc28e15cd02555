#include "tools/run/run_progress.h"

#include "runtime/base/error.h"
#include "tools/config/changes.h"
#include "tools/config/print.h"

namespace fsdptrain::tools {
namespace {

using Json = nlohmann::json;

// What `read` takes of an object of a checkpoint.
template <class Read>
auto read_object(const Read& read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    fail<DataError>("an object of the checkpoint is damaged: {}", error.what());
  }
}

}  // namespace

Json SavedProgress::state() const {
  const RunProgress& p = progress_;
  return {{"samples", p.samples},
          {"tokens", p.tokens},
          {"lr", p.lr},
          {"best_validation_loss", p.best_loss ? Json(*p.best_loss) : Json()},
          {"best_validation_step", p.best_step},
          {"validated_step", p.validated_step},
          {"skipped_in_a_row", p.skipped_in_a_row}};
}

void SavedProgress::load(const Json& state) {
  progress_ = read_object([&state] {
    RunProgress p;
    const Json& best = state.at("best_validation_loss");
    state.at("samples").get_to(p.samples);
    state.at("tokens").get_to(p.tokens);
    state.at("lr").get_to(p.lr);
    p.best_loss = best.is_null() ? std::nullopt : std::optional(best.get<double>());
    state.at("best_validation_step").get_to(p.best_step);
    state.at("validated_step").get_to(p.validated_step);
    state.at("skipped_in_a_row").get_to(p.skipped_in_a_row);
    return p;
  });
}

Json SavedConfig::state() const {
  const ConfigHash hash = hash_of(config_);
  return {{"numerics", hash.numerics},
          {"operations", hash.operations},
          {"seed", config_.run.seed},
          {"average", config_.train.ema_decay > 0},
          {"toml", to_toml(config_)}};
}

void SavedConfig::load(const Json& state) {
  const auto numerics = read_object([&] { return state.at("numerics").get<std::string>(); });
  check<ConfigError>(accepted_.contains(numerics),
                     "the checkpoint is of another run: its configuration decides otherwise about "
                     "numbers than that of this run ever did: move it away");
  has_average_ = read_object([&] { return state.at("average").get<bool>(); });
}

Json SavedVocabulary::state() const {
  return {{"size", vocabulary_.size},
          {"tokenizer", vocabulary_.tokenizer},
          {"end_of_document",
           vocabulary_.end_of_document ? Json(*vocabulary_.end_of_document) : Json()}};
}

std::optional<WeightsInfo> saved_weights_info(const checkpoint::Manifest& manifest) {
  const auto config = manifest.objects.find(kSavedConfig);
  const auto vocabulary = manifest.objects.find(kSavedVocabulary);
  if (config == manifest.objects.end() || vocabulary == manifest.objects.end()) {
    return std::nullopt;
  }
  return read_object([&] {
    const Json& tokens = vocabulary->second.values.at(0);
    const Json& end = tokens.at("end_of_document");
    return WeightsInfo{
        .config = parse_config(config->second.values.at(0).at("toml").get<std::string>(),
                               "the configuration in the checkpoint"),
        .vocabulary = {.size = tokens.at("size").get<std::uint32_t>(),
                       .end_of_document =
                           end.is_null() ? std::nullopt : std::optional(end.get<std::uint32_t>()),
                       .tokenizer = tokens.at("tokenizer").get<std::string>()}};
  });
}

}  // namespace fsdptrain::tools
