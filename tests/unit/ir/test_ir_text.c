/* The text form: print(parse(x)) is x, for every stage. */
#include "tests/unit/ir/ir_fixture.h"

TestSuite(ir_text, .init = open_arena, .fini = close_arena);

static const char *const texts[] = {
    "hir 1 graph @empty\n\nfunc() {\n}\n",
    "hir 1 depth @d\n\nfunc(%x: f32[T]) {\n  output %x {name = \"y\"}\n}\n",
    /* names, strings, numbers */
    "hir 1 graph @names\n\n"
    "option layers = \"12\"\n"
    "option \"odd key\" = \"a \\\"b\\\" \\\\ \\n\\t\\x01 \xc3\xa9\"\n"
    "option \"3\" = \"\"\n\n"
    "weight @model.layers.0.self-attn/q_proj : f32[4, 8] loc \"dir/m \\\"x\\\".hadal\":9:0\n"
    "weight @\"a b\" : f32[]\n"
    "weight @\"\" : bf16[2147483647]\n"
    "weight @7 : f32[1] unused\n"
    "weight @8 : f32[1] unused init zero\n"
    "weight @10 : f32[2, 2] unused init 0.02\n"
    "weight @11 : f32[2, 2] init [1, 0, -0.5, 1e-30]\n"
    "weight @12 : f32[2, 2] init [3]\n"
    "weight @9 : f32[1] init one loc \"f\":1:2 from \"g\":3:4\n\n"
    "func(%ids: i32[T], %0: f32[T, 8], %\"x y\": f32[1, 2, 3, 4, 5, 6], %\"7\": f32[]) {\n"
    "  %1 = neg %0 : f32[T, 8]\n"
    "  %hidden = neg %1 : f32[T, 8]\n"
    "  %2 = add %hidden, %\"7\" : f32[T, 8] loc \"f\":4294967295:4294967295\n"
    "  output %2 {name = \"a\\\\b\"}\n"
    "}\n",
    /* every op of the graph stage */
    "hir 1 graph @all\n\n"
    "weight @embed : bf16[256, 8]\n"
    "weight @gain : f32[8]\n"
    "weight @bias : f32[4]\n"
    "weight @proj : f32[4, 8]\n"
    "weight @blocks : f32[2, 3, 4]\n"
    "weight @\"experts.*.w\" : f32[5, 6, 8] stacked\n"
    "weight @\"spare.*\" : bf16[5, 16, 8] panel stacked unused\n\n"
    "state $k : f32[C, 2, 4]\n"
    "state $v : f32[C, 2, 4] loc \"m.hadal\":1:2\n"
    "state $tail : window f32[3, 8]\n"
    "state $far : window f32[6, 8]\n"
    "state $last : window f32[1, 1]\n"
    "state $run : window f32[7, 16]\n"
    "state $entries : f32[C/4, 2, 4]\n"
    "state $s : carry f32[2, 4, 4]\n\n"
    "func(%ids: i32[T]) {\n"
    "  %0 = const {shape = [], value = -inf} : f32[]\n"
    "  %1 = const {shape = [T, 2], value = 0.1} : f32[T, 2]\n"
    "  %2 = const {shape = [3], value = nan} : f32[3]\n"
    "  %3 = gather @embed, %ids : f32[T, 8]\n"
    "  %4 = neg %3 : f32[T, 8]\n"
    "  %5 = abs %4 : f32[T, 8]\n"
    "  %6 = sqrt %5 : f32[T, 8]\n"
    "  %7 = rsqrt %6 : f32[T, 8]\n"
    "  %8 = recip %7 : f32[T, 8]\n"
    "  %9 = exp %8 : f32[T, 8]\n"
    "  %10 = log %9 : f32[T, 8]\n"
    "  %11 = tanh %10 : f32[T, 8]\n"
    "  %12 = sigmoid %11 : f32[T, 8]\n"
    "  %13 = silu %12 : f32[T, 8]\n"
    "  %14 = gelu %13 : f32[T, 8]\n"
    "  %15 = gelu_tanh %14 : f32[T, 8]\n"
    "  %16 = relu %15 : f32[T, 8]\n"
    "  %17 = softplus %16 : f32[T, 8]\n"
    "  %18 = erf %17 : f32[T, 8]\n"
    "  %19 = add %18, %0 : f32[T, 8]\n"
    "  %20 = sub %0, %19 : f32[T, 8]\n"
    "  %21 = mul %20, @gain : f32[T, 8]\n"
    "  %22 = div %21, %20 : f32[T, 8]\n"
    "  %23 = max %22, %21 : f32[T, 8]\n"
    "  %24 = min %23, @gain : f32[T, 8]\n"
    "  %kept = when %24, @gain : f32[T, 8]\n"
    "  %25 = reduce_sum %24 {axis = 1} : f32[T]\n"
    "  %26 = reduce_mean %24 {axis = 1} : f32[T]\n"
    "  %27 = reduce_max %24 {axis = 1} : f32[T]\n"
    "  %28 = rmsnorm %24, @gain {eps = 1e-06} : f32[T, 8]\n"
    "  %29 = rmsnorm %28, _ {eps = 1e-05} : f32[T, 8]\n"
    "  %30 = layernorm %29, _, @gain {eps = 0} : f32[T, 8]\n"
    "  %31 = softmax %30 {axis = 1} : f32[T, 8]\n"
    "  %32 = reshape %31 {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
    "  %33 = transpose %32 {perm = [0, 2, 1]} : f32[T, 4, 2]\n"
    "  %34 = broadcast @gain {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
    "  %35 = stack %31, %30, %29 {axis = 1} : f32[T, 3, 8]\n"
    "  %36 = concat %34, %35 {axis = 1} : f32[T, 5, 8]\n"
    "  %37 = slice %36 {axis = 1, start = 2, length = 3} : f32[T, 3, 8]\n"
    "  %38 = linear %37, @proj, @bias : f32[T, 3, 4]\n"
    "  %39 = linear %24, @proj, _ : f32[T, 4]\n"
    "  %40 = rope_table {length = 4, theta = 10000} : f32[T, 4]\n"
    "  %41 = rope_table {length = 4, theta = 500000, scaling = \"llama3\", factor = 8, "
    "low_freq_factor = 1, high_freq_factor = 4, original_positions = 8192} : f32[T, 4]\n"
    "  %yarn = rope_table {length = 2, theta = 10000, scaling = \"yarn\", factor = 8, "
    "original_positions = 64, beta_fast = 16, beta_slow = 0.5, truncate = 0, attention_factor = "
    "1.25} : f32[T, 2]\n"
    "  %longrope = rope_table {length = 4, theta = 10000, scaling = \"longrope\", "
    "original_positions = 64, short_factors = [1, 1.05], long_factors = [1e-300, 64.5], rotating = "
    "1} : f32[T, 4]\n"
    "  %turned = rope %32, %yarn {start = 1, pairs = \"adjacent\"} : f32[T, 2, 4]\n"
    "  %42 = rope %turned, %40 : f32[T, 2, 4]\n"
    "  %43 = cache_append %42, $k : f32[C, 2, 4]\n"
    "  %44 = cache_append %32, $v : f32[C, 2, 4] loc \"m.hadal\":7:8\n"
    "  %plain = attention %42, %43, %44, _, _ {scale = 0.5} : f32[T, 2, 4]\n"
    "  %45 = attention %42, %43, %44, %yarn, %plain {scale = 0.5, window = 7, softcap = 30} : "
    "f32[T, 2, 4]\n"
    "  %rows = reshape %44 {shape = [C, 8]} : f32[C, 8]\n"
    "  %made = linear %rows, @proj, _ : f32[C, 4]\n"
    "  %blocks = block_linear %42, @blocks : f32[T, 2, 3]\n"
    "  %taps = broadcast @gain {shape = [T, 8, 8]} : f32[T, 8, 8]\n"
    "  %46 = slice %taps {axis = 2, start = 0, length = 4} : f32[T, 8, 4]\n"
    "  %47 = short_conv %24, %46, @gain, $tail : f32[T, 8]\n"
    "  %far = short_conv %24, %46, _, $far {dilation = 2} : f32[T, 8]\n"
    "  %named = ngram_gather %ids, @embed, $last {multipliers = [1, -2, 3, 4], sizes = [2], "
    "offsets = "
    "[1], eos = 0} : f32[T, 1, 8]\n"
    "  %whole = to_ids %24 : i32[T, 8]\n"
    "  %run = pool %24, %47, _, $run {length = 4, halves = 1} : f32[T, 4]\n"
    "  %entries = cache_append %42, $entries : f32[C/4, 2, 4]\n"
    "  %flat = reshape %entries {shape = [C/4, 8]} : f32[C/4, 8]\n"
    "  %before = rope_table {length = 4, theta = 10000, offset = -3} : f32[T, 4]\n"
    "  %chosen = select %42, %entries, %yarn, _ {k = 5, activation = \"relu\", of = \"rows\"} : "
    "i32[T, 2, 5]\n"
    "  %parts = select %42, %entries, _, _ {block = 3, k = 5, of = \"blocks\"} : i32[T, 2, 5]\n"
    "  %among = select %42, %entries, %yarn, %parts {block = 3, k = 5} : i32[T, 2, 5]\n"
    "  %coded = round_e4m3 %24 : f32[T, 8]\n"
    "  %fine = round_e2m1 %24 : f32[T, 8]\n"
    "  %power = power_above %24 : f32[T, 8]\n"
    "  %side = sign %24 : f32[T, 8]\n"
    "  %some = attention_selected %42, %43, %44, %chosen, %yarn, %entries {scale = 0.5, window = "
    "7} : f32[T, 2, 4]\n"
    "  %48 = reduce_sum %42 {axis = 2} : f32[T, 2]\n"
    "  %49 = delta_rule %42, %32, %45, _, %48, $s {scale = 0.5} : f32[T, 2, 4]\n"
    "  %50 = topk %31 {k = 3} : i32[T, 3]\n"
    "  %51 = pick %30, %50 : f32[T, 3]\n"
    "  %52 = mark %50 {length = 5} : f32[T, 5]\n"
    "  %lost = cross_entropy %30, %ids : f32[T]\n"
    "  %still = detach %48 : f32[T, 2]\n"
    "  %53 = expert_linear %30, @\"experts.*.w\", %50, _ : f32[T, 3, 6]\n"
    "  trace %31 {name = \"depth_weights\"}\n"
    "  trace %31 {name = \"depth_weights\"}\n"
    "  output %45 {name = \"logits\"} loc \"m.hadal\":9:8\n"
    "}\n",
    /* kernels with several results and every kind of place; numbers of bodies come after */
    "hir 1 kernel @k\n\n"
    "arena 48 per token\n"
    "fixed 16\n\n"
    "weight @embed : bf16[256, 8] panel\n"
    "weight @groups : bf16[2, 2, 4] panel\n"
    "weight @q : f32[4] loc \"m.hadal\":3:1\n\n"
    "state $k : f32[C, 2, 4]\n\n"
    "func(%ids: i32[T] in input[0]) {\n"
    "  %0 = kernel.row {name = \"fixed\", rows = \"all\", split_decode = \"none\", split_prefill = "
    "\"none\"} : f32[4] in fixed[0] {\n"
    "    %1 = exp @q : f32[4]\n"
    "    yield %1\n"
    "  }\n"
    "  %2, %3, %4 = kernel.row {name = \"row0\", rows = \"all\", split_decode = \"none\", "
    "split_prefill "
    "= \"rows\", grain = 16} : f32[T, 8] in arena[0], f32[C, 2, 4] in state[0], f32[T, 4] in "
    "arena[32] loc \"m.hadal\":4:2 {\n"
    "    %5 = gather @embed, %ids : f32[T, 8] loc \"m.hadal\":5:2\n"
    "    %6 = reshape %5 {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
    "    %7 = cache_append %6, $k : f32[C, 2, 4]\n"
    "    %8 = slice %5 {axis = 1, start = 0, length = 4} : f32[T, 4]\n"
    "    %9 = add %8, %0 : f32[T, 4]\n"
    "    yield %5, %7, %9\n"
    "  }\n"
    "  %blocks = kernel.blocks {name = \"blocks0\", rows = \"all\", split_decode = \"cols\", "
    "split_prefill = \"cols\"} : f32[T, 2, 2] in arena[32] {\n"
    "    %halves = reshape %2 {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
    "    %mapped = block_linear %halves, @groups : f32[T, 2, 2]\n"
    "    yield %mapped\n"
    "  }\n"
    "  %10 = kernel.sequence {name = \"sequence0\", rows = \"last\", split_decode = \"keys\", "
    "split_prefill = \"cyclic\"} : f32[T, 2, 4] in output[0] {\n"
    "    %11 = reshape %2 {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
    "    %12 = attention %11, %3, %3, _, _ {scale = 1} : f32[T, 2, 4]\n"
    "    yield %12\n"
    "  }\n"
    "  %13 = kernel.contract {name = \"contract0\", rows = \"last\", split_decode = \"cols\", "
    "split_prefill = \"cols\"} : f32[T, 256] {\n"
    "    %14 = linear %2, @embed, _ : f32[T, 256]\n"
    "    yield %14\n"
    "  }\n"
    "  output %10 {name = \"y\"}\n"
    "}\n",
    /* gradients */
    "hir 1 depth @gradients\n\n"
    "weight @taps : f32[8, 3]\n"
    "weight @w : f32[2, 4, 8]\n\n"
    "state $k : f32[C, 2, 4]\n"
    "state $e : f32[C/2, 2, 4]\n\n"
    "func(%ids: i32[T], %x: f32[T, 8], %dy: f32[T]) {\n"
    "  %h = reshape %x {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
    "  %k = cache_append %h, $k : f32[C, 2, 4]\n"
    "  %e = cache_append %h, $e : f32[C/2, 2, 4]\n"
    "  %rows = cache_rows %e : f32[T, 2, 4]\n"
    "  %later = after %x, %dy : f32[T, 8]\n"
    "  %padded = pad %x {axis = 1, start = 2, length = 12} : f32[T, 12]\n"
    "  %two = topk %x {k = 2} : i32[T, 2]\n"
    "  %of_two = pick %x, %two : f32[T, 2]\n"
    "  %back = scatter %of_two, %two {length = 8} : f32[T, 8]\n"
    "  %sum = sum_tokens %k : f32[2, 4]\n"
    "  %table = scatter_rows %x, %ids {length = 5, beyond = 4} : f32[5, 8]\n"
    "  %matrix = linear_grad %of_two, %x : f32[2, 8]\n"
    "  %blocks = block_linear_grad %h, %rows : f32[2, 4, 4]\n"
    "  %chosen = expert_linear %x, @w, %two, _ : f32[T, 2, 4]\n"
    "  %matrices = expert_linear_grad %chosen, %x, %two {length = 2} : f32[2, 4, 8]\n"
    "  %logits = cross_entropy_grad %x, %ids, %dy : f32[T, 8]\n"
    "  %q = attention_grad %h, %k, %k, _, _, %h {scale = 0.5, window = 3, of = \"k\"} : f32[C, 2, "
    "4]\n"
    "  %s = attention_selected_grad %h, %k, %k, _, _, %e, %h {scale = 0.5, of = \"entries\"} : "
    "f32[C/2, "
    "2, 4]\n"
    "  %p = pool_grad %x, %back, _, %x {length = 2, of = \"gate\"} : f32[T, 8]\n"
    "  %t = short_conv_grad %x, @taps, %x {of = \"taps\"} : f32[8, 3]\n"
    "  %row = reshape %back {shape = [T, 1, 8]} : f32[T, 1, 8]\n"
    "  %n = ngram_gather_grad %ids, %row {shape = [9, 8], multipliers = [1, 0, 3, 0], sizes = [2], "
    "offsets = [7], eos = 0} : f32[9, 8]\n"
    "  %d = delta_rule_grad %h, %h, %h, _, _, %h {of = \"v\", rule = \"additive\"} : f32[T, 2, 4]\n"
    "  output %sum {name = \"grad.w\"}\n"
    "}\n",
    "hir 1 kernel @loss\n\n"
    "arena 64 per token\n"
    "fixed 0\n\n"
    "weight @w : f32[40, 8] panel\n\n"
    "func(%tokens: i32[T] in input[0], %targets: i32[T] in input[1]) {\n"
    "  %0 = kernel.contract {name = \"contract0\", rows = \"loss\", split_decode = \"cols\", "
    "split_prefill = \"cols\"} : f32[T, 4, 2] in arena[0] {\n"
    "    %1 = gather @w, %tokens : f32[T, 8]\n"
    "    %2 = linear %1, @w, _ : f32[T, 40]\n"
    "    %3 = cross_entropy.parts %2, %targets {length = 32} : f32[T, 4, 2]\n"
    "    yield %3\n"
    "  }\n"
    "  %4 = kernel.row {name = \"row0\", rows = \"loss\", split_decode = \"none\", split_prefill = "
    "\"rows\"} : f32[T] in output[1] {\n"
    "    %5 = cross_entropy.merge %0 : f32[T]\n"
    "    yield %5\n"
    "  }\n"
    "  output %0 {name = \"y\"}\n"
    "  output %4 {name = \"losses\"}\n"
    "}\n",
    "hir 1 depth @d\n"
    "\n"
    "weight @kv : f32[6, 8]\n"
    "weight @kv.keys : f32[2, 8, 2] = transposed(@kv[0:16]), transposed(@kv[24:40])\n"
    "weight @maps : f32[1, 3, 3]\n"
    "weight @sink : f32[2]\n"
    "\n"
    "state $s : f32[C, 1, 8]\n"
    "state $scores : scores f32[C, 2]\n"
    "\n"
    "func(%latent: f32[T, 2, 3], %shared: f32[T, 2, 5], %row: f32[T, 1, 8], %a: f32[T, 8], %b: "
    "f32[T, 8], %q: f32[1, 8], %bias: f32[2], %near: f32[T, 2, 4], %wide: f32[T, 2, 8]) {\n"
    "  %rows = cache_append %row, $s : f32[C, 1, 8]\n"
    "  %both = attention.latent %latent, %rows, %shared, _, _, %near {start = 5, scale = 0.5, "
    "window "
    "= 9} : f32[T, 2, 3]\n"
    "  %carried = attention.carried %wide, %rows, %rows, @sink, $scores {scale = 0.5, factor = 2, "
    "begin = 1, window = 9} : f32[T, 2, 8]\n"
    "  %made = attention.expanded %latent, %latent, %rows, %shared, _, @maps, @maps, @sink, _ "
    "{start "
    "= 5, scale = 0.5, softcap = 2} : f32[T, 2, 3]\n"
    "  %0 = depth.inverse_rms %a {eps = 1e-06} : f32[T, 1]\n"
    "  %1 = depth.inverse_rms %b {eps = 1e-06} : f32[T, 1]\n"
    "  %2 = concat %0, %1 {axis = 1} : f32[T, 2]\n"
    "  %3 = depth.scores %q, _, %2, %a, %b : f32[T, 2, 1]\n"
    "  %4 = logsumexp %3 {axis = 1} : f32[T, 1]\n"
    "  %5 = reshape %3 {shape = [T, 2]} : f32[T, 2]\n"
    "  %6 = softmax %5 {axis = 1} : f32[T, 2]\n"
    "  %7 = depth.mix %6, %a, %b : f32[T, 8]\n"
    "  %8 = depth.scores %q, _, %1, %b : f32[T, 1, 1]\n"
    "  %9 = reshape %8 {shape = [T, 1]} : f32[T, 1]\n"
    "  %10 = depth.merge %7, %4, %b, %9 : f32[T, 8]\n"
    "  %11 = reshape %q {shape = [8]} : f32[8]\n"
    "  %12 = depth.attend %11, %bias, _, _, _, %a, %b {eps = 1e-06, normalization = \"softmax\"} : "
    "f32[T, 8]\n"
    "  %13 = depth.weights %11, _, _, _, _, %a, %b {normalization = \"sigmoid\"} : f32[T, 2]\n"
    "  %14 = convert %a {dtype = \"bf16\"} : bf16[T, 8]\n"
    "  %15 = add %14, %b : f32[T, 8]\n"
    "  output %15 {name = \"x\"}\n"
    "  output %10 {name = \"y\"}\n"
    "  output %12 {name = \"z\"}\n"
    "  output %13 {name = \"w\"}\n"
    "}\n",
    /* kernels of a rank */
    "hir 1 kernel @r\n\n"
    "ranks 2, rows divided from 4 tokens\n\n"
    "arena 0 per token\n"
    "local 96 per token\n"
    "fixed 0\n\n"
    "weight @embed : f32[256, 8]\n\n"
    "func(%ids: i32[T] in input[0]) {\n"
    "  %0 = kernel.comm {name = \"comm0\", rows = \"all\", split_decode = \"none\", split_prefill "
    "= "
    "\"none\"} : i32[T/2] in local[64] {\n"
    "    %1 = comm.part %ids : i32[T/2]\n"
    "    yield %1\n"
    "  }\n"
    "  %2 = kernel.row {name = \"row0\", rows = \"all\", split_decode = \"none\", split_prefill = "
    "\"rows\"} : f32[T/2, 8] in local[0] {\n"
    "    %3 = gather @embed, %0 : f32[T/2, 8]\n"
    "    yield %3\n"
    "  }\n"
    "  %4 = kernel.comm {name = \"comm1\", rows = \"last\", split_decode = \"none\", split_prefill "
    "= "
    "\"none\"} : f32[T, 8] in output[0] {\n"
    "    %5 = comm.all_gather %2 : f32[T, 8]\n"
    "    yield %5\n"
    "  }\n"
    "  output %4 {name = \"y\"}\n"
    "}\n",
    /* one module for the ranks of a group, and what crosses between them */
    "hir 1 depth @s\n\n"
    "ranks 4, rows divided from 16 tokens\n\n"
    "weight @q : f32[24, 8] shard {dim = 0, groups = 2, units = 3, pad = \"repeat\"}\n"
    "weight @o : bf16[8, 10] shard {dim = 1, groups = 10, units = 1, pad = \"zero\"} unused\n\n"
    "func(%x: f32[T, 8]) {\n"
    "  %0 = comm.part %x : f32[T/4, 8]\n"
    "  %1 = reshape %0 {shape = [T/4, 2, 4]} : f32[T/4, 2, 4]\n"
    "  %2 = comm.all_gather %0 {dtype = \"bf16\"} : f32[T, 8]\n"
    "  %3 = linear %2, @q, _ : f32[T, 8]\n"
    "  %4 = comm.all_gather %3 {axis = 1, length = 24, groups = 2, units = 3, pad = \"repeat\"} : "
    "f32[T, 24]\n"
    "  %5 = comm.part %4 {axis = 1, groups = 4, units = 1} : f32[T, 6]\n"
    "  %6 = comm.all_reduce %5 : f32[T, 6]\n"
    "  %7 = comm.reduce_scatter %6 {dtype = \"f32\"} : f32[T/4, 6]\n"
    "  %8 = comm.send %7 {to = 1} : f32[T/4, 6]\n"
    "  %9 = comm.recv {shape = [T, 3], from = 2} : f32[T, 3]\n"
    "  output %9 {name = \"y\"}\n"
    "}\n",
};

