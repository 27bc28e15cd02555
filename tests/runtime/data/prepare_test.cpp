#include "runtime/data/prepare.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <sys/resource.h>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/random.h"
#include "runtime/data/byte_text.h"
#include "runtime/data/token_source.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

TEST_SUITE_BEGIN("runtime/data/prepare");

Prepared prepare(const std::vector<TextFile>& texts, const PrepareOptions& options,
                 int threads = 2) {
  ThreadPool pool(threads);
  return prepare_bytes(texts, options, pool);
}

std::vector<std::int64_t> tokens_of(const std::vector<std::filesystem::path>& files) {
  const TokenSource source(files);
  std::vector<std::int64_t> tokens(source.num_tokens());
  source.read(0, tokens);
  return tokens;
}

// The tokens of documents, the definition once more.
std::vector<std::int64_t> naive(const std::vector<std::string>& documents) {
  std::vector<std::int64_t> tokens;
  for (const std::string& document : documents) {
    for (const char c : document) {
      tokens.push_back(static_cast<unsigned char>(c));
    }
    tokens.push_back(256);
  }
  return tokens;
}

std::string random_text(std::uint64_t seed, std::size_t nbytes) {
  std::string text(nbytes, '\0');
  for (std::size_t i = 0; i < nbytes; ++i) {
    text[i] = static_cast<char>(philox(i, seed, 2).word[0]);
  }
  return text;
}

TEST_CASE("a file is its bytes and an end of document") {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", std::string("a\0\xff", 3));
  const Prepared prepared = prepare(list_texts({folder / "a.txt"}), {.output = folder / "t"});
  CHECK(prepared.training.files == std::vector<std::filesystem::path>{folder / "t"});
  CHECK(prepared.training.num_tokens == 4);
  CHECK(prepared.training.num_documents == 1);
  CHECK_FALSE(prepared.validation);
  CHECK(tokens_of({folder / "t"}) == std::vector<std::int64_t>{97, 0, 255, 256});
}

TEST_CASE("documents of all sizes are whole, whatever the threads and the shards") {
  const TemporaryFolder folder;
  std::vector<std::string> documents;
  std::filesystem::create_directory(folder / "text");
  // Around the size of a block, empty ones in a row, and many small ones.
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  const std::vector<std::size_t> sizes{kBlock - 1, kBlock, 0, 0, 3 * kBlock + 7, 1, kBlock - 3, 0};
  for (std::size_t i = 0; i < 150; ++i) {
    documents.push_back(random_text(i, i < sizes.size() ? sizes[i] : 17 * i));
    write_file(folder / fmt::format("text/{:03}", i), documents.back());
  }
  const auto texts = list_texts({folder / "text"});
  for (const std::uint64_t shard_tokens : {std::uint64_t{0}, std::uint64_t{1'000'003}}) {
    std::vector<std::string> bytes;
    for (const int threads : {1, 2, 5}) {
      CAPTURE(threads);
      const auto name = fmt::format("out-{}-{}", shard_tokens, threads);
      const Prepared prepared =
          prepare(texts, {.output = folder / name, .shard_tokens = shard_tokens}, threads);
      CHECK(prepared.training.num_documents == documents.size());
      CHECK((tokens_of(prepared.training.files) == naive(documents)));
      CHECK(TokenSource(prepared.training.files).count_documents() == documents.size());
      std::string all;
      for (const auto& file : prepared.training.files) {
        all += read_file(file);
      }
      bytes.push_back(all);
    }
    CHECK((bytes[0] == bytes[1]));
    CHECK((bytes[0] == bytes[2]));
  }
}

