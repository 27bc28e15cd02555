#include "tools/bench/step_parts.h"

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "tools/bench/step_model.h"

namespace fsdptrain::tools {
namespace {

TEST_SUITE_BEGIN("tools/bench/step_parts");

TEST_CASE("parts add up to the step, and unknown kernels are other") {
  KernelProfile profile;
  { const ProfileScope scope(&profile, "matmul"); }
  { const ProfileScope scope(&profile, "layer_norm"); }
  { const ProfileScope scope(&profile, "layer_norm_backward"); }
  { const ProfileScope scope(&profile, "unheard_of"); }
  const auto parts = step_parts(profile, 10);
  double total = 0;
  for (const StepPart& part : parts) {
    total += part.seconds;
    if (part.name == "norm") {
      CHECK(part.seconds == profile.entries().at("layer_norm").seconds +
                                profile.entries().at("layer_norm_backward").seconds);
    }
  }
  CHECK(total == doctest::Approx(10));
  CHECK(parts.back().name == "other");
  CHECK(parts.back().seconds > 9.9);
}

TEST_CASE("every kernel of a training step has its part") {
  Config config;
  config.model.num_layers = 2;
  config.model.num_heads = 2;
  config.model.embed_dim = 16;
  config.model.vocab_size = 61;
  config.model.max_seq_len = 8;
  config.model.dropout = 0.1;
  config.train.micro_batch = 2;
  config.train.seq_len = 8;
  for (const char* const family : {"gpt2", "llama"}) {
    for (const char* const optimizer : {"adamw", "sgd"}) {
      for (const char* const dtype : {"float32", "bfloat16"}) {
        CAPTURE(family);
        CAPTURE(optimizer);
        CAPTURE(dtype);
        config.model.name = family;
        config.optimizer.name = optimizer;
        config.train.compute_dtype = dtype;
        StepModel model(config);
        KernelProfile profile;
        const ProfileGuard guard(profile);
        model.run();
        CHECK(profile.entries().size() > 10);
        for (const auto& [kernel, entry] : profile.entries()) {
          CAPTURE(kernel);
          CHECK(part_of(kernel) != "other");
        }
      }
    }
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
