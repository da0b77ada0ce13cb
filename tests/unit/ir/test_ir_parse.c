/* What the parser refuses, where and how often it says so; exhaustion; mutated texts. */
#include "tests/unit/ir/ir_fixture.h"

TestSuite(ir_parse, .init = open_arena, .fini = close_arena, .timeout = 120);

#define G "hir 1 graph @m\n"
#define K "hir 1 kernel @m\n"
#define F "func(%x: f32[T, 4]) {\n"
#define ROW                                                                                        \
    "kernel.row {name = \"r\", rows = \"all\", split_decode = \"none\", split_prefill = \"rows\"}"

typedef struct parse_case {
    const char *text;
    uint32_t line, column;
    const char *message; /* a part of it */
    const char *hint;    /* a part of it, or NULL */
} parse_case;

static const parse_case cases[] = {
    /* header */
    {"", 1, 1, "this is no .hir text", "hir 1 graph @name"},
    {"; fuse (unchanged)\n", 2, 1, "this is no .hir text", "take the one before"},
    {"; the ops that match \"x\"\nfunc() {\n}\n", 2, 1, "this is no .hir text",
     "--filter-ops has no header"},
    {"model x {", 1, 1, "this is no .hir text", NULL},
    {"\n\n# comment", 3, 1, "this character has no meaning here", NULL},
    {"hir graph @m\n", 1, 5, "expected the version of the text form, found 'graph'", NULL},
    {"hir 2 graph @m\n", 1, 5, "version '2' of the text form is not known", NULL},
    {"hir 1 grpah @m\n", 1, 7, "there is no stage 'grpah'", "did you mean 'graph'?"},
    {"hir 1 graph m\n", 1, 13, "expected the module's name (@name), found 'm'", NULL},
    {"hir 1 graph @a-b\nfunc() {\n}\n", 1, 13, "the module's name 'a-b' is no C identifier", NULL},
    {"hir 1 graph @\"\"\nfunc() {\n}\n", 1, 13, "is no C identifier", NULL},
    {"hir 1 graph @m @n\n", 1, 16, "expected the end of the line, found '@n'", NULL},
    {"hir 1 graph @m\n", 2, 1, "the module has no function", NULL},
    /* tables */
    {G "wieght @w : f32[2]\nfunc() {\n}\n", 2, 1, "there is no declaration 'wieght'",
     "did you mean 'weight'?"},
    {G "option a = \"1\"\noption a = \"2\"\nfunc() {\n}\n", 3, 8, "option 'a' is given twice",
     NULL},
    {G "option a = 1\nfunc() {\n}\n", 2, 12, "expected the option's value in quotes", NULL},
    {G "arena 3 per token\nfunc() {\n}\n", 2, 1, "only kernel IR has an arena", NULL},
    {K "fixed 3\nfixed 3\nfunc() {\n}\n", 3, 1, "'fixed' is given twice", NULL},
    {K "arena 3\nfunc() {\n}\n", 2, 8, "expected 'per token', but the line ends here", NULL},
    {K "fixed -1\nfunc() {\n}\n", 2, 7, "'-1' is not an integer from 0 up", NULL},
    {K "fixed 99999999999999999999\nfunc() {\n}\n", 2, 7, "is not an integer from 0 up", NULL},
    {G "weight @w : f32[2]\nweight @w : f32[2]\nfunc() {\n}\n", 3, 8, "'w' is declared twice",
     NULL},
    {G "weight %w : f32[2]\nfunc() {\n}\n", 2, 8, "expected the weight's name (@name), found '%w'",
     NULL},
    {G "weight @w : f8[2]\nfunc() {\n}\n", 2, 13, "there is no element type 'f8'",
     "f32, bf16, f16, q8, q4, mxfp4, nvfp4 and i32"},
    {G "weight @w : i32[2]\nfunc() {\n}\n", 2, 8, "weight @w is i32", NULL},
    {G "weight @w : f32[0]\nfunc() {\n}\n", 2, 17, "'0' is no dim", NULL},
    {G "weight @w : f32[-3]\nfunc() {\n}\n", 2, 17, "'-3' is no dim", NULL},
    {G "weight @w : f32[2.5]\nfunc() {\n}\n", 2, 17, "'2.5' is no dim", NULL},
    {G "weight @w : f32[2147483648]\nfunc() {\n}\n", 2, 17, "'2147483648' is no dim", NULL},
    {G "weight @w : f32[99999999999999999999999]\nfunc() {\n}\n", 2, 17, "is no dim", NULL},
    {G "weight @w : f32[2, T]\nfunc() {\n}\n", 2, 20, "T can only be the first dim", NULL},
    {G "weight @w : f32[T]\nfunc() {\n}\n", 2, 8, "its dims must be positive integers", NULL},
    {G "weight @w : f32[C]\nfunc() {\n}\n", 2, 8, "its dims must be positive integers", NULL},
    {G "weight @w : f32[1, 1, 1, 1, 1, 1, 1]\nfunc() {\n}\n", 2, 35, "more than 6 dims", NULL},
    {G "weight @w : f32[2147483647, 2147483647, 2147483647]\nfunc() {\n}\n", 2, 8,
     "its dims must be positive integers", NULL},
    {G "weight @w : f32[2\nfunc() {\n}\n", 2, 18, "expected ',', but the line ends here", NULL},
    {G "weight @w f32[2]\nfunc() {\n}\n", 2, 11, "expected ':', found 'f32'", NULL},
    {G "weight @w : f32[2] panel\nfunc() {\n}\n", 2, 8, "only matrices have panels", NULL},
    {G "weight @w : f32[2] narrow\nfunc() {\n}\n", 2, 8, "only matrices have panels", NULL},
    {G "weight @w : f32[2, 3] narrow\nfunc() {\n}\n", 2, 8, "f32 with rows of even length", NULL},
    {G "weight @w : bf16[2, 4] narrow\nfunc() {\n}\n", 2, 8, "f32 with rows of even length", NULL},
    {G "weight @w : f32[2, 4] narrow panel\nfunc() {\n}\n", 2, 30, "expected the end of the line",
     NULL},
    {G "weight @w : f32[2] unused panel\nfunc() {\n}\n", 2, 27, "expected the end of the line",
     NULL},
    {G "weight @w : f32[2] loc 3\nfunc() {\n}\n", 2, 24, "expected a file name in quotes", NULL},
    {G "weight @w : f32[2] loc \"f\":5000000000:1\nfunc() {\n}\n", 2, 28, "the number is too large",
     NULL},
    {G "state $s : f32[T, 2]\nfunc() {\n}\n", 2, 7, "a cache is f32, bf16 or f16 [C, ..]", NULL},
    {G "state $s : i32[C, 2]\nfunc() {\n}\n", 2, 7, "a state is f32, bf16 or f16", NULL},
    /* signature */
    {G "func(%x: f32[T, 4]\n", 2, 19, "expected ',', but the line ends here", NULL},
    {G "func(%x: bf16[T, 4]) {\n}\n", 2, 6, "an input is f32, ids i32[T]", NULL},
    {G "func(%x: i32[4]) {\n}\n", 2, 6, "an input is f32, ids i32[T]", NULL},
    {G "func(%x: f32[C, 4]) {\n}\n", 2, 6, "an input is f32, ids i32[T]", NULL},
    {G "func(%x: f32[T, 4], %x: f32[T]) {\n}\n", 2, 21, "%x is defined twice", "line 2"},
    {G "func(x: f32[T, 4]) {\n  %1 = neg %x\n}\n", 2, 6, "expected an input", NULL},
    {G F "  output %x {name = \"y\"}\n", 4, 1, "expected an op or '}', but the text ends here",
     NULL},
    {G F "}\nneg\n", 4, 1, "expected nothing after the function", NULL},
    {G F "} }\n", 3, 3, "expected the end of the line, found '}'", NULL},
    /* ops */
    {G F "  %1 = lienar %x\n}\n", 3, 8, "there is no op 'lienar'", "did you mean 'linear'?"},
    {G F "  %1 = xyzzy %x\n}\n", 3, 8, "there is no op 'xyzzy'", NULL},
    {G F "  %1 neg %x\n}\n", 3, 6, "expected '=', found 'neg'", NULL},
    {G F "  %1 = %x\n}\n", 3, 8, "expected the name of an op, found '%x'", NULL},
    {G F "  %1, = neg %x\n}\n", 3, 7, "expected a result (%name), found '='", NULL},
    {G F "  %1 = neg %y\n}\n", 3, 12, "%y is not defined before its use", NULL},
    {G F "  %hiden = neg %x\n  %2 = neg %hidden\n}\n", 4, 12, "%hidden is not defined",
     "did you mean 'hiden'?"},
    {G F "  %1 = neg %1\n}\n", 3, 12, "%1 is not defined before its use", NULL},
    {G F "  %1 = add %x, %2\n  %2 = neg %x\n}\n", 3, 16, "%2 is not defined before its use", NULL},
    {G F "  %x = neg %x\n}\n", 3, 3, "%x is defined twice", "line 2"},
    {G F "  %1 = neg %x\n  %01 = neg %x\n}\n", 4, 3, "%01 is defined twice", "line 3"},
    {G "weight @gain : f32[4]\n" F "  %1 = mul %x, @gian\n}\n", 4, 16, "there is no weight @gian",
     "did you mean 'gain'?"},
    {G F "  %1 = cache_append %x, $k\n}\n", 3, 25, "there is no state $k", NULL},
    {G "weight @gain : f32[4]\n" F "  %1 = mul %x, %gain\n}\n", 4, 16, "%gain is not defined",
     "the weight is @gain"},
    {G F "  %1 = mul %x, @x\n}\n", 3, 16, "there is no weight @x", "the value is %x"},
    {G "state $k : f32[C, 4]\n" F "  %1 = neg %k\n}\n", 4, 12, "%k is not defined",
     "the state is $k"},
    {G F "  %1 = neg %\n}\n", 3, 12, "a name must follow", NULL},
    {G F "  %1 = neg %x,\n}\n", 3, 15, "expected an operand", NULL},
    {G F "  %1 = neg %x %x\n}\n", 3, 15, "expected the end of the line, found '%x'", NULL},
    {G F "  %1, %2 = neg %x\n}\n", 3, 12, "neg has 1 result, but 2 are named", NULL},
    {G F "  %1 = neg %x : f32[T, 4], f32[T, 4]\n}\n", 3, 17, "neg has 1 result, not 2", NULL},
    {G F "  %1 = neg %x : f32[T, 5]\n}\n", 3, 17,
     "the result is written as f32[T, 5], but the op gives f32[T, 4]", NULL},
    {G F "  %1 = neg %x : f32[T, 4] at\n}\n", 3, 27, "expected the end of the line", NULL},
    {G F "  %1 = neg %x : f32[T, 4] in arena[0]\n}\n", 3, 8, "only results of kernels have places",
     NULL},
    {G F "  %1 = neg %x : f32[T, 4] in arean[0]\n}\n", 3, 30, "there is no place 'arean'",
     "did you mean 'arena'?"},
    {G F "  %1 = neg %x : f32[T, 4] in arena\n}\n", 3, 35, "expected '['", NULL},
    {G F "  output %x {name = \"y\"}\n  output %x {name = \"y\"}\n}\n", 4, 3,
     "there are two outputs \"y\"", NULL},
    {G "weight @w : f32[4] unused\n" F "  %1 = mul %x, @w\n}\n", 4, 8,
     "weight @w is declared unused", NULL},
    {G "state $s : f32[C, 1, 4]\n" F "  %1 = reshape %x {shape = [T, 1, 4]}\n"
       "  %2 = cache_append %1, $s\n  %3 = cache_append %1, $s\n}\n",
     6, 8, "cache_append: state $s is written twice", NULL},
    /* attributes */
    {G F "  %1 = softmax %x {axs = 1}\n}\n", 3, 20, "softmax has no attribute 'axs'",
     "did you mean 'axis'?"},
    {G F "  %1 = slice %x {theta = 1}\n}\n", 3, 18, "slice has no attribute 'theta'",
     "its attributes are: axis start length"},
    {G F "  %1 = softmax %x {axis = 1, axis = 1}\n}\n", 3, 28, "attribute 'axis' is given twice",
     NULL},
    {G F "  %1 = softmax %x {axis = \"1\"}\n}\n", 3, 27, "expected an integer, found '1'", NULL},
    {G F "  %1 = softmax %x {axis = 1.0}\n}\n", 3, 27, "'1.0' is not an integer that fits", NULL},
    {G F "  %1 = softmax %x {axis = 9223372036854775808}\n}\n", 3, 27, "not an integer that fits",
     NULL},
    {G F "  %1 = softmax %x {axis = 1\n}\n", 3, 28, "expected ',', but the line ends here", NULL},
    {G F "  %1 = softmax %x {axis}\n}\n", 3, 24, "expected '=', found '}'", NULL},
    {G F "  %1 = softmax %x {}\n}\n", 3, 8, "softmax: attribute 'axis' is missing", NULL},
    {G F "  %1 = rmsnorm %x {eps = 1e999}\n}\n", 3, 26, "'1e999' is not a number that fits", NULL},
    {G F "  %1 = rmsnorm %x {eps = 1e}\n}\n", 3, 26, "'1e' is not a number that fits", NULL},
    {G F "  %1 = rmsnorm %x {eps = 0x1p3}\n}\n", 3, 26, "'0x1p3' is not a number that fits", NULL},
    {G F "  %1 = rmsnorm %x {eps = infinity}\n}\n", 3, 26, "expected a number", NULL},
    {G F "  %1 = reshape %x {shape = [T, -4]}\n}\n", 3, 32, "'-4' is not an integer from 0 up",
     NULL},
    {G F "  %1 = reshape %x {shape = [N, 4]}\n}\n", 3, 29, "expected an integer, T or C, found 'N'",
     NULL},
    {G F "  %1 = reshape %x {shape = 4}\n}\n", 3, 28, "expected '[', found '4'", NULL},
    {G F "  output %x {name = y}\n}\n", 3, 21, "expected a string in quotes, found 'y'", NULL},
    {G F "  output %x {name = \"y}\n}\n", 3, 21, "the string does not end on its line", NULL},
    {G F "  output %x {name = \"\\q\"}\n}\n", 3, 22, "this is no escape", "\\x01 to \\xff"},
    {G F "  output %x {name = \"\\x00\"}\n}\n", 3, 22, "this is no escape", NULL},
    {G F "  output %x {name = \"\\x1\"}\n}\n", 3, 22, "this is no escape", NULL},
    /* kernels */
    {G F "  %1 = " ROW " : f32[T, 4] {\n    %2 = neg %x\n    yield %2\n  }\n}\n", 3, 8,
     "kernel.row is legal in kernel IR only, and this module is at the graph stage", NULL},
    {G F "  %1 = depth.inverse_rms %x {eps = 1e-06}\n}\n", 3, 8,
     "depth.inverse_rms is legal from the depth stage on, and this module is at the graph stage",
     NULL},
    {K F "  %1 = " ROW " {\n    %2 = neg %x\n    yield %2\n  }\n}\n", 3, 93,
     "kernel.row needs the types of its results", NULL},
    {K F "  %1 = " ROW " : f32[T, 4]\n}\n", 3, 104, "expected '{'", NULL},
    {K F "  %1 = kernel.row : f32[T, 4] {\n    %2 = neg %x\n    yield %2\n  }\n}\n", 3, 8,
     "kernel.row: attribute 'name' is missing", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] {\n    %2 = neg %x\n  }\n}\n", 3, 8,
     "the body does not end with yield", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] {\n  }\n}\n", 3, 8, "the body does not end with yield", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] {\n    %2 = neg %x\n    yield %2\n    %3 = neg %x\n  }\n}\n",
     5, 5, "yield is not the last op of the body", NULL},
    {K F "  %1 = " ROW " : f32[T, 5] {\n    %2 = neg %x\n    yield %2\n  }\n}\n", 5, 5,
     "value 0 is f32[T, 4], but the result is f32[T, 5]", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] {\n    %2 = neg %x\n    yield %2, %2\n  }\n}\n", 5, 5,
     "yield has 2 values for 1 result of", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] {\n    %2 = neg %1\n    yield %2\n  }\n}\n", 4, 10,
     "neg: operand 0 is a value that is not defined before it", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] {\n    %2 = neg %x\n    yield %2\n  }\n  %3 = neg %2\n}\n", 7,
     12, "%2 is inside the body of another kernel", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] {\n    output %x {name = \"y\"}\n    yield %x\n  }\n}\n", 4, 5,
     "output cannot stand in a kernel's body", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] {\n    %2 = " ROW " : f32[T, 4] {\n      yield %x\n    }\n"
         "    yield %x\n  }\n}\n",
     4, 10, "kernel.row cannot stand in a kernel's body", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] {\n    %2 = neg %x\n    yield %2\n", 6, 1,
     "expected an op or the body's '}', but the text ends here", NULL},
    {K F
     "  %1 = kernel.row {name = \"r\", rows = \"lsat\", split_decode = \"none\", split_prefill = "
     "\"rows\"} : f32[T, 4] {\n    %2 = neg %x\n    yield %2\n  }\n  %3 = neg %1\n}\n",
     3, 8, "'rows' is \"lsat\"; it is one of \"all\", \"last\"", "did you mean"},
    /* places: what would let generated code write where it must not */
    {K "arena 15 per token\n" F "  %1 = " ROW
       " : f32[T, 4] in arena[0] {\n    %2 = neg %x\n    yield %2\n  }\n}\n",
     4, 8, "result 0 does not fit its place", NULL},
    {K "arena 64 per token\n" F "  %1 = " ROW
       " : f32[T, 4] in arena[9223372036854775804] {\n    %2 = neg %x\n    yield %2\n  }\n}\n",
     4, 8, "result 0 does not fit its place", NULL},
    {K "arena 64 per token\n" F "  %1 = " ROW
       " : f32[T, 4] in arena[2] {\n    %2 = neg %x\n    yield %2\n  }\n}\n",
     4, 8, "result 0 does not fit its place", NULL},
    {K "fixed 64\n" F "  %1 = " ROW
       " : f32[T, 4] in fixed[0] {\n    %2 = neg %x\n    yield %2\n  }\n}\n",
     4, 8, "result 0 does not fit its place", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] in output[0] {\n    %2 = neg %x\n    yield %2\n  }\n}\n", 3, 8,
     "result 0 does not fit its place", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] in state[0] {\n    %2 = neg %x\n    yield %2\n  }\n}\n", 3, 8,
     "result 0 does not fit its place", NULL},
    {K F "  %1 = " ROW " : f32[T, 4] in input[0] {\n    %2 = neg %x\n    yield %2\n  }\n}\n", 3, 8,
     "result 0 does not fit its place", NULL},
    {K "func(%x: f32[T, 4] in input[1]) {\n}\n", 2, 6, "has the place of something else", NULL},
};

