#!/usr/bin/env python3
"""Fails where a folder includes one that it may not depend on (docs/architecture.md)."""

import re
import sys

import sources

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

# What each layer may include, itself aside. A layer is the longest prefix listed here.
_TENSOR = {"runtime/base", "kernels", "runtime/tensor"}
_AUTOGRAD = _TENSOR | {"runtime/autograd"}
_OPS = _AUTOGRAD | {"runtime/ops"}
# An optimizer walks the flat buffers and segment tables that nn/flat_chunk.h declares.
_RUNTIME = _OPS | {"runtime/nn", "runtime/optim", "runtime/data"}
_COMM = _RUNTIME | {"comm"}
_SHARD = _COMM | {"shard"}
_ALL = _SHARD | {"models", "models/parallelize", "checkpoint"}

ALLOWED = {
    "runtime/base": set(),
    "kernels": {"runtime/base"},
    "runtime/tensor": _TENSOR,
    "runtime/autograd": _AUTOGRAD,
    "runtime/ops": _OPS,
    "runtime/nn": _OPS,
    "runtime/optim": _OPS | {"runtime/nn"},
    "runtime/data": _OPS,
    "comm": _RUNTIME,
    "shard": _COMM,
    "models": _RUNTIME,
    "models/parallelize": _SHARD | {"models"},
    "checkpoint": _SHARD,
    "tools": _ALL,
    "examples": _ALL,
    "tests": _ALL | {"tools", "examples"},
}

# Single includes that the table would forbid, each with its reason.
EXCEPTIONS = {
    # Tensor::grad() and requires_grad() read the metadata that tensor.h only declares.
    ("runtime/tensor/tensor.cpp", "runtime/autograd/meta.h"),
}


def layer_of(path):
    """The layer of a path from the root, or None outside all layers."""
    matches = [layer for layer in ALLOWED if path.startswith((layer + "/", layer + "."))]
    return max(matches, key=len, default=None)


def check(name, text):
    layer = layer_of(name)
    if layer is None:
        yield f"{name}:1: the folder is in no layer; add it to tools/lint/check_includes.py"
        return
    code = sources.code_of(text)
    for match in INCLUDE.finditer(code):
        included = match[1]
        line = code.count("\n", 0, match.start(1)) + 1
        target = layer_of(included)
        if target is None:
            yield f'{name}:{line}: "{included}" is no path from the root of the repository'
        elif target not in ALLOWED[layer] | {layer} and (name, included) not in EXCEPTIONS:
            yield f"{name}:{line}: {layer} may not include {included}"


def main():
    problems = []
    for name in sources.cpp_files(sources.ROOT):
        problems += check(name, (sources.ROOT / name).read_text())
    return sources.report("check_includes", problems)


if __name__ == "__main__":
    sys.exit(main())
