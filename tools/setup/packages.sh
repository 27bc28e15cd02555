#!/usr/bin/env bash
# Checks for, and installs, the Debian 12 packages that the project needs.
set -euo pipefail

# The one list: package, set (build: quickstart and tests; lint: the full CI), and what for.
packages() {
  cat <<'LIST'
g++                  build  the C++20 compiler
cmake                build  configures the build from CMakePresets.json
ninja-build          build  runs the build
git                  build  names the commit in `fsdptrain version`, and the files that lints look at
libdnnl-dev          build  oneDNN: one-thread float32 matrix products
libeigen3-dev        build  Eigen: float64 products, and all products under sanitizers
libfmt-dev           build  fmt: text formatting
libspdlog-dev        build  spdlog: log lines
doctest-dev          build  doctest: unit tests
libcli11-dev         build  CLI11: command lines
libtomlplusplus-dev  build  toml++: configuration files
nlohmann-json3-dev   build  JSON: metrics and file headers
libsimdjson-dev      build  simdjson: texts in JSONL
libgloo-dev          build  gloo: bytes between hosts
libxxhash-dev        build  xxHash: fingerprints of data
libssl-dev           build  libcrypto of OpenSSL: who may talk to the rendezvous store
bible-kjv            build  the King James Bible: the text that quickstart trains on
python3              build  the lints and their tests (standard library only)
clang-format         lint   source formatting, version 14
clang-tidy           lint   static analysis, version 14
qemu-user            lint   runs kernels on CPUs without newer instructions
ccache               lint   presets that compile a source alike compile it once
LIST
}

usage() {
  cat <<'USAGE'
usage: tools/setup/packages.sh [--lint] [--no-install] [--list]

Installs the missing ones of the Debian packages that the project needs, with apt-get, as root
or through sudo where sudo asks no password. Where neither works it prints the line to run.

  --lint        also what the full CI needs (.ci/run)
  --no-install  only check
  --list        print every package and what it is for
  --help        this text

exit code: 0 everything is installed, 2 something is missing (the line to run is printed),
else that of apt-get.
USAGE
}

sets=build
install=true
for argument in "$@"; do
  case "$argument" in
    --lint) sets='build|lint' ;;
    --no-install) install=false ;;
    --list) packages && exit 0 ;;
    --help) usage && exit 0 ;;
    *) echo "packages.sh: unknown option '$argument' (see --help)" >&2 && exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo 'packages.sh: not a Debian system, packages are not checked;' \
       'see tools/setup/packages.sh --list' >&2
  exit 0
fi

missing=()
for package in $(packages | awk -v sets="^($sets)$" '$2 ~ sets {print $1}'); do
  # shellcheck disable=SC2016  # a dpkg-query field, not a variable
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  if [[ $status != installed ]]; then
    missing+=("$package")
  fi
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

line="apt-get update && apt-get install --yes --no-install-recommends ${missing[*]}"
as_root=()
if ((EUID != 0)); then
  as_root=(sudo -n)
  line="sudo apt-get update && sudo apt-get install --yes --no-install-recommends ${missing[*]}"
fi
if ! $install || ! "${as_root[@]}" true 2>/dev/null; then
  echo "packages.sh: ${#missing[@]} packages are missing. Install them with" >&2
  echo "  $line" >&2
  exit 2
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get --quiet=2 --option DPkg::Lock::Timeout=300 "$@" </dev/null >/dev/null
}

# A package that apt has not heard of, or whose version has left the archive, needs fresh lists.
echo "installing ${missing[*]}" >&2
updated=false
if [[ $(LC_ALL=C apt-cache policy "${missing[@]}" | grep -c 'Candidate: [^(]') -lt ${#missing[@]} ]]; then
  apt update
  updated=true
fi
if ! apt install --yes --no-install-recommends "${missing[@]}"; then
  if $updated; then
    exit 1
  fi
  echo 'packages.sh: updating the package lists and trying once more' >&2
  apt update
  apt install --yes --no-install-recommends "${missing[@]}"
fi
