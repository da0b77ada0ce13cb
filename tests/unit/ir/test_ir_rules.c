/* Every type rule, accepting and refusing: one op, its result type or the message. */
#include "tests/unit/ir/ir_fixture.h"

TestSuite(ir_rules, .init = open_arena, .fini = close_arena);

/* What the ops below find: %x %y have tokens, %s %v have none, %k is a cache. */
static const char preamble[] = " @rules\n"
                               "weight @w : f32[4, 8]\n"
                               "weight @half : bf16[4, 8]\n"
                               "weight @n8 : f32[8]\n"
                               "weight @n4 : f32[4]\n"
                               "weight @one : f32[1]\n"
                               "weight @experts : f32[5, 6, 8]\n"
                               "weight @turned : f32[5, 8, 6]\n"
                               "weight @biases : f32[5, 6]\n"
                               "weight @big : f32[2147483647]\n"
                               "weight @blocks : f32[2, 5, 4]\n"
                               "weight @maps : f32[2, 4, 4]\n"
                               "weight @six : f32[1, 1, 1, 1, 1, 2]\n"
                               "state $c : f32[C, 2, 4]\n"
                               "state $d : f32[C, 2, 3]\n"
                               "state $s : scores f32[C, 4]\n"
                               "state $e : f32[C, 3, 4]\n"
                               "state $f : f32[C, 8]\n"
                               "func(%ids: i32[T], %x: f32[T, 8], %y: f32[T, 2, 4], %t: f32[T], "
                               "%s: f32[], %v: f32[3, 8], %odd: f32[T, 2, 3], %q: f32[T, 4, 4], "
                               "%z: f32[T, 3, 4], %choice: i32[T, 3], %x3: f32[T, 3, 8]) {\n"
                               "  %k = cache_append %y, $c\n"
                               "  %k3 = cache_append %odd, $d\n"
                               "  %e = cache_append %z, $e\n"
                               "  %fixed = topk @n8 {k = 3}\n";

typedef struct rule_case {
    const char *op, *expected; /* the type, or a part of the message */
} rule_case;

