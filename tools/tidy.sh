#!/bin/sh
# Runs clang-tidy-19 (.clang-tidy) over sources of the program, with the flags of a build that has been made: headers are generated there.
# Says nothing, and ends with 0, where it finds nothing.
#
#   tools/tidy.sh build/release                    all sources, but for tests/
#   tools/tidy.sh build/release FILE.c ..          these
set -eu

[ $# -gt 0 ] && [ -f "$1/compile_commands.json" ] || {
    echo "tidy.sh: name a build folder, which has a compile_commands.json" >&2
    exit 2
}
build=$1
shift
[ $# -gt 0 ] || set -- $(sed -n 's,^ *"file": "'"$PWD"'/\(.*\.c\)"\,*$,\1,p' "$build/compile_commands.json" | grep -v '^\(tests\|build\)/' | sort -u)

# The sources are compiled with gcc's OpenMP, whose omp.h clang cannot read. clang's own comes with libomp, of one version at a time on
# Debian: that of any version will do.
omp=
for clang in clang-19 clang; do
    found=$($clang -print-file-name=include/omp.h 2>/dev/null || true)
    if [ -f "$found" ]; then omp=$found; fi
done
[ -n "$omp" ] || {
    echo "tidy.sh: no clang has an omp.h: install libomp-19-dev, or clang and libomp-dev" >&2
    exit 2
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ln -s "$omp" "$folder/omp.h"

printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 sh -c '
    said=$(clang-tidy-19 -p "$0" --quiet --extra-arg=-isystem"$1" "$2" 2>&1) && exit 0
    printf "%s\n" "$said"
    exit 1' "$build" "$folder" || exit 1
