#!/bin/sh
# Installs what is missing, builds, and runs every test. From a clean clone, as root or with sudo.
#
#   ./test.sh [ctest arguments]      for example ./test.sh -R golden
set -eu
cd "$(dirname "$0")"

step() { printf '\n== %s\n' "$*"; }

step "packages"
tools/deps.sh --tests
step "configure (build/release)"
cmake --preset release -DHADAL_TESTS=ON
step "build"
cmake --build --preset release --parallel "$(nproc)"
step "test"
ctest --preset release --parallel "$(nproc)" "$@"
