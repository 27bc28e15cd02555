"""Each lint on text that it must refuse and on text that it must let through."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lint"))

# pylint: disable=wrong-import-position
import check_changelog
import check_cuda_sets
import check_includes
import check_isa_registers
import check_statics
import check_text
import sources


class Code(unittest.TestCase):
    def test_comments_and_literals_are_blanked_and_places_kept(self):
        text = 'a(); // assert(x)\nb("assert(", \'"\', R"x(assert(")x");  /* static\nint */ c();\n'
        code = sources.code_of(text)
        self.assertEqual(len(code), len(text))
        self.assertEqual(code.count("\n"), text.count("\n"))
        self.assertNotIn("assert", code)
        self.assertNotIn("static", code)
        self.assertIn(" c();", code)

    def test_digit_separators_are_no_character_literals(self):
        self.assertEqual(sources.code_of("x = 1'000'000; y"), "x = 1'000'000; y")


class Includes(unittest.TestCase):
    def includes(self, name, *included):
        text = "".join(f'#include "{path}"\n' for path in included)
        return list(check_includes.check(name, text))

    def test_layers_below_may_be_included(self):
        for name, included in (
                ("runtime/base/a.h", "runtime/base/b.h"),
                ("kernels/a.h", "runtime/base/view.h"),
                ("runtime/tensor/tensor.cpp", "kernels/elementwise.h"),
                ("runtime/tensor/tensor.cpp", "runtime/autograd/meta.h"),
                ("runtime/nn/linear.cpp", "runtime/ops/matmul.h"),
                ("runtime/optim/adamw.cpp", "runtime/nn/flat_chunk.h"),
                ("shard/a.cpp", "comm/process_group.h"),
                ("models/gpt2/model.cpp", "runtime/nn/module.h"),
                ("models/parallelize.cpp", "shard/sharded_model.h"),
                ("models/parallelize.cpp", "models/gpt2/model.h"),
                ("tools/main.cpp", "models/parallelize.h"),
                ("tests/a_test.cpp", "tools/config/config.h")):
            with self.subTest(name=name, included=included):
                self.assertEqual(self.includes(name, included), [])

    def test_layers_above_and_beside_may_not(self):
        for name, included in (
                ("runtime/base/a.h", "kernels/elementwise.h"),
                ("kernels/a.h", "runtime/tensor/tensor.h"),
                ("runtime/tensor/tensor.h", "runtime/autograd/meta.h"),
                ("runtime/tensor/views.cpp", "runtime/autograd/meta.h"),
                ("runtime/tensor/tensor.cpp", "runtime/autograd/engine.h"),
                ("runtime/autograd/engine.cpp", "runtime/ops/arithmetic.h"),
                ("runtime/ops/a.cpp", "runtime/nn/module.h"),
                ("runtime/nn/a.cpp", "runtime/optim/adamw.h"),
                ("runtime/nn/a.cpp", "comm/process_group.h"),
                ("shard/a.cpp", "models/registry.h"),
                ("shard/a.cpp", "checkpoint/saver.h"),
                ("models/gpt2/model.cpp", "shard/sharded_model.h"),
                ("models/gpt2/model.cpp", "models/parallelize.h"),
                ("models/parallelize.cpp", "checkpoint/saver.h"),
                ("checkpoint/a.cpp", "models/registry.h"),
                ("runtime/data/a.cpp", "tests/support/check.h"),
                ("examples/a.cpp", "tools/config/config.h"),
                ("tools/main.cpp", "tests/support/check.h")):
            with self.subTest(name=name, included=included):
                self.assertEqual(len(self.includes(name, included)), 1)

    def test_the_message_names_file_line_layer_and_include(self):
        self.assertEqual(
            self.includes("kernels/a.h", "runtime/base/view.h", "runtime/tensor/tensor.h"),
            ["kernels/a.h:2: kernels may not include runtime/tensor/tensor.h"])

    def test_paths_that_do_not_start_at_the_root_are_refused(self):
        self.assertIn("no path from the root", self.includes("kernels/a.cpp", "a.h")[0])

    def test_a_folder_without_a_layer_is_refused(self):
        self.assertIn("in no layer", self.includes("extra/a.h")[0])

    def test_an_include_in_a_comment_does_not_count(self):
        self.assertEqual(
            list(check_includes.check("kernels/a.h", '// #include "shard/a.h"\n')), [])


class Statics(unittest.TestCase):
    def lines(self, text):
        return [int(found.split(":")[1]) for found in check_statics.check("a.cpp", text)]

    def test_variables_of_static_storage_are_refused(self):
        for text in (
                "int counter = 0;",
                "namespace a { int counter; }",
                "namespace a::b {\nnamespace {\nstd::mutex lock;\n}\n}",
                "extern int counter;",
                "inline int counter{3};",
                "std::vector<std::map<int, int>> table = {{1, 2}};",
                "const char* name = 0;",
                "int Foo::counter = 0;",
                "int table[3][4];",
                "void f() { static int calls = 0; }",
                "void f() { thread_local std::string buffer; }",
                "void f() { run([] { static int calls; }); }",
                "void f() { static Foo foo(3); }",
                "static thread_local Foo* current;",
                "struct A { static int counter; };",
                "struct A { inline static std::atomic<int> counter{0}; };",
                "void f() {\n}\nint counter;"):
            with self.subTest(text=text):
                self.assertEqual(len(self.lines(text)), 1)

    def test_constants_functions_and_types_are_let_through(self):
        for text in (
                "constexpr int kSize = 3;",
                "inline constexpr std::array<int, 2> kSizes = {1, 2};",
                "const std::string kName = f();",
                "static constexpr const char* kName = 0;",
                "const char* const kName = 0;",
                "void f() { static const std::string none; }",
                "static int f(int x);",
                "static int f(int x) { int y = x; return y; }",
                "struct A { static A create(int x); static constexpr int kX = 1; int y = 0; };",
                "class A { static std::shared_ptr<A> create(); int x_ = 0; };",
                "enum class E : int { A, B };",
                "using A = int; typedef int B; namespace c = d;",
                "struct A;\ntemplate <class T> struct B;\nfriend struct C;",
                "template <class T> T f(T x) { T y = x; return y; }",
                "template void map<3>(const A&, B);",
                "auto f() -> int { int x = 3; return x; }",
                "namespace a { class B final : public C { int x; }; }",
                "void f() { int x = static_cast<int>(1.0); static_assert(true); }",
                "#define A(x) \\\n  static int x;\nint f();",
                "int f() { for (int i = 0; i < 3; ++i) { int j = i; } return 0; }",
                "A::A(int x) : x_(x), y_{x} { int z = 0; }",
                "void f() { g([] { int x = 0; return x; }); }"):
            with self.subTest(text=text):
                self.assertEqual(self.lines(text), [])

    def test_a_nolint_needs_a_reason(self):
        self.assertEqual(self.lines("// NOLINTNEXTLINE(some-check): the one binding\nint x;"), [])
        self.assertEqual(self.lines("int x;  // NOLINT(some-check): the one binding"), [])
        self.assertEqual(self.lines("// NOLINTNEXTLINE(some-check)\nint x;"), [2])
        self.assertEqual(self.lines("int x;  // NOLINT"), [1])


class Text(unittest.TestCase):
    def found(self, text, name="runtime/a.cpp"):
        return list(check_text.check(name, text))

    def test_placeholders_are_refused_everywhere(self):
        for word in ("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"):
            for name in ("a.md", "a.cpp", "tools/test"):
                with self.subTest(word=word, name=name):
                    self.assertEqual(len(self.found(f"# {word}: later", name)), 1)

    def test_paths_of_a_machine_are_refused(self):
        for path in ("/ho" + "me/ann/x", "/ro" + "ot/x"):
            with self.subTest(path=path):
                self.assertEqual(len(self.found(f"see {path}", "README.md")), 1)
        self.assertEqual(self.found("see $PWD/data/x and build/root/y", "README.md"), [])

    def test_code_rules(self):
        for text in (
                "assert(x);",
                "#include <cassert>",
                "#pragma omp parallel for",
                "__shared__ float x[3];",
                "check<IoError>(::mkdir(path, 0700) == 0,\n  \"{}\", reason_of(errno));",
                "try { f(); } catch (...) {}",
                "try { f(); } catch (...) {\n  // never mind\n}"):
            with self.subTest(text=text):
                self.assertEqual(len(self.found(text)), 1)

    def test_what_only_looks_alike_is_let_through(self):
        for text in ("static_assert(x);", "// assert(x)", "a.assert(x);",
                     "catch (...) { throw; }", 'f("__shared__");'):
            with self.subTest(text=text):
                self.assertEqual(self.found(text), [])

    def test_simt_h_may_name_shared_memory(self):
        self.assertEqual(self.found("__shared__", "kernels/cuda/simt.h"), [])

    def test_std_math_is_refused_in_functors_only(self):
        self.assertEqual(len(self.found("std::exp(x)", "kernels/functors/a.h")), 1)
        self.assertEqual(self.found("math::exp(x) + std::max(a, b)", "kernels/functors/a.h"), [])
        self.assertEqual(self.found("std::exp(x)", "runtime/optim/a.cpp"), [])

    def test_long_sources_are_refused(self):
        self.assertEqual(self.found("\n" * 600), [])
        self.assertEqual(len(self.found("\n" * 601)), 1)
        self.assertEqual(self.found("\n" * 601, "tests/golden/a.json"), [])


class IsaRegisters(unittest.TestCase):
    def check(self, variant, *instructions):
        lines = [f"   0:\t{instruction}" for instruction in instructions]
        forbidden, own = check_isa_registers.check(lines, variant)
        return len(forbidden), own

    def test_registers_beyond_the_variant_are_found(self):
        for variant, instruction, expected in (
                ("baseline", "mulps  %xmm1,%xmm2", (0, True)),
                ("baseline", "vmulps %ymm1,%ymm2,%ymm3", (1, True)),
                ("avx2", "vfmadd231ps (%rax),%ymm1,%ymm2", (0, True)),
                ("avx2", "vmulps %ymm16,%ymm2,%ymm3", (1, True)),
                ("avx2", "vaddps %zmm0,%zmm1,%zmm2", (1, False)),
                ("avx2", "kmovw  %eax,%k1", (1, False)),
                ("avx512", "vfmadd231ps (%rax){1to16},%zmm1,%zmm2", (0, True))):
            with self.subTest(variant=variant, instruction=instruction):
                self.assertEqual(self.check(variant, instruction), expected)

    def test_arithmetic_on_narrower_registers_is_not_enough(self):
        self.assertEqual(self.check("avx512", "vmulps %ymm1,%ymm2,%ymm3", "vmovups %zmm1,(%rax)"),
                         (0, False))

    def test_stores_past_the_caches_need_a_fence(self):
        for fenced, *instructions in (
                (True, "movups %xmm0,(%rdi)"), (True, "movntdqa (%rdi),%xmm0"),
                (False, "movntdq %xmm0,(%rdi)"), (False, "vmovntdq %zmm0,(%rdi)"),
                (True, "vmovntdq %zmm0,(%rdi)", "sfence"),
                (False, "vmovntdq %zmm0,(%rdi)", "lfence")):
            with self.subTest(instructions=instructions):
                lines = [f"   0:\t{instruction}" for instruction in instructions]
                self.assertEqual(check_isa_registers.fenced(lines), fenced)


class CudaSets(unittest.TestCase):
    def test_a_program_that_needs_a_library_of_nvidia_is_found(self):
        needed = " 0x0000000000000001 (NEEDED)             Shared library: [%s]\n"
        for name, expected in (("libcudart.so.13", 1), ("libnccl.so.2", 1), ("libcuda.so.1", 1),
                               ("libcublasLt.so.13", 1), ("libstdc++.so.6", 0),
                               ("libfakecudart.so", 0)):
            with self.subTest(name=name):
                found = list(check_cuda_sets.of_program(needed % name, "main T 10 20\n"))
                self.assertEqual(len(found), expected)

    def test_a_runtime_that_is_linked_in_is_found(self):
        symbols = "cudaMalloc T 10 20\n__cudartGetVersion t 30 40\n"
        self.assertEqual(list(check_cuda_sets.of_program("", symbols)),
                         ["has the CUDA runtime linked in: __cudartGetVersion"])
        # The fake has functions of these names.
        self.assertEqual(list(check_cuda_sets.of_program("", "cudaMalloc T 10 20\n")), [])

    def test_a_library_that_calls_cuda_or_nccl_is_found(self):
        symbols = ("a.a[x.o]:\ncudaMalloc U\nncclAllGather U\n__cudaRegisterFatBinary U\n"
                   "_ZN9fsdptrain13make_cuda_apiEi U\ncuda_none T 0 1\ncudaMalloc U\n")
        self.assertEqual(len(list(check_cuda_sets.of_library("", symbols))), 3)


class Changelog(unittest.TestCase):
    def test_an_unreleased_section_with_an_entry_is_demanded(self):
        self.assertEqual(list(check_changelog.check("# Changelog\n\n## [Unreleased]\n\n- new\n")), [])
        self.assertEqual(len(list(check_changelog.check("# Changelog\n\n## [1.0.0]\n\n- new\n"))), 1)
        self.assertEqual(
            len(list(check_changelog.check("## [Unreleased]\n\n## [1.0.0]\n\n- new\n"))), 1)


if __name__ == "__main__":
    unittest.main()
