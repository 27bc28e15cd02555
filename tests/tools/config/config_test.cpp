#include "tools/config/config.h"

#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tools/config/fields.h"
#include "tools/config/print.h"

namespace fsdptrain::tools {
namespace {

TEST_SUITE_BEGIN("tools/config");

Config parse(std::string_view toml, const std::vector<std::string>& overrides = {}) {
  return parse_config(toml, "run.toml", overrides);
}

// A value of the field other than its default, as TOML.
std::string other_value(const Field& field) {
  const Value value = field.value_in(Config{});
  if (!field.allowed.words.empty()) {
    return toml_text(std::string(field.allowed.words.back()));
  }
  if (const auto* flag = std::get_if<bool>(&value)) {
    return toml_text(!*flag);
  }
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    return toml_text(*number + 1);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return toml_text(*number * 0.5 + 0.01);
  }
  if (std::holds_alternative<std::vector<double>>(value)) {
    return "[0.25, 3.0]";
  }
  if (std::holds_alternative<std::vector<std::string>>(value)) {
    return "[\"a \\\"b\\\" \\\\ c\", \"d\"]";
  }
  return "\"a \\\"b\\\" \\\\ c\"";
}

TEST_CASE("a file sets what it names and leaves the rest at the defaults") {
  const Config config = parse(
      "[train]\nsteps = 7\nglobal_batch = 4\nmicro_batch = 2\n"
      "[optimizer]\nlr = 1\n[model]\nbias = false\n[data]\ntokens = \"a.tok\"\n");
  CHECK(config.train.steps == 7);
  CHECK(config.train.global_batch == 4);
  CHECK(config.optimizer.lr == 1.0);
  CHECK_FALSE(config.model.bias);
  CHECK(config.data.tokens == std::vector<std::string>{"a.tok"});
  CHECK(config.train.seq_len == Config{}.train.seq_len);
  CHECK(parse("").train.steps == Config{}.train.steps);
}

TEST_CASE("overrides win over the file, the last over those before") {
  const Config config =
      parse("[train]\nsteps = 7\n", {"train.steps=8", "train.steps=9", "optimizer.lr=3e-4",
                                     "data.tokens=x/y.tok", "run.dir=\"a b\"", "model.bias=false"});
  CHECK(config.train.steps == 9);
  CHECK(config.optimizer.lr == 3e-4);
  CHECK(config.data.tokens == std::vector<std::string>{"x/y.tok"});
  CHECK(config.run.dir == "a b");
  CHECK_FALSE(config.model.bias);
}

TEST_CASE("the defaults are valid and every key is once in the table") {
  CHECK_NOTHROW(parse(""));
  std::set<std::string> keys;
  std::set<const void*> members;
  Config config;
  for (const Field& field : config_fields()) {
    CAPTURE(field.key());
    CHECK(keys.insert(field.key()).second);
    CHECK(members.insert(std::visit([](auto* m) -> const void* { return m; }, field.slot(config)))
              .second);
    CHECK_FALSE(field.meaning.empty());
    CHECK(field.allowed.contains(field.value_in(Config{})));
    CHECK((field.condition.key.empty() || find_field(field.condition.key) != nullptr));
  }
}

TEST_CASE("what is printed reads back to the same, for every key") {
  for (const Field& field : config_fields()) {
    CAPTURE(field.key());
    std::vector<std::string> overrides{"train.global_batch=72", "model.embed_dim=840",
                                       "model.max_seq_len=257"};
    // The last value that each condition names, from the outermost condition on.
    for (const Field* f = &field; !f->condition.key.empty(); f = find_field(f->condition.key)) {
      overrides.insert(overrides.begin(), std::string(f->condition.key) + "=" +
                                              std::string(f->condition.key == "model.name"
                                                              ? f->condition.values.front()
                                                              : f->condition.values.back()));
    }
    if (field.key() == "data.weights") {
      overrides.emplace_back("data.tokens=[\"a\", \"b\"]");
    }
    if (field.key() != "model.embed_dim") {
      overrides.push_back(field.key() + "=" + other_value(field));
    }
    if (field.key() == "model.name") {
      overrides = {"model.name=gpt2-1558m"};
    }
    if (field.key() == "train.global_batch" || field.key() == "train.micro_batch") {
      overrides.emplace_back("train.global_batch=72");
    }
    const std::string printed = to_toml(parse("", overrides));
    CHECK(to_toml(parse(printed)) == printed);
    CHECK(printed != to_toml(Config{}));
    CHECK(printed.find(std::string(field.name) + " = ") != std::string::npos);
  }
}

TEST_CASE("rules are read in order, print and read back to the same") {
  const std::string toml =
      "[[rules]]\nmatch = \"*.bias\"\ndecay = true\nlr_scale = 2\n"
      "[[rules]]\nmatch = \"wte.*\"\nfreeze = true\ndtype = \"bfloat16\"\n"
      "[[rules]]\nmatch = \"h.?.*\"\nrecompute = \"full\"\n";
  const Config config = parse(toml);
  REQUIRE(config.rules.size() == 3);
  CHECK(config.rules[0] == RuleConfig{.match = "*.bias", .decay = true, .lr_scale = 2.0});
  CHECK(config.rules[1] == RuleConfig{.match = "wte.*", .freeze = true, .dtype = "bfloat16"});
  CHECK(config.rules[2] == RuleConfig{.match = "h.?.*", .recompute = "full"});
  CHECK(parse(to_toml(config)).rules == config.rules);
}

TEST_CASE(
    "whole numbers that no float holds exactly are taken as the nearest, and their range is "
    "checked") {
  CHECK(parse("[optimizer]\nweight_decay = 9007199254740993\n").optimizer.weight_decay ==
        9007199254740992.0);
  CHECK(parse("[[rules]]\nmatch = \"*\"\nlr_scale = 1000000\n").rules[0].lr_scale == 1e6);
  for (const char* toml :
       {"[model]\ndropout = 9223372036854775807\n", "[optimizer]\nbeta1 = -9223372036854775807\n",
        "[data]\ntokens = \"a\"\nweights = -9007199254740993\n",
        "[[rules]]\nmatch = \"*\"\nlr_scale = 9223372036854775807\n"}) {
    CAPTURE(toml);
    CHECK_THROWS_WITH_AS(parse(toml), doctest::Contains("must be at least 0"), ConfigError);
  }
}

TEST_CASE("a list may be given as its one element, and by an override as TOML or as plain text") {
  using Texts = std::vector<std::string>;
  CHECK(parse("[data]\ntokens = \"a\"\n").data.tokens == Texts{"a"});
  CHECK(parse("", {"data.tokens=a b.bin"}).data.tokens == Texts{"a b.bin"});
  CHECK(parse("", {"data.tokens=[\"a\", \"b\"]", "data.weights=[1, 0.5]"}).data.tokens ==
        Texts{"a", "b"});
  CHECK(parse("", {"data.tokens=[\"a\", \"b\"]", "data.weights=[1, 0.5]"}).data.weights ==
        std::vector<double>{1, 0.5});
}

TEST_CASE("a model name that fixes sizes sets them and refuses others") {
  const Config config = parse("[model]\nname = \"gpt2-350m\"\ndropout = 0.1\n");
  CHECK(config.model.num_layers == 24);
  CHECK(config.model.num_heads == 16);
  CHECK(config.model.embed_dim == 1024);
  CHECK(config.model.vocab_size == 50257);
  CHECK(config.model.max_seq_len == 1024);
  CHECK(config.model.dropout == 0.1);
  CHECK_NOTHROW(parse("[model]\nname = \"gpt2-350m\"\nnum_layers = 24\n"));
  CHECK_THROWS_WITH_AS(parse("[model]\nname = \"gpt2-350m\"\nnum_layers = 23\n"),
                       doctest::Contains("run.toml:3: model.num_layers = 23: model.name = "
                                         "\"gpt2-350m\" fixes it at 24: remove the key"),
                       ConfigError);
}

TEST_CASE("each mistake is named with its place, key, value and cure") {
  struct Mistake {
    std::string toml;
    std::string message;
  };
  const std::vector<Mistake> mistakes{
      {"[train]\nstepz = 5\n",
       "run.toml:2: train.stepz = 5: unknown key: did you mean train.steps?"},
      {"[trian]\nsteps = 5\n",
       "run.toml:2: trian.steps = 5: unknown key: did you mean train.steps?"},
      {"[optimiser]\n", "run.toml:1: [optimiser]: unknown section: did you mean the one of opti"},
      {"seq_length = 5\n",
       "run.toml:1: seq_length = 5: stands in no section: did you mean "
       "train.seq_len, under its [section]?"},
      {"runs = 3\n",
       "run.toml:1: runs = 3: stands in no section: did you mean a key of [run], like run.dir, "
       "under its [section]?"},
      {"[train]\nsteps = \"5\"\n",
       "run.toml:2: train.steps = \"5\": must be of type integer, got "
       "string: optimizer steps"},
      {"[train]\nsteps = 5.0\n", "train.steps = 5.0: must be of type integer, got floating-point"},
      {"[train]\nsteps = true\n", "must be of type integer, got boolean"},
      {"[train]\nsteps = [1, 2]\n", "train.steps = [ 1, 2 ]: must be of type integer, got array"},
      {"[train.steps]\nx = 1\n", "must be of type integer, got table"},
      {"[model]\nbias = 1\n", "model.bias = 1: must be of type boolean, got integer"},
      {"[optimizer]\nlr = \"fast\"\n", "must be of type float, got string"},
      {"[run]\ndir = 5\n", "run.dir = 5: must be of type string, got integer"},
      {"[train]\nmicro_batch = 0\n", "run.toml:2: train.micro_batch = 0: must be at least 1"},
      {"[optimizer]\nlr = 0\n", "optimizer.lr = 0.0: must be at least 1e-37, at most 1e+37"},
      {"[optimizer]\nlr = inf\n", "optimizer.lr = inf: must be at least 1e-37, at most 1e+37"},
      {"[optimizer]\nlr = nan\n", "optimizer.lr = nan: must be at least 1e-37, at most 1e+37"},
      {"[optimizer]\neps = 1e-300\n", "optimizer.eps = 1e-300: must be at least 1e-37"},
      {"[run]\ndir = \"\"\n", "run.dir = \"\": must be not empty"},
      {"[data]\ntokens = \"a\\u0000b\"\n",
       "data.tokens = [\"a\\u0000b\"]: must be not empty, without zero bytes"},
      {"[model]\ninit_from = \"a\\u0000b\"\n",
       "model.init_from = \"a\\u0000b\": must be without zero bytes"},
      {"[data]\ntokens = [\"a\", 1]\n",
       "data.tokens = [ 'a', 1 ]: must be of type list of strings, got array"},
      {"[data]\ntokens = [\"a\", \"\"]\n", "data.tokens = [\"a\", \"\"]: must be not empty"},
      {"[data]\ntokens = [\"a\", \"b\"]\nweights = 1\n",
       "run.toml:3: data.weights = [1.0]: must have as many elements as data.tokens = [\"a\", "
       "\"b\"] "
       "(run.toml:2)"},
      {"[data]\ntokens = [\"a\"]\nweights = 0\n",
       "data.weights = [0.0]: must have a positive element"},
      {"[data]\ntokens = [\"a\"]\nweights = [-1]\n", "data.weights = [-1.0]: must be at least 0"},
      {"[model]\nname = \"llama\"\nnum_heads = 6\nnum_kv_heads = 4\n",
       "model.num_heads = 6: must be a multiple of model.num_kv_heads = 4"},
      {"[model]\nname = \"llama\"\nrope_scaling = \"llama3\"\nrope_low_freq_factor = 4\n",
       "model.rope_low_freq_factor = 4.0: must be less than model.rope_high_freq_factor = 4.0"},
      {"[rules]\nmatch = \"*\"\n", "run.toml:1: [rules]: must be a list of tables"},
      {"rules = [1]\n", "run.toml:1: rules = 1: must be tables"},
      {"[[rules]]\ndecay = true\n", "run.toml:1: [[rules]]: must have a match"},
      {"[[rules]]\nmatch = \"*\"\n", "[[rules]] match = \"*\": changes nothing"},
      {"[[rules]]\nmatch = \"*\"\ndekay = true\n",
       "run.toml:3: rules.dekay = true: unknown key: did you mean rules.decay?"},
      {"[[rules]]\nmatch = \"*\"\nlr_scale = -1\n",
       "run.toml:3: rules.lr_scale = -1.0: must be at least 0, at most 1000000"},
      {"[[rules]]\nmatch = \"*\"\nfreeze = 1\n",
       "run.toml:3: rules.freeze = 1: must be of type boolean, got integer"},
      {"[[rules]]\nmatch = \"*\"\ndtype = \"bfloat16\"\n",
       "dtype = \"bfloat16\" is for parameters that are not trained"},
      {"[optimizer]\nbeta1 = 1.0\n", "optimizer.beta1 = 1.0: must be at least 0, below 1"},
      {"[data]\nvalidation_fraction = -0.1\n", "must be at least 0, below 1"},
      {"[optimizer]\nname = \"adam\"\n",
       "optimizer.name = \"adam\": must be one of adamw, sgd: update rule"},
      {"[train]\nsteps = \n", "run.toml:2:"},
      {"[train]\nsteps = 1\nsteps = 2\n", "not TOML"},
      {"[model]\nembed_dim = 385\n",
       "run.toml:2: model.embed_dim = 385: must be a multiple of "
       "model.num_heads = 6 (default): change one of the two"},
      {"[train]\nglobal_batch = 12\n",
       "train.global_batch = 12: must be a multiple of "
       "train.micro_batch = 8 (default)"},
      {"[train]\nseq_len = 257\n", "must be at most model.max_seq_len = 256 (default)"},
      {"[train]\nsteps = 5\n[schedule]\nwarmup_steps = 6\n",
       "run.toml:4: schedule.warmup_steps = 6: must be at most train.steps = 5 (run.toml:2)"},
  };
  for (const Mistake& mistake : mistakes) {
    CAPTURE(mistake.toml);
    CHECK_THROWS_WITH_AS(parse(mistake.toml), doctest::Contains(mistake.message.c_str()),
                         ConfigError);
  }
}

TEST_CASE("each mistake in an override is named") {
  struct Mistake {
    std::string text;
    std::string message;
  };
  const std::vector<Mistake> mistakes{
      {"train.steps", "--set: train.steps: must read section.key=value"},
      {"=5", "--set: =5: must read section.key=value"},
      {"train.steps=", "must read section.key=value"},
      {"train.step=5", "--set: train.step = 5: unknown key: did you mean train.steps?"},
      {"run.devise=cuda", "--set: run.devise = cuda: unknown key: did you mean run.device?"},
      {"runs=3", "--set: runs = 3: unknown key: did you mean a key of [run], like run.dir?"},
      {"devise=cuda", "--set: devise = cuda: unknown key: did you mean run.device?"},
      {"comm.streams=one", "comm.streams = \"one\": must be one of separate, shared"},
      {"train.steps=many", "--set: train.steps=many: the value must be one of TOML"},
      {"train.steps=5\nx=6", "the value must be one of TOML"},
      {"train.steps=\"5\"", "--set: train.steps = \"5\": must be of type integer, got string"},
      {"optimizer.name=adam", "--set: optimizer.name = \"adam\": must be one of adamw, sgd"},
      {"run.dir=\"\"", "--set: run.dir = \"\": must be not empty"},
      {"data.tokens=a\xff", "--set: data.tokens=a\xff: the value must be one of TOML"},
      {"model.vocab_size=9223372036854775808",
       "--set: model.vocab_size=9223372036854775808: the value must be one of TOML, like 8, 0.1, "
       "true or \"text\", at least 1, at most 16777216: "},
      {"train.seq_len=512", "--set: train.seq_len = 512: must be at most model.max_seq_len"},
  };
  for (const Mistake& mistake : mistakes) {
    CAPTURE(mistake.text);
    CHECK_THROWS_WITH_AS(parse("", {mistake.text}), doctest::Contains(mistake.message.c_str()),
                         ConfigError);
  }
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

TEST_CASE("a text that would exhaust the parser is refused, whatever hides it") {
  const std::string deep = "a" + repeated(".a", 400'000) + " = 1";
  const std::vector<std::string> texts{
      deep,
      "[" + deep,
      "\n[train]\nx = { " + deep + " }",
      "x = \"\"\"a\"\"\"\"\n" + deep,
      R"(x = { a = """b\"""""", )" + deep + " }",
      "x = { a = '''b'''', " + deep + " }",
      R"(x = { a = '\', )" + deep + " }",
      "# \"\n" + deep,
      "\"a\" . " + deep,
  };
  for (const std::string& toml : texts) {
    CHECK_THROWS_WITH_AS(parse(toml), doctest::Contains("a key has at most 16 dots"), ConfigError);
  }
  CHECK_THROWS_WITH_AS(parse("\n\n" + deep), doctest::Contains("run.toml:3: a key"), ConfigError);
  CHECK_THROWS_WITH_AS(parse("", {"train.steps={" + deep + "}"}),
                       doctest::Contains("a key has at most 16 dots"), ConfigError);
  CHECK_THROWS_WITH_AS(parse("x = " + repeated("[", 400'000)), doctest::Contains("not TOML"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(parse("#" + repeated("x", 1 << 20)),
                       doctest::Contains("at most 1048576 bytes, got 1048577"), ConfigError);
}

TEST_CASE("dots in text, comments and many keys are no depth") {
  const std::string dots = repeated(".", 1000);
  const Config config = parse("# " + dots + "\n[run]\ndir = \"\\\"" + dots + "\" # ' " + dots +
                              "\n[data]\ntokens = '''\n" + dots + "''\n" + dots + "'''\n");
  CHECK(config.run.dir == "\"" + dots);
  CHECK(config.data.tokens == std::vector{dots + "''\n" + dots});
  CHECK(parse(repeated("# a.b\n", 100) + "train.steps = 3\n").train.steps == 3);
}

TEST_CASE("a file that cannot be read is named") {
  CHECK_THROWS_WITH_AS(load_config("/nowhere/run.toml"),
                       doctest::Contains("/nowhere/run.toml: the configuration cannot be read"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(load_config("/"), doctest::Contains("/: the configuration cannot be read"),
                       ConfigError);
}

TEST_CASE("a key without default is asked for by name") {
  CHECK_THROWS_WITH_AS(require_key(Config{}, "data.tokens"),
                       doctest::Contains("data.tokens: must be given"), ConfigError);
  CHECK_NOTHROW(require_key(parse("", {"data.tokens=x"}), "data.tokens"));
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