TEST_CASE("lines of JSONL are documents, and files of both kinds keep their order") {
  const TemporaryFolder folder;
  write_file(folder / "b.jsonl",
             "{\"text\": \"one\"}\r\n"
             "\n"
             "  \t\r\n"
             "{\"id\": 7, \"text\": \"\", \"tags\": [\"text\", {\"text\": 3}]}\n"
             "{\"text\": \"q\\\" b\\\\ s\\/ n\\n t\\t u\\u00e9 pair\\ud83d\\ude00 nul\\u0000!\"}\n"
             "{\"text\": \"last \xc3\xa9\"}");
  write_file(folder / "a.txt", "{\"text\": \"plain\"}\n");
  write_file(folder / "c.jsonl", "{\"text\":\"c\"}\n\n");
  const std::vector<std::string> of_lines{
      "one", "", std::string("q\" b\\ s/ n\n t\t u\xc3\xa9 pair\xf0\x9f\x98\x80 nul\0!", 33),
      "last \xc3\xa9"};
  std::vector<std::string> documents{"{\"text\": \"plain\"}\n"};
  documents.insert(documents.end(), of_lines.begin(), of_lines.end());
  documents.emplace_back("c");
  const Prepared prepared = prepare(list_texts({folder.path()}), {.output = folder / "t"});
  CHECK(tokens_of(prepared.training.files) == naive(documents));
  CHECK(prepared.training.num_documents == documents.size());
  // The format can be forced either way, and the field chosen.
  prepare(list_texts({folder / "c.jsonl"}, TextFormat::Text), {.output = folder / "t"});
  CHECK(tokens_of({folder / "t"}) == naive({"{\"text\":\"c\"}\n\n"}));
  write_file(folder / "d", "{\"body\": \"x\", \"text\": 1}\n");
  prepare(list_texts({folder / "d"}, TextFormat::Jsonl),
          {.output = folder / "t", .jsonl_field = "body"});
  CHECK(tokens_of({folder / "t"}) == naive({"x"}));
}

TEST_CASE("lines of all lengths are whole at the borders of blocks") {
  const TemporaryFolder folder;
  std::vector<std::string> documents;
  std::string lines;
  // A line of several blocks, and short ones whose ends fall on every place near a border.
  for (std::size_t i = 0; lines.size() < (std::size_t{5} << 20); ++i) {
    const std::size_t length = i == 20'000 ? 2'500'000 : philox(i, 1, 9).word[0] % 97;
    documents.emplace_back(length, static_cast<char>('a' + i % 26));
    lines += fmt::format("{{\"text\": \"{}\"}}\n{}", documents.back(), i % 50 == 0 ? "\n" : "");
  }
  for (std::size_t cut = 0; cut < 14; ++cut) {
    // Spaces before the first line move all the others.
    write_file(folder / "x.jsonl", std::string(cut, ' ') + lines);
    const Prepared prepared = prepare(list_texts({folder / "x.jsonl"}), {.output = folder / "t"},
                                      static_cast<int>(1 + cut % 3));
    REQUIRE(prepared.training.num_documents == documents.size());
    if (cut % 6 == 0) {
      REQUIRE((tokens_of({folder / "t"}) == naive(documents)));
    }
  }
}