static const rule_case accepted[] = {
    {"const {value = 1, shape = []}", "f32[]"},
    {"const {value = 1, shape = [T, 3]}", "f32[T, 3]"},
    {"neg %x", "f32[T, 8]"},
    {"neg @half", "f32[4, 8]"},
    {"neg %s", "f32[]"},
    {"add %x, %x", "f32[T, 8]"},
    {"add %x, %s", "f32[T, 8]"},
    {"add @n8, %x", "f32[T, 8]"},
    {"add @one, %t", "f32[T]"},
    {"add %y, @n4", "f32[T, 2, 4]"},
    {"add @half, @n8", "f32[4, 8]"},
    {"add %v, %v", "f32[3, 8]"},
    {"add @one, @one", "f32[1]"},
    {"reduce_sum %x {axis = 1}", "f32[T]"},
    {"reduce_mean %y {axis = 1}", "f32[T, 4]"},
    {"reduce_max %v {axis = 0}", "f32[8]"},
    {"reduce_max @n8 {axis = 0}", "f32[]"},
    {"rmsnorm %x {eps = 0}", "f32[T, 8]"},
    {"rmsnorm %y, @n4 {eps = 1e-5}", "f32[T, 2, 4]"},
    {"rmsnorm %v, @n8 {eps = 1e-5}", "f32[3, 8]"},
    {"layernorm %x, @n8 {eps = 1e-5}", "f32[T, 8]"},
    {"layernorm %x, @n8, @n8 {eps = 1e-5}", "f32[T, 8]"},
    {"softmax %y {axis = 1}", "f32[T, 2, 4]"},
    {"softmax @n8 {axis = 0}", "f32[8]"},
    {"reshape %x {shape = [T, 2, 4]}", "f32[T, 2, 4]"},
    {"reshape %t {shape = [T]}", "f32[T]"},
    {"reshape %t {shape = [T, 1]}", "f32[T, 1]"},
    {"reshape %v {shape = [24]}", "f32[24]"},
    {"reshape %s {shape = [1, 1]}", "f32[1, 1]"},
    {"reshape @half {shape = [32]}", "f32[32]"},
    {"transpose %y {perm = [0, 2, 1]}", "f32[T, 4, 2]"},
    {"transpose %v {perm = [1, 0]}", "f32[8, 3]"},
    {"transpose %s {perm = []}", "f32[]"},
    {"broadcast %s {shape = [T, 2]}", "f32[T, 2]"},
    {"broadcast @n8 {shape = [T, 3, 8]}", "f32[T, 3, 8]"},
    {"broadcast @one {shape = [T]}", "f32[T]"},
    {"broadcast %x {shape = [T, 8]}", "f32[T, 8]"},
    {"stack %x, %x {axis = 1}", "f32[T, 2, 8]"},
    {"stack %x, %x, %x {axis = 2}", "f32[T, 8, 3]"},
    {"stack %s, %s {axis = 0}", "f32[2]"},
    {"stack %t {axis = 1}", "f32[T, 1]"},
    {"concat %x, %x {axis = 1}", "f32[T, 16]"},
    {"concat %y, %odd {axis = 2}", "f32[T, 2, 7]"},
    {"concat @n8, @n4 {axis = 0}", "f32[12]"},
    {"slice %x {axis = 1, start = 0, length = 8}", "f32[T, 8]"},
    {"slice %x {axis = 1, start = 7, length = 1}", "f32[T, 1]"},
    {"linear %x, @w", "f32[T, 4]"},
    {"linear %x, @half, @n4", "f32[T, 4]"},
    {"linear %v, @w, _", "f32[3, 4]"},
    {"linear @n8, @w", "f32[4]"},
    {"linear %x, %v", "f32[T, 3]"},
    {"block_linear %y, @blocks", "f32[T, 2, 5]"},
    /* rows of a cache */
    {"neg %k", "f32[C, 2, 4]"},
    {"add %k, @n4", "f32[C, 2, 4]"},
    {"mul %k, %k", "f32[C, 2, 4]"},
    {"rmsnorm %k, @n4 {eps = 0}", "f32[C, 2, 4]"},
    {"softmax %k {axis = 1}", "f32[C, 2, 4]"},
    {"reduce_sum %k {axis = 2}", "f32[C, 2]"},
    {"reshape %k {shape = [C, 8]}", "f32[C, 8]"},
    {"transpose %k {perm = [0, 2, 1]}", "f32[C, 4, 2]"},
    {"slice %k {axis = 2, start = 1, length = 2}", "f32[C, 2, 2]"},
    {"concat %k, %k3 {axis = 2}", "f32[C, 2, 7]"},
    {"stack %k, %k {axis = 1}", "f32[C, 2, 2, 4]"},
    {"broadcast %k {shape = [C, 2, 4]}", "f32[C, 2, 4]"},
    {"block_linear %k, @blocks", "f32[C, 2, 5]"},
    {"gather @half, %ids", "f32[T, 8]"},
    {"gather %v, %ids", "f32[T, 8]"},
    {"gather %v, %ids {beyond = 0}", "f32[T, 8]"},
    {"rope_table {length = 4, theta = 10000}", "f32[T, 4]"},
    {"rope_table {length = 4, theta = 10000, scaling = \"linear\", factor = 2}", "f32[T, 4]"},
    {"rope_table {length = 4, theta = 2, rotating = 0}", "f32[T, 4]"},
    {"rope_table {length = 4, theta = 2, scaling = \"yarn\", factor = 2, original_positions = 9}",
     "f32[T, 4]"},
    {"rope_table {length = 4, theta = 2, scaling = \"yarn\", factor = 0.5, original_positions = 9, "
     "beta_fast = 3, beta_slow = 0.5, truncate = 0, attention_factor = 1.5}",
     "f32[T, 4]"},
    {"rope_table {length = 4, theta = 2, scaling = \"longrope\", short_factors = [1, 2.5], "
     "long_factors = [3, 4], original_positions = 9, rotating = 1}",
     "f32[T, 4]"},
    {"rope %y, %q4", "f32[T, 2, 4]"},
    {"rope %odd, %q2", "f32[T, 2, 3]"},
    {"rope %odd, %q2 {start = 1, pairs = \"adjacent\"}", "f32[T, 2, 3]"},
    {"rope %y, %q2 {start = 2, pairs = \"halves\"}", "f32[T, 2, 4]"},
    {"attention %q, %k, %k {scale = 0.5}", "f32[T, 4, 4]"},
    {"topk %x {k = 3}", "i32[T, 3]"},
    {"topk %x {k = 8}", "i32[T, 8]"},
    {"to_ids %x", "i32[T, 8]"},
    {"to_ids %y", "i32[T, 2, 4]"},
    {"topk %y {k = 1}", "i32[T, 2, 1]"},
    {"topk @half {k = 2}", "i32[4, 2]"},
    {"pick %x, %choice", "f32[T, 3]"},
    {"pick @n8, %choice", "f32[T, 3]"},
    {"pick @n8, %fixed", "f32[3]"},
    {"mark %choice {length = 7}", "f32[T, 7]"},
    {"cross_entropy %x, %ids", "f32[T]"},
    {"reshape %ids {shape = [T, 1]}", "i32[T, 1]"},
    {"mark %fixed {length = 1}", "f32[1]"},
    {"expert_linear %x, @experts, %choice", "f32[T, 3, 6]"},
    {"expert_linear %x3, @experts, %choice, _", "f32[T, 3, 6]"},
    {"expert_linear %x, @experts, %choice, @biases", "f32[T, 3, 6]"},
    {"attention %q, %k, %k, @n4 {scale = 0.5, window = 1}", "f32[T, 4, 4]"},
    {"attention %q, %k, %k3, %q4, %q {scale = 0.5, window = 2147483647, softcap = 50}",
     "f32[T, 4, 3]"},
    {"attention %y, %k, %k, _, %odd {scale = 0.5}", "f32[T, 2, 4]"},
    {"attention %y, %k, %k3 {scale = -1}", "f32[T, 2, 3]"},
};

