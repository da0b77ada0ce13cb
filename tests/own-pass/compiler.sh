#!/bin/sh
# A compiler with passes of one's own, as -DHADAL_EXTRA_PASSES makes it: those of examples/own-pass, with the test of that
# example, and those of faulty/, which the checks find.
#
#   compiler.sh HADAL OWN SOURCE PYTHON LIT     OWN/lib: the compiler's library with these passes
set -eu
hadal=$1 own=$2 source=$3 python=$4 lit=$5
build=$(cd "$(dirname "$hadal")/.." && pwd)
# the command finds its library as in an installation: ../lib
mkdir -p "$own/bin" "$own/share/hadal"
cp "$hadal" "$own/bin/hadal"
ln -sfn "$source/frontend/std" "$own/share/hadal/std"
HADAL_BUILD=$own "$python" "$lit" -v "$source/examples/own-pass"

# what its README shows
cd "$source"
readme=examples/own-pass/README.md
command=$(sed -n 's/^    \$ hadal //p' "$readme")
"$own/bin/hadal" $command 2>&1 | sed 's/^/    /' >"$own/remarks.txt"
sed -n '/^    share-norms: /p' "$readme" | cmp - "$own/remarks.txt"

cd "$own"
hadal=$own/bin/hadal tiny=$source/examples/tiny/tiny.hadal
said() {
    tr -s ' \n' ' ' <said.txt | grep -qF -- "$1" || { echo "it was not said: $1"; cat said.txt; exit 1; }
}
fails() {
    if "$@" >said.txt 2>&1; then echo "this was to fail: $*"; exit 1; fi
}

# in the list after those of the pipeline, and not in the pipeline
"$hadal" passes >said.txt
said "Passes of one's own, which run where --passes names them: share-norms norms of one value"
said 'forget-eps wrong: norms lose their eps'
"$build/bin/hadal" passes >plain.txt
head -n "$(wc -l <plain.txt)" said.txt | cmp - plain.txt
"$hadal" opt "$tiny" --passes=default --dump-ir=dump -o default.hir
if ls dump | grep share-norms; then exit 1; fi
"$build/bin/hadal" opt "$tiny" --passes=default -o - | cmp - default.hir

# wherever passes are named, timed, filtered, dumped or stopped at
"$hadal" opt "$tiny" --passes=share-norms,default --time-passes --stop-after=share-norms -o - >stopped.hir 2>said.txt
said 'share-norms'
grep -q '^hir 1 graph' stopped.hir
"$hadal" compile "$tiny" --passes=share-norms,default --emit=kernel --dump-ir=dump --filter-passes=share-norms -o made
grep -q 'share-norms (unchanged)' dump/01-share-norms.hir
"$hadal" report "$source/examples/own-pass/share_norms.hir" --passes=share-norms,default --code none --json -o report.json
"$python" - <<'END'
import json
report = json.load(open("report.json"))
own = [s for s in report["history"]["stages"] if s["pass"] == "share-norms"]
assert len(own) == 1 and own[0]["changed"] and own[0]["doc"].startswith("norms of one value"), own
assert sorted(r["taken"] for r in report["remarks"] if r["pass"] == "share-norms") == [False, True, True]
END
fails "$hadal" opt "$tiny" --passes=share-norm
said 'did you mean "share-norms"?'

# at the IR stage that its row says
"$hadal" opt "$tiny" --passes=default -o kernel.hir
fails "$hadal" opt kernel.hir --passes=share-norms
said "pass 'share-norms' cannot run: the module is at the kernel stage"
fails "$hadal" opt "$tiny" --passes=say-nothing
said "pass 'say-nothing' cannot run: there are no kernels"

# mistakes are found, and the pass is named
"$hadal" opt "$tiny" --passes=forget-eps,default --remarks -o wrong.hir 2>said.txt
said 'forget-eps'
fails "$hadal" opt "$tiny" --passes=cse,forget-eps --check-passes
said "pass 'forget-eps':"
fails "$hadal" opt "$tiny" --passes=cse,cut-operand --verify-each
said "pass 'cut-operand':"
fails "$hadal" opt kernel.hir --passes=say-nothing
said "pass 'say-nothing' failed without a reason"