TEST_CASE("what is wrong with a line is named with file, number and cure") {
  struct Defect {
    const char* line;
    const char* message;
  };
  const std::vector<Defect> defects{
      {"{\"text\": \"a\"", "x.jsonl:40001: not valid JSON"},
      {"{\"text\": \"a\"} {\"text\": \"b\"}", "x.jsonl:40001: not valid JSON"},
      {"{\"text\": \"a\", \"b\": tru}", "x.jsonl:40001: not valid JSON"},
      {"{\"text\": \"a\tb\"}", "x.jsonl:40001: not valid JSON"},
      {"{\"text\": \"\\ud83d\"}", "x.jsonl:40001: not valid JSON"},
      {"{\"text\": \"\\x41\"}", "x.jsonl:40001: not valid JSON"},
      {"{\"text\": \"\xff\"}", "x.jsonl:40001: not valid JSON"},
      {"text", "Every line must be one object, such as {\"text\": \"...\"}"},
      {"[\"text\"]", "x.jsonl:40001: must be an object with a field \"text\", got an array"},
      {"\"text\"", "must be an object with a field \"text\", got a string"},
      {"17", "must be an object with a field \"text\", got a number"},
      {"{\"txt\": \"a\"}",
       "x.jsonl:40001: has no field \"text\": name the field of the text (--jsonl-field)"},
      {"{}", "has no field \"text\""},
      {"{\"text\": {\"text\": \"a\"}}", "the field \"text\" must be a string, got an object"},
      {"{\"text\": null}", "x.jsonl:40001: the field \"text\" must be a string, got null"},
      {"{\"text\": false}", "must be a string, got true or false"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "the field \"text\" occurs twice"},
  };
  const TemporaryFolder folder;
  // Several blocks before the line, and another wrong one behind it, which is not the first.
  std::string before;
  for (int i = 0; i < 40'000; ++i) {
    before += fmt::format("{{\"text\": \"{:090}\"}}\n", i);
  }
  std::filesystem::create_directory(folder / "out");
  for (const Defect& defect : defects) {
    CAPTURE(defect.line);
    write_file(folder / "x.jsonl", before + defect.line + "\n" + before + "{\n" + before);
    CHECK_THROWS_WITH_AS(prepare(list_texts({folder / "x.jsonl"}), {.output = folder / "out/t"}, 5),
                         doctest::Contains(defect.message), DataError);
    CHECK(std::filesystem::is_empty(folder / "out"));
  }
  // Lines are those of their file.
  write_file(folder / "a.jsonl", before);
  write_file(folder / "b.jsonl", "\n\n7\n");
  CHECK_THROWS_WITH_AS(
      prepare(list_texts({folder / "a.jsonl", folder / "b.jsonl"}), {.output = folder / "out/t"}),
      doctest::Contains("b.jsonl:3: must be an object"), DataError);
}

TEST_CASE("numbers of any size may stand beside the text, and must be numbers") {
  const TemporaryFolder folder;
  const auto with = [&](const std::string& number) {
    write_file(folder / "x.jsonl",
               fmt::format(R"({{"a": {0}, "b": "\\\" {0}", "text": "{0} q\"{0}", "c": [{0},{0}]}})",
                           number));
    return list_texts({folder / "x.jsonl"});
  };
  for (const char* number : {"18446744073709551616", "-9223372036854775809", "1e999", "-0.5E+400",
                             "123456789012345678901234567890.25", "0"}) {
    CAPTURE(number);
    prepare(with(number), {.output = folder / "t"});
    CHECK(tokens_of({folder / "t"}) == naive({fmt::format("{0} q\"{0}", number)}));
  }
  for (const char* number : {"01", "-", "1.", ".5", "1e", "1e+", "1-2", "+1", "1e999x", "1true",
                             "018446744073709551616", "18446744073709551616.", "1e999.0"}) {
    CAPTURE(number);
    CHECK_THROWS_WITH_AS(prepare(with(number), {.output = folder / "t"}),
                         doctest::Contains("x.jsonl:1: not valid JSON"), DataError);
  }
  write_file(folder / "x.jsonl", R"({"text": 18446744073709551616})");
  CHECK_THROWS_WITH_AS(prepare(list_texts({folder / "x.jsonl"}), {.output = folder / "t"}),
                       doctest::Contains("the field \"text\" must be a string, got a number"),
                       DataError);
}

