"""What the lints share: the files of the project, and C++ text without comments and strings."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CPP_SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}

_TOKENS = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      |(?P<raw>R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)")
      |(?P<string>"(?:\\.|[^"\\\n])*")
      |(?P<char>(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+')""",
    re.VERBOSE | re.DOTALL)


def listed(root):
    """The files that git tracks or would track, as paths relative to `root`."""
    output = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, check=True, capture_output=True, text=True).stdout
    names = sorted(set(filter(None, output.split("\0"))))
    return [name for name in names if os.path.isfile(os.path.join(root, name))]


def cpp_files(root):
    return [name for name in listed(root) if pathlib.PurePath(name).suffix in CPP_SUFFIXES]


def code_of(text):
    """The text with comments and the insides of literals blanked; lines and columns stay.

    The names of includes stay too.
    """
    def blank(match):
        piece = match[0]
        line_start = text.rfind("\n", 0, match.start()) + 1
        if match["string"] and text[line_start:match.start()].strip() in ("#include", "# include"):
            return piece
        quote = "" if match["comment"] else piece[-1]
        body = re.sub(r"[^\n]", " ", piece)
        return quote + body[1:-1] + quote if quote else body

    return _TOKENS.sub(blank, text)


def report(name, problems):
    """Prints the problems and gives the exit code."""
    for problem in problems:
        print(f"{name}: {problem}")
    return 1 if problems else 0