static const rule_case rejected[] = {
    /* in general */
    {"neg", "neg: has 0 operands, but takes (x)"},
    {"neg %x, %x", "neg: has 2 operands, but takes (x)"},
    {"neg _", "neg: operand x is missing"},
    {"const %x {value = 1, shape = []}", "const: takes no operands, but has 1"},
    {"stack {axis = 0}", "stack: has 0 operands, but takes (xs*)"},
    {"stack %x, _ {axis = 1}", "stack: operand xs[1] is missing"},
    {"neg $f", "neg: operand x is a state ($), which is for cache_append"},
    {"add %x, %ids", "add: operand b is i32[T]"},
    {"add %k, %y", "add: f32[C, 2, 4] and f32[T, 2, 4] do not broadcast"},
    {"concat %k, %y {axis = 2}", "concat: operand xs[1] is f32[T, 2, 4], which differs from"},
    {"cache_append %k, $c", "cache_append: operand x is f32[C, 2, 4], a cache"},
    {"gather %k, %ids", "gather: operand table is f32[C, 2, 4], a cache"},
    {"attention %k, %k, %k {scale = 1}", "attention: operand q is f32[C, 2, 4], a cache"},
    {"rope %k, %q4", "rope: operand x is f32[C, 2, 4], a cache"},
    {"reduce_sum %k {axis = 0}", "reduce_sum: axis 0 of f32[C, 2, 4] is that of positions"},
    {"concat %k, %k {axis = 0}", "concat: axis 0 of f32[C, 2, 4] is that of positions"},
    {"slice %k {axis = 0, start = 0, length = 1}", "slice: axis 0 of f32[C, 2, 4] is that of"},
    {"transpose %k {perm = [1, 0, 2]}", "transpose: the dim of positions stays in front"},
    {"block_linear %x, @blocks", "block_linear: operand x must be [T, G, K], not f32[T, 8]"},
    {"block_linear %q, @blocks", "block_linear: x is f32[T, 4, 4], so w must be [4, N, 4]"},
    {"block_linear %odd, @blocks", "block_linear: x is f32[T, 2, 3], so w must be [2, N, 3]"},
    {"block_linear @blocks, @blocks", "block_linear: operand x must be [T, G, K], not f32[2"},
    {"block_linear %y, %k", "block_linear: operand w must be the same for every token"},
    {"block_linear %y, %y", "block_linear: operand w must be the same for every token"},
    {"linear %x, %k", "linear: operand w must be [N, K], not f32[C, 2, 4]"},
    {"reduce_sum %x", "reduce_sum: attribute 'axis' is missing"},
    {"neg %x {axis = 1}", "neg has no attribute 'axis'"},
    /* elementwise */
    {"add %x, %t", "add: f32[T, 8] and f32[T] do not broadcast"},
    {"add %y, %x", "add: f32[T, 2, 4] and f32[T, 8] do not broadcast"},
    {"add %x, @n4", "add: f32[T, 8] and f32[4] do not broadcast"},
    {"add %x, %v", "add: f32[T, 8] and f32[3, 8] do not broadcast"},
    {"add %t, @n8", "add: f32[T] and f32[8] do not broadcast"},
    {"mul %t, @six", "mul: f32[T] and f32[1, 1, 1, 1, 1, 2] do not broadcast"},
    /* constants and shapes */
    {"const {value = 1, shape = [0]}", "const: dim 0 of 'shape' is 0; dims are from 1"},
    {"const {value = 1, shape = [2, T]}", "const: T can only be the first dim of 'shape'"},
    {"const {value = 1, shape = [2147483648]}", "const: dim 0 of 'shape' is 2147483648"},
    {"const {value = 1, shape = [2147483647, 2147483647, 2147483647]}",
     "has more elements than can be counted"},
    {"const {value = 1, shape = [2147483647, 2147483647]}",
     "has more elements than can be counted"},
    {"const {value = 1, shape = [1, 1, 1, 1, 1, 1, 1]}", "more than 6 entries"},
    /* reductions and norms */
    {"reduce_sum %x {axis = 0}", "reduce_sum: axis 0 of f32[T, 8] is the token dim"},
    {"reduce_sum %x {axis = 2}", "reduce_sum: axis 2 is outside 0 .. 1"},
    {"reduce_sum %x {axis = -1}", "reduce_sum: axis -1 is outside 0 .. 1"},
    {"reduce_sum %s {axis = 0}", "reduce_sum: axis 0 is outside 0 .. -1"},
    {"softmax %t {axis = 0}", "softmax: axis 0 of f32[T] is the token dim"},
    {"softmax %x {axis = 9223372036854775807}", "softmax: axis 9223372036854775807 is outside"},
    {"rmsnorm %x {eps = -1e-6}", "rmsnorm: 'eps' is negative"},
    {"rmsnorm %x {eps = inf}", "rmsnorm: 'eps' is inf; it must be finite"},
    {"rmsnorm %x {eps = nan}", "rmsnorm: 'eps' is nan; it must be finite"},
    {"rmsnorm %x, @n4 {eps = 0}", "rmsnorm: operand gain must be [8], not f32[4]"},
    {"rmsnorm %x, @w {eps = 0}", "rmsnorm: operand gain must be [8], not f32[4, 8]"},
    {"rmsnorm %t {eps = 0}", "rmsnorm: operand x, f32[T], has no last axis besides tokens"},
    {"rmsnorm %s {eps = 0}", "rmsnorm: operand x, f32[], has no last axis"},
    {"layernorm %x, _, @n4 {eps = 0}", "layernorm: operand bias must be [8], not f32[4]"},
    /* moving */
    {"reshape %x {shape = [8]}", "reshape: f32[T, 8] has tokens, so 'shape' must begin with T"},
    {"reshape %v {shape = [T, 24]}", "reshape: f32[3, 8] has no tokens, so 'shape' cannot have T"},
    {"reshape %x {shape = [T, 9]}", "reshape: f32[T, 8] does not have the elements of f32[T, 9]"},
    {"reshape %x {shape = [T, 0]}", "reshape: dim 1 of 'shape' is 0"},
    {"reshape %k {shape = [2, 4]}",
     "reshape: f32[C, 2, 4] is rows of a cache, so 'shape' must begin with C"},
    {"reshape %k {shape = [T, 8]}", "reshape: f32[C, 2, 4] has no tokens"},
    {"reshape %x {shape = [C, 8]}", "reshape: f32[T, 8] has tokens, so 'shape' must begin with T"},
    {"reshape %v {shape = [C, 24]}", "reshape: f32[3, 8] is no cache, so 'shape' cannot have C"},
    {"const {value = 1, shape = [C, 2]}", "const: there are no constants with C"},
    {"transpose %y {perm = [1, 0, 2]}", "transpose: the token dim stays in front"},
    {"transpose %y {perm = [0, 1]}", "transpose: 'perm' has 2 entries for f32[T, 2, 4]"},
    {"transpose %y {perm = [0, 1, 1]}", "transpose: 'perm' must hold each of 0 .. 2 once"},
    {"transpose %y {perm = [0, 1, 64]}", "transpose: 'perm' must hold each of 0 .. 2 once"},
    {"transpose %y {perm = [T, 1, 2]}", "transpose: 'perm' must hold each of 0 .. 2 once"},
    {"broadcast %x {shape = [8]}", "broadcast: f32[T, 8] does not stretch to f32[8]"},
    {"broadcast %x {shape = [3, 8]}", "broadcast: f32[T, 8] does not stretch to f32[3, 8]"},
    {"broadcast @n8 {shape = [T, 1]}", "broadcast: f32[8] does not stretch to f32[T, 1]"},
    {"broadcast @one {shape = []}", "broadcast: f32[1] does not stretch to f32[]"},
    {"stack %x, %y {axis = 1}", "stack: operand xs[1] is f32[T, 2, 4], operand xs[0] is f32[T, 8]"},
    {"stack %x, %x {axis = 0}", "stack: axis 0 of f32[T, 8] is the token dim"},
    {"stack %x, %x {axis = 3}", "stack: axis 3 is outside 0 .. 2"},
    {"stack @six {axis = 0}", "stack: the result would have 7 dims; 6 is the most"},
    {"concat %x, %v {axis = 1}",
     "concat: operand xs[1] is f32[3, 8], which differs from f32[T, 8]"},
    {"concat %x, %y {axis = 1}", "concat: operand xs[1] is f32[T, 2, 4], which differs"},
    {"concat %x, %x {axis = 0}", "concat: axis 0 of f32[T, 8] is the token dim"},
    {"concat @big, @one {axis = 0}", "concat: dim 0 of the result, 2147483648, is over 2147483647"},
    {"slice %x {axis = 1, start = 8, length = 1}",
     "slice: start 8 and length 1 lie outside axis 1"},
    {"slice %x {axis = 1, start = 0, length = 9}", "slice: start 0 and length 9 lie outside"},
    {"slice %x {axis = 1, start = 0, length = 0}", "slice: start 0 and length 0 lie outside"},
    {"slice %x {axis = 1, start = -1, length = 2}", "slice: start -1 and length 2 lie outside"},
    {"slice %x {axis = 1, start = 1, length = 9223372036854775807}", "lie outside axis 1"},
    {"slice %x {axis = 0, start = 0, length = 1}", "slice: axis 0 of f32[T, 8] is the token dim"},
    /* contractions */
    {"linear %y, @w", "linear: x is f32[T, 2, 4], so w must be [N, 4], not f32[4, 8]"},
    {"linear %x, @n8", "linear: operand w must be [N, K], not f32[8]"},
    {"linear %t, @w", "linear: operand x, f32[T], has no last axis besides tokens"},
    {"linear %x, %x", "linear: operand w must be the same for every token, not f32[T, 8]"},
    {"linear %x, @w, @n8", "linear: operand bias must be [4], not f32[8]"},
    {"linear %ids, @w", "linear: operand x is i32[T]"},
    /* tokens and positions */
    {"gather @half, %ids {beyond = -1}", "gather: 'beyond' is no row of the table: -1 of"},
    {"gather @half, %ids {beyond = 999}", "gather: 'beyond' is no row of the table: 999 of"},
    {"gather @w, %x", "gather: operand ids must be i32[T], not f32[T, 8]"},
    {"gather @n8, %ids", "gather: operand table must be [rows, n], not f32[8]"},
    {"gather %x, %ids", "gather: operand table must be the same for every token"},
    {"gather @w, @w", "gather: operand ids must be a value (%), not a weight (@)"},
    {"rope_table {length = 3, theta = 1}", "rope_table: 'length' is 3; it must be even"},
    {"rope_table {length = 0, theta = 1}", "rope_table: 'length' is 0; it must be even"},
    {"rope_table {length = 4, theta = 0}", "rope_table: 'theta' is 0; it must be finite and more"},
    {"rope_table {length = 4, theta = 1, factor = 2}",
     "rope_table: attribute 'factor' means nothing without a scaling"},
    {"rope_table {length = 4, theta = 1, scaling = \"linear\"}",
     "rope_table: scaling \"linear\" needs the attribute 'factor'"},
    {"rope_table {length = 4, theta = 1, scaling = \"linear\", factor = -2}", "'factor' is -2"},
    {"rope_table {length = 4, theta = 1, scaling = \"linear\", factor = 2, low_freq_factor = 1}",
     "'low_freq_factor' means nothing with scaling \"linear\""},
    {"rope_table {length = 4, theta = 1, scaling = \"ntk\", factor = 2}",
     "rope_table: scaling \"ntk\" is not known"},
    {"rope_table {length = 4, theta = 2, scaling = \"yarn\", factor = 2}",
     "rope_table: scaling \"yarn\" needs the attribute 'original_positions'"},
    {"rope_table {length = 4, theta = 1, scaling = \"yarn\", factor = 2, original_positions = 8}",
     "rope_table: scaling \"yarn\" needs a 'theta' of more than 1"},
    {"rope_table {length = 4, theta = 2, scaling = \"yarn\", factor = 2, original_positions = 0}",
     "rope_table: 'original_positions' must be more than 0"},
    {"rope_table {length = 4, theta = 2, scaling = \"yarn\", factor = 2, original_positions = 8, "
     "beta_fast = 0.5}",
     "rope_table: 'beta_slow' must not be more than 'beta_fast'"},
    {"rope_table {length = 4, theta = 2, scaling = \"yarn\", factor = 2, original_positions = 8, "
     "truncate = 2}",
     "rope_table: 'truncate' is 2; it must be 0 or 1"},
    {"rope_table {length = 4, theta = 2, scaling = \"yarn\", factor = 2, original_positions = 8, "
     "short_factors = [1, 2]}",
     "rope_table: attribute 'short_factors' means nothing with scaling \"yarn\""},
    {"rope_table {length = 4, theta = 2, beta_fast = 32}",
     "rope_table: attribute 'beta_fast' means nothing without a scaling"},
    {"rope_table {length = 4, theta = 2, attention_factor = 0}",
     "rope_table: 'attention_factor' is 0; it must be finite and more than 0"},
    {"rope_table {length = 4, theta = 2, rotating = 3}", "'rotating' is 3; it must be from 0 to 2"},
    {"rope_table {length = 4, theta = 2, rotating = -1}", "'rotating' is -1; it must be from"},
    {"rope_table {length = 4, theta = 2, scaling = \"longrope\", short_factors = [1], "
     "long_factors = [1, 2], original_positions = 8}",
     "rope_table: 'short_factors' has 1 entry, not 2"},
    {"rope_table {length = 4, theta = 2, scaling = \"longrope\", short_factors = [1, 2], "
     "long_factors = [1, 0], original_positions = 8}",
     "rope_table: entry 1 of 'long_factors' must be finite and more than 0"},
    {"rope_table {length = 4, theta = 2, scaling = \"longrope\", short_factors = [1, nan], "
     "long_factors = [1, 0], original_positions = 8}",
     "rope_table: entry 1 of 'short_factors' must be finite and more than 0"},
    {"rope_table {length = 4, theta = 2, scaling = \"longrope\", short_factors = [1, 2], "
     "original_positions = 8}",
     "rope_table: scaling \"longrope\" needs the attribute 'long_factors'"},
    {"rope_table {length = 4, theta = 2, short_factors = [1, two]}", "expected a number"},
    {"rope_table {length = 4, theta = 1, scaling = \"llama3\", factor = 2}",
     "scaling \"llama3\" needs the attribute 'low_freq_factor'"},
    {"rope_table {length = 4, theta = 1, scaling = \"llama3\", factor = 2, low_freq_factor = 4, "
     "high_freq_factor = 4, original_positions = 8}",
     "'low_freq_factor' must be less than 'high_freq_factor'"},
    {"rope_table {length = 4, theta = 1, scaling = \"llama3\", factor = 2, low_freq_factor = 1, "
     "high_freq_factor = 4, original_positions = 0}",
     "'original_positions' must be more than 0"},
    {"rope %x, %q4", "rope: operand x must be [T, H, n], not f32[T, 8]"},
    {"rope %odd, %q4", "operand table must be [T, m] with an even m of at most 3, not f32[T, 4]"},
    {"rope %y, %x", "operand table must be [T, m] with an even m of at most 4, not f32[T, 8]"},
    {"rope %y, @w", "operand table must be [T, m] with an even m of at most 4, not f32[4, 8]"},
    {"rope %y, %q2 {start = 3}", "rope: 'start' is 3; it must be from 0 to 2, as the table rotates "
                                 "2 of the 4 entries of a head"},
    {"rope %y, %q2 {start = -1}", "rope: 'start' is -1; it must be from 0 to 2"},
    {"rope %y, %q4 {pairs = \"thirds\"}", "'pairs' is \"thirds\"; it is one of \"halves\""},
    /* state */
    {"cache_append %y, $d",
     "x is f32[T, 2, 4], so the state must be f32[C, 2, 4], not f32[C, 2, 3]"},
    {"cache_append %x, $f", "cache_append: operand x must be [T, G, n], not f32[T, 8]"},
    {"cache_append %y, %y", "cache_append: operand state must be a state ($)"},
    {"cache_append @six, $c", "cache_append: operand x must be a value (%), not a weight (@)"},
    {"attention %y, %y, %k {scale = 1}",
     "attention: operand k must be [C, G, n], not f32[T, 2, 4]"},
    {"attention %y, $c, %k {scale = 1}", "attention: operand k must be a value (%), not a state"},
    {"attention %odd, %k, %k {scale = 1}", "the head sizes differ"},
    {"attention %z, %k, %k {scale = 1}",
     "attention: the number of query heads, 3, is no multiple of that of key/value heads, 2"},
    {"attention %q, %k, %e {scale = 1}", "the head counts differ"},
    {"attention %q, %k, %k, @n8 {scale = 1}", "operand sink must be [4] or [T, 4], not f32[8]"},
    {"attention %q, %k, %k, %x {scale = 1}", "operand sink must be [4] or [T, 4], not f32[T, 8]"},
    {"attention %q, %k, %k, $c {scale = 1}", "attention: operand sink is a state ($)"},
    {"attention %q, %k, %k, %k {scale = 1}", "attention: operand sink is f32[C, 2, 4], a cache"},
    {"attention %q, %k, %k, _, %y {scale = 1}",
     "operand bias must be [T, 4, extent], not f32[T, 2"},
    {"attention %q, %k, %k, _, @w {scale = 1}",
     "operand bias must be [T, 4, extent], not f32[4, 8]"},
    {"attention %q, %k, %k {scale = 1, window = 0}", "attention: 'window' is 0; it must be from 1"},
    {"attention %q, %k, %k {scale = 1, window = 2147483648}", "'window' is 2147483648; it must be"},
    {"attention %q, %k, %k {scale = 1, softcap = 0}", "'softcap' is 0; it must be finite and more"},
    {"attention %q, %k, %k {scale = 1, softcap = nan}", "'softcap' is nan; it must be finite and"},
    {"attention %q, %k, %k {scale = inf}", "attention: 'scale' is inf; it must be finite"},
    /* choosing, and contractions with chosen matrices */
    {"topk %x {k = 9}", "topk: 'k' is 9; it must be from 1 to 8, the length of the last axis of"},
    {"topk %x {k = 0}", "topk: 'k' is 0; it must be from 1"},
    {"topk %x {k = -1}", "topk: 'k' is -1"},
    {"topk %x", "topk: attribute 'k' is missing"},
    {"topk %t {k = 1}", "topk: operand x, f32[T], has no last axis besides tokens"},
    {"topk %s {k = 1}", "topk: operand x, f32[], has no last axis"},
    {"topk %ids {k = 1}", "topk: operand x is i32[T]"},
    {"to_ids %ids", "to_ids: operand x is i32[T]"},
    {"to_ids %t", "to_ids: operand x, f32[T], has no last axis besides tokens"},
    {"topk %choice {k = 1}", "topk: operand x is i32[T, 3]"},
    {"topk %k {k = 1}", "topk: operand x is f32[C, 2, 4], a cache"},
    {"pick %x, %x", "pick: operand ids must be i32[.., k], not f32[T, 8]"},
    {"pick %x, %ids", "pick: operand ids must be i32[.., k], not i32[T]"},
    {"pick %x, @n8", "pick: operand ids must be a value (%), not a weight (@)"},
    {"pick %y, %choice", "pick: x is f32[T, 2, 4] and ids i32[T, 3]: they choose from other rows"},
    {"pick %x, %fixed", "pick: x is f32[T, 8] and ids i32[3]: they choose from other rows"},
    {"pick %v, %choice", "pick: x is f32[3, 8] and ids i32[T, 3]: they choose from other rows"},
    {"pick %choice, %choice", "pick: operand x is i32[T, 3]"},
    {"mark %x {length = 3}", "mark: operand ids must be i32[.., k], not f32[T, 8]"},
    {"mark %choice {length = 0}", "mark: 'length' is 0; it must be from 1"},
    {"mark %choice {length = 2147483648}", "mark: 'length' is 2147483648"},
    {"add %choice, %choice", "add: operand a is i32[T, 3]"},
    {"reshape %choice {shape = [T, 3, 1]}", "reshape: operand x is i32[T, 3]"},
    {"reshape %ids {shape = [T, 2]}", "reshape: i32[T] does not have the elements of i32[T, 2]"},
    /* losses */
    {"cross_entropy %x, %x", "cross_entropy: operand targets must be i32[T], not f32[T, 8]"},
    {"cross_entropy %x, %choice", "cross_entropy: operand targets must be i32[T], not i32[T, 3]"},
    {"cross_entropy %x, @n8", "operand targets must be a value (%), not a weight (@)"},
    {"cross_entropy %y, %ids", "operand logits must be [T, V], not f32[T, 2, 4]"},
    {"cross_entropy %v, %ids", "operand logits must be [T, V], not f32[3, 8]"},
    {"cross_entropy %ids, %ids", "cross_entropy: operand logits is i32[T]"},
    {"gather @w, %choice", "gather: operand ids must be i32[T], not i32[T, 3]"},
    {"expert_linear %x, @w, %choice", "expert_linear: operand w must be [E, N, K], not f32[4, 8]"},
    {"expert_linear %x, @turned, %choice",
     "expert_linear: x is f32[T, 8], so w must be [E, N, 8], not f32[5, 8, 6]"},
    {"expert_linear %y, @experts, %choice", "each id has a row of x, or all have one"},
    {"expert_linear %v, @experts, %choice", "operand x must be [T, K] or [T, k, K], not f32[3, 8]"},
    {"expert_linear %x, @experts, %ids", "operand ids must be i32[.., k], not i32[T]"},
    {"expert_linear %x, @experts, %x", "operand ids must be i32[.., k], not f32[T, 8]"},
    {"expert_linear %x, @experts, %fixed", "operand ids must be i32[T, k], not i32[3]"},
    {"expert_linear %x, %x3, %choice", "operand w must be the same for every token"},
    {"expert_linear %x, @experts, %choice, @n8", "operand bias must be [5, 6], not f32[8]"},
};