static void comes_back(const char *text, bool locations) {
    hir_module *m = parse(text);
    cr_assert_not_null(m, "%s", said());
    cr_assert_str_eq(print(m, locations), text);
    cr_assert(hir_verify(m, &diags), "%s", said());
}

Test(ir_text, printed_text_comes_back_byte_for_byte) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        comes_back(texts[i], true);
}

Test(ir_text, text_without_locations_comes_back_too) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *bare = print(parse(texts[i]), false);
        cr_assert_null(strstr(bare, " loc "));
        comes_back(bare, true);
        comes_back(bare, false);
    }
}

Test(ir_text, every_op_is_in_the_texts) {
    for (int i = 0; i < HIR_OPCODE_COUNT; i++) {
        bool found = false;
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++)
            found = found || strstr(texts[j], hd_printf(arena, " %s ", hir_info(i)->name));
        cr_assert(found, "%s", hir_info(i)->name);
    }
}

Test(ir_text, numbers_follow_the_order_of_definition) {
    hir_module *m = parse("hir 1 graph @m\n"
                          "; a comment\n"
                          "func(%9: f32[T, 4]) { ; another\r\n\n"
                          "\t%007 = neg %9 ; the type may be left out\n"
                          "  %3 = add %7 , %9:f32[T,4]\n"
                          "  %named=neg %3\n"
                          "  %1 = rmsnorm %named {eps=+1.0E-6}\n"
                          "  output %1 { name = \"y\" }\n"
                          "}");
    cr_assert_not_null(m, "%s", said());
    cr_assert_str_eq(print(m, true), "hir 1 graph @m\n\n"
                                     "func(%0: f32[T, 4]) {\n"
                                     "  %1 = neg %0 : f32[T, 4]\n"
                                     "  %2 = add %1, %0 : f32[T, 4]\n"
                                     "  %named = neg %2 : f32[T, 4]\n"
                                     "  %3 = rmsnorm %named, _ {eps = 1e-06} : f32[T, 4]\n"
                                     "  output %3 {name = \"y\"}\n"
                                     "}\n");
}

