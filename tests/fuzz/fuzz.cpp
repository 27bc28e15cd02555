// Runs a fuzz target: every file of the corpus, then mutations of them until the time is over.
//
//   TARGET CORPUS [SECONDS [SEED]]
//
// An input that kills the process is in the file last-input of the working directory, which is
// written before each run and removed at the end. The same seed gives the same inputs.
#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fmt/core.h>
#include <fstream>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "runtime/base/error.h"

namespace fsdptrain::fuzz {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<std::byte>;

constexpr const char* kLastInput = "last-input";
constexpr std::size_t kMaxBytes = 1 << 16;

Bytes read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<Bytes> read_corpus(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<Bytes> corpus;
  std::ranges::transform(files, std::back_inserter(corpus), read_file);
  return corpus;
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // One of the corpus with a few changes.
  Bytes next(const std::vector<Bytes>& corpus) {
    Bytes bytes = corpus[below(corpus.size())];
    const std::size_t changes = 1 + below(4);
    for (std::size_t change = 0; change < changes; ++change) {
      mutate(bytes, corpus);
    }
    bytes.resize(std::min(bytes.size(), kMaxBytes));
    return bytes;
  }

 private:
  std::size_t below(std::size_t end) {
    return end == 0 ? 0 : static_cast<std::size_t>(random_() % end);
  }

  void mutate(Bytes& bytes, const std::vector<Bytes>& corpus) {
    const auto at = [&] {
      return bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size()));
    };
    switch (below(7)) {
      case 0:  // a bit
        if (!bytes.empty()) {
          *at() ^= static_cast<std::byte>(1U << below(8));
        }
        return;
      case 1:  // a byte
        if (!bytes.empty()) {
          *at() = static_cast<std::byte>(below(256));
        }
        return;
      case 2:  // one more byte
        bytes.insert(bytes.empty() ? bytes.end() : at(), static_cast<std::byte>(below(256)));
        return;
      case 3:  // cut
        bytes.resize(below(bytes.size() + 1));
        return;
      case 4: {  // a piece removed
        const auto begin = bytes.empty() ? bytes.begin() : at();
        const auto length = below(static_cast<std::size_t>(bytes.end() - begin) + 1);
        bytes.erase(begin, begin + static_cast<std::ptrdiff_t>(length));
        return;
      }
      case 5: {  // a piece of another one inserted
        const Bytes& other = corpus[below(corpus.size())];
        const std::size_t begin = below(other.size() + 1);
        const std::size_t end = begin + below(other.size() - begin + 1);
        const Bytes piece(other.begin() + static_cast<std::ptrdiff_t>(begin),
                          other.begin() + static_cast<std::ptrdiff_t>(end));
        bytes.insert(bytes.empty() ? bytes.end() : at(), piece.begin(), piece.end());
        return;
      }
      default: {  // a number that is on the edge of something
        constexpr std::uint64_t kEdges[] = {0,          1,
                                            0x7f,       0xffff,
                                            1 << 20,    0x7fffffff,
                                            0xffffffff, 0x7fffffffffffffff,
                                            ~0ULL,      0x8000000000000000};
        const std::uint64_t edge = kEdges[below(std::size(kEdges))];
        const auto edge_bytes = std::as_bytes(std::span(&edge, 1));
        const std::size_t begin = below(bytes.size());
        for (std::size_t i = 0; i < edge_bytes.size() && begin + i < bytes.size(); ++i) {
          bytes[begin + i] = edge_bytes[i];
        }
        return;
      }
    }
  }

  std::mt19937_64 random_;
};

// Whether the target took the bytes, rather than refused them.
bool run_one(const Bytes& bytes) {
  std::ofstream(kLastInput, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  try {
    read_hostile(bytes);
    return true;
  } catch (const Error&) {
    return false;
  }
}

int run(const fs::path& corpus_folder, double seconds, std::uint64_t seed) {
  const std::vector<Bytes> corpus = read_corpus(corpus_folder);
  if (corpus.empty()) {
    fmt::print(stderr, "{}: the corpus is empty\n", corpus_folder.native());
    return 1;
  }
  std::uint64_t inputs = 0;
  std::uint64_t taken = 0;
  for (const Bytes& bytes : corpus) {
    taken += run_one(bytes) ? 1 : 0;
    ++inputs;
  }
  Mutator mutator(seed);
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    taken += run_one(mutator.next(corpus)) ? 1 : 0;
    ++inputs;
  }
  fs::remove(kLastInput);
  fmt::print("{} inputs, {} taken, {} refused\n", inputs, taken, inputs - taken);
  return 0;
}

}  // namespace

BytesFile::BytesFile(std::span<const std::byte> bytes)
    : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  if (descriptor_ < 0 ||
      ::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("a file in memory cannot be made");
  }
}

BytesFile::~BytesFile() {
  ::close(descriptor_);
}

fs::path BytesFile::path() const {
  return fmt::format("/proc/self/fd/{}", descriptor_);
}

}  // namespace fsdptrain::fuzz

int main(int argc, char** argv) {
  try {
    if (argc < 2 || argc > 4) {
      fmt::print(stderr, "usage: {} CORPUS [SECONDS [SEED]]\n", argv[0]);
      return 2;
    }
    return fsdptrain::fuzz::run(argv[1], argc > 2 ? std::stod(argv[2]) : 0,
                                argc > 3 ? std::stoull(argv[3]) : 1);
  } catch (const std::exception& error) {
    fmt::print(stderr, "found: {} (the input is in {})\n", error.what(),
               fsdptrain::fuzz::kLastInput);
    return 1;
  }
}