/* Latent attention stands in depth IR. Rows %k are [C, 2, 4]. */
static const rule_case latent_accepted[] = {
    {"attention.latent %q, %k {scale = 1}", "f32[T, 4, 4]"},
    {"attention.latent %q, %k, %q, %k, @n4, %q {scale = 1, window = 3, softcap = 2}",
     "f32[T, 4, 4]"},
    {"attention.latent %q, %k, _, _, %q4 {scale = 1}", "f32[T, 4, 4]"},
    {"attention.latent %odd, %k, %one2 {scale = 1}", "f32[T, 2, 3]"},
    {"attention.latent %odd, %k, %one2 {start = 1, scale = 1}", "f32[T, 2, 3]"},
    {"attention.carried %q, %k, %k, _, $s {scale = 1}", "f32[T, 4, 4]"},
    {"attention.carried %q, %k, %k, @n4, $s {scale = 1, factor = -1, begin = 1, window = 3}",
     "f32[T, 4, 4]"},
    {"attention.expanded %q, %q, %k, _, _, @maps, @maps {scale = 1}", "f32[T, 4, 4]"},
    {"attention.expanded %q, %q, %k, %q, %k, @maps, @maps, @n4, %q {scale = 1, window = 1}",
     "f32[T, 4, 4]"},
};

