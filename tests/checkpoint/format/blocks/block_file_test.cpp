#include "checkpoint/format/blocks/block_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <xxhash.h>

#include <doctest/doctest.h>

#include "checkpoint/safetensors/file.h"
#include "runtime/base/error.h"
#include "tests/support/faulty_files.h"
#include "tests/support/file_bytes.h"
#include "tests/support/memory_files.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::FaultyFiles;
using testing::file_text;
using testing::MemoryFiles;
using testing::put_file;
using testing::random_bytes;

constexpr const char* kPath = "/file";

const std::map<std::string, std::string> kMetadata = {{"step", "7"}};

// Three blocks, the last of them not full.
std::vector<TensorSpec> three_blocks() {
  return {{.name = "p/a", .dtype = DType::BFloat16, .shape = {3, 5}},
          {.name = "p/none", .dtype = DType::Float32, .shape = {0, 4}},
          {.name = "p/b@12", .dtype = DType::Float32, .shape = {300007}},
          {.name = "p/scalar", .dtype = DType::Float64, .shape = {}},
          {.name = "q/a", .dtype = DType::Float64, .shape = {170001}}};
}

constexpr std::size_t kNumBytes = 30 + 300007 * 4 + 8 + 170001 * 8;

FileFacts write(FileSystem& files, const std::vector<TensorSpec>& tensors,
                std::span<const std::byte> bytes, std::size_t step) {
  BlockFileWriter writer(files, kPath, kMetadata, tensors);
  for (std::size_t begin = 0; begin < bytes.size(); begin += step) {
    writer.append(bytes.subspan(begin, std::min(step, bytes.size() - begin)));
  }
  return writer.finish();
}

void check_damaged(FileSystem& files, const FileFacts& facts, const std::string& text,
                   const char* message) {
  put_file(files, kPath, text);
  CHECK_THROWS_WITH_AS(BlockFileReader(files, kPath, facts), doctest::Contains(message), DataError);
  CHECK_THROWS_WITH_AS(BlockFileReader(files, kPath, facts), doctest::Contains(kPath), DataError);
}

std::string flipped(std::string text, std::size_t place, int bit = 0) {
  text[place] = static_cast<char>(text[place] ^ (1 << bit));
  return text;
}

}  // namespace

