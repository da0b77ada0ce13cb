#!/bin/sh
# driver.sh HADAL COMPARE MPIRUN FLAVOUR SPEC OUT: divided models under mpirun, as a user starts them: results are those
# of the undivided model, the first rank alone writes, and what does not fit together is an error on all ranks, in time.
set -eu
hadal=$1 compare=$2 mpirun=$3 flavour=$4 spec=$5 out=$6
options=
[ "$flavour" != openmpi ] || options="--oversubscribe"
[ "$flavour" != openmpi ] || [ "$(id -u)" != 0 ] || options="$options --allow-run-as-root"
rm -rf "$out"
mkdir -p "$out"
# All libraries have one name, by which their symbols begin: what they have in common is translated once (HADAL_CODE_CACHE).
export CC="${CC:-cc}"
tokens=1,2,3,4,5,6,7,8,9,10,11,12,13

ranks() { # N, command
    n=$1
    shift
    timeout -k 5 100 "$mpirun" $options -n "$n" "$hadal" "$@" --threads 1 --comm-timeout 20
}
refused() { # words of the message, N, command
    words=$1
    shift
    if ranks "$@" > "$out/said" 2>&1; then echo "not refused: $*"; exit 1; fi
    grep -q "$words" "$out/said" || { echo "\"$words\" is not in what was said:"; cat "$out/said"; exit 1; }
}

"$hadal" init-weights --draw-all "$spec" -o "$out/w.safetensors"
"$hadal" compile "$spec" --weights "$out/w.safetensors" --march native -o "$out/whole/m"
"$hadal" compile "$spec" --weights "$out/w.safetensors" --march native --ranks 2 --divide-from 2 -o "$out/two/m"
"$hadal" compile "$spec" --weights "$out/w.safetensors" --march native --ranks 3 --chunk 64 -o "$out/three/m"
"$hadal" compile "$spec" --weights "$out/w.safetensors" --march native --ranks 2 --divide-from 2 --gather-dtype bf16 -o "$out/narrow/m"

"$hadal" compile "$spec" --weights "$out/w.safetensors" --march native --ranks 3 --divide-from 3 --overlap 3 -o "$out/tiles/m"
"$hadal" compile "$spec" --weights "$out/w.safetensors" --march native --ranks 3 --divide-from 3 --overlap off -o "$out/rows/m"

"$hadal" run "$out/whole/m" --tokens $tokens --logits "$out/whole.npy"
for name in two three; do
    n=2
    [ $name = two ] || n=3
    ranks $n run "$out/$name/m" --tokens $tokens --logits "$out/$name.npy" --split 7
    "$compare" "$out/$name.npy" "$out/whole.npy" 1e-5
done
ranks 3 run "$out/tiles/m" --tokens $tokens --logits "$out/tiles.npy"
ranks 3 run "$out/rows/m" --tokens $tokens --logits "$out/rows.npy"
cmp "$out/tiles.npy" "$out/rows.npy"
"$hadal" compile "$spec" --weights "$out/w.safetensors" --march native --ranks 2 --stages 2 -o "$out/four/m"
ranks 4 run "$out/four/m" --tokens $tokens --logits "$out/four.npy" --split 7
"$compare" "$out/four.npy" "$out/whole.npy" 1e-5
# losses: the first rank of the last stage has them, prints them and writes them
printf 'hacker: n. A person who enjoys exploring.\n' > "$out/text"
for name in whole two four; do
    divide= n=1
    [ $name != two ] || divide="--ranks 2 --divide-from 2" n=2
    [ $name != four ] || divide="--ranks 2 --stages 2" n=4
    "$hadal" compile "$spec" --weights "$out/w.safetensors" --march native --loss $divide -o "$out/loss/$name/m"
    if [ $n = 1 ]; then
        "$hadal" eval "$out/loss/$name/m" --data "$out/text" --context 17 --losses "$out/$name.losses.npy" --json -q > "$out/$name.json"
    else
        ranks $n eval "$out/loss/$name/m" --data "$out/text" --context 17 --losses "$out/$name.losses.npy" --json -q > "$out/$name.json"
        "$compare" "$out/$name.losses.npy" "$out/whole.losses.npy" 1e-6
    fi
    [ "$(grep -c '^{"tokens": 39, .*"bits_per_byte"' "$out/$name.json")" = 1 ]
