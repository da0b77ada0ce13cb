#!/bin/sh
# What -DHADAL_EXTRA_PASSES rejects, with a message that says what is wrong.
#
# And a build tree with a directory that is right: its passes are compiled as the user's command has them compiled.
#
#   directories.sh CMAKE SOURCE WORK GENERATOR
set -eu
cmake=$1 source=$2 work=$3 generator=$4
rm -rf "$work"
mkdir -p "$work"
cd "$work"
check() {
    "$cmake" "-DHADAL_EXTRA_PASSES=$1" -P "$source/cmake/own_passes.cmake" >said.txt 2>&1
}
said() { # CMake breaks lines
    tr -s ' \n' ' ' <said.txt | grep -qF -- "$1" || { echo "it was not said: $1"; cat said.txt; exit 1; }
}
rejects() {
    if check "$1"; then echo "this was to be rejected: $1"; exit 1; fi
    said "$2"
}
# a directory with a table of this row
pass() {
    mkdir -p "$1"
    echo 'bool f(void);' >"$1/f.c"
    printf '%s\n' "$2" >"$1/passes.def"
}
check ''
check "$source/examples/own-pass"
check examples/own-pass # from the directory of Hadal's sources
pass 'of two words' '/* P(rows) are below; [1] */
  P(A1, "a-1", pass_a, GRAPH, GRAPH, "of (a; b)") /* the first */
P(B, "b", pass_b, KERNEL, KERNEL, "")'
check "$work/of two words;$source/examples/own-pass"

rejects "$work/none" "there is no directory $work/none"
rejects none "there is no directory $source/none"
rejects "$source/passes/own.c" "there is no directory $source/passes/own.c"
rejects "$source/examples/tiny" 'examples/tiny has no table of its passes, passes.def'
pass empty '/* nothing */'
rejects "$work/empty" 'empty/passes.def has no row'
pass alone 'P(A, "a", f, GRAPH, GRAPH, "")'
rm alone/f.c
rejects "$work/alone" 'alone has no .c file'
pass known 'P(A, "dce", f, GRAPH, GRAPH, "")'
rejects "$work/known" '"dce" is a pass of Hadal'
pass whole 'P(A, "default", f, GRAPH, GRAPH, "")'
rejects "$work/whole" '"default" is a pass of Hadal, where it stands for the whole pipeline'
pass twice 'P(A, "a", f, GRAPH, GRAPH, "")
P(B, "a", f, GRAPH, GRAPH, "")'
rejects "$work/twice" "\"a\" is a pass of $work/twice"
pass again 'P(SHARE, "share-norms", f, GRAPH, GRAPH, "")'
rejects "$source/examples/own-pass;$work/again" "again/passes.def: \"share-norms\" is a pass of $source/examples/own-pass"
for row in 'P(A, "a", f, GRAPH, "")' 'P(A, a, f, GRAPH, GRAPH, "")' 'P(A, "a b", f, GRAPH, GRAPH, "")' 'P(A, "a,b", f, GRAPH, GRAPH, "")' \
    'P(A, "a", f, GRAPH, TREE, "")' 'P(A, "-a", f, GRAPH, GRAPH, "")' 'P(A, "a", f,'; do
    pass row "$row"
    rejects "$work/row" "row/passes.def has a row that is no pass: $row"
done

configure() {
    "$cmake" -G "$generator" -S "$source" -B tree -DCMAKE_C_COMPILER="${CC:-cc}" -DHADAL_TESTS=OFF "-DHADAL_EXTRA_PASSES=$1" >said.txt 2>&1
}
configure "examples/own-pass;$source/tests/own-pass/faulty" || { cat said.txt; exit 1; }
"$cmake" --build tree --target hadal_own >said.txt 2>&1 || { cat said.txt; exit 1; }
[ "$(find tree -name 'share_norms.c.o' -o -name 'faulty.c.o' | wc -l)" -eq 2 ]
if configure "$work/none"; then exit 1; fi
said "there is no directory $work/none"