TEST_SUITE("checkpoint/format block file") {
  TEST_CASE("the bytes of a file do not depend on how they were appended") {
    const std::vector<std::byte> bytes = random_bytes(kNumBytes, 1);
    MemoryFiles first;
    const FileFacts facts = write(first, three_blocks(), bytes, kNumBytes);
    CHECK(facts.nbytes == file_text(first, kPath).size());
    for (const std::size_t step : {4095, 1 << 20, (1 << 20) + 1, 2000001}) {
      CAPTURE(step);
      MemoryFiles files;
      CHECK(write(files, three_blocks(), bytes, step) == facts);
      CHECK(file_text(files, kPath) == file_text(first, kPath));
    }
  }

  TEST_CASE("reads and writes of few bytes at a time give the same file and the same bytes") {
    const std::vector<TensorSpec> tensors = {
        {.name = "a", .dtype = DType::UInt8, .shape = {70'001}}};
    const std::vector<std::byte> bytes = random_bytes(70'001, 8);
    MemoryFiles whole;
    const FileFacts facts = write(whole, tensors, bytes, bytes.size());
    for (const std::size_t most : {1, 7, 4095}) {
      CAPTURE(most);
      MemoryFiles memory;
      FaultyFiles files(memory, {.counts = {}, .max_transfer = most});
      CHECK(write(files, tensors, bytes, bytes.size()) == facts);
      CHECK(file_text(memory, kPath) == file_text(whole, kPath));
      const BlockFileReader reader(files, kPath, facts);
      BlockFileReader::Ends ends;
      std::vector<std::byte> out(bytes.size());
      reader.read(0, out, ends);
      CHECK(out == bytes);
    }
  }

  TEST_CASE("a file is a safetensors file whose first tensor has the XXH3-64 of its blocks") {
    const testing::TemporaryFolder folder;
    const auto files = make_real_file_system();
    const std::vector<std::byte> bytes = random_bytes(kNumBytes, 1);
    BlockFileWriter writer(*files, folder / "file", kMetadata, three_blocks());
    writer.append(bytes);
    const FileFacts facts = writer.finish();
    const SafetensorsReader reader(folder / "file");
    CHECK(reader.metadata().at("step") == "7");
    CHECK(reader.entries().size() == 6);
    const TensorEntry& table = reader.find("block_digests");
    CHECK(table.begin == 0);
    CHECK(table.dtype == DType::Int64);
    CHECK(table.shape == Shape{3});
    std::array<std::uint64_t, 3> digests{};
    reader.read(table, std::as_writable_bytes(std::span(digests)));
    CHECK(digests[0] == XXH3_64bits(bytes.data(), kBlockBytes));
    CHECK(digests[1] == XXH3_64bits(bytes.data() + kBlockBytes, kBlockBytes));
    CHECK(digests[2] ==
          XXH3_64bits(bytes.data() + 2 * kBlockBytes, bytes.size() - 2 * kBlockBytes));
    std::vector<std::byte> tensor(300007 * 4);
    reader.read(reader.find("p/b@12"), tensor);
    CHECK(std::ranges::equal(tensor, std::span(bytes).subspan(30, tensor.size())));
    const std::string text = testing::read_file(folder / "file");
    const XXH128_hash_t digest = XXH3_128bits(text.data(), text.size() - kNumBytes);
    CHECK(facts.digest == Digest{.high = digest.high64, .low = digest.low64});
  }

  TEST_CASE("any range is read as it was written") {
    MemoryFiles files;
    const std::vector<std::byte> bytes = random_bytes(kNumBytes, 2);
    const FileFacts facts = write(files, three_blocks(), bytes, kNumBytes);
    const BlockFileReader reader(files, kPath, facts);
    CHECK(reader.metadata().at("step") == "7");
    CHECK(reader.entries().size() == 5);
    CHECK(reader.data_nbytes() == kNumBytes);
    CHECK(reader.find("block_digests") == nullptr);
    REQUIRE(reader.find("q/a") != nullptr);
    CHECK(reader.find("q/a")->begin == 30 + 300007 * 4 + 8);
    constexpr std::size_t kBlock = kBlockBytes;
    BlockFileReader::Ends ends;
    ThreadPool pool(3);
    for (const auto& [begin, end] :
         std::vector<std::pair<std::size_t, std::size_t>>{{0, 0},
                                                          {0, 1},
                                                          {5, kBlock},
                                                          {0, kBlock},
                                                          {kBlock - 1, kBlock + 1},
                                                          {7, kNumBytes},
                                                          {kBlock, 2 * kBlock},
                                                          {2 * kBlock, kNumBytes},
                                                          {kNumBytes - 1, kNumBytes},
                                                          {0, kNumBytes},
                                                          {kNumBytes, kNumBytes}}) {
      CAPTURE(begin);
      CAPTURE(end);
      std::vector<std::byte> out(end - begin);
      for (ThreadPool* const threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
        std::ranges::fill(out, std::byte{0});
        reader.read(begin, out, ends, threads);
        CHECK(std::ranges::equal(out, std::span(bytes).subspan(begin, end - begin)));
      }
    }
    std::vector<std::byte> out(2);
    CHECK_THROWS_WITH_AS(reader.read(kNumBytes - 1, out, ends),
                         doctest::Contains("asked for 2 from byte"), ShapeError);
  }

  TEST_CASE("pieces that follow each other read each block once, and nothing else") {
    MemoryFiles memory;
    const std::vector<std::byte> bytes = random_bytes(kNumBytes, 3);
    const FileFacts facts = write(memory, three_blocks(), bytes, kNumBytes);
    FaultyFiles files(memory);
    const BlockFileReader reader(files, kPath, facts);
    const std::uint64_t beginning = files.nbytes_read();
    // The length is read twice.
    CHECK(beginning == facts.nbytes - kNumBytes + 8);
    BlockFileReader::Ends ends;
    std::vector<std::byte> out(300);
    for (std::size_t begin = 1000; begin < 2 * kBlockBytes; begin += out.size()) {
      reader.read(begin, out, ends);
    }
    CHECK(files.nbytes_read() - beginning == kNumBytes);
    BlockFileReader::Ends others;
    std::vector<std::byte> middle(2);
    reader.read(kBlockBytes - 1, middle, others);
    CHECK(files.nbytes_read() - beginning == kNumBytes + 2 * kBlockBytes);
    const BlockFileReader other(files, kPath, facts);
    CHECK_THROWS_WITH_AS(other.read(0, middle, ends), doctest::Contains("of another reader"),
                         Error);
  }

  TEST_CASE("a file without bytes has a table without rows") {
    MemoryFiles files;
    const FileFacts none = write(files, {}, {}, 1);
    CHECK(BlockFileReader(files, kPath, none).entries().empty());
    files.remove_file(kPath);
    const std::vector<TensorSpec> empty = {
        {.name = "a/empty", .dtype = DType::UInt8, .shape = {0}}};
    const BlockFileReader reader(files, kPath, write(files, empty, {}, 1));
    CHECK(reader.data_nbytes() == 0);
    CHECK(reader.find("a/empty") != nullptr);
    reader.verify([](std::uint64_t) { FAIL("there is no block"); });
  }

  TEST_CASE("what a writer is given must fit, and is new") {
    MemoryFiles files;
    const TensorSpec tensor = {.name = "a", .dtype = DType::UInt8, .shape = {4}};
    CHECK_THROWS_WITH_AS(BlockFileWriter(files, kPath, {}, {tensor, tensor}),
                         doctest::Contains("two tensors are named \"a\""), DataError);
    CHECK_THROWS_WITH_AS(
        BlockFileWriter(files, kPath, {},
                        {{.name = "block_digests", .dtype = DType::UInt8, .shape = {}}}),
        doctest::Contains("two tensors are named \"block_digests\""), DataError);
    CHECK_THROWS_WITH_AS(BlockFileWriter(files, kPath, {{"block_digests", ""}}, {}),
                         doctest::Contains("the metadata must not have block_digests"), DataError);
    CHECK_FALSE(files.kind_of(kPath).has_value());
    BlockFileWriter writer(files, kPath, {}, {tensor});
    writer.append(testing::bytes_of("abc"));
    CHECK_THROWS_WITH_AS(writer.append(testing::bytes_of("de")),
                         doctest::Contains("its tensors have 4 bytes, got 2 behind 3"), ShapeError);
    CHECK_THROWS_WITH_AS(writer.finish(), doctest::Contains("its tensors have 4 bytes, got 3"),
                         ShapeError);
    CHECK_THROWS_AS(BlockFileWriter(files, kPath, {}, {tensor}), PathError);
  }

  TEST_CASE("every flipped bit of the beginning is found, and is said to be of header or table") {
    MemoryFiles files;
    const FileFacts facts = write(files, three_blocks(), random_bytes(kNumBytes, 4), kNumBytes);
    const std::string text = file_text(files, kPath);
    const std::size_t table_begin = text.size() - kNumBytes - 3 * 8;
    // A file of the same header without data would do as well, but for its size.
    for (std::size_t place = 0; place < table_begin + 3 * 8; ++place) {
      CAPTURE(place);
      const int bit = static_cast<int>(place % 8);
      check_damaged(files, facts, flipped(text, place, bit),
                    place < table_begin ? "header" : "the block table is damaged");
    }
  }

  TEST_CASE("a damaged block is found by who touches it, and by verify, with all tensors in it") {
    MemoryFiles files;
    const std::vector<std::byte> bytes = random_bytes(kNumBytes, 5);
    const FileFacts facts = write(files, three_blocks(), bytes, kNumBytes);
    const std::string text = file_text(files, kPath);
    const std::size_t data = text.size() - kNumBytes;
    put_file(files, kPath, flipped(text, data + kBlockBytes, 7));
    const BlockFileReader reader(files, kPath, facts);
    BlockFileReader::Ends ends;
    std::vector<std::byte> out(kBlockBytes);
    reader.read(0, out, ends);
    reader.read(2 * kBlockBytes, std::span(out).first(9), ends);
    const std::string message = fmt::format(
        "/file: block 1 (bytes {} to {} of the file, with \"p/b@12\", \"p/scalar\", \"q/a\") has "
        "not the digest",
        data + kBlockBytes, data + 2 * kBlockBytes);
    const doctest::Contains expected(message.c_str());
    CHECK_THROWS_WITH_AS(reader.read(kBlockBytes, out, ends), expected, DataError);
    // Not once it was refused, either.
    for (int attempt = 0; attempt < 2; ++attempt) {
      CHECK_THROWS_WITH_AS(reader.read(kBlockBytes + 5, std::span(out).first(1), ends), expected,
                           DataError);
    }
    std::uint64_t verified = 0;
    CHECK_THROWS_WITH_AS(reader.verify([&](std::uint64_t nbytes) { verified += nbytes; }),
                         doctest::Contains("1 of 3 blocks have not the digest"), DataError);
    CHECK(verified == kNumBytes);
  }

  TEST_CASE("of several damaged blocks the first is named, whichever thread finds which") {
    MemoryFiles files;
    const FileFacts facts = write(files, three_blocks(), random_bytes(kNumBytes, 8), kNumBytes);
    const std::string text = file_text(files, kPath);
    const std::size_t data = text.size() - kNumBytes;
    put_file(files, kPath, flipped(flipped(text, data + kBlockBytes, 1), text.size() - 1, 1));
    const BlockFileReader reader(files, kPath, facts);
    ThreadPool pool(3);
    std::vector<std::byte> out(kNumBytes);
    for (int attempt = 0; attempt < 20; ++attempt) {
      BlockFileReader::Ends ends;
      CHECK_THROWS_WITH_AS(reader.read(0, out, ends, &pool), doctest::Contains("/file: block 1 ("),
                           DataError);
    }
  }

  TEST_CASE("a file that is cut, longer, of another checkpoint or swapped is refused when opened") {
    MemoryFiles files;
    const FileFacts facts = write(files, three_blocks(), random_bytes(kNumBytes, 6), kNumBytes);
    const std::string text = file_text(files, kPath);
    for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{100},
                                   text.size() - kNumBytes, text.size() - 1}) {
      CAPTURE(size);
      check_damaged(files, facts, text.substr(0, size), "but the manifest says");
    }
    check_damaged(files, facts, text + "x", "but the manifest says");
    MemoryFiles others;
    write(others, three_blocks(), random_bytes(kNumBytes, 7), kNumBytes);
    check_damaged(files, facts, file_text(others, kPath), "of another checkpoint");
    std::vector<TensorSpec> renamed = three_blocks();
    renamed[0].name = "p/c";
    files.remove_file(kPath);
    write(files, renamed, random_bytes(kNumBytes, 6), kNumBytes);
    CHECK_THROWS_AS(BlockFileReader(files, kPath, facts), DataError);
  }

  TEST_CASE("without a manifest, what is no such file is refused") {
    MemoryFiles files;
    const auto check_refused = [&](const std::string& text, const char* message) {
      put_file(files, kPath, text);
      CHECK_THROWS_WITH_AS(BlockFileReader(files, kPath, std::nullopt), doctest::Contains(message),
                           DataError);
    };
    const auto with_header = [](const std::string& header, const std::string& data) {
      const std::uint64_t length = header.size();
      std::string text(8, '\0');
      std::memcpy(text.data(), &length, sizeof(length));
      return text + header + data;
    };
    check_refused("", "begins with an 8-byte length");
    check_refused(with_header("{", "").substr(0, 8), "cut short or no safetensors file");
    check_refused(with_header("{}      ", "x"), "too few for a block table");
    check_refused(with_header("{}", ""), "the header's metadata have no block_digests");
    check_refused(with_header(R"({"__metadata__":{"block_digests":"x"}})", ""),
                  "a digest has 32 lower-case hexadecimal digits");
    const std::string none =
        R"({"__metadata__":{"block_digests":")" + to_string(digest_of("")) + "\"}}";
    check_refused(with_header(none, ""), "must begin with the tensor block_digests");
  }
}

}  // namespace fsdptrain::checkpoint