Test(ir_parse, one_error_each_and_in_its_place) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const parse_case *c = &cases[i];
        cr_assert_null(parse(c->text), "accepted:\n%s", c->text);
        cr_assert_eq(diags.errors, 1, "%s\n%s", c->text, said());
        const hd_diag *d = &diags.list.at[0];
        cr_expect(strstr(d->message, c->message), "expected: %s\n%s", c->message, said());
        cr_expect(d->loc.line == c->line && d->loc.column == c->column, "expected at %u:%u\n%s%s",
                  c->line, c->column, c->text, said());
        cr_expect(!c->hint || (d->hint && strstr(d->hint, c->hint)), "expected hint: %s\n%s",
                  c->hint ? c->hint : "", said());
        cr_expect_str_eq(d->loc.file, "test.hir");
        cr_expect_not_null(d->source_line);
    }
}

Test(ir_parse, several_errors_and_no_cascade) {
    cr_assert_null(parse(G "weight @w : f33[4, 4]\n" F "  %0 = lienar %x, @w\n"
                           "  %1 = add %0, %0\n"
                           "  %2 = linear %1, @w\n"
                           "  %3 = rmsnorm %x {epx = 1}\n"
                           "  %4 = add %3, %nope\n"
                           "  %5 = add %4, %nope ~ ~ ~\n"
                           "  output %5 {name = \"y\"}\n"
                           "}\n"));
    cr_assert_eq(diags.errors, 5, "%s", said()); /* f33, lienar, epx, nope, ~ */
}