static const rule_case latent_rejected[] = {
    {"attention.carried %q, %k, %k, _, $c {scale = 1}", "the state must be a scores f32[C, 4]"},
    {"attention.carried %y, %k, %k, _, $s {scale = 1}", "the state must be a scores f32[C, 2]"},
    {"attention.carried %q, %k, %k, _, %q {scale = 1}", "state"},
    {"attention.carried %q, %k, %k, @n8, $s {scale = 1}", "operand sink must be [4] or [T, 4]"},
    {"attention.carried %x, %k, %k, _, $s {scale = 1}", "operand q must be [T, H, n]"},
    {"attention.carried %q, %k, %k, _, $s {scale = 1, begin = 2}",
     "'begin' is 2; it must be 0 or 1"},
    {"attention.carried %q, %k, %k, _, $s {scale = 1, window = 0}", "'window' is 0"},
    {"attention.carried %q, %k, %k, _, $s {scale = nan}", "'scale' is nan"},
    {"attention.carried %q, %k, %k, _, $s {scale = 1, factor = inf}", "'factor' is inf"},
    {"attention.latent %x, %k {scale = 1}", "operand q must be [T, H, n], not f32[T, 8]"},
    {"attention.latent %q, %y {scale = 1}", "operand rows must be [C, G, n], not f32[T, 2, 4]"},
    {"attention.latent %z, %k {scale = 1}",
     "query heads, 3, is no multiple of that of key/value heads, 2"},
    {"attention.latent %odd, %k {scale = 1}", "operand q_shared is missing"},
    {"attention.latent %q, %k, %q {scale = 1}",
     "operand q_shared has no keys to be multiplied with"},
    {"attention.latent %odd, %k, %y {scale = 1}", "operand q_shared must be [T, 2, 1]"},
    {"attention.latent %odd, %k, %one2, %k3 {scale = 1}",
     "rows must be [C, 2, 3], not f32[C, 2, 4]"},
    {"attention.latent %y, %k, %y, %e {scale = 1}", "operand shared must be [C, 2, m]"},
    {"attention.latent %odd, %k, %one2 {start = 2, scale = 1}",
     "a latent of length 3 from element 2 on is at no end of the rows f32[C, 2, 4]"},
    {"attention.latent %q, %k, _, _, @n8 {scale = 1}", "operand sink must be [4] or [T, 4]"},
    {"attention.latent %q, %k, _, _, _, %y {scale = 1}", "operand bias must be [T, 4, extent]"},
    {"attention.latent %q, %k {scale = 1, window = 0}", "'window' is 0"},
    {"attention.latent %q, %k {scale = 1, softcap = 0}", "'softcap' is 0"},
    {"attention.expanded %q, %q, %k, _, _, @maps, @blocks {scale = 1}",
     "operand otherwise must be f32[T, 4, 5], not f32[T, 4, 4]"},
    {"attention.expanded %q, %q, %k, _, _, @blocks, @maps {scale = 1}",
     "q is f32[T, 4, 4], w_k f32[2, 5, 4] and w_v f32[2, 4, 4]"},
    {"attention.expanded %q, %q, %k, _, _, @w, @maps {scale = 1}", "operand w_k must be [K, n, r]"},
    {"attention.expanded %z, %z, %k, _, _, @maps, @maps {scale = 1}",
     "query heads, 3, is no multiple of"},
    {"attention.expanded %q, %q, %k3, _, _, @maps, @maps {scale = 1}",
     "a latent of length 4 from element 0 on is at no end of the rows f32[C, 2, 3]"},
};

