#!/bin/sh
# Includes run down the ladder of folders (rungs.txt), and the check sees those that do not.
#   run.sh PYTHON SOURCE WORK
set -eu
python=$1 source=$2 work=$3
check=$source/tests/includes/check.py
"$python" "$check" "$source"

rm -rf "$work"
mkdir -p "$work/low" "$work/high/left" "$work/high/right" "$work/loose"
printf 'low\nhigh/left high/right\ntop: low\nempty\nexamples/own: low\n' >"$work/rungs.txt"
mkdir -p "$work/top" "$work/examples/own" "$work/examples/other"
printf '#include "low/l.h"\n#include "high/left/l.h"\n' >"$work/examples/own/o.c"
printf '#include "high/left/l.h"\n' >"$work/examples/other/o.c"
printf '#include "high/left/l.h"\n' >"$work/low/l.h"
printf '#include "low/l.h"\n#include "high/right/r.h"\n' >"$work/high/left/l.h"
printf '#include "low/l.h"\n#include "none.h"\n' >"$work/high/right/r.h"
printf '#include "low/l.h"\n#include "high/left/l.h"\n' >"$work/top/t.c"
printf 'int x;\n' >"$work/loose/x.c"
if "$python" "$check" "$work" "$work/rungs.txt" >"$work/said"; then
    echo "the check let a wrong tree through"
    exit 1
fi
expect() {
    grep -qF "$1" "$work/said" || { echo "the check did not say: $1"; cat "$work/said"; exit 1; }
}
expect 'low/l.h:1: includes high/left/l.h, of a later rung (high/left comes after low)'
expect 'high/left/l.h:2: includes high/right/r.h, which stands beside it'
expect 'high/right/r.h:2: "none.h" is not in the tree'
expect 'top/t.c:2: includes high/left/l.h, but top may include low only'
expect 'examples/own/o.c:2: includes high/left/l.h, but examples/own may include low only'
expect 'loose: a folder with sources and without a rung'
expect 'empty: a rung without files'
expect '7 includes or folders'