Test(ir_parse, a_kernel_that_fails_takes_its_body_along) {
    cr_assert_null(parse(K F "  %1 = kernel.roe {name = \"r\"} : f32[T, 4] {\n"
                             "    %2 = nonsense\n"
                             "    yield %2\n"
                             "  }\n"
                             "  %3 = " ROW " : f32[T, 4] {\n"
                             "    %4 = neg %1\n"
                             "    yield %4\n"
                             "  }\n"
                             "  %5 = ned %3\n"
                             "}\n"));
    cr_assert_eq(diags.errors, 2, "%s", said()); /* kernel.roe and ned */
}

Test(ir_parse, a_bad_signature_is_said_once) {
    cr_assert_null(parse(G "func(%x: f32[T, 4], %y f32[T], %z: f32[T]) {\n"
                           "  %1 = neg %y\n  %2 = neg %z\n  %3 = add %1, %2\n}\n"));
    cr_assert_eq(diags.errors, 1, "%s", said());
}

Test(ir_parse, errors_without_end_are_cut_off) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, G F);
    for (int i = 0; i < 100000; i++)
        hd_text_f(&t, "  %%a%d = frobnicate %%nothing%d\n", i, i);
    cr_assert_null(parse(t.at));
    cr_assert_leq(diags.errors, 21);
}

