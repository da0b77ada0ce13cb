#!/bin/sh
# Installs what is missing, builds Hadal, compiles the example model to a shared object, and runs
# a C program that generates text with it. From a clean clone, as root or with sudo.
#
#   ./demo.sh [PROMPT]
set -eu
cd "$(dirname "$0")"

step() { printf '\n== %s\n' "$*"; }
say() { printf '+ %s\n' "$*"; "$@"; }

step "packages"
tools/deps.sh
step "build the compiler"
say cmake --preset release -DHADAL_TESTS=OFF
say cmake --build --preset release --parallel "$(nproc)"

out=build/demo
hadal=build/release/bin/hadal
mkdir -p "$out"
step "compile the model: examples/jargon, a trained decoder with Block Attention Residuals"
say $hadal compile examples/jargon/jargon.hadal --weights examples/jargon/model.safetensors -o $out/jargon
ls -l $out
step "compile the C program that uses it"
say "${CC:-cc}" -O2 -I$out examples/jargon/generate.c -o $out/generate -L$out -ljargon -lm -Wl,-rpath,'$ORIGIN'
step "run it"
prompt=${1:-'hacker
 n.

    '}
say $out/generate --weights $out/jargon.weights --prompt "$prompt" --tokens 400 --temperature 0.7 --top-k 40 --seed 7