enum stage { IN_GRAPH, IN_DEPTH };

static hir_module *with_op(enum stage stage, const char *op) {
    return parse(hd_printf(arena,
                           "hir 1 %s%s  %%q4 = reduce_sum %%q {axis = 1}\n"
                           "  %%q2 = slice %%q4 {axis = 1, start = 0, length = 2}\n"
                           "  %%one2 = slice %%y {axis = 2, start = 0, length = 1}\n"
                           "  %%result = %s\n"
                           "  output %%x {name = \"x\"}\n}\n",
                           stage == IN_DEPTH ? "depth" : "graph", preamble, op));
}

static void check_accepted(const rule_case *c, hir_module *m) {
    cr_assert_not_null(m, "%s", said());
    hd_text t;
    hd_text_init(&t, arena);
    hir_print_type(&t, hir_value_at(m, (hir_id)m->values.n - 1)->type);
    cr_assert_str_eq(t.at, c->expected, "%s gives %s", c->op, t.at);
}

static void check_rejected(const rule_case *c, hir_module *m) {
    cr_assert_null(m, "%s", c->op);
    cr_assert_eq(diags.errors, 1, "%s\n%s", c->op, said());
    cr_assert_not_null(strstr(diags.list.at[0].message, c->expected), "%s\nexpected: %s\n%s", c->op,
                       c->expected, said());
    cr_assert_eq(diags.list.at[0].loc.line, 27, "%s", said());
}