Test(ir_parse, depth_and_length_are_harmless) {
    static const char *const openers[] = {"{", "[", "(", "f32[", "%x = kernel.row {\n", "\"", "\\"};
    for (size_t i = 0; i < sizeof openers / sizeof *openers; i++) {
        hd_text t;
        hd_text_init(&t, arena);
        hd_text_add(&t, G F);
        for (int j = 0; j < 100000; j++)
            hd_text_add(&t, openers[i]);
        cr_assert_null(parse(t.at));
    }
}

/* ---- exhaustion ------------------------------------------------------------------------------ */
static const char sample[] =
    "hir 1 kernel @sample\n\n"
    "option layers = \"12\"\n\n"
    "arena 64 per token\nfixed 16\n\n"
    "weight @embed : bf16[256, 8] panel\n"
    "weight @extra : f32[4] unused loc \"m.hadal\":3:1\n\n"
    "state $k : f32[C, 2, 4]\n\n"
    "func(%ids: i32[T] in input[0], %0: f32[4]) {\n"
    "  %1, %2, %3 = kernel.row {name = \"row0\", rows = \"all\", split_decode = \"none\", "
    "split_prefill "
    "= \"rows\", grain = 16} : f32[T, 8] in arena[0], f32[C, 2, 4] in state[0], f32[T, 4] in "
    "arena[32] loc \"m.hadal\":4:2 {\n"
    "    %4 = gather @embed, %ids : f32[T, 8] loc \"m.hadal\":5:2\n"
    "    %5 = reshape %4 {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
    "    %6 = cache_append %5, $k : f32[C, 2, 4]\n"
    "    %7 = slice %4 {axis = 1, start = 0, length = 4} : f32[T, 4]\n"
    "    %8 = add %7, %0 : f32[T, 4]\n"
    "    yield %4, %6, %8\n"
    "  }\n"
    "  %9 = kernel.sequence {name = \"sequence0\", rows = \"last\", split_decode = \"keys\", "
    "split_prefill = \"cyclic\"} : f32[T, 2, 4] in output[0] {\n"
    "    %10 = reshape %1 {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
    "    %11 = attention %10, %2, %2 {scale = 0.5} : f32[T, 2, 4]\n"
    "    yield %11\n"
    "  }\n"
    "  output %9 {name = \"y\"}\n"
    "}\n";

