"""Preparation and inspection of data as a user meets them: JSONL, shards, validation, fingerprints.

Usage: data_cli_test.py FSDPTRAIN SOURCE_DIR
"""

import json
import os
import re
import resource
import struct
import subprocess

from cli_case import DONE, FAILED, FSDPTRAIN, REFUSED, CliTest, main


def tokens_of(path):
    """The tokens of a file, by docs/formats.md."""
    content = path.read_bytes()
    magic, version, width, count = struct.unpack_from("<8sIIQ", content)
    assert (magic, version, width) == (b"FSDPTOK1", 1, 2) and len(content) == 1024 + 2 * count
    return list(struct.unpack_from(f"<{count}H", content, 1024))


def as_tokens(documents):
    return [token for document in documents for token in [*document.encode(), 256]]


class Prepare(CliTest):
    def lines(self, documents, name="text.jsonl", field="text"):
        self.write(name, "".join(json.dumps({"id": i, field: document}) + "\n"
                                 for i, document in enumerate(documents)).encode())

    def test_lines_of_jsonl_are_documents(self):
        documents = ["plain", "", "q\" \\ \n\t é ☃ 😀 \u0000 end"]
        self.lines(documents)
        output = self.check_done("data", "prepare", "--text", "text.jsonl", "--output", "t.bin")
        self.assertEqual(output, f"wrote t.bin: {len(as_tokens(documents))} tokens, 3 documents, "
                         "vocabulary 257\n")
        self.assertEqual(tokens_of(self.folder / "t.bin"), as_tokens(documents))

    def test_several_inputs_keep_their_order_and_the_format_can_be_forced(self):
        self.lines(["one", "two"], "in/a.jsonl")
        self.write("in/b.txt", b"three")
        self.lines(["four"], "c.data", field="body")
        self.check_done("data", "prepare", "--text", "in/b.txt", "in", "--output", "t.bin")
        self.assertEqual(tokens_of(self.folder / "t.bin"),
                         as_tokens(["three", "one", "two", "three"]))
        self.check_done("data", "prepare", "--text", "c.data", "--output", "t.bin", "--format",
                        "jsonl", "--jsonl-field", "body")
        self.assertEqual(tokens_of(self.folder / "t.bin"), as_tokens(["four"]))
        self.check_done("data", "prepare", "--text", "in/a.jsonl", "--output", "t.bin", "--format",
                        "text")
        self.assertEqual(bytes(tokens_of(self.folder / "t.bin")[:-1]),
                         (self.folder / "in/a.jsonl").read_bytes())

    def test_a_wrong_line_is_named_and_leaves_nothing(self):
        for line, message in (
                ("{", "x.jsonl:3: not valid JSON: "),
                ('{"text": 7}', 'x.jsonl:3: the field "text" must be a string, got a number'),
                ('{"body": "a"}', 'x.jsonl:3: has no field "text": name the field of the text '
                 "(--jsonl-field)")):
            self.write("x.jsonl", b'{"text": "a"}\r\n\n' + line.encode() + b"\n")
            self.check_error(REFUSED, message, "data", "prepare", "--text", "x.jsonl", "--output",
                             "t.bin", "--validation-fraction", "0.5")
            self.assertEqual(self.files(), ["x.jsonl"])

    def test_the_bytes_do_not_depend_on_the_threads(self):
        self.lines([f"{i} " * (i % 300) for i in range(12_000)])
        self.write("more.txt", b"text " * 600_000)
        outputs = []
        for threads in (1, 2, 5):
            (self.folder / f"{threads}").mkdir()
            self.check_done("data", "prepare", "--text", "text.jsonl", "more.txt", "--output",
                            f"{threads}/t", "--threads", threads, "--shard-tokens", 1_000_000,
                            "--validation-fraction", 0.1, "--seed", 3)
            files = sorted(path for path in (self.folder / f"{threads}").rglob("*.bin"))
            outputs.append([(path.name, path.read_bytes()) for path in files])
        self.assertGreater(len(outputs[0]), 4)
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(outputs[0], outputs[2])

    def test_shards_are_one_stream_and_an_earlier_set_is_kept(self):
        documents = [f"document {i}" for i in range(20)]
        self.lines(documents)
        (self.folder / "set").mkdir()
        arguments = ["data", "prepare", "--text", "text.jsonl", "--output", "set/web.bin",
                     "--shard-tokens", 64]
        output = self.check_done(*arguments)
        self.assertRegex(output, r"\Awrote set/web-00000.bin to web-0000\d.bin: \d+ tokens, 20 doc")
        shards = sorted((self.folder / "set").iterdir())
        self.assertEqual([path.name for path in shards],
                         [f"web-{i:05}.bin" for i in range(len(shards))])
        tokens = [token for path in shards for token in tokens_of(path)]
        self.assertEqual(tokens, as_tokens(documents))
        self.assertEqual({len(tokens_of(path)) for path in shards[:-1]}, {64})
        self.check_error(REFUSED, "set/web-00000.bin: a shard of an earlier set is there", *arguments)
        inspected = self.check_done("data", "inspect", "set")
        self.assertIn("documents        20\n", inspected)
        self.assertEqual(inspected.count("fingerprint "), len(shards))

    def test_validation_is_whole_documents_in_a_folder_of_its_own(self):
        documents = [f"document {i}" for i in range(500)]
        self.lines(documents)
        output = self.check_done("data", "prepare", "--text", "text.jsonl", "--output", "t.bin",
                                 "--validation-fraction", 0.2)
        self.assertRegex(output, r"\Awrote t.bin: .*\nfor validation validation/t.bin: .*\n\Z")
        parts = [bytes(token % 256 for token in tokens_of(self.folder / name)).decode().split("\0")
                 for name in ("t.bin", "validation/t.bin")]
        self.assertEqual(sorted(parts[0][:-1] + parts[1][:-1]), sorted(documents))
        self.assertLess(abs(len(parts[1]) - 100), 36)
        other = self.check_done("data", "prepare", "--text", "text.jsonl", "--output", "u.bin",
                                "--validation-fraction", 0.2, "--seed", 1)
        self.assertNotEqual(output.replace("t.bin", "u.bin"), other)

    def test_inputs_are_never_written_over(self):
        self.write("in/validation/t.bin", b"precious")
        self.write("text.txt", b"x")
        self.check_error(REFUSED, "--output in/validation/t.bin: is part of the text", "data",
                         "prepare", "--text", "in", "text.txt", "--output", "in/t.bin",
                         "--validation-fraction", "0.5")
        (self.folder / "link").symlink_to("text.txt")
        self.check_error(REFUSED, "--output link: is part of the text", "data", "prepare", "--text",
                         "text.txt", "--output", "link")
        self.assertEqual((self.folder / "text.txt").read_bytes(), b"x")

    def test_a_full_disk_leaves_no_shard_and_no_folder_behind(self):
        self.write("text.txt", b"x" * 400_000)
        self.check_error(
            FAILED, "File too large", "data", "prepare", "--text", "text.txt", "--output", "out.bin",
            "--shard-tokens", 100_000, "--validation-fraction", "0.9999",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536)))
        self.assertEqual(self.files(), ["text.txt"])
        result = self.on_small_disk("500k", "data prepare --text text.txt --output disk/x.bin "
                                    "--shard-tokens 50000")
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertIn("No space left on device; free space there", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_missing_folders_of_the_output_are_made_and_removed_after_an_error(self):
        self.write("text.txt", b"x")
        self.write("wrong.jsonl", b"{")
        self.check_error(REFUSED, "not valid JSON", "data", "prepare", "--text", "wrong.jsonl",
                         "--output", "data/new/mine.bin")
        self.assertEqual(self.files(), ["text.txt", "wrong.jsonl"])
        self.check_done("data", "prepare", "--text", "text.txt", "--output", "data/new/mine.bin")
        self.assertEqual(tokens_of(self.folder / "data/new/mine.bin"), [120, 256])

    def test_more_shards_than_open_files(self):
        self.write("text.txt", bytes(range(256)) * 20)
        few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))}
        self.check_done("data", "prepare", "--text", "text.txt", "--output", "set/c4.en.bin",
                        "--shard-tokens", 20, **few)
        self.assertEqual(len(list((self.folder / "set").iterdir())), 257)
        self.assertIn("tokens           5121\n", self.check_done("data", "inspect", "--full", "set", **few))
        self.write("long.txt", b"x" * 20_000)
        self.check_error(REFUSED, "20001 tokens are more than 10000 shards of 2 tokens: choose at least 3 "
                         "(--shard-tokens)", "data", "prepare", "--text", "long.txt", "--output",
                         "many/t", "--shard-tokens", 2)
        self.assertFalse((self.folder / "many").exists())

    def test_what_is_no_text_in_a_folder_is_refused(self):
        self.write("in/a.txt", b"x")
        link = self.folder / "in/link"
        for target, message in (
                ("gone", "in/link: opening the text failed: it is a link to nothing; remove the link"),
                ("link", "in/link: opening the text failed: Too many levels of symbolic links; remove"),
                ("n" * 300, "in/link: opening the text failed: File name too long"),
                ("a.txt/x", "in/link: opening the text failed: Not a directory")):
            link.symlink_to(target)
            with self.subTest(message):
                self.check_error(REFUSED, message, "data", "prepare", "--text", "in", "--output", "t.bin")
            link.unlink()
        link.symlink_to("a.txt")
        self.check_done("data", "prepare", "--text", "in", "--output", "t.bin")
        self.assertEqual(tokens_of(self.folder / "t.bin"), [120, 256, 120, 256])
        link.unlink()
        (self.folder / "t.bin").rename(link)
        self.check_error(REFUSED, "in/link: is a token file already: train on it", "data", "prepare", "--text",
                         "in", "--output", "t.bin")
        self.assertEqual(self.files(), ["in"])

    def test_another_file_is_not_replaced_a_token_file_is(self):
        self.write("text.txt", b"x")
        self.write("notes", b"precious")
        self.write("validation/t.bin", b"precious")
        more = ["--validation-fraction", "0.5"]
        for output, name, options in (("notes", "notes", []), ("t.bin", "validation/t.bin", more)):
            self.check_error(REFUSED, f"{name}: is there already and no token file, so it is not replaced", "data",
                             "prepare", "--text", "text.txt", "--output", output, *options)
            self.assertEqual((self.folder / name).read_bytes(), b"precious")
        self.assertEqual(self.files(), ["notes", "text.txt", "validation"])
        for content in (b"y", b"z"):
            self.assertEqual(tokens_of(self.prepare(content)), [content[0], 256])

    def test_byte_order_marks_are_no_text(self):
        self.write("in/a.jsonl", b'\xef\xbb\xbf{"text": "one"}\n{"text": "two"}\n')
        self.write("in/b.txt", b"\xef\xbb\xbfthree")
        self.check_done("data", "prepare", "--text", "in", "--output", "t.bin")
        self.assertEqual(tokens_of(self.folder / "t.bin"), as_tokens(["one", "two", "three"]))

    def test_numbers_beyond_64_bits_may_stand_beside_the_text(self):
        self.write("a.jsonl", b'{"id": 123456789012345678901234567890, "x": -1e999, "text": "one"}\n')
        self.check_done("data", "prepare", "--text", "a.jsonl", "--output", "t.bin")
        self.assertEqual(tokens_of(self.folder / "t.bin"), as_tokens(["one"]))

    def test_wrong_options_are_refused(self):
        self.write("text.txt", b"x")
        for option, value in (("--format", "csv"), ("--validation-fraction", "2"),
                              ("--shard-tokens", "-1"), ("--seed", "x"), ("--threads", "-1")):
            self.check_error(REFUSED, option, "data", "prepare", "--text", "text.txt", "--output",
                             "t.bin", option, value)