Test(ir_rules, accepted) {
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++)
        check_accepted(&accepted[i], with_op(IN_GRAPH, accepted[i].op));
    for (size_t i = 0; i < sizeof latent_accepted / sizeof *latent_accepted; i++)
        check_accepted(&latent_accepted[i], with_op(IN_DEPTH, latent_accepted[i].op));
}

Test(ir_rules, rejected) {
    for (size_t i = 0; i < sizeof rejected / sizeof *rejected; i++)
        check_rejected(&rejected[i], with_op(IN_GRAPH, rejected[i].op));
    for (size_t i = 0; i < sizeof latent_rejected / sizeof *latent_rejected; i++)
        check_rejected(&latent_rejected[i], with_op(IN_DEPTH, latent_rejected[i].op));
}

Test(ir_rules, what_leaves) {
    static const rule_case cases[] = {
        {"output @w {name = \"y\"}", "operand x must be a value (%), not a weight (@)"},
        {"output %ids {name = \"y\"}", "operand x is i32[T]"},
        {"output %k {name = \"y\"}", "operand x is f32[C, 2, 4], a cache"},
        {"output %x {name = \"\"}", "'name' is empty"},
        {"output %x", "attribute 'name' is missing"},
        {"trace $f {name = \"y\"}", "operand x must be a value (%), not a state ($)"},
        {"%r = output %x {name = \"y\"}", "output has 0 results, but 1 is named"},
        {"neg %x", "neg has 1 result, but 0 are named"},
        {"yield %x", "yield stands at the end of a kernel's body only"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool kernel = strncmp(cases[i].op, "yield", 5) == 0;
        const char *text = hd_printf(arena, "hir 1 %s%s  %s\n}\n", kernel ? "kernel" : "graph",
                                     preamble, cases[i].op);
        cr_assert_null(parse(text), "%s", cases[i].op);
        cr_assert_not_null(strstr(diags.list.at[0].message, cases[i].expected), "%s", said());
    }
}