done
refused "has no m_loss" 3 eval "$out/three/m" --data "$out/text"
printf 'x' > "$out/one"
refused "there is none to predict" 2 eval "$out/loss/two/m" --data "$out/one"
# rows in bf16 have 8 bits: 2^-9 each, over a few layers
ranks 2 run "$out/narrow/m" --tokens $tokens --logits "$out/narrow.npy"
"$compare" "$out/narrow.npy" "$out/whole.npy" 0.05
! "$compare" "$out/narrow.npy" "$out/whole.npy" 1e-5 > /dev/null

"$hadal" generate "$out/whole/m" --tokens 1,2,3 --max-tokens 20 --quiet > "$out/whole.txt"
ranks 2 generate "$out/two/m" --tokens 1,2,3 --max-tokens 20 --quiet > "$out/two.txt"
cmp "$out/two.txt" "$out/whole.txt"
if [ "${HADAL_FULL:-}" = 1 ]; then # below there are benches of stages, and over a link
    ranks 2 bench "$out/two/m" --prefill 16 --decode 0 --rounds 1 > "$out/bench.txt"
    [ "$(grep -c prefill "$out/bench.txt")" = 1 ]
fi

# Of a pipeline the last stage alone has logits, and all stages go on with what it draws.
draw="--tokens 1,2,3 --max-tokens 30 --temperature 0.9 --seed 5 --quiet"
"$hadal" generate "$out/whole/m" $draw > "$out/whole.txt"
ranks 4 generate "$out/four/m" $draw > "$out/four.txt"
cmp "$out/four.txt" "$out/whole.txt"
if [ "${HADAL_FULL:-}" = 1 ]; then # below there is a bench of two stages
    ranks 4 bench "$out/four/m" --prefill 16 --decode 0 --rounds 1 > "$out/bench.txt"
    [ "$(grep -c '^m .*prefill' "$out/bench.txt")" = 1 ]
    [ "$(grep -c '^m .*decode' "$out/bench.txt")" = 1 ]
fi
# What comes next the first rank that has logits prints, alone; with a file of logits, too.
next() { awk '{ print $1, $2 }'; }
"$hadal" run "$out/whole/m" --tokens 1,2,3 --top 4 | next > "$out/whole.next"
ranks 2 run "$out/two/m" --tokens 1,2,3 --top 4 | next | cmp - "$out/whole.next"
ranks 2 run "$out/two/m" --tokens 1,2,3 --top 4 --weights-load read | next | cmp - "$out/whole.next"
ranks 4 run "$out/four/m" --tokens 1,2,3 --top 4 --split 2 | next | cmp - "$out/whole.next"
ranks 4 run "$out/four/m" --tokens 1,2,3 --top 4 --logits "$out/next.npy" | next | cmp - "$out/whole.next"
[ -e "$out/next.npy" ]
# Stages make the same calls although only the first looks tokens up, and only the second has a state that cannot be
# shortened.
cat > "$out/mixed.hadal" << 'END'
use "layers"
use "kda"

model mixed(hidden = 32, vocab = 64) {
    x = embed("embed", vocab, hidden)
    at "model.layers.0" { x = x + attention(rmsnorm(x, "norm"), 2) }
    at "model.layers.1" { x = x + kda(rmsnorm(x, "norm"), heads: 2, head_dim: 16) }
    output logits = linear(x, "lm_head", vocab)
}
END
"$hadal" init-weights --draw-all "$out/mixed.hadal" -o "$out/mixed.safetensors"
"$hadal" compile "$out/mixed.hadal" --weights "$out/mixed.safetensors" --march native --stages 2 -o "$out/mixed/m"
ranks 2 bench "$out/mixed/m" --prefill 4 --decode 0,3,5 --rounds 1 --json > "$out/bench.json"
[ "$(grep -c '"phase": "decode"' "$out/bench.json")" = 3 ]
# In the full set: what each rank has of this machine, and what collectives take: facts of a host for a plan; the first rank tells them (without a
# linker limits and links alone are measured). In the short set a host is made up (tests/unit/api/test_machine_ranks.c measures links).
link=network=100M,latency=5ms host=memory=16G,read=10G,flops=50G
if [ "${HADAL_FULL:-}" = 1 ]; then
    (CC=/nowhere/cc; ranks 2 machine > "$out/machine.txt")
    [ "$(grep -c '^collectives .* us, and .* Gbit/s that leave a rank$' "$out/machine.txt")" = 1 ]
    (CC=/nowhere/cc; ranks 2 machine --json --link $link > "$out/slow.json")
    host=$out/machine.json
    ranks 2 machine --json > "$host"
    python3 -c '