TEST_CASE("a byte order mark is no part of a text, nor of the first line of JSONL") {
  const TemporaryFolder folder;
  const std::string mark = "\xef\xbb\xbf";
  write_file(folder / "b.txt", mark + "text" + mark);
  write_file(folder / "c.txt", mark);
  write_file(folder / "d.jsonl", mark + R"({"text": "line"})" + "\n" + R"({"text": "next"})");
  // Marks at, across and behind the border of the first two blocks of 1 MiB.
  for (std::size_t size = (std::size_t{1} << 20) - 6; size <= std::size_t{1} << 20; ++size) {
    CAPTURE(size);
    const std::string first(size, 'x');
    write_file(folder / "a.txt", first);
    prepare(list_texts({folder / "a.txt", folder / "b.txt", folder / "c.txt", folder / "d.jsonl"}),
            {.output = folder / "t"});
    CHECK(tokens_of({folder / "t"}) == naive({first, "text" + mark, "", "line", "next"}));
    prepare(list_texts({folder / "a.txt", folder / "d.jsonl"}), {.output = folder / "t"});
    CHECK(tokens_of({folder / "t"}) == naive({first, "line", "next"}));
  }
  CHECK_THROWS_WITH_AS(prepare(list_texts({folder / "c.txt"}), {.output = folder / "t"}),
                       doctest::Contains("c.txt: the text is empty"), DataError);
  write_file(folder / "d.jsonl", R"({"text": "line"})" + ("\n" + mark) + R"({"text": "next"})");
  CHECK_THROWS_WITH_AS(prepare(list_texts({folder / "d.jsonl"}), {.output = folder / "t"}),
                       doctest::Contains("d.jsonl:2: not valid JSON"), DataError);
  // Nor is a line the first because it is that of its block.
  write_file(folder / "d.jsonl", "{\"text\": \"" + std::string(std::size_t{1} << 20, 'x') +
                                     "\"}\n" + mark + R"({"text": "next"})");
  CHECK_THROWS_WITH_AS(prepare(list_texts({folder / "d.jsonl"}), {.output = folder / "t"}),
                       doctest::Contains("d.jsonl:2: not valid JSON"), DataError);
}

