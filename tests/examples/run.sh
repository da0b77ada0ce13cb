#!/bin/sh
# Builds and runs the examples exactly as their heads and README say.
#
#   run.sh HADAL EXAMPLES_FOLDER EXAMPLE WORK_FOLDER TENSOR_COMPARE
set -eu
hadal=$1 examples=$2 example=$3 out=$4/$3 compare=$5
# what is linked with a sanitized library must be sanitized too
cc="${CC:-cc} ${SANITIZE:+-fsanitize=$SANITIZE}"
mkdir -p "$out"
link="-I$out -L$out -Wl,-rpath,$out -lm -pthread"
# programs and models, by examples/Makefile; made again, since the compiler may be another one
built() { make -sB -C "$examples" OUT="$out" HADAL="$hadal" CC="$cc" "$@"; }

case $example in
    jargon)
        unset OMP_WAIT_POLICY # its threads wait as a user's do
        built "$out/jargon"
        prompt='hacker
 n.

    '
        "$out/jargon" --weights "$out/jargon.weights" --prompt "$prompt" --tokens 200 --temperature 0 >"$out/greedy.txt"
        cat "$out/greedy.txt"
        # a trained model writes words, not noise: mostly letters and spaces, and the same twice
        letters=$(tr -cd 'a-z ' <"$out/greedy.txt" | wc -c)
        [ "$letters" -gt 150 ]
        "$out/jargon" --weights "$out/jargon.weights" --prompt "$prompt" --tokens 200 --temperature 0 | cmp - "$out/greedy.txt"
        ;;
    threads)
        built threads
        ;;
    batch)
        built "$out/batch" "$out/jargon"
        # lines of different length: the batch shrinks
        "$out/batch" "$out/jargon.weights" 100 'hacker: n. ' 'See also' 'The word cruft is said to be' | tee "$out/batch.txt"
        for prompt in 'hacker: n. ' 'See also' 'The word cruft is said to be'; do
            "$out/jargon" --weights "$out/jargon.weights" --prompt "$prompt" --tokens 100 --temperature 0 | head -1
        done | cmp "$out/batch.txt" -
        ;;
    nodes)
        built "$out/nodes"
        "$out/nodes" "$out/jargon.weights" >"$out/nodes.txt"
        cat "$out/nodes.txt"
        # every page is somewhere, and there are as many as the file has
        pages=$(sed -n 's/.*: \([0-9]*\) pages$/\1/p' "$out/nodes.txt" | awk '{n += $1} END {print n}')
        page=$(getconf PAGESIZE) bytes=$(stat -c %s "$out/jargon.weights")
        [ "$pages" -eq $(((bytes + page - 1) / page)) ]
        grep -q '^the same logits' "$out/nodes.txt"
        : >"$out/empty.weights" # what is no file of weights is refused
        if "$out/nodes" "$out/empty.weights" 2>"$out/err"; then exit 1; fi
        head -c 4096 "$out/jargon.weights" >"$out/cut.weights"
        if "$out/nodes" "$out/cut.weights" 2>"$out/err"; then exit 1; fi
        grep -q 'spread: weights: ' "$out/err"
        ;;
    keep-prompt)
        built "$out/keep-prompt" "$out/jargon"
        "$out/keep-prompt" "$out/jargon.weights" 60 'hacker: n. ' 'A person' 'One who' 'The' | tee "$out/kept.txt"
        # each line is what the model writes for the whole prompt
        for beginning in 'A person' 'One who' 'The'; do
            "$out/jargon" --weights "$out/jargon.weights" --prompt "hacker: n. $beginning" --tokens 60 --temperature 0 | head -1
        done | cmp "$out/kept.txt" -
        ;;
    text)
        built "$out/text"
        "$out/text" "$out/jargon.weights" "$examples/jargon" 'hacker: n. ' 100 | tee "$out/said.txt"
        "$hadal" generate "$examples/jargon" --prompt 'hacker: n. ' -n 100 | cmp - "$out/said.txt"
        "$hadal" generate "$out/jargon" --tokenizer "$examples/jargon" --prompt 'hacker: n. ' -n 100 | cmp - "$out/said.txt"
        if "$out/text" "$out/jargon.weights" "$examples/jargon/config.json" x 1 2>"$out/err"; then exit 1; fi
        grep -q 'config.json:1:1: error: .*no tokenizer.json' "$out/err"
        ;;
    python)
        built python | tee "$out/said.txt"
        "$hadal" eval "$out/python/jargon" --data "$examples/jargon/README.md" --context 256 -q >"$out/eval.txt"
        for what in tokens loss perplexity 'bits per byte'; do
            [ "$(grep "^$what " "$out/said.txt")" = "$(grep "^$what " "$out/eval.txt")" ]
        done
        ;;
    kimi-small)
        cp "$examples/kimi-small"/* "$out" && cd "$out"
        make CC="$cc" HADAL="$hadal" OUT="$out" run | tee "$out/said.txt"
        grep -q '^as if the prompt had been read again$' "$out/said.txt"
        ;;
    study)
        cp "$examples/study"/* "$out" && cd "$out"
        ./figures.sh "$hadal" | tee figures.txt
        # every row of the table is as README has it, and so is what it quotes
        while read -r row; do grep -qxF -- "$row" README.md; done <figures.txt
        "$hadal" explain model.hadal -D sharpness=place model.layers.9.mlp_res_sharp >explained.txt
        grep -qF 'part of @model.layers.9.mlp_res_norm.weight.folded = @model.layers.9.mlp_res_norm.weight * @model.layers.9.mlp_res_proj.weight * @model.layers.9.mlp_res_sharp' explained.txt
        "$hadal" opt model.hadal -D sharpness=token --passes=default --remarks --filter-passes=recognise -o /dev/null 2>&1 |
            grep -qF "$(grep -o 'model.hadal:10:36: .*' README.md)"
        # phases of the ledger that the text has
        for phase in none:'phase 1' none:'phase 2' none:mix token:mix; do
            "$hadal" report model.hadal -D sharpness=${phase%%:*} --code none --json | python3 -c '
import json, sys
print("%.2f d" % json.load(sys.stdin)["ledger"]["kernels"]["phases"][sys.argv[1]]["total"])' "${phase#*:}" >phase.txt
            grep -qF "$(cat phase.txt)" README.md
        done
        "$hadal" report model.hadal -D sharpness=none --against-define sharpness=token --code none -o study.html
        for sharpness in none place token; do
            "$hadal" opt model.hadal -D layers=4 -D hidden=64 -D heads=2 -D ff=64 -D vocab=64 -D sharpness=$sharpness --passes=default --check-passes -o /dev/null
        done
        ;;
    learning)
        rm -rf "$out" && mkdir -p "$out" && cp -r "$examples/learning"/*.* "$examples/learning/results" "$out" && cd "$out"
        # the smallest tier, and once more, killed in the middle: the results are the same
        python3 learning.py run tiny --hadal "$hadal" --threads 1 --results whole --work whole-work
        setsid python3 learning.py run tiny --hadal "$hadal" --threads 1 --results killed &
        group=$!
        while [ ! -e out/tiny/block-1/log.jsonl ] && kill -0 "$group" 2>kill.txt; do sleep 0.01; done
        kill -KILL -- "-$group" 2>kill.txt || true # it may have come to its end
        wait "$group" || true
        python3 learning.py run tiny --hadal "$hadal" --threads 1 --results killed
        diff -r whole/tiny killed/tiny
        [ "$(ls whole/tiny | wc -l)" -eq 5 ]
        [ -z "$(python3 learning.py run tiny --hadal "$hadal" --results whole --work whole-work)" ]
        python3 learning.py plan tiny --results whole >plan.txt
        grep -q '^block-1 .* [0-9.]*$' plan.txt
        python3 learning.py table tiny --results whole >table.txt
        grep -q '^| AttnRes Block (S = 4) | .* | -0.020 |$' table.txt
        for figure in figure5 figure8; do
            python3 learning.py $figure tiny --results whole >$figure.tiny.svg
            python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' $figure.tiny.svg
        done
        # what is committed is what its commands print
        for what in table pairs depth; do python3 learning.py $what quick; done >table.txt
        while read -r row; do grep -qxF -- "$row" README.md; done <table.txt
        for figure in figure5 figure8; do python3 learning.py $figure quick | cmp - $figure.svg; done
        # what is wrong is said
        if python3 learning.py table full --results nothing 2>err.txt; then exit 1; fi
        grep -q 'learning.py: there is no result of prenorm in nothing/full' err.txt
        if "$hadal" compile model.hadal -D system=other -o other 2>err.txt; then exit 1; fi
        grep -q 'there is no residual system "other" in this study' err.txt
        ;;
    two-models)
        built two-models
        ;;
    two-ranks)
        build=$(cd "$(dirname "$hadal")/.." && pwd)
        command -v mpicc.openmpi > /dev/null && [ -e "$build/lib/libhadal_mpi.so" ] || exit 77
        rm -rf "$out" && mkdir -p "$out"
        cp "$examples/two-ranks/"* "$out"
        mkdir -p "$out/../tiny" && cp "$examples/tiny/tiny.hadal" "$out/../tiny"
        OMPI_CC=$cc make -C "$out" HADAL="$build"
        root=
        [ "$(id -u)" != 0 ] || root=--allow-run-as-root
        # what Open MPI leaves behind at its end is not ours
        ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 mpirun.openmpi --oversubscribe $root -n 2 "$out/ranks" "$out/out" > "$out/two.txt"
        "$hadal" compile "$examples/tiny/tiny.hadal" --weights "$out/tiny.safetensors" -o "$out/whole"
        "$hadal" generate "$out/whole" --tokens 1,2,3 --max-tokens 13 --quiet | tr -s ' \n' ' ' > "$out/one.txt"
        tr -s ' \n' ' ' < "$out/two.txt" | cmp - "$out/one.txt"
        ;;
    plain-function)
        built plain-function
        ;;
    own-residual)
        # what docs/residual-systems.md says: its page, its spec, its commands
        own=$examples/own-residual guide=$examples/../docs/residual-systems.md
        block() { awk -v n="$1" '/^```/ { if (!on) i++; on = !on; next } on && i == n' "$guide"; }
        block 1 >"$out/idea.txt" && sed -n '/^use/,$p' "$own/echo.hadal" | cmp - "$out/idea.txt"
        block 2 >"$out/spec.txt" && sed -n '/^use/,$p' "$own/model.hadal" | cmp - "$out/spec.txt"
        "$hadal" init-weights --draw-all "$own/model.hadal" -o "$out/echoes.safetensors"
        model="$own/model.hadal --weights $out/echoes.safetensors"
        "$hadal" run $model --tokens 1,2,3,4,5,6 --interpret --logits "$out/reference.npy"
        "$hadal" run $model --tokens 1,2,3,4,5,6 --logits "$out/compiled.npy" --split 3
        "$compare" "$out/compiled.npy" "$out/reference.npy" 1e-5
        "$hadal" inspect "$own/model.hadal" --ledger | tee "$out/ledger.txt"
        tr -s ' ' <"$out/ledger.txt" | grep -Fq "$(grep 'kernels, as compiled' "$guide" | tr -s ' ')"
        "$hadal" inspect "$own/model.hadal" --depth-map | grep 'mlp.down_proj'
        "$hadal" inspect $model --tokens 1,2,3,4,5,6 --mixing-matrix "$out/echoes.svg" >"$out/matrix.txt"
        grep -F 'semiseparable rank' "$out/matrix.txt" | tr -s ' ' >"$out/rank.txt"
        tr -s ' ' <"$guide" | grep -Fq "$(cat "$out/rank.txt")"
        "$hadal" inspect "$examples/jargon/jargon.hadal" --weights "$examples/jargon/model.safetensors" \
            --tokens 104,97,99,107 --heatmap "$out/weights.svg"
        "$hadal" opt "$own/model.hadal" --passes=default | grep -q kernel.row
        "$hadal" compile $model -o "$out/echoes"
        $cc -O2 "$own/call.c" -o "$out/call" $link -lechoes
        "$out/call" "$out/echoes.weights"
        ;;
esac
