#!/usr/bin/env python3
"""Fails where NVIDIA's libraries are in what must not need them.

A program whose set of CUDA objects is not the real one (cmake/FsdptrainCuda.cmake) loads none of
them and has none linked in: else its fake would silently not be used. A library of the project
calls none of their functions: what does is in a set.
"""

import re
import subprocess
import sys

LIBRARY = re.compile(r"\(NEEDED\).*\[(lib(?:cuda|cudart|nccl|cublas|cublasLt|cudnn)\b[^]]*)\]")
# What only the CUDA runtime itself defines, also when it is linked in statically.
RUNTIME = re.compile(r"^(__cudart\w+) ", re.MULTILINE)
CALL = re.compile(r"^((?:cuda|nccl|pnccl|cublas|cublasLt|cudnn|cu|__cuda)[A-Z]\w*) ", re.MULTILINE)


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def of_program(dynamic, symbols):
    """What is wrong with a program, by its dynamic section and its symbols."""
    for name in LIBRARY.findall(dynamic):
        yield f"needs {name}"
    for name in RUNTIME.findall(symbols)[:1]:
        yield f"has the CUDA runtime linked in: {name}"


def of_library(_dynamic, symbols):
    for name in sorted(set(CALL.findall(symbols))):
        yield f"knows {name}, which belongs in a set of CUDA objects"


def main(arguments):
    kinds = {"--programs": of_program, "--libraries": of_library}
    if not arguments or arguments[0] not in kinds:
        print("usage: check_cuda_sets.py --programs FILE... --libraries FILE...\n\n"
              "exit code: 0 clean, 1 something was found, 2 usage or a file that is not built",
              file=sys.stderr)
        return 2
    check = None
    problems = []
    for argument in arguments:
        if argument in kinds:
            check = kinds[argument]
            continue
        try:
            dynamic = output_of("readelf", "--dynamic", "--wide", argument)
            symbols = output_of("nm", "--format=posix", argument)
        except subprocess.CalledProcessError as error:
            print(f"check_cuda_sets: {argument}: {error.stderr.strip()}", file=sys.stderr)
            return 2
        problems += [f"{argument}: {problem}" for problem in check(dynamic, symbols)]
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