Test(ir_text, clones_print_the_same_and_share_nothing) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        hd_arena *first = hd_arena_new(), *second = hd_arena_new();
        hd_diags d;
        hd_diags_init(&d, first);
        hir_module *m = hir_parse(first, &d, "f", texts[i]);
        hir_module *c = hir_module_clone(m, second);
        hd_arena_free(first); /* under AddressSanitizer: nothing of it is read below */
        cr_assert_str_eq(print(c, true), texts[i]);
        cr_assert(hir_verify(c, &diags), "%s", said());
        hd_arena_free(second);
    }
}

Test(ir_text, one_op_prints_on_one_line) {
    hir_module *m = parse(texts[4]);
    hd_text t;
    hd_text_init(&t, arena);
    hir_print_op(m, m->first, &t);
    cr_assert_str_eq(t.at, "%0 = kernel.row {name = \"fixed\", rows = \"all\", split_decode = "
                           "\"none\", split_prefill = \"none\"} : f32[4] in fixed[0]");
}

static char *read_docs(const char *name) {
    FILE *f = fopen(hd_printf(arena, TEST_DATA "/../docs/%s", name), "r");
    cr_assert_not_null(f);
    char *text = hd_alloc(arena, 1, 1 << 20);
    cr_assert_lt(fread(text, 1, (1 << 20) - 1, f), (1 << 20) - 1);
    fclose(f);
    return text;
}

