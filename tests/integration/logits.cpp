#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "comm/lone_world.h"
#include "models/common/decoder.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/rank_context.h"
#include "runtime/nn/evaluation_guard.h"
#include "tools/model/trained_model.h"

// For each line of tokens of the standard input a line with the logits of all its places, of the
// weights whose file the only argument names: what a test compares with another implementation.
namespace fsdptrain {
namespace {

std::vector<std::int64_t> tokens_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::int64_t> tokens;
  for (std::int64_t token = 0; stream >> token;) {
    tokens.push_back(token);
  }
  return tokens;
}

void print_logits(const std::string& weights) {
  RankContext context;
  const ContextGuard guard(context);
  comm::LoneWorld alone;
  const tools::TrainedModel trained =
      tools::TrainedModelArguments{.run = {}, .weights = weights}.load(alone.world().group());
  const autograd::NoGradGuard no_grad;
  const nn::EvaluationGuard evaluation(*trained.model);
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::int64_t> tokens = tokens_of(line);
    const Tensor row =
        Tensor::from<std::int64_t>(tokens, {1, static_cast<std::int64_t>(tokens.size())});
    std::cout << fmt::format(
        "{:.9g}\n", fmt::join(trained.model->logits(models::one_document(row)).to_vector(), " "));
  }
}

}  // namespace
}  // namespace fsdptrain

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: logits WEIGHTS <TOKENS\n";
    return 2;
  }
  try {
    fsdptrain::print_logits(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
