#!/bin/sh
# dumps.sh HADAL SPEC FOLDER: a folder of dumps holds those of one run, and JSON is UTF-8 where a path is not.
set -eu
hadal=$1 spec=$2 dir=$3
rm -rf "$dir" && mkdir -p "$dir"
"$hadal" opt "$spec" --passes=default --dump-ir="$dir/d" -q -o "$dir/all.hir"
[ -e "$dir/d/20-fuse.hir" ] || [ "$(ls "$dir/d" | wc -l)" -gt 20 ]
echo mine >"$dir/d/notes.txt"
"$hadal" opt "$spec" -D layers=2 --passes=lower-traces,cse --dump-ir="$dir/d" -q -o "$dir/two.hir"
[ "$(ls "$dir/d" | tr '\n' ' ')" = "00-input.hir 01-lower-traces.hir 02-cse.hir notes.txt " ] || { ls "$dir/d"; exit 1; }
# a dump that is the model stays
"$hadal" opt "$dir/d/02-cse.hir" --passes=dce --dump-ir="$dir/d" -q -o "$dir/three.hir"
[ "$(ls "$dir/d" | tr '\n' ' ')" = "00-input.hir 01-dce.hir 02-cse.hir notes.txt " ] || { ls "$dir/d"; exit 1; }

name="$dir/$(printf 'sp\344t').hadal"
cp "$spec" "$name"
"$hadal" opt "$name" --passes=default --remarks=json -o "$dir/x.hir" 2>"$dir/remarks"
grep -q 'sp.ufffdt' "$dir/remarks" || { head -3 "$dir/remarks"; exit 1; }
iconv -f UTF-8 -t UTF-8 "$dir/remarks" >/dev/null
