#include "tools/launch/options.h"

#include <fstream>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/support/temporary_folder.h"
#include "tools/launch/cores.h"
#include "tools/launch/words.h"

namespace fsdptrain::tools {
namespace {

using Words = std::vector<std::string>;

LaunchWords split(const Words& words) {
  CLI::App app;
  const auto value = std::make_shared<std::string>();
  const auto flag = std::make_shared<bool>();
  app.add_option("--nproc-per-node", *value);
  app.add_option("--log-dir", *value);
  app.add_option("-t,--tee", *value);
  app.add_option("-r,--redirect,--redirects", *value);
  app.add_flag("--standalone", *flag);
  return split_launch_words(app, words);
}

LaunchOptions valid() {
  LaunchOptions options;
  options.num_ranks = 4;
  options.program = {"prog"};
  return options;
}

}  // namespace

TEST_SUITE("tools/launch/options") {
  TEST_CASE("the words of the program are not looked at") {
    const LaunchWords words =
        split({"--nproc-per-node", "2", "--", "train", "--tee", "[a,b]", "--", "--x_y"});
    CHECK(words.options == Words{"--nproc-per-node", "2"});
    CHECK(words.program == Words{"train", "--tee", "[a,b]", "--", "--x_y"});
    CHECK(words.has_mark);
  }

  TEST_CASE("without a mark the program begins at the first word that is no value") {
    const LaunchWords words = split({"--nproc-per-node", "2", "--standalone", "prog", "--log-dir"});
    CHECK(words.options == Words{"--nproc-per-node", "2", "--standalone"});
    CHECK(words.program == Words{"prog", "--log-dir"});
    CHECK_FALSE(words.has_mark);
    CHECK(split({"--nproc-per-node=2", "prog"}).program == Words{"prog"});
    CHECK(split({"--unknown", "prog"}).program == Words{"prog"});
    CHECK(split({"-", "x"}).program == Words{"-", "x"});
  }

  TEST_CASE("torchrun's spellings are ours") {
    CHECK(split({"--nproc_per_node", "2", "x"}).options == Words{"--nproc-per-node", "2"});
    CHECK(split({"--log_dir=my_logs", "x"}).options == Words{"--log-dir=my_logs"});
  }

  TEST_CASE("the streams of tee and redirect may be left out: all") {
    CHECK(split({"--tee", "--", "x"}).options == Words{"--tee", "3"});
    CHECK(split({"--tee", "prog"}).options == Words{"--tee", "3"});
    CHECK(split({"-t", "1", "prog"}).options == Words{"-t", "1"});
    CHECK(split({"-r", "0:1,1:2", "prog"}).options == Words{"-r", "0:1,1:2"});
    CHECK(split({"--redirect"}).options == Words{"--redirect", "3"});
    CHECK(split({"--tee=2", "prog"}).options == Words{"--tee=2"});
  }

  TEST_CASE("streams are of all ranks or of single ones") {
    const StreamChoice all = StreamChoice::parse("--tee", "1");
    CHECK(all.has_output(3));
    CHECK_FALSE(all.has_error(3));
    const StreamChoice some = StreamChoice::parse("--tee", "0:2,3:3");
    CHECK(some.has_error(0));
    CHECK_FALSE(some.has_output(0));
    CHECK_FALSE(some.has_error(1));
    CHECK(some.has_output(3));
    CHECK(some.last_named() == 3);
    for (const char* text : {"", "4", "-1", "x", "0:4", "0:1,0:2", "0:1,", ":1", "a:1"}) {
      CAPTURE(text);
      CHECK_THROWS_WITH_AS(StreamChoice::parse("--tee", text),
                           doctest::Contains("--tee: must be 0 (none)"), ConfigError);
    }
  }

  TEST_CASE("streams go to the console; with a folder to both; else where they are sent") {
    LaunchOptions options = valid();
    CHECK(destinations_of(options, 0).output == Destination::Console);
    options.log_dir = "logs";
    CHECK(destinations_of(options, 0).error == Destination::Both);
    options.redirect = StreamChoice::parse("--redirect", "1");
    CHECK(destinations_of(options, 0).output == Destination::File);
    CHECK(destinations_of(options, 0).error == Destination::Console);
    options.tee = StreamChoice::parse("--tee", "0:3");
    CHECK(destinations_of(options, 0).output == Destination::Both);
    CHECK(destinations_of(options, 0).error == Destination::Both);
    CHECK(destinations_of(options, 1).output == Destination::File);
    CHECK(destinations_of(options, 1).error == Destination::Console);
  }

  TEST_CASE("options that do not fit are named") {
    LaunchOptions options = valid();
    CHECK_NOTHROW(check_options(options));
    options.program.clear();
    CHECK_THROWS_WITH_AS(check_options(options), doctest::Contains("no program was given"),
                         ConfigError);
    options = valid();
    options.tee = StreamChoice::parse("--tee", "3");
    CHECK_THROWS_WITH_AS(check_options(options), doctest::Contains("--tee: there is no folder"),
                         ConfigError);
    options.log_dir = "logs";
    options.tee = StreamChoice::parse("--tee", "4:1");
    CHECK_THROWS_WITH_AS(check_options(options), doctest::Contains("rank 4 is named"), ConfigError);
    options = valid();
    options.shown_ranks = {0, 4};
    CHECK_THROWS_WITH_AS(check_options(options), doctest::Contains("--local-ranks-filter: rank 4"),
                         ConfigError);
  }

  TEST_CASE("the number of ranks") {
    CHECK(parse_num_ranks("3", 2, 8) == 3);
    CHECK(parse_num_ranks("auto", 2, 8) == 2);
    CHECK(parse_num_ranks("auto", 0, 8) == 8);
    CHECK(parse_num_ranks("cpu", 2, 8) == 8);
    CHECK(parse_num_ranks("gpu", 2, 8) == 2);
    for (const char* text : {"0", "-1", "257", "1e3", "abc", "", "99999999999999999999", "xpu"}) {
      CAPTURE(text);
      CHECK_THROWS_WITH_AS(parse_num_ranks(text, 2, 8),
                           doctest::Contains("must be a number from 1 to 256"), ConfigError);
    }
    CHECK_THROWS_WITH_AS(parse_num_ranks("gpu", 0, 8), doctest::Contains("has no GPU"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(parse_num_ranks("cpu", 0, 300), doctest::Contains("which is 300 here"),
                         ConfigError);
  }

  TEST_CASE("GPUs are those that are there and that CUDA_VISIBLE_DEVICES lets through") {
    const testing::TemporaryFolder folder;
    CHECK(num_visible_gpus(folder / ".", nullptr) == 0);
    for (const char* name : {"nvidia0", "nvidia1", "nvidiactl"}) {
      std::ofstream(folder / name);
    }
    CHECK(num_visible_gpus(folder / ".", nullptr) == 2);
    CHECK(num_visible_gpus(folder / ".", "") == 0);
    CHECK(num_visible_gpus(folder / ".", "1") == 1);
    CHECK(num_visible_gpus(folder / ".", "1,0") == 2);
    CHECK(num_visible_gpus(folder / ".", "1,-1,0") == 1);
    CHECK(num_visible_gpus(folder / ".", "7") == 0);
    CHECK(num_visible_gpus(folder / ".", "GPU-8932f937") == 1);
    // One that has failed leaves a gap; others are no GPUs.
    for (const char* name : {"nvidia3", "nvidia-uvm", "nvidia", "nvidia4x"}) {
      std::ofstream(folder / name);
    }
    CHECK(num_visible_gpus(folder / ".", nullptr) == 3);
    CHECK(num_visible_gpus(folder / ".", "2,0,1") == 3);
    CHECK(num_visible_gpus(folder / "nowhere", nullptr) == 0);
  }

  TEST_CASE("ranks have equal runs of processors, or all where there are too few") {
    const std::vector<int> processors{0, 2, 4, 6, 8};
    CHECK(processors_of_rank(processors, 0, 2) == std::vector{0, 2});
    CHECK(processors_of_rank(processors, 1, 2) == std::vector{4, 6});
    CHECK(processors_of_rank(processors, 4, 5) == std::vector{8});
    CHECK(processors_of_rank(processors, 5, 6).empty());
  }
}

}  // namespace fsdptrain::tools
