#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "models/gpt2/config.h"
#include "models/gpt2/model.h"
#include "models/llama/config.h"
#include "models/llama/model.h"
#include "shard/layout.h"

namespace fsdptrain::shard {
namespace {

struct Group {
  std::string name;
  std::vector<LayoutParameter> parameters;
  LayoutConstraints constraints;
};

Group group_of(std::string name, const nn::Module& module) {
  Group group{std::move(name), {}, {module.adjacent_parameters()}};
  for (const nn::Parameter& parameter : module.parameters()) {
    group.parameters.push_back({.name = parameter.name, .numel = parameter.tensor->numel()});
  }
  return group;
}

Group gpt2_block(const std::string& preset) {
  models::Gpt2Config config = models::gpt2_preset(preset).value();
  config.num_layers = 1;
  models::Gpt2 model(config);
  return group_of(preset, *model.blocks().front());
}

Group llama_block(std::string name, models::LlamaConfig config) {
  config.num_layers = 1;
  models::Llama model(config);
  return group_of(std::move(name), *model.blocks().front());
}

Group llama_block(const std::string& preset) {
  return llama_block(preset, models::llama_preset(preset).value());
}

// Blocks of 7B and larger, published sizes that are no presets among them.
std::vector<Group> large_blocks() {
  const auto llama = [](std::int64_t num_heads, std::int64_t num_kv_heads, std::int64_t embed_dim,
                        std::int64_t ffn_dim) {
    return models::LlamaConfig{.num_heads = num_heads,
                               .num_kv_heads = num_kv_heads,
                               .embed_dim = embed_dim,
                               .head_dim = 128,
                               .ffn_dim = ffn_dim};
  };
  return {llama_block("llama3-8b"),
          llama_block("llama3-70b"),
          llama_block("llama2-7b", llama(32, 32, 4096, 11008)),
          llama_block("llama2-13b", llama(40, 40, 5120, 13824)),
          llama_block("mistral-7b", llama(32, 8, 4096, 14336)),
          llama_block("qwen2-7b", llama(28, 4, 3584, 18944)),
          llama_block("llama3-405b", llama(128, 8, 16384, 53248))};
}

std::vector<Group> small_blocks() {
  return {gpt2_block("gpt2-124m"), gpt2_block("gpt2-350m"), gpt2_block("gpt2-774m"),
          gpt2_block("gpt2-1558m"), llama_block("llama3-1b")};
}

// Padding in parts of the parameters, at its most over all numbers of ranks up to 1,024, and with
// how many of them.
std::pair<double, int> most_padding(const Group& group) {
  std::pair<double, int> most{0, 0};
  for (int num_ranks = 1; num_ranks <= 1024; ++num_ranks) {
    const GroupLayout layout = plan_layout(group.parameters, num_ranks, group.constraints);
    REQUIRE(layout.buffers.size() == 1);
    const BufferLayout& buffer = layout.buffers[0];
    const auto num_parameters = static_cast<std::int64_t>(group.parameters.size());
    REQUIRE(buffer.padding() <= (num_ranks + num_parameters) * buffer.granule());
    const double part = static_cast<double>(buffer.padding()) /
                        static_cast<double>(buffer.numel() - buffer.padding());
    most = std::max(most, {part, num_ranks});
  }
  return most;
}

// One line a buffer: granule, chunk, and every parameter with its place.
std::string text_of(const Group& group, int num_ranks) {
  std::string text;
  for (const BufferLayout& buffer :
       plan_layout(group.parameters, num_ranks, group.constraints).buffers) {
    text += fmt::format("granule {} chunk {}:", buffer.granule(), buffer.chunk_numel());
    for (const Placement& placement : buffer.placements()) {
      text += fmt::format(" {}@{}", group.parameters[placement.parameter].name,
                          placement.in_buffer.begin);
    }
    text += '\n';
  }
  return text;
}

TEST_SUITE("shard/layout of models") {
  TEST_CASE("blocks of 7B and larger have at most 0.1 % of padding on up to 1024 ranks") {
    for (const Group& group : large_blocks()) {
      const auto [part, num_ranks] = most_padding(group);
      CAPTURE(group.name);
      CAPTURE(num_ranks);
      CHECK(part <= 0.001);
    }
  }

  TEST_CASE("blocks of GPT-2 and of llama3-1b have at most 0.5 % of padding on up to 1024 ranks") {
    for (const Group& group : small_blocks()) {
      const auto [part, num_ranks] = most_padding(group);
      CAPTURE(group.name);
      CAPTURE(num_ranks);
      CHECK(part <= 0.005);
    }
  }

  // Files do not depend on this: a checkpoint holds the places that were planned. But runs that
  // resume on as many ranks as before read less if the places are the same.
  TEST_CASE("a plan is where it was when it was last changed on purpose") {
    CHECK(text_of(gpt2_block("gpt2-124m"), 8) ==
          "granule 128 chunk 886016: ln_1.weight@0 ln_1.bias@768 attn.c_attn.weight@1536 "
          "attn.c_attn.bias@1771008 attn.c_proj.weight@1773312 attn.c_proj.bias@2363136 "
          "ln_2.weight@2363904 ln_2.bias@2364672 mlp.c_fc.weight@2365440 mlp.c_fc.bias@4724736 "
          "mlp.c_proj.weight@4727808 mlp.c_proj.bias@7087104\n");
    CHECK(text_of(llama_block("llama3-1b"), 7) ==
          "granule 128 chunk 8688896: input_layernorm.weight@0 self_attn.q_proj.weight@2048 "
          "self_attn.k_proj.weight@4196352 self_attn.v_proj.weight@5244928 "
          "self_attn.o_proj.weight@6293504 post_attention_layernorm.weight@10487808 "
          "mlp.gate_proj.weight@10489856 mlp.up_proj.weight@27267072 "
          "mlp.down_proj.weight@44044288\n");
    const BufferKey frozen{DType::BFloat16, DType::BFloat16, std::nullopt};
    const Group mixed{"mixed",
                      {{.name = "norm", .numel = 5},
                       {.name = "base", .numel = 1009, .key = frozen},
                       {.name = "v", .numel = 33},
                       {.name = "q", .numel = 65},
                       {.name = "scaled", .numel = 64000, .row_group = 48}},
                      {{{"q", "v"}}}};
    CHECK(text_of(mixed, 3) ==
          "granule 32 chunk 21408: scaled@0 norm@64000 q@64032 v@64097\n"
          "granule 32 chunk 352: base@0\n");
  }
}

}  // namespace
}  // namespace fsdptrain::shard