import json, sys
host, slow = (json.load(open(x)) for x in sys.argv[1:])
assert host["ranks"] == 2 and 0 < host["latency"] < 1 and host["network"] > 0, host
# the rate is what is left when two latencies as measured, which may be too long, are taken off the time: that is what the link bounds
bits = 2 * 8 * 2**20
time = bits / slow["network"] + 2 * slow["latency"]
assert slow["latency"] >= 5e-3 and time >= (bits / 100e6 + 2 * 5e-3) * 0.999, slow
' "$host" "$out/slow.json"
    "$hadal" plan "$spec" --host "$host" --hosts 2 | grep -q "^network "
fi

# over a link that is held back, on which all else is small: no exchange is faster, and a call takes as many latencies as the plan says
# (three times as long where the ranks wait for a CPU; of a machine that is busy with other things nothing is said)
ranks 2 bench "$out/two/m" --prefill 32 --decode 0 --rounds 1 --json --link $link > "$out/bench.json"
"$hadal" plan "$spec" --host "$host,$link" --hosts 2 --ranks 2 --divide-from 2 --chunk 512 --prefill 32 --decode 0 --json > "$out/plan.json"
python3 -c '
import json, sys
bench, plan = (json.load(open(x)) for x in sys.argv[1:])
for row in bench["rows"]:
    parts = plan["shapes"][0][row["phase"] + "_seconds"]
    link = parts["latency"] + parts["network"] - 5e-3  # who comes later finds the first message there
    assert link > 8 * 5e-3 and link * 0.99 <= row["seconds"] and (row["busy"] or row["seconds"] <= 3 * parts["all"]), (row, parts)
' "$out/bench.json" "$out/plan.json"
refused "is no link" 2 run "$out/two/m" --tokens 1 --logits "$out/x.npy" --link network=10G

refused "the model is divided over 2 ranks, the job has 3" 3 run "$out/two/m" --tokens 1 --logits "$out/x.npy"
if "$hadal" run "$out/two/m" --tokens 1 --logits "$out/x.npy" 2> "$out/said"; then exit 1; fi
grep -q "this process is alone" "$out/said"
refused "vocab" 2 run "$out/two/m" --tokens 1,99999 --logits "$out/x.npy"

# a share that is cut short, one of another packing, and that of another rank. Of the first its rank says why, unless mpirun ends the job before
# because another has failed: that one names the rank.
cp "$out/two/m.r1of2.weights" "$out/kept"
head -c 10000 "$out/kept" > "$out/two/m.r1of2.weights"
refused "cut short\|rank 1: an argument" 2 run "$out/two/m" --tokens 1 --logits "$out/x.npy"
"$hadal" init-weights --draw-all "$spec" --seed 2 -o "$out/w2.safetensors"
"$hadal" compile "$spec" --weights "$out/w2.safetensors" --march native --ranks 2 --divide-from 2 -o "$out/two/m"
cp "$out/kept" "$out/two/m.r1of2.weights"
refused "rank 1 has another packing of the weights than rank 0" 2 run "$out/two/m" --tokens 1 --logits "$out/x.npy"
cp "$out/two/m.r0of2.weights" "$out/two/m.r1of2.weights"
refused "rank 1 has the weights of rank 0" 2 run "$out/two/m" --tokens 1 --logits "$out/x.npy"

# two builds, each of which its own process finds where it is told: refused by both at once, not after the 20 s that one waits for another
mkdir "$out/here" "$out/there"
"$hadal" compile "$spec" --weights "$out/w.safetensors" --march native --ranks 2 -o "$out/here/m"
other_build() { # options of the second build, words
    "$hadal" compile "$spec" --weights "$out/w.safetensors" --march native --ranks 2 $1 -o "$out/there/m"
    if timeout -k 5 15 "$mpirun" $options -n 1 "$hadal" run "$out/here/m" --tokens 1 --logits "$out/x.npy" --comm-timeout 20 \
        : -n 1 "$hadal" run "$out/there/m" --tokens 1 --logits "$out/x.npy" --comm-timeout 20 > "$out/said" 2>&1; then exit 1; fi
    grep -q "$2" "$out/said" || { echo "\"$2\" is not in what was said:"; cat "$out/said"; exit 1; }
}
other_build "--chunk 64" "most tokens of a chunk: rank 1 has 64, rank 0 has 512"
other_build "--phase1-dtype bf16" "rank 1 has another model, or layout of its weights, than rank 0"
other_build "--machine l3=3M" "rank 1 has another build of the library than rank 0"