Test(ir_text, the_examples_in_the_docs_are_true) {
    char *docs = read_docs("ir.md");
    int examples = 0;
    for (char *p = docs; (p = strstr(p, "```\nhir 1 ")); examples++) {
        p += 4;
        comes_back(hd_strndup(arena, p, (size_t)(strstr(p, "```") - p)), true);
    }
    cr_assert_geq(examples, 2);
}

/* ---- the table and its reference ------------------------------------------------------------- */
static uint32_t words(const char *s) {
    uint32_t n = 0;
    for (; *s; s++)
        n += *s != ' ' && (s[1] == ' ' || !s[1]);
    return n;
}

Test(ir_text, signatures_hold_the_whole_table) {
    for (int i = 0; i < HIR_OPCODE_COUNT; i++) {
        const hir_op_info *info = hir_info(i);
        hir_signature s = hir_signature_of(i);
        hir_opcode back;
        cr_assert_eq(s.n_operands, words(info->operands), "%s", info->name);
        cr_assert_eq(s.n_attrs, words(info->attrs), "%s", info->name);
        cr_assert(hir_opcode_by_name(info->name, &back) && back == (hir_opcode)i);
        for (uint32_t j = 0; j < s.n_operands; j++)
            cr_assert(!s.operands[j].rest || j + 1 == s.n_operands);
    }
    hir_signature s = hir_signature_of(HIR_LAYERNORM_OP);
    cr_assert_str_eq(s.operands[1].name, "gain");
    cr_assert(s.operands[1].optional && !s.operands[0].optional);
    cr_assert_not(hir_opcode_by_name("lienar", &(hir_opcode){0}));
}