TEST_CASE("more shards than a set may have are refused before any work where the texts say so") {
  const TemporaryFolder folder;
  write_file(folder / "a", std::string(20'000, 'x'));
  write_file(folder / "b.jsonl", "{\"text\": \"" + std::string(30'000, 'x') + "\"}");
  std::uint64_t num_calls = 0;
  const auto with = [&](const char* name, std::uint64_t shard_tokens, double fraction) {
    ThreadPool pool(1);
    num_calls = 0;
    prepare_bytes(
        list_texts({folder / name}),
        {.output = folder / "out/t", .shard_tokens = shard_tokens, .validation_fraction = fraction},
        pool, [&](std::uint64_t) { ++num_calls; });
  };
  CHECK_THROWS_WITH_AS(with("a", 2, 0),
                       doctest::Contains("t: 20001 tokens are more than 10000 shards of 2 tokens: "
                                         "choose at least 3 (--shard-tokens)"),
                       ConfigError);
  CHECK(num_calls == 0);
  // Of two sets, 20,000 shards might hold them.
  CHECK_THROWS_WITH_AS(
      with("a", 1, 0.5),
      doctest::Contains("are more than 20000 shards of 1 tokens: choose at least 2"), ConfigError);
  CHECK(num_calls == 0);
  // What JSONL holds is known when it is read.
  CHECK_THROWS_WITH_AS(with("b.jsonl", 3, 0),
                       doctest::Contains("more than 10000 shards of 3 tokens"), ConfigError);
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
}

TEST_CASE("validation is whole documents by a hash of their number") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "text");
  std::array<std::vector<std::string>, 2> documents;
  std::string lines;
  for (std::uint64_t i = 0; i < 400; ++i) {
    // One longer than a block among them, and both kinds of files.
    std::string text(i == 100 ? 2'500'000 : 10 + i % 7, static_cast<char>('a' + i % 23));
    documents[is_validation(5, i, 0.25) ? 1 : 0].push_back(text);
    if (i < 200) {
      write_file(folder / fmt::format("text/{:03}", i), text);
    } else {
      lines += fmt::format("{{\"text\":\"{}\"}}\n", text);
    }
  }
  write_file(folder / "text/lines.jsonl", lines);
  CHECK(documents[1].size() > 60);
  CHECK(documents[1].size() < 140);
  for (const std::uint64_t shard_tokens : {std::uint64_t{0}, std::uint64_t{500'009}}) {
    const auto name = fmt::format("t{}.bin", shard_tokens);
    const Prepared prepared = prepare(list_texts({folder / "text"}),
                                      {.output = folder / name,
                                       .shard_tokens = shard_tokens,
                                       .validation_fraction = 0.25,
                                       .seed = 5},
                                      3);
    REQUIRE(prepared.validation);
    CHECK((tokens_of(prepared.training.files) == naive(documents[0])));
    CHECK((tokens_of(prepared.validation->files) == naive(documents[1])));
    CHECK(prepared.validation->num_documents == documents[1].size());
    CHECK(prepared.validation->files.front().parent_path() == folder / "validation");
  }
}

TEST_CASE("the choice for validation follows the fraction, the seed and nothing else") {
  for (const double fraction : {0.0, 0.01, 0.3}) {
    int count = 0;
    int same = 0;
    for (std::uint64_t document = 0; document < 20'000; ++document) {
      const bool chosen = is_validation(1, document, fraction);
      count += chosen ? 1 : 0;
      same += chosen && is_validation(2, document, fraction) ? 1 : 0;
      // A larger fraction keeps what a smaller one chose.
      REQUIRE((!chosen || is_validation(1, document, fraction + 0.1)));
    }
    // Four standard deviations.
    CHECK(std::abs(count - 20'000 * fraction) <= 4 * std::sqrt(20'000 * fraction * (1 - fraction)));
    CHECK(same <= count);
    CHECK((fraction == 0.0 || same < count));
  }
}

TEST_CASE("sets that would be empty are refused, and nothing is left") {
  const TemporaryFolder folder;
  write_file(folder / "nothing", "");
  write_file(folder / "lines.jsonl", "\n\n");
  write_file(folder / "one", "x");
  std::filesystem::create_directory(folder / "out");
  const auto with = [&](const char* name, double fraction, std::uint64_t seed = 0) {
    return prepare(list_texts({folder / name}),
                   {.output = folder / "out/t", .validation_fraction = fraction, .seed = seed});
  };
  CHECK_THROWS_WITH_AS(with("nothing", 0), doctest::Contains("nothing: the text is empty"),
                       DataError);
  CHECK_THROWS_WITH_AS(with("lines.jsonl", 0), doctest::Contains("lines.jsonl: the text is empty"),
                       DataError);
  for (const double fraction : {1e-9, 1 - 1e-9}) {
    CHECK_THROWS_WITH_AS(with("one", fraction), doctest::Contains("1 documents for training"),
                         DataError);
  }
  CHECK_THROWS_WITH_AS(with("one", 1), doctest::Contains("must be in [0, 1), got 1"), ConfigError);
  CHECK(std::filesystem::is_empty(folder / "out"));
}

TEST_CASE("a refused write ends it, with any number of threads, and leaves nothing") {
  const TemporaryFolder folder;
  write_file(folder / "a", std::string(std::size_t{5} << 20, 'x'));
  std::filesystem::create_directory(folder / "out");
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit { 3'000'000, before.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  for (const int threads : {1, 4}) {
    CHECK_THROWS_WITH_AS(prepare(list_texts({folder / "a"}),
                                 {.output = folder / "out/t", .validation_fraction = 0.5}, threads),
                         doctest::Contains("failed: File too large; raise the limit"), IoError);
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(std::filesystem::is_empty(folder / "out"));
}

TEST_CASE("missing folders of the output are made, and stay only with something in them") {
  const TemporaryFolder folder;
  write_file(folder / "a", "text");
  write_file(folder / "empty", "");
  const auto texts = list_texts({folder / "a"});
  prepare(texts, {.output = folder / "x/y/t"});
  CHECK(tokens_of({folder / "x/y/t"}) == naive({"text"}));
  CHECK_THROWS_AS(prepare(list_texts({folder / "empty"}), {.output = folder / "x/z/w/t"}),
                  DataError);
  CHECK_FALSE(std::filesystem::exists(folder / "x/z"));
  CHECK(std::filesystem::exists(folder / "x/y/t"));
  // One that was there before stays, empty as it was.
  std::filesystem::create_directory(folder / "old");
  CHECK_THROWS_AS(prepare(list_texts({folder / "empty"}), {.output = folder / "old/new/t"}),
                  DataError);
  CHECK(std::filesystem::is_empty(folder / "old"));
  CHECK_THROWS_WITH_AS(prepare(texts, {.output = folder / "a/b/t"}),
                       doctest::Contains("a/b: creating the folder failed: Not a directory"),
                       PathError);
}

TEST_CASE("a training set that cannot take its name takes the validation set with it") {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 100; ++i) {
    lines += "{\"text\":\"x\"}\n";
  }
  write_file(folder / "a.jsonl", lines);
  for (const std::uint64_t shard_tokens : {0u, 10u}) {
    const char* const name = shard_tokens == 0 ? "out/t" : "out/t-00000.bin";
    ThreadPool pool(2);
    CHECK_THROWS_WITH_AS(
        prepare_bytes(
            list_texts({folder / "a.jsonl"}),
            {.output = folder / "out/t", .shard_tokens = shard_tokens, .validation_fraction = 0.5},
            pool, [&](std::uint64_t) { std::filesystem::create_directory(folder / name); }),
        doctest::Contains("its name failed: Is a directory"), IoError);
    std::filesystem::remove(folder / name);
    CHECK(std::filesystem::is_empty(folder / "out"));
  }
}

TEST_CASE("files that change or cannot be read are told") {
  const TemporaryFolder folder;
  write_file(folder / "a", "four");
  auto texts = list_texts({folder / "a"});
  write_file(folder / "a", "fourx");
  CHECK_THROWS_WITH_AS(prepare(texts, {.output = folder / "t"}),
                       doctest::Contains("a: grew beyond 4 bytes"), DataError);
  for (const TextFormat format : {TextFormat::Text, TextFormat::Jsonl}) {
    texts.front().format = format;
    write_file(folder / "a", "fo");
    CHECK_THROWS_WITH_AS(prepare(texts, {.output = folder / "t"}),
                         doctest::Contains("a: became shorter while it was read: 2 bytes are left"),
                         DataError);
  }
  // Opens, but its first page cannot be read.
  CHECK_THROWS_WITH_AS(prepare(list_texts({"/proc/self/mem"}), {.output = folder / "t"}),
                       doctest::Contains("at offset 0 failed: Input/output error"), IoError);
  CHECK_FALSE(std::filesystem::exists(folder / "t"));
}

TEST_CASE("progress is told in order up to the end, and may stop the work") {
  const TemporaryFolder folder;
  write_file(folder / "a", std::string((std::size_t{5} << 20) - 1, 'x'));
  std::filesystem::create_directory(folder / "out");
  ThreadPool pool(3);
  std::vector<std::uint64_t> told;
  prepare_bytes(list_texts({folder / "a"}), {.output = folder / "t"}, pool,
                [&told](std::uint64_t done) { told.push_back(done); });
  CHECK(told == std::vector<std::uint64_t>{1 << 20, 2 << 20, 3 << 20, 4 << 20, 5 << 20});
  CHECK_THROWS_WITH_AS(prepare_bytes(list_texts({folder / "a"}), {.output = folder / "out/t"}, pool,
                                     [](std::uint64_t) { throw Error("stop"); }),
                       "stop", Error);
  CHECK(std::filesystem::is_empty(folder / "out"));
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
