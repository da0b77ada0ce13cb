#!/bin/sh
# Installs into a fresh folder and uses it from there: pkg-config, find_package, the command.
#
#   install.sh BUILD_FOLDER EXAMPLES_FOLDER WORK_FOLDER
set -eu
build=$1 examples=$2 work=$3
rm -rf "$work"
mkdir -p "$work/project"
prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/log"

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name hadal.pc)")
export PKG_CONFIG_PATH
cat >"$work/version.c" <<'C'
#include <hadal/hadal.h>
#include <stdio.h>
int main(void) {
    hadal_session *s = hadal_open();
    puts(hadal_version());
    hadal_close(s);
    return s ? 0 : 1;
}
C
flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs hadal)
lib=$(dirname "$(find "$prefix" -name 'libhadalc.so')")
${CC:-cc} ${SANITIZE:+-fsanitize=$SANITIZE} -I"$prefix/include" "$work/version.c" -o "$work/version" $flags -L"$lib" -lhadalc -Wl,-rpath,"$lib"
"$work/version"

cat >"$work/text.c" <<'C'
#include <hadal/text.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    char message[512] = "";
    int32_t id = 0;
    hadal_tokenizer *t = hadal_tokenizer_open(argv[argc - 1], message, sizeof message);
    fputs(message, stderr);
    return !t || hadal_tokenizer_encode(t, "a", 1, 1, &id, 1) != 1 || strcmp(hadal_tokenizer_token(t, id), "a");
}
C
${CC:-cc} ${SANITIZE:+-fsanitize=$SANITIZE} -I"$prefix/include" "$work/text.c" -o "$work/text" -L"$lib" -lhadaltext -Wl,-rpath,"$lib"
"$work/text" "$examples/jargon"

cat >"$work/project/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(hadal REQUIRED)
hadal_add_model(gate ${EXAMPLES}/plain-function/swiglu_gate.hir)
add_executable(call ${EXAMPLES}/plain-function/call.c)
target_link_libraries(call gate m)
C
cmake -S "$work/project" -B "$work/project/build" -DCMAKE_PREFIX_PATH="$prefix" ${SANITIZE:+-DCMAKE_C_FLAGS=-fsanitize=$SANITIZE} -DEXAMPLES="$examples" >>"$work/log"
cmake --build "$work/project/build" >>"$work/log"
"$work/project/build/call"
"$prefix/bin/hadal" compile "$examples/jargon/jargon.hadal" -o "$work/jargon" # finds the installed std library
if [ -d "$build/lib/hadal/aarch64-linux-gnu" ]; then # ... and runtime of another architecture
    "$prefix/bin/hadal" compile "$examples/jargon/jargon.hadal" -o "$work/jargon" --target aarch64-linux-gnu
fi
test -s "$prefix/share/man/man1/hadal.1"
