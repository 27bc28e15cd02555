#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/data/loader.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_fixture.h"

// What the loader promises about positions: any can be the first, whatever the files and their
// size.
namespace fsdptrain::data {
namespace {

using testing::TemporaryFolder;
using testing::write_tokens;

TEST_SUITE_BEGIN("runtime/data/loader_position");

constexpr std::int64_t kSeqLen = 5;

// Two streams in shards of odd sizes, no window of which ends where a shard does, and the
// concatenation of each.
struct TwoSources {
  explicit TwoSources(const TemporaryFolder& folder) {
    const std::vector<std::size_t> sizes{601, 97};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::vector<std::int64_t> tokens(sizes[i]);
      for (std::size_t k = 0; k < tokens.size(); ++k) {
        tokens[k] = philox(k, i, 4).word[0] % 50;
      }
      const auto path = folder / fmt::format("{}", i);
      write_tokens({path, {50, 7, "test"}, 13}, tokens);
      const auto source = std::make_shared<TokenSource>(existing_shards(path));
      weighted.push_back(
          {std::make_shared<TokenDataset>(source, kSeqLen, TokenRange{2, sizes[i] - 1}),
           i == 0 ? 3.0 : 1.0});
      streams.push_back(tokens);
    }
  }

  std::vector<WeightedDataset> weighted;
  std::vector<std::vector<std::int64_t>> streams;
};

TEST_CASE("a loader made anew at any of 10,000 positions goes on exactly, over shards and epochs") {
  const TemporaryFolder folder;
  const TwoSources sources(folder);
  const Loader::Options options{.seed = 11, .global_batch = 12, .micro_batch = 12};
  const Loader first(sources.weighted, options);
  std::map<std::pair<std::size_t, std::uint64_t>, int> epochs;
  constexpr std::uint64_t kPositions = 10'000;
  for (std::uint64_t step = 0; step < kPositions / 12 + 1; ++step) {
    const Batch batch = first.micro_batch(step, 0);
    // What a loader of another split reads that knows this position alone.
    for (const std::int64_t micro_batch : {1, 4}) {
      Loader::Options other = options;
      other.micro_batch = micro_batch;
      Batch joined;
      for (std::int64_t index = 0; index < 12 / micro_batch; ++index) {
        const Batch part = Loader(sources.weighted, other).micro_batch(step, index);
        REQUIRE(part.first_sample == step * 12 + static_cast<std::uint64_t>(index * micro_batch));
        joined.num_targets += part.num_targets;
        for (const auto member :
             {&Batch::tokens, &Batch::targets, &Batch::positions, &Batch::document_ids}) {
          (joined.*member)
              .insert((joined.*member).end(), (part.*member).begin(), (part.*member).end());
        }
      }
      REQUIRE(joined.tokens == batch.tokens);
      REQUIRE(joined.targets == batch.targets);
      REQUIRE(joined.positions == batch.positions);
      REQUIRE(joined.document_ids == batch.document_ids);
      REQUIRE(joined.num_targets == batch.num_targets);
    }
    for (std::uint64_t row = 0; row < 12; ++row) {
      const Loader::Sample sample = first.sample(step * 12 + row);
      ++epochs[{sample.source, sample.epoch}];
      const auto begin = static_cast<std::ptrdiff_t>(2 + sample.window * kSeqLen);
      const auto& stream = sources.streams[sample.source];
      REQUIRE(std::equal(stream.begin() + begin, stream.begin() + begin + kSeqLen,
                         batch.tokens.begin() + static_cast<std::ptrdiff_t>(row * kSeqLen)));
    }
  }
  // Each source has changed its epoch many times; those in whole blocks of slots were whole.
  for (std::size_t source = 0; source < 2; ++source) {
    const std::uint64_t size = sources.weighted[source].dataset->num_samples();
    const std::uint64_t used = kPositions / 1024 * (source == 0 ? 768 : 256);
    CHECK(used / size > 50);
    for (std::uint64_t epoch = 0; epoch < used / size; ++epoch) {
      CHECK(epochs[{source, epoch}] == static_cast<int>(size));
    }
  }
}

std::uint64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("RssAnon:")) {
      return std::stoull(line.substr(8)) * 1024;
    }
  }
  return 0;
}