/* 1: exhausted, 0: parsed and printed. */
static int parse_with(hd_arena *a, const char *text, size_t fail_after) {
    jmp_buf here;
    hd_arena_guard(a, &here);
    if (setjmp(here)) return 1;
    hd_arena_fail_after(a, fail_after);
    hd_diags d;
    hd_text t;
    hd_diags_init(&d, a);
    hir_module *m = hir_parse(a, &d, "f", text);
    hd_text_init(&t, a);
    if (m) hir_print(hir_module_clone(m, a), (hir_print_options){.locations = true}, &t);
    for (size_t i = 0; i < d.list.n; i++)
        hd_diag_render(&d.list.at[i], false, &t);
    return 0;
}

Test(ir_parse, memory_may_run_out_anywhere) {
    const char *bad = hd_printf(arena, "%s%s", sample, "rest");
    for (int which = 0; which < 2; which++)
        for (size_t n = 1;; n++) {
            hd_arena *a = hd_arena_new();
            int exhausted = parse_with(a, which ? bad : sample, n);
            hd_arena_free(a);
            if (!exhausted) {
                cr_assert_gt(n, 100);
                break;
            }
        }
}

/* ---- mutation -------------------------------------------------------------------------------- */
static uint64_t seed;
static size_t below(size_t n) { /* xorshift64 */
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (size_t)(seed % n);
}

