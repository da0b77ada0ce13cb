#!/bin/sh
# print(parse(x)) = x, over every IR in the tree: hand-written texts (once printed), expected texts
# (as they stand), and stages of the examples and of the golden models: two of four by turns, and all with HADAL_FULL=1.
#
#   round_trip.sh HADAL SOURCE_FOLDER WORK_FOLDER
set -eu
hadal=$1 source=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cd "$work"
texts=0

comes_back() { # FILE [LOCATIONS]: a printed text
    "$hadal" opt "$1" ${2:-} -o again.hir
    cmp "$1" again.hir
    texts=$((texts + 1))
}

# Hand-written: comments and layout go with the first print. Texts that are meant to be refused do not parse.
for file in $(find "$source/tests" "$source/examples" "$source/bench" -name '*.hir'); do
    "$hadal" opt "$file" --locations -o first.hir 2>/dev/null || continue
    comes_back first.hir --locations
done
for file in "$source"/tests/frontend/accept/*.hir; do
    head -n 1 "$file" | grep -q '^hir 1' || continue # some begin with an expected warning
    comes_back "$file"
done
for spec in "$source"/examples/*/*.hadal "$source"/tests/golden/*/; do
    [ -d "$spec" ] || grep -q '^model ' "$spec" || continue # a page of library code
    stages="lower-traces fuse"
    [ $((texts / 2 % 2)) = 0 ] || stages="split-merge plan-memory"
    [ "${HADAL_FULL:-}" != 1 ] || stages="lower-traces split-merge fuse plan-memory"
    for stage in $stages; do
        "$hadal" opt "$spec" --stop-after=$stage --locations -o stage.hir
        comes_back stage.hir --locations
    done
done
echo "$texts texts come back byte for byte"
[ "$texts" -gt 150 ]