constexpr std::uint64_t kMarkedToken = (std::uint64_t{1} << 31) + 5;

// A token file of zeros that takes no room on the disk, but for its last token, 200, and one beyond
// 4 GiB, 77; empty, or why there is none.
std::string make_sparse_file(const std::filesystem::path& path, std::uint64_t nbytes) {
  write_tokens({path, {257, 256, "byte"}}, {});
  const int descriptor = ::open(path.c_str(), O_WRONLY);
  const std::uint64_t num_tokens = (nbytes - kTokenHeaderBytes) / 2;
  const std::uint64_t num_documents = 1;
  const bool is_written =
      ::ftruncate(descriptor, static_cast<off_t>(nbytes)) == 0 &&
      ::pwrite(descriptor, &num_tokens, sizeof num_tokens, 16) == sizeof num_tokens &&
      ::pwrite(descriptor, &num_documents, sizeof num_documents, 32) == sizeof num_documents &&
      ::pwrite(descriptor, "\xc8", 1, static_cast<off_t>(nbytes - 2)) == 1 &&
      (num_tokens <= kMarkedToken ||
       ::pwrite(descriptor, "\x4d", 1, kTokenHeaderBytes + 2 * kMarkedToken) == 1);
  const std::string error = std::strerror(errno);
  struct stat status {};
  ::fstat(descriptor, &status);
  ::close(descriptor);
  if (!is_written) {
    return error;
  }
  return status.st_blocks * 512 < (1 << 20) ? "" : "its holes take room there";
}

// How much the private memory grows while windows of all the file are read.
std::int64_t growth_over(const std::filesystem::path& path, std::uint64_t nbytes) {
  const auto before = static_cast<std::int64_t>(anonymous_bytes());
  const auto source = std::make_shared<TokenSource>(path);
  REQUIRE(source->num_tokens() == (nbytes - kTokenHeaderBytes) / 2);
  const auto dataset =
      std::make_shared<TokenDataset>(source, 512, TokenRange{0, source->num_tokens()});
  const Loader loader({{dataset, 1}}, {.seed = 1, .global_batch = 2, .micro_batch = 2});
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t most = 0;
  for (std::uint64_t step = 0; step < 2000; ++step) {
    const Batch batch = loader.micro_batch(step * 1'000'003, 0);
    REQUIRE(batch.tokens == std::vector<std::int64_t>(1024, 0));
    const std::uint64_t window = loader.sample(batch.first_sample).window;
    least = std::min(least, window);
    most = std::max(most, window);
  }
  CHECK(least < dataset->num_samples() / 50);
  CHECK(most > dataset->num_samples() - dataset->num_samples() / 50);
  return static_cast<std::int64_t>(anonymous_bytes()) - before;
}

TEST_CASE("a file of 64 GiB costs no more private memory than one of 64 MiB") {
  const TemporaryFolder folder;
  constexpr std::uint64_t kSmall = std::uint64_t{64} << 20;
  constexpr std::uint64_t kLarge = std::uint64_t{64} << 30;
  REQUIRE(make_sparse_file(folder / "small", kSmall).empty());
  if (const std::string reason = make_sparse_file(folder / "large", kLarge); !reason.empty()) {
    MESSAGE("SKIPPED, nothing was tested: no sparse file of "
            << kLarge << " bytes in " << folder.path().native() << ": " << reason);
    return;
  }
  const std::int64_t small = growth_over(folder / "small", kSmall);
  const std::int64_t large = growth_over(folder / "large", kLarge);
  CAPTURE(small);
  CHECK(large - small < std::int64_t{16} << 20);
  // Offsets do not wrap at 32 bits, neither in tokens nor in bytes.
  const TokenSource source(folder / "large");
  std::vector<std::int64_t> last(1);
  source.read(source.num_tokens() - 1, last);
  CHECK(last[0] == 200);
  source.read(kMarkedToken, last);
  CHECK(last[0] == 77);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