static const char *const pieces[] = {
    "%0",
    "%9",
    "%ids",
    "@embed",
    "$k",
    "_",
    "[",
    "]",
    "{",
    "}",
    "{\n",
    "}\n",
    "\n",
    ",",
    ":",
    "=",
    "T",
    "C",
    "0",
    "-1",
    "9223372036854775807",
    "99999999999999999999",
    "1e308",
    "nan",
    "\"",
    "\\x",
    "loc \"f\":1:1",
    "in arena[4]",
    "in state[0]",
    "in output[1]",
    "unused",
    "panel",
    "yield %4\n",
    "output %9 {name = \"z\"}\n",
    "%12 = neg %0\n",
    "kernel.row",
    "f32[T, 4]",
    "bf16[1]",
    "i32[T]",
    "weight @x : f32[2]\n",
    "; ",
    "func(",
    "\xff",
    "\xc3\xa9",
};

/* One change: a piece put in, a stretch taken out, doubled or swapped, a byte changed. */
static void mutate(char *text, size_t capacity) {
    size_t n = strlen(text), at = below(n + 1), length = below(12);
    const char *piece = pieces[below(sizeof pieces / sizeof *pieces)];
    if (at + length > n) length = n - at;
    switch (below(5)) {
    case 0:
        length = strlen(piece);
        if (n + length < capacity) {
            memmove(text + at + length, text + at, n - at + 1);
            memcpy(text + at, piece, length);
        }
        break;
    case 1: memmove(text + at, text + at + length, n - at - length + 1); break;
    case 2:
        if (n + length < capacity) memmove(text + at + length, text + at, n - at + 1);
        break;
    case 3:
        if (at < n) text[at] = (char)(1 + below(255));
        break;
    default: { /* a line goes elsewhere */
        char *line = strchr(text + at, '\n');
        size_t end = line ? (size_t)(line - text) : n;
        char copy[256];
        if (end - at < sizeof copy) {
            memcpy(copy, text + at, end - at);
            memmove(text + at, text + end, n - end + 1);
            size_t rest = n - (end - at), to = below(rest + 1);
            memmove(text + to + (end - at), text + to, rest - to + 1);
            memcpy(text + to, copy, end - at);
        }
    }
    }
}