Test(ir_text, the_op_page_is_the_table) {
    hd_text t;
    hd_text_init(&t, arena);
    hir_print_reference(&t, true, NULL);
    cr_assert_str_eq(read_docs("ops.md"), t.at, "run: hadal ops --markdown > docs/ops.md");
}

/* Where an op is legal stands in the page as a heading, and in what is said of one op. */
Test(ir_text, the_reference_says_where_an_op_is_legal) {
    hd_text page;
    hd_text_init(&page, arena);
    cr_assert(hir_print_reference(&page, true, NULL));
    const char *heading = NULL;
    int ops = 0, of_stage[HIR_STAGE_COUNT] = {0};
    for (const char *line = page.at; *line; line += strcspn(line, "\n") + 1) {
        const int n = (int)strcspn(line, "\n");
        if (strncmp(line, "## ", 3) == 0) heading = hd_printf(arena, "legal%.*s", n - 8, line + 8);
        if (strncmp(line, "### `", 5) != 0) continue;
        hir_opcode code;
        const char *name = hd_strndup(arena, line + 5, strcspn(line + 5, "`"));
        if (!hir_opcode_by_name(name, &code)) continue; /* a table of kernels */
        hd_text one;
        hd_text_init(&one, arena);
        cr_assert(hir_print_reference(&one, false, name));
        cr_assert_not_null(strstr(one.at, hd_printf(arena, "%s)\n", heading)), "%s: %s", name,
                           one.at);
        cr_assert_null(strstr(one.at, "(;"), "%s has no trait: %s", name, one.at);
        of_stage[hir_info(code)->stage]++;
        ops++;
    }
    cr_assert_eq(ops, HIR_OPCODE_COUNT);
    for (int stage = 0; stage < HIR_STAGE_COUNT; stage++)
        cr_assert_gt(of_stage[stage], 0);
}

Test(ir_text, the_reference_names_every_op_once) {
    hd_text t, markdown;
    hd_text_init(&t, arena);
    hd_text_init(&markdown, arena);
    cr_assert(hir_print_reference(&t, false, NULL));
    cr_assert(hir_print_reference(&markdown, true, NULL));
    for (int i = 0; i < HIR_OPCODE_COUNT; i++) {
        const char *title = hd_printf(arena, "\n### `%s`\n", hir_info(i)->name);
        const char *found = strstr(markdown.at, title);
        cr_assert_not_null(found, "%s", title);
        cr_assert_null(strstr(found + 1, title));
        cr_assert_not_null(strstr(t.at, hir_info(i)->name));
    }
    t.n = 0;
    cr_assert(hir_print_reference(&t, false, "rmsnorm"));
    cr_assert_eq(strncmp(t.at, "rmsnorm x, gain? {eps}\n", 23), 0, "%s", t.at);
    cr_assert_not_null(strstr(t.at, "eps: number\n"));
    cr_assert_not(hir_print_reference(&t, false, "rmsnrom"));
}
