#!/bin/sh
# print(parse(x)) = x, over every IR in the tree: hand-written texts (once printed), expected texts
# (as they stand), and every stage of the examples and of the golden models.
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
    for stage in lower-traces split-merge fuse plan-memory; do
        "$hadal" opt "$spec" --stop-after=$stage --locations -o stage.hir
        comes_back stage.hir --locations
    done
done
echo "$texts texts come back byte for byte"
[ "$texts" -gt 150 ]