class Inspect(CliTest):
    def test_the_fingerprint_tells_files_apart(self):
        path = self.prepare(b"x" * 2_000_000)
        line = r"(?m)^fingerprint      (\S+)  \S*text.tok, 2000001 tokens$"
        sampled = re.search(line, self.check_done("data", "inspect", path))[1]
        whole = re.search(line, self.check_done("data", "inspect", "--full", path))[1]
        self.assertRegex(sampled, r"\Axxh3-samples:4001026:[0-9a-f]{32}\Z")
        self.assertRegex(whole, r"\Axxh3:4001026:[0-9a-f]{32}\Z")
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        content[-2] = ord("y")
        path.write_bytes(content)
        self.assertNotEqual(sampled, re.search(line, self.check_done("data", "inspect", path))[1])

    def test_all_tokens_of_all_shards_are_checked(self):
        self.write("text.txt", b"x" * 1000)
        self.check_done("data", "prepare", "--text", "text.txt", "--output", "t", "--shard-tokens",
                        300)
        shards = [f"t-0000{i}.bin" for i in range(4)]
        self.assertIn("checked          all tokens", self.check_done("data", "inspect", "--full", "."))
        content = bytearray((self.folder / shards[2]).read_bytes())
        content[1024 + 2 * 7 + 1] = 7
        (self.folder / shards[2]).write_bytes(content)
        result = self.run_cli("data", "inspect", "--full", *shards)
        self.assertEqual(result.returncode, REFUSED)
        self.assertIn("t-00002.bin: token 1912 at offset 7 is outside the vocabulary of 257",
                      result.stderr)
        (self.folder / shards[1]).unlink()
        self.check_error(REFUSED, "t-00002.bin: the shard before it is missing", "data", "inspect",
                         ".")

    def test_a_set_that_lost_a_shard_or_holds_what_is_none_is_refused(self):
        self.write("text.txt", b"x" * 999)
        # 1,000 tokens: all shards are of one size, so that sizes do not tell the last.
        self.check_done("data", "prepare", "--text", "text.txt", "--output", "set/t", "--shard-tokens", 250)
        self.assertIn("tokens           1000\n", self.check_done("data", "inspect", "set"))
        last = self.folder / "set/t-00003.bin"
        content = last.read_bytes()
        last.unlink()
        commands = (["data", "inspect", "set"], ["data", "baseline", "--tokens", "set"],
                    ["train", "--set", "data.tokens=set", "--set", "run.dir=run"])

        def check_refused(message):
            for command in commands:
                with self.subTest(message, command=command[0]):
                    self.check_error(REFUSED, message, *command)
        check_refused("set/t-00002.bin: the shard behind it is missing: the set has lost a file")
        last.symlink_to("gone")
        check_refused("set/t-00003.bin: there is no such file: it is a link to nothing")
        last.unlink()
        last.symlink_to(last.name)
        check_refused("set/t-00003.bin: opening for reading failed: Too many levels of symbolic links")
        last.unlink()
        last.write_bytes(content)
        extra = self.folder / "set/x.bin"
        extra.mkdir()
        check_refused("set/x.bin: must be a file, got a folder")
        extra.rmdir()
        self.check_done("data", "inspect", "set")

    def test_files_that_do_not_fit_each_other_are_refused(self):
        path = self.prepare(b"x")
        content = bytearray(path.read_bytes())
        content[28:32] = struct.pack("<I", 255)
        self.write("other.tok", content)
        self.check_error(REFUSED, "text.tok and other.tok: files that are read together must have "
                         "one vocabulary", "data", "inspect", "text.tok", "other.tok")


class Baseline(CliTest):
    def test_shards_score_as_the_file_does(self):
        self.write("text.txt", bytes(97 + (i * i) % 11 for i in range(5000)))
        self.check_done("data", "prepare", "--text", "text.txt", "--output", "t.tok")
        (self.folder / "set").mkdir()
        self.check_done("data", "prepare", "--text", "text.txt", "--output", "set/t",
                        "--shard-tokens", 997)
        scores = [self.check_done("data", "baseline", "--tokens", tokens, "--seq-len", 7)
                  for tokens in ("t.tok", "set")]
        self.assertEqual(scores[0], scores[1])


class Memory(CliTest):
    def peak_kilobytes(self, text):
        command = [FSDPTRAIN, "data", "prepare", "--text", text, "--output", "t.bin", "--threads",
                   "2"]
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, DONE)
        return usage.ru_maxrss

    def test_a_large_input_needs_little_memory(self):
        self.write("small.txt", b"abcdefg\n")
        self.write("large.txt", b"abcdefg\n" * (8 << 20))
        # Of 64 MiB input and 128 MiB output.
        self.assertLess(self.peak_kilobytes("large.txt") - self.peak_kilobytes("small.txt"), 24 << 10)


if __name__ == "__main__":
    main()
