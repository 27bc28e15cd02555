#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/random.h"
#include "runtime/base/rank_context.h"
#include "runtime/data/loader.h"
#include "runtime/data/prepare.h"
#include "tools/bench/bench.h"
#include "tools/bench/step_model.h"
#include "tools/bench/timing.h"

namespace fsdptrain::tools {
namespace {

namespace fs = std::filesystem;

// The model of configs/quickstart.toml.
constexpr std::string_view kQuickstart[] = {
    "model.num_layers=4",    "model.num_heads=4",    "model.embed_dim=128",
    "model.max_seq_len=128", "train.seq_len=128",    "train.global_batch=16",
    "train.micro_batch=16",  "model.vocab_size=257", "model.name=\"gpt2\""};

// A folder of its own, removed with all in it.
class WorkFolder {
 public:
  explicit WorkFolder(const fs::path& parent) {
    std::string name = parent / "fsdptrain-bench-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      fail_path(parent, "creating a folder in --folder", errno);
    }
    path_ = name;
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
    if (error) {
      log_warning("{}: removing the folder failed: {}", path_.native(), error.message());
    }
  }

  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

void write_whole(const fs::path& path, const std::string& text) {
  std::optional<File> file = File::create(path);
  check<IoError>(file.has_value(), "{}: exists already", path.native());
  file->write_at(0, std::as_bytes(std::span(text)));
  file->sync();
}

// Words of one to eight letters, a line end now and then.
std::string words(std::size_t nbytes, std::uint64_t seed) {
  std::string text;
  for (std::uint64_t i = 0; text.size() < nbytes; ++i) {
    const Philox random = philox(i, seed, 1);
    for (std::uint32_t letter = 0; letter <= random.word[0] % 8; ++letter) {
      text += static_cast<char>('a' + (random.word[1] >> (4 * letter)) % 16);
    }
    text += random.word[2] % 12 == 0 ? '\n' : ' ';
  }
  text.resize(nbytes);
  return text;
}

// Documents of 100 to some 6,000 bytes, escaped as writers of JSON do.
std::string json_lines(std::size_t nbytes) {
  std::string lines;
  for (std::uint64_t i = 0; lines.size() < nbytes; ++i) {
    lines += fmt::format("{{\"id\": {}, \"text\": \"", i);
    for (const char c : words(100 + philox(i, 0, 2).word[0] % 6000, i)) {
      lines += c == '\n' ? "\\n" : std::string(1, c);
    }
    lines += "\", \"source\": \"bench\"}\n";
  }
  return lines;
}

// What cannot be saved: the input is read, and as many bytes as the output has reach the device.
void read_and_write(const fs::path& input, const fs::path& output, std::uint64_t output_bytes) {
  std::vector<std::byte> part(std::size_t{1} << 20);
  const File file = File::open_for_reading(input);
  for (std::uint64_t offset = 0; const std::size_t nbytes = file.read_at(offset, part);) {
    offset += nbytes;
  }
  std::optional<File> out = File::create(output);
  check<IoError>(out.has_value(), "{}: exists already", output.native());
  for (std::uint64_t offset = 0; offset < output_bytes; offset += part.size()) {
    out->write_at(offset, std::span(part).first(static_cast<std::size_t>(
                              std::min<std::uint64_t>(part.size(), output_bytes - offset))));
  }
  out->sync();
}

// The seconds of one call that makes `output`, which is not there before.
double time_output(const fs::path& output, const std::function<void()>& make) {
  fs::remove(output);
  const Stopwatch stopwatch;
  make();
  return stopwatch.seconds();
}

// Adds the roof of an input and its preparation, in this order; returns the bytes of the input.
std::uint64_t add_preparation(std::vector<Contestant>& contestants, const fs::path& input,
                              const fs::path& output) {
  const auto prepare = [input, output] {
    data::prepare_bytes(data::list_texts({input}), {.output = output}, current_context().pool());
  };
  prepare();
  const std::uint64_t output_bytes = fs::file_size(output);
  contestants.push_back({"roof", [input, output, output_bytes] {
                           return time_output(output,
                                              [&] { read_and_write(input, output, output_bytes); });
                         }});
  contestants.push_back({"prepare", [output, prepare] { return time_output(output, prepare); }});
  return fs::file_size(input);
}

void report_preparation(Report& report, const char* kind, std::uint64_t input_bytes,
                        const std::vector<double>& roof, const std::vector<double>& prepare) {
  const double seconds = median(prepare);
  report.figures.push_back(
      {fmt::format("prepare_{}", kind), static_cast<double>(input_bytes) / seconds * 1e-9, "GB/s"});
  report.figures.push_back(
      {fmt::format("prepare_ratio_{}", kind), median(roof) / seconds, "share", 0.8});
}

}  // namespace

Report bench_data(const fs::path& folder, std::int64_t megabytes, int rounds) {
  const WorkFolder work(folder);
  const auto nbytes = static_cast<std::size_t>(megabytes) << 20;
  const fs::path text = work / "words.txt";
  const fs::path lines = work / "lines.jsonl";
  write_whole(text, words(nbytes, 0));
  write_whole(lines, json_lines(nbytes));
  std::vector<Contestant> contestants;
  const std::uint64_t text_bytes = add_preparation(contestants, text, work / "tokens.bin");
  const std::uint64_t lines_bytes = add_preparation(contestants, lines, work / "tokens.bin");

  const Config config = load_config(
      std::nullopt, std::vector<std::string>(std::begin(kQuickstart), std::end(kQuickstart)));
  data::prepare_bytes(data::list_texts({lines}), {.output = work / "loaded.bin"},
                      current_context().pool());
  const auto source = std::make_shared<data::TokenSource>(work / "loaded.bin");
  source->advise_random();
  const auto dataset = std::make_shared<data::TokenDataset>(
      source, config.train.seq_len, data::TokenRange{0, source->num_tokens()});
  const data::Loader loader({{dataset, 1}}, {.seed = 1,
                                             .global_batch = config.train.global_batch,
                                             .micro_batch = config.train.micro_batch});
  StepModel model(config);
  std::uint64_t step = 0;
  contestants.push_back(
      {"loader", [&] { return time_calls([&] { loader.micro_batch(step++, 0); }, 5e-3); }});
  contestants.push_back({"step", [&] { return model.run(loader.micro_batch(step++, 0)); }});

  const auto times = interleave("bench data", contestants, rounds);
  Report report = new_report("data");
  report_preparation(report, "text", text_bytes, times[0], times[1]);
  report_preparation(report, "jsonl", lines_bytes, times[2], times[3]);
  report.figures.push_back({"loader", median(times[4]), "s"});
  report.figures.push_back({"step", median(times[5]), "s"});
  report.figures.push_back(
      {"loader_share_of_step", median(times[4]) / median(times[5]), "share", std::nullopt, 0.01});
  return report;
}

}  // namespace fsdptrain::tools