# Hosts of different CPUs, one of which has a matrix unit: at first both take the best level that both have, and any other that is asked for.
if [ -e "${HADAL_BUILD:-}/lib/libhadal_amx_machine.a" ] && grep -q avx512_bf16 /proc/cpuinfo && ! grep -q amx_tile /proc/cpuinfo; then
    CC="${CC:-cc} -Wl,-z,muldefs -Wl,-u,hrt_cpuid_here $HADAL_BUILD/lib/libhadal_amx_machine.a -lm" \
        "$hadal" compile "$spec" --weights "$out/w.safetensors" --ranks 2 -o "$out/mixed_hosts/m"
    set_env() { [ "$flavour" = openmpi ] && echo "-x HADAL_TEST_UNIT=$1" || echo "-env HADAL_TEST_UNIT $1"; }
    hosts() { # unit of the first, unit of the second, options
        first=$(set_env "$1") second=$(set_env "$2")
        shift 2
        timeout -k 5 100 "$mpirun" $options -n 1 $first "$hadal" "$@" --threads 1 --comm-timeout 20 : -n 1 $second "$hadal" "$@" --threads 1 --comm-timeout 20
    }
    for level in "" "--cpu-level avx512" "--cpu-level baseline"; do
        hosts granted refused run "$out/mixed_hosts/m" --tokens $tokens --logits "$out/mixed_hosts.npy" $level --profile="$out/profile.txt"
        "$compare" "$out/mixed_hosts.npy" "$out/whole.npy" 1e-4
        wanted="${level#--cpu-level }"
        grep -q "\"level\": \"${wanted:-avx512}\", \"passed_over\": {\"amx\": \"rank 1 cannot run it\"}" "$out/profile.txt"
    done
    hosts granted granted run "$out/mixed_hosts/m" --tokens $tokens --logits "$out/mixed_hosts.npy" --profile="$out/profile.txt"
    grep -q '"level": "amx"' "$out/profile.txt"
    "$compare" "$out/mixed_hosts.npy" "$out/whole.npy" 1e-4
    if hosts granted refused run "$out/mixed_hosts/m" --tokens 1 --logits "$out/x.npy" --cpu-level amx > "$out/said" 2>&1; then exit 1; fi
    grep -q 'level "amx" does not run here: the operating system does not allow' "$out/said"
fi

# the same of stages: a share of the second is cut short, of another packing, and its library is of another division
kept=$out/four/m_s1.r3of4.weights
cp "$kept" "$out/kept"
head -c 10000 "$out/kept" > "$kept"
refused "cut short\|rank 3: an argument" 4 run "$out/four/m" --tokens 1 --logits "$out/x.npy"
"$hadal" compile "$spec" --weights "$out/w2.safetensors" --march native --ranks 2 --stages 2 -o "$out/four/m"
cp "$out/kept" "$kept"
refused "rank 3 has another checkpoint of its weights than rank 0" 4 run "$out/four/m" --tokens 1 --logits "$out/x.npy"
"$hadal" compile "$spec" --weights "$out/w2.safetensors" --march native --stages 2 --stage 1 -o "$out/four/m_s1"
for rank in 2 3; do cp "$out/four/m_s1.r1of2.weights" "$out/four/m_s1.r${rank}of4.weights"; done
refused "ranks of a stage: rank 2 has 1, rank 0 has 2" 4 run "$out/four/m" --tokens 1 --logits "$out/x.npy"
# stages made one by one, as on machines of their own: of one checkpoint, of two, of types of weights that may be cut elsewhere, of two ways to cut
stage() { "$hadal" compile "$spec" --weights "$out/$1.safetensors" --march native --ranks 2 --stages 2 --stage $2 $3 -o "$out/four/m_s$2"; }
stage w 0 ""
stage w 1 ""
ranks 4 run "$out/four/m" --tokens $tokens --logits "$out/four.npy"
"$compare" "$out/four.npy" "$out/whole.npy" 1e-5
stage w2 1 ""
refused "rank 2 has another checkpoint of its weights than rank 0" 4 run "$out/four/m" --tokens 1 --logits "$out/x.npy"
stage w 1 "--weights-dtype q8"
refused "rank 2 has another model of its pipeline stage, or way to cut it, than rank 0" 4 run "$out/four/m" --tokens 1 --logits "$out/x.npy"
stage w 1 "--virtual-stages 2"
refused "runs of layers: rank 2 has 2, rank 0 has" 4 run "$out/four/m" --tokens 1 --logits "$out/x.npy"
[ ! -e "$out/x.npy" ]
