#!/bin/sh
# Fuzzes one target for some seconds, from the tests' own files on, in one process.
#
#   tests/fuzz/run.sh BUILD_FOLDER TARGET SECONDS [CORPUS_FOLDER]
#
# Findings are left in CORPUS_FOLDER (default: BUILD_FOLDER/fuzz/corpus-TARGET) as crash-*, timeout-*, oom-*.
set -eu
build=$1 target=$2 seconds=$3
tests=$(cd "$(dirname "$0")/.." && pwd)
corpus=${4:-$build/fuzz/corpus-$target}
seeds=$build/fuzz/seeds-$target
rm -rf "$seeds"
mkdir -p "$seeds" "$corpus"

# each file of a list on standard input, under a name of its own
take() {
    while read -r path; do
        cp "$path" "$seeds/$(printf '%s' "$path" | tr '/' '_')"
    done
}

case $target in
    spec) find "$tests/frontend" "$tests/../examples" "$tests/../bench/specs" -name '*.hadal' | take ;;
    ir) find "$tests/lit" "$tests/frontend" -name '*.hir' | take ;;
    gradients)
        find "$tests/lit" "$tests/frontend" -name '*.hir' | take
        printf 'hir 1 graph @small\nweight @embed : f32[7, 8]\nweight @head : f32[7, 8]\nweight @w : f32[8]\nweight @m : f32[8, 8]\nfunc(%%tokens: i32[T]) {\n  %%x = gather @embed, %%tokens\n  %%n = rmsnorm %%x, @w {eps = 0.1}\n  %%h = linear %%n, @m, _\n  %%g = silu %%h\n  %%y = add %%x, %%g\n  %%l = linear %%y, @head, _\n  output %%l {name = "logits"}\n}\n' >"$seeds/small"
        ;;
    config)
        find "$tests/import" "$tests/golden" "$tests/published" -name config.json | take
        printf '{"model_type": "llama", "quantization": {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head", "model.layers.*.mlp.gate"]}}' >"$seeds/modelopt"
        printf '{"model_type": "llama", "quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4", "group_size": 16}}}}' >"$seeds/mixed"
        for page in "$tests"/../frontend/std/families/*.hadal; do
            { printf '{"model_type": "fuzz", "hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 16}\n%%%%\n'; cat "$page"; } >"$seeds/page_$(basename "$page")"
        done
        ;;
    safetensors)
        printf '\377\0\0\0\0\0\0\0%-255s' '{"a.weight":{"dtype":"U8","shape":[2,8],"data_offsets":[0,16]},"a.weight_scale":{"dtype":"F8_E4M3","shape":[2,1],"data_offsets":[16,18]},"a.weight_scale_2":{"dtype":"F32","shape":[],"data_offsets":[18,22]}}' >"$seeds/nvfp4"
        printf '\001\2\3\4\5\6\7\010\021\022\023\024\025\026\027\030\070\176\0\0\200\077' >>"$seeds/nvfp4"
        find "$tests/golden" "$tests/published" \( -name '*.safetensors' -o -name '*.index.json' \) -size -64k | take ;;
    tokenizer)
        find "$tests/text" "$tests/../examples/jargon" -name '*.json' -size -64k ! -name config.json | take
        {
            printf '{"model": {"vocab": {"a": 0, "b": 1, "ab": 2, " ": 3}, "merges": ["a b"]}, "added_tokens": [{"id": 4, "content": "<s>", "special": true}]}\0ab <s>[y]\0'
            printf '{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "bos_token": "<s>", "add_prefix_space": false, "auto_map": {"AutoTokenizer": null}, "split_special_tokens": false}\0'
            printf '{"pad_token": {"content": "[y]", "lstrip": true}, "additional_special_tokens": ["[z]"]}'
        } >"$seeds/beside"
        printf '{"model": {"vocab": {"a": 0}, "merges": []}}\0a[y]\0{"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"7": {"content": "[y]", "normalized": true}}}' >"$seeds/decoder"
        ;;
    template)
        find "$tests/text/templates" -name '*.jinja' | take
        python3 - "$tests/text/jinja.json" "$seeds" <<'END'
import json, pathlib, sys
for i, (snippet, _) in enumerate(json.load(open(sys.argv[1]))["snippets"]):
    pathlib.Path(sys.argv[2], f"snippet_{i}").write_text(snippet, newline="")
END
        ;;
    generation)
        printf '{"eos_token_id": [2, 3], "do_sample": true, "temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1, "stop_strings": ["x"], "num_beams": 2}' >"$seeds/settings"
        printf '{"min_p": 0.1}\0{"text_config": {"eos_token_id": 7, "do_sample": true, "suppress_tokens": [1]}, "eos_token_id": null}' >"$seeds/config"
        ;;
    training)
        {
            printf '{"hadal": "0.1.0", "build": "b", "spec": "m.hadal", "model": "d", "weights": "drawn", "cpu_level": "avx2", "data": "d", "tokens": 9000, "eval_data": null, '
            printf '"separate_documents": null, "context": 32, "batch": 4, "ranks": 1, "steps": 40, "optimizer": "adamw", "memory": 0, "matmul_dtype": "f32", "lr": 0.01, "schedule": "cosine", "warmup": 4, '
            printf '"weight_decay": 0.1, "clip": 1, "seed": 1, "eval_every": 6, "depth_every": 0, "save_every": 3, "keep": 2}\0'
            printf '{"step": 1, "loss": 5.5, "lr": 0.01, "norm": 2}\n{"step": 3, "eval_loss": 5.25}\n{"step": 4, "loss": 5, "lr": 0.01, "norm": 1e2}\n{"st'
        } >"$seeds/run"
        ;;
    trainer)
        version=$(sed -n 's/^#define HRT_VERSION *\([0-9]*\)u$/\1/p' "$tests/../runtime/hadal_rt.h")
        printf "HADALTR1\\$(printf %03o "$version")\0\0\0\0\0\0\0digest of fuzz\0\0build of fuzz\0\0\0\003\0\0\0\0\0\0\0\100\002\0\0\0\0\0\0" >"$seeds/header"
        { head -c 128 "$seeds/header"; head -c 56 /dev/zero; printf '\0\0\200\077\0\0\0\277%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; } >"$seeds/numbers"
        ;;
    tokens)
        printf 'n\223NUMPY\001\0v\0%-117s\n' "{'descr': '<i4', 'fortran_order': False, 'shape': (8,), }" >"$seeds/npy"
        printf 'n\223NUMPY\001\0v\0%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (8,), }" >"$seeds/bytes"
        printf '\001\0\0\0\002\0\0\0\012\0\0\0\004\0\0\0\005\0\0\0\006\0\0\0\012\0\0\0\007\0\0\0' | tee -a "$seeds/npy" | { printf i; cat; } >"$seeds/i32"
        printf '\001\002\003\012\005\006\012\007' >>"$seeds/bytes"
        printf 'tthe depth of the sea\nis read across layers\n' >"$seeds/text"
        ;;
    weights)
        { printf 'HADALWT1\001\0\0\0\0\0\0\0\001\002\003\004\005\006\007\010\011\012\013\014\015\016\017\020\0\020\0\0\0\0\0\0\100\0\0\0\0\0\0\0'; head -c 4112 /dev/zero; } >"$seeds/good"
        ;;
    *) echo "there is no target $target: tests/fuzz/targets.def lists them" >&2; exit 2 ;;
esac
if [ -d "$tests/fuzz/findings/$target" ]; then find "$tests/fuzz/findings/$target" -type f | take; fi
exec "$build/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2500 -max_len=65536 -print_final_stats=1 -artifact_prefix="$corpus/" "$corpus" "$seeds"