/* Whatever comes: no crash, an error or a module that is legal and prints to its own fixed point.
 */
Test(ir_parse, mutated_texts_do_no_harm) {
    size_t parsed = 0;
    for (seed = 1; seed < 40; seed++) {
        uint64_t start = seed;
        seed *= 0x9e3779b97f4a7c15u;
        for (int i = 0; i < 500; i++) {
            char text[4096];
            hd_arena *a = hd_arena_new();
            strcpy(text, sample);
            for (size_t j = 1 + below(3); j > 0; j--)
                mutate(text, sizeof text);
            hd_diags d;
            hd_text first, second;
            hd_diags_init(&d, a);
            hir_module *m = hir_parse(a, &d, "f", text);
            cr_assert_eq(m == NULL, hd_diags_failed(&d), "%s", text);
            if (m) {
                parsed++;
                hd_text_init(&first, a);
                hd_text_init(&second, a);
                hir_print(m, (hir_print_options){.locations = true}, &first);
                m = hir_parse(a, &d, "f", first.at);
                cr_assert_not_null(m, "%s", first.at);
                hir_print(m, (hir_print_options){.locations = true}, &second);
                cr_assert_str_eq(first.at, second.at);
            }
            hd_arena_free(a);
        }
        seed = start;
    }
    cr_assert_gt(parsed, 100, "mutations that are still legal: %zu", parsed);
}
