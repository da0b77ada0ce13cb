#!/bin/sh
# memory.sh HADAL MEMORY OUT: what sessions of a long prompt really touch, page by page, against the ledger's rows: whole
# and on 2 and 4 ranks, all tokens at once and in chunks.
#
# The paper's case is 128K tokens; here it is 2048 tokens, all at once where the paper has no chunks, and chunks of 256,
# an eighth, as 16K are of 128K: what is kept of a token is the same at any length. The model is made so that finished
# blocks are most of the arena (8 of them, of rows of 256).
#
# A session may touch 2 % more than the rows of the ledger, and the scratch of its one thread and what is staged for an
# exchange, 1 MB; and not less than 97 % of them, since what the ledger promises would otherwise not be there.
set -eu
hadal=$1 memory=$2 out=$3 tokens=2048
rm -rf "$out"
mkdir -p "$out"
cat > "$out/bank.hadal" << 'END'
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
END
"$hadal" init-weights "$out/bank.hadal" -o "$out/w.safetensors"
for ranks in 1 2 4; do
    for chunk in $tokens 256; do
        divide=
        [ $ranks = 1 ] || divide="--ranks $ranks --divide-from $ranks"
        "$hadal" compile "$out/bank.hadal" --weights "$out/w.safetensors" --march native --chunk $chunk $divide -o "$out/m"
        "$hadal" inspect "$out/bank.hadal" --chunk $chunk $divide --ledger=json > "$out/ledger.$ranks.$chunk.json"
        "$memory" "$out/libm.so" "$out/m.weights" $ranks $tokens > "$out/touched.$ranks.$chunk"
    done
done
python3 - "$out" $tokens << 'END'
import json, sys
out, tokens = sys.argv[1], int(sys.argv[2])
bank = {}
for ranks in 1, 2, 4:
    for chunk in tokens, 256:
        m = json.load(open(f"{out}/ledger.{ranks}.{chunk}.json"))["memory"]
        local = m["local_arena_bytes_per_row"] * m["local_rows"]
        states = m["state_bytes_per_token"] * (tokens + 1) + m["fixed_state_bytes"]
        rows = states + m["arena_bytes_per_token"] * chunk + local + m["fixed_bytes"]
        mechanism = m["mechanism_arena_bytes_per_token"] * (chunk // ranks)
        bank[ranks, chunk] = mechanism
        for line in open(f"{out}/touched.{ranks}.{chunk}"):
            _, rank, touched, promised = line.split()
            touched = int(touched)
            print(f"{ranks} ranks, chunks of {chunk}, rank {rank}: {touched / 2**20:.2f} MiB touched, "
                  f"{rows / 2**20:.2f} MiB in the ledger, {mechanism / 2**20:.2f} of the mechanism; {int(promised) / 2**20:.2f} asked for")
            if not 0.97 * rows <= touched <= 1.02 * rows + 2**20:
                sys.exit(f"rank {rank} touches {touched} bytes, the ledger has {rows}")
# the paper's: a P-th on each rank, and chunks as much less again
for (ranks, chunk), bytes in bank.items():
    if bytes * ranks * (tokens // chunk) != bank[1, tokens]:
        sys.exit(f"the mechanism's rows on {ranks} ranks in chunks of {chunk}: {bytes} bytes")
if bank[1, tokens] < 8 * 256 * 4 * tokens:
    sys.exit("the rows of finished blocks are not in the ledger")
END
rm -rf "$out"
