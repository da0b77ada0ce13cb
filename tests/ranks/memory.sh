#!/bin/sh
# memory.sh HADAL MEMORY OUT: what sessions of a long prompt really touch, page by page, against the ledger's rows: whole
# and on several ranks, all tokens at once and in chunks of an eighth.
#
# In the short set on fewer ranks, and the long prompt is a fourth as long; with HADAL_FULL=1 all.
#
# Once with attention, at 2048 tokens on 1, 2 and 4 ranks: what is kept of a token is the same at any length, and attention of
# longer prompts would take minutes. And once at the length of the paper's case, 128K tokens, 8 blocks, 8 ranks and chunks of
# 16K, of a narrow model without attention (rows of 64: finished blocks are 256 MiB of the arena where nothing is divided), in which
# a recurrence at the end needs all rows.
#
# A session may touch 2 % more than the rows of the ledger, and the scratch of its one thread and what is staged for an
# exchange, 1 MB; and not less than 97 % of them, since what the ledger promises would otherwise not be there. Of narrow rows 95 %:
# what is one number a token, such as a norm, has a line of 64 bytes in the ledger, of which 4 are touched. That is 3 to 4 % of what is
# live at once, and a row that is not there would be 5 % more.
set -eu
hadal=$1 memory=$2 out=$3
rm -rf "$out"
mkdir -p "$out"
cat > "$out/bank.hadal" << 'END_OF_SPEC'
use "layers"
use "residual/attnres"

model bank(layers = 8, hidden = 256, heads = 4, ff = 128, vocab = 64) {
    r = attnres_block(embed("embed", vocab, hidden), block_layers: 1)
    for l in 0..layers {
        at "model.layers.{l}" {
            r.write(attention(rmsnorm(r.read("self_attention_res"), "input_layernorm"), heads))
            r.write(swiglu(rmsnorm(r.read("mlp_res"), "post_attention_layernorm"), ff))
        }
    }
    output logits = linear(rmsnorm(r.result("model.output_attn_res"), "model.norm"), "lm_head", vocab)
}
END_OF_SPEC
cat > "$out/narrow.hadal" << 'END_OF_SPEC'
use "layers"
use "kda"
use "residual/attnres"

model narrow(layers = 8, hidden = 64, ff = 64, vocab = 64) {
    r = attnres_block(embed("embed", vocab, hidden), block_layers: 1)
    for l in 0..layers {
        at "model.layers.{l}.first" { r.write(swiglu(rmsnorm(r.read("res"), "norm"), ff)) }
        at "model.layers.{l}.second" { r.write(swiglu(rmsnorm(r.read("res"), "norm"), ff)) }
    }
    at "model.end" { r.write(kda(rmsnorm(r.read("res"), "norm"), heads: 8, head_dim: 8)) }
    output logits = linear(rmsnorm(r.result("model.output_attn_res"), "model.norm"), "lm_head", vocab)
}
END_OF_SPEC

sessions() { # SPEC, tokens, numbers of ranks: on each, all tokens at once and in chunks of an eighth
    spec=$1 tokens=$2
    shift 2
    "$hadal" init-weights --draw-all "$out/$spec.hadal" -o "$out/w.safetensors"
    for ranks in "$@"; do
        for chunk in $tokens $((tokens / 8)); do
            divide=
            [ "$ranks" = 1 ] || divide="--ranks $ranks --divide-from $ranks"
            "$hadal" compile "$out/$spec.hadal" --weights "$out/w.safetensors" --march native --chunk $chunk $divide -o "$out/m"
            "$hadal" inspect "$out/$spec.hadal" --chunk $chunk $divide --ledger=json > "$out/$spec.$ranks.$chunk.json"
            "$memory" "$out/libm.so" "$out/m.weights" "$ranks" "$tokens" > "$out/$spec.$ranks.$chunk"
        done
    done
}
of_bank="1 4" long=32768
[ "${HADAL_FULL:-}" != 1 ] || of_bank="1 2 4" long=131072
sessions bank 2048 $of_bank
sessions narrow $long 1 8
python3 - "$out" $long $of_bank << 'END_OF_CHECK'
import json, sys
out = sys.argv[1]
long, *of_bank = map(int, sys.argv[2:])

def check(spec, tokens, all_ranks, width, least, more):
    bank = {}
    for ranks in all_ranks:
        for chunk in tokens, tokens // 8:
            m = json.load(open(f"{out}/{spec}.{ranks}.{chunk}.json"))["memory"]
            local = m["local_arena_bytes_per_row"] * m["local_rows"]
            states = m["state_bytes_per_token"] * (tokens + 1) + m["fixed_state_bytes"]
            rows = states + m["arena_bytes_per_token"] * chunk + local + m["fixed_bytes"]
            mechanism = m["mechanism_arena_bytes_per_token"] * (chunk // ranks)
            bank[ranks, chunk] = mechanism
            for line in open(f"{out}/{spec}.{ranks}.{chunk}"):
                _, rank, touched, promised = line.split()
                touched = int(touched)
                print(f"{spec}, {ranks} ranks, chunks of {chunk}, rank {rank}: {touched / 2**20:.2f} MiB touched, "
                      f"{rows / 2**20:.2f} MiB in the ledger, {mechanism / 2**20:.2f} of the mechanism; {int(promised) / 2**20:.2f} asked for")
                if not least * rows <= touched <= 1.02 * rows + 2**20:
                    sys.exit(f"rank {rank} touches {touched} bytes, the ledger has {rows}")
    # the paper's: a P-th on each rank, and chunks as much less again; but for `more` rows of a token, since kernels that end where
    # sums cross between ranks are others
    for (ranks, chunk), bytes in bank.items():
        apart = bytes * ranks * (tokens // chunk) - bank[1, tokens]
        if not 0 <= apart <= (more * width * 4 * tokens if ranks > 1 else 0):
            sys.exit(f"the mechanism's rows on {ranks} ranks in chunks of {chunk}: {bytes} bytes")
    if bank[1, tokens] < 8 * width * 4 * tokens:
        sys.exit("the rows of finished blocks are not in the ledger")

check("bank", 2048, of_bank, 256, 0.97, 0)
check("narrow", long, (1, 8), 64, 0.95, 1)
END_OF_CHECK
rm -rf "$out"
