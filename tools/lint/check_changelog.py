#!/usr/bin/env python3
"""Fails if CHANGELOG.md has no Unreleased section, or nothing in it."""

import re
import sys

import sources

SECTION = re.compile(r"^## \[?Unreleased\]?[^\n]*\n(?P<body>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def check(text):
    match = SECTION.search(text)
    if match is None:
        yield "CHANGELOG.md:1: there is no section '## [Unreleased]'"
    elif not re.search(r"^- \S", match["body"], re.MULTILINE):
        line = text.count("\n", 0, match.start()) + 1
        yield f"CHANGELOG.md:{line}: the section Unreleased has no entry"


def main():
    path = sources.ROOT / "CHANGELOG.md"
    return sources.report("check_changelog", list(check(path.read_text() if path.exists() else "")))


if __name__ == "__main__":
    sys.exit(main())
