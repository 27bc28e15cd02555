#include "tools/model/trained_model.h"

#include "runtime/base/error.h"
#include "tools/commands.h"
#include "tools/run/run_folder.h"
#include "tools/train/from_config.h"

namespace fsdptrain::tools {

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

TrainedModel TrainedModelArguments::load(comm::ProcessGroup& ranks) const {
  check<ConfigError>(!ema || weights.empty(),
                     "--ema: goes with --run: give --weights {} the averaged file itself", weights);
  TrainedModel trained;
  if (weights.empty()) {
    const RunFolder folder = RunFolder::read(run);
    trained.path = ema ? folder.average_weights() : folder.weights();
  } else {
    trained.path = weights;
  }
  trained.info = read_weights_info(trained.path);
  trained.model = build_model(trained.info.config);
  trained.sharded = shard_model(trained.info.config, *trained.model, ranks);
  load_weights(trained.path, *trained.sharded);
  return trained;
}

}  // namespace fsdptrain::tools
