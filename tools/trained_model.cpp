#include "tools/trained_model.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "tools/commands.h"
#include "tools/train/from_config.h"
#include "tools/train/run_folder.h"

namespace fsdptrain::tools {
namespace {

void check_finite(const std::filesystem::path& path, const nn::FlatParameters& parameters) {
  for (const auto& parameter : parameters.named()) {
    for (std::int64_t index = 0; index < parameter.values.numel(); ++index) {
      const double value = parameter.values.item(index);
      check(std::isfinite(value),
            "{}: {} holds {}: the file is damaged, or the training went wrong: train again",
            path.string(), parameter.name, value);
    }
  }
}

}  // namespace

void TrainedModelArguments::add_to(CLI::App& app) {
  CLI::Option_group* const group = app.add_option_group("weights");
  group->add_option("--run", run, "folder of a run of fsdptrain train")
      ->check(not_empty())
      ->type_name("DIR");
  group->add_option("--weights", weights, "a file of weights that a run has written")
      ->check(not_empty())
      ->type_name("FILE");
  group->require_option(1);
  app.add_flag("--ema", ema, "of the run, the averaged weights (train.ema_decay)");
}

TrainedModel TrainedModelArguments::load() const {
  check<ConfigError>(!ema || weights.empty(),
                     "--ema: goes with --run: give --weights {} the averaged file itself", weights);
  TrainedModel trained;
  if (weights.empty()) {
    const RunFolder folder = RunFolder::open(run);
    trained.path = ema ? folder.average_weights() : folder.weights();
  } else {
    trained.path = weights;
  }
  trained.info = read_weights_info(trained.path);
  trained.model = build_model(trained.info.config);
  trained.parameters = std::make_unique<nn::FlatParameters>(
      *trained.model, parameter_options(trained.info.config, Device::cpu()));
  load_weights(trained.path, *trained.parameters);
  check_finite(trained.path, *trained.parameters);
  return trained;
}

}  // namespace fsdptrain::tools
