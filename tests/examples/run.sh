#!/bin/sh
# Builds and runs the examples exactly as their heads and README say.
#
#   run.sh HADAL EXAMPLES_FOLDER EXAMPLE WORK_FOLDER
set -eu
hadal=$1 examples=$2 example=$3 out=$4/$3
# what is linked with a sanitized library must be sanitized too
cc="${CC:-cc} ${SANITIZE:+-fsanitize=$SANITIZE}"
mkdir -p "$out"
link="-I$out -L$out -Wl,-rpath,$out -lm -pthread"
jargon="$examples/jargon/jargon.hadal --weights $examples/jargon/model.safetensors"

case $example in
    jargon)
        "$hadal" compile $jargon -o "$out/jargon"
        $cc -O2 "$examples/jargon/generate.c" -o "$out/generate" $link -ljargon
        prompt='hacker
 n.

    '
        "$out/generate" --weights "$out/jargon.weights" --prompt "$prompt" --tokens 200 --temperature 0 >"$out/greedy.txt"
        cat "$out/greedy.txt"
        # a trained model writes words, not noise: mostly letters and spaces, and the same twice
        letters=$(tr -cd 'a-z ' <"$out/greedy.txt" | wc -c)
        [ "$letters" -gt 150 ]
        "$out/generate" --weights "$out/jargon.weights" --prompt "$prompt" --tokens 200 --temperature 0 | cmp - "$out/greedy.txt"
        ;;
    threads)
        "$hadal" compile $jargon -o "$out/jargon"
        $cc -O2 "$examples/threads/sessions.c" -o "$out/sessions" $link -ljargon
        "$out/sessions" "$out/jargon.weights" 4
        ;;
    two-models)
        for size in small:2:40 large:4:64; do
            name=${size%%:*} rest=${size#*:}
            parameters="-D layers=${rest%%:*} -D vocab=${rest#*:}"
            "$hadal" init-weights "$examples/jargon/jargon.hadal" $parameters -o "$out/$name.safetensors"
            "$hadal" compile "$examples/jargon/jargon.hadal" $parameters --weights "$out/$name.safetensors" -o "$out/$name"
        done
        $cc -O2 "$examples/two-models/two.c" -o "$out/two" $link -lsmall -llarge
        "$out/two" "$out/small.weights" "$out/large.weights"
        ;;
    plain-function)
        "$hadal" compile "$examples/plain-function/swiglu_gate.hir" -o "$out/gate"
        $cc -O2 "$examples/plain-function/call.c" -o "$out/call" $link -lgate
        "$out/call"
        ;;
esac
