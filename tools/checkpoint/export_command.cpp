#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/convert/export.h"
#include "checkpoint/io/file_system.h"
#include "checkpoint/load/reader.h"
#include "checkpoint/safetensors/file.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tools/checkpoint/describe.h"
#include "tools/checkpoint/locate.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/plan/byte_size.h"
#include "tools/progress.h"
#include "tools/run/run_progress.h"
#include "tools/stop_signals.h"
#include "tools/train/weights.h"

namespace fsdptrain::tools {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  fs::path path;
  fs::path output;
  std::string plane = checkpoint::kParameters;
  std::optional<std::string> dtype;
  std::optional<std::string> max_file_size;
  bool json = false;
};

// What values may be rounded to.
constexpr std::array kDtypes = {DType::Float32, DType::BFloat16, DType::Float16};

std::vector<std::string> names_of_dtypes() {
  std::vector<std::string> names;
  for (const DType dtype : kDtypes) {
    names.emplace_back(name_of(dtype));
  }
  return names;
}

checkpoint::ExportOptions options_of(const Arguments& arguments) {
  checkpoint::ExportOptions options{.plane = arguments.plane};
  if (arguments.dtype) {
    options.dtype = *std::ranges::find_if(
        kDtypes, [&](DType dtype) { return name_of(dtype) == *arguments.dtype; });
  }
  if (arguments.max_file_size) {
    options.max_file_nbytes = static_cast<std::uint64_t>(parse_size(*arguments.max_file_size));
    check<ConfigError>(*options.max_file_nbytes > 0, "--max-file-size: must be at least 1 byte");
  }
  return options;
}

// Replaces weights and nothing else.
void check_output(checkpoint::FileSystem& files, const Arguments& arguments) {
  check_apart_from_checkpoints(files, arguments.output);
  std::error_code error;
  if (arguments.max_file_size || !fs::exists(arguments.output, error)) {
    return;
  }
  try {
    checkpoint::SafetensorsReader(arguments.output).path();
  } catch (const DataError&) {
    fail<ConfigError>(
        "--output: {} is there and is no safetensors file: give another name, or move "
        "it away",
        arguments.output.string());
  }
}

checkpoint::Exported export_with_progress(const Arguments& arguments) {
  const auto files = checkpoint::make_real_file_system();
  check_output(*files, arguments);
  checkpoint::CheckpointReader source = open_checkpoint(*files, arguments.path);
  checkpoint::ExportOptions options = options_of(arguments);
  if (const std::optional<WeightsInfo> info = saved_weights_info(source.manifest())) {
    options.metadata = weights_metadata(*info);
  }
  const StopSignals signals;
  Progress progress("export", checkpoint::export_nbytes(source, options));
  std::uint64_t done = 0;
  checkpoint::Exported exported;
  naming_one_before(*files, arguments.path, source, [&] {
    exported = checkpoint::export_model(source, arguments.output, options, [&](std::uint64_t part) {
      signals.check_stop();
      progress.update(done += part);
    });
  });
  return exported;
}

void run_export(const Arguments& arguments) {
  RankContext context({.threads = 1});
  const ContextGuard guard(context);
  const checkpoint::Exported exported = export_with_progress(arguments);
  std::vector<std::string> paths;
  for (const fs::path& path : exported.files) {
    paths.push_back(path.string());
  }
  if (arguments.json) {
    const nlohmann::ordered_json json{{"files", paths}, {"nbytes", exported.nbytes}};
    fmt::print("{}", to_line(json));
    return;
  }
  for (const std::string& path : paths) {
    fmt::print("{}\n", path);
  }
}

}  // namespace

Command add_checkpoint_export_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("export", "Write the parameters as plain safetensors files");
  command->footer(
      R"(Names and shapes are the model's. One file, which `fsdptrain eval --weights` and `generate` take;
with --max-file-size a folder of files with an index, in the form of Hugging Face's.

Examples:
  fsdptrain checkpoint export runs/gpt2 --output gpt2.safetensors
  fsdptrain checkpoint export runs/gpt2 --plane average --output averaged.safetensors
  fsdptrain checkpoint export runs/gpt2 --dtype bfloat16 --max-file-size 5GB --output gpt2/)");
  const auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("path", arguments->path,
                   "a checkpoint; of a folder the newest with all its files")
      ->required()
      ->type_name("PATH");
  command->add_option("--output", arguments->output, "the file, or the folder of several")
      ->required()
      ->check(not_empty())
      ->type_name("PATH");
  command
      ->add_option("--plane", arguments->plane,
                   "parameters, average, or a state of the optimizer (`inspect` lists them)")
      ->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "what floating values are rounded to")
      ->check(CLI::IsMember(names_of_dtypes()));
  command
      ->add_option("--max-file-size", arguments->max_file_size,
                   "of one of several files, such as 5GB or 4GiB")
      ->type_name("SIZE");
  command->add_flag("--json", arguments->json, "one JSON object");
  return {command, [arguments] {
            run_export(*arguments);
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
