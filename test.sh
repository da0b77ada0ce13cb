#!/bin/sh
# Installs what is missing, builds, and runs the tests. From a clean clone, as root or with sudo.
#
#   ./test.sh [--full] [ctest arguments]      for example ./test.sh -R golden
#
# --full: all that the tests can do, not the part that is enough from day to day (docs/testing.md)
set -eu
cd "$(dirname "$0")"
preset=release
if [ "${1:-}" = --full ]; then
    preset=full
    shift
fi

step() { printf '\n== %s\n' "$*"; }

step "packages"
tools/deps.sh --tests
step "configure (build/release)"
cmake --preset release -DHADAL_TESTS=ON
step "build"
cmake --build --preset release --parallel "$(nproc)"
step "test"
ctest --preset $preset --parallel "$(($(nproc) + 2))" "$@" # two more than CPUs: some tests wait for deadlines, and others run meanwhile
