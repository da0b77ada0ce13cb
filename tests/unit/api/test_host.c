/* Settings of a program that calls the library: its locale, with a decimal point that is a comma or
 * a character of two bytes, and its floating-point environment. All that is read and written must
 * be as without them, and they must be there afterwards. */
#include <fenv.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hadal/hadal.h"
#include "hadal/text.h"
#define FOLDER "/tmp/hadal-host-XXXXXX"
#include "tests/unit/folder_fixture.h"

/* Every kind of number that a spec may hold, and a sum that rounding up or down would change. */
static const char spec[] = "use \"layers\"\n"
                           "model m(scale = 0.25, hidden = 8) {\n"
                           "    x = embed(\"e\", 16, hidden)\n"
                           "    y = x * 0.5 + x * 1.5e-3 + x * (0.1 + 0.2) + x * scale\n"
                           "    output logits = linear(rmsnorm(y, \"n\"), \"h\", 16)\n"
                           "}\n";

/* ---- locales --------------------------------------------------------------------------------- */

static bool make_locale(const char *name, const char *point, const char *separator) {
    char *source = in_folder("source"), *into = in_folder(name);
    FILE *f = fopen(source, "w");
    fprintf(f,
            "comment_char %%\nescape_char /\nLC_NUMERIC\ndecimal_point \"%s\"\n"
            "thousands_sep \"%s\"\ngrouping 3;3\nEND LC_NUMERIC\n",
            point, separator);
    fclose(f);
    /* the other categories are missing, which it warns of */
    const char *command = hd_printf(
        arena, "localedef -c --no-archive -i %s -f UTF-8 %s >/dev/null 2>&1; test -f %s/LC_NUMERIC",
        source, into, into);
    return system(command) == 0;
}

static const char *const points[] = {",", "<U066B>"};
enum { LOCALES = sizeof points / sizeof *points };

static void make_locales(void) {
    open_folder();
    cr_assert_eq(chdir(HADAL_BUILD "/tests"), 0); /* where the library files are found from */
    setenv("LOCPATH", folder, 1);
    for (int i = 0; i < LOCALES; i++)
        if (!make_locale(hd_printf(arena, "xx_%d", i), points[i], "."))
            cr_skip_test("localedef makes no locale here");
}

static void take_locale(int i) {
    cr_assert(setlocale(LC_NUMERIC, hd_printf(arena, "xx_%d", i)), "locale %d", i);
    cr_assert_str_neq(localeconv()->decimal_point, ".");
}

/* ---- all that has numbers in it -------------------------------------------------------------- */

static const char *words(hadal_session *s) {
    return hadal_diagnostics(s) ? hadal_diagnostic_text(s, 0, 0) : "nothing";
}

static void add(hd_text *out, hadal_session *s, const char *what, const char *text) {
    cr_assert(text, "%s: %s", what, words(s));
    hd_text_f(out, "---- %s\n%s\n", what, text);
}

static const char *contents(const char *name) {
    hd_diags d;
    size_t n;
    hd_diags_init(&d, arena);
    const char *text = hd_read_text(arena, &d, in_folder(name), 64 << 20, &n);
    cr_assert(text, "%s", name);
    return text;
}

static hadal_session *open_spec(const char *path) {
    hadal_session *s = hadal_open();
    const hadal_pipeline pipeline = {.struct_size = sizeof pipeline};
    cr_assert(s);
    cr_assert_eq(hadal_load(s, path, "m"), 0, "%s", words(s));
    cr_assert_eq(hadal_run_passes(s, &pipeline), 0, "%s", words(s));
    return s;
}

static void tell_code(hd_text *out, hadal_session *s) {
    const hadal_target target = {.struct_size = sizeof target, .cpu = "baseline"};
    cr_assert_eq(hadal_emit(s, &target, "header", in_folder("m.h")), 0, "%s", words(s));
    cr_assert_eq(hadal_emit(s, &target, "asm", in_folder("m.s")), 0, "%s", words(s));
    add(out, s, "header", contents("m.h"));
    add(out, s, "code", contents("m.s"));
}

static void tell_model(hd_text *out, const char *path, const char *scale) {
    const hadal_pipeline pipeline = {.struct_size = sizeof pipeline};
    hadal_session *s = hadal_open();
    cr_assert(s);
    if (scale) cr_assert_eq(hadal_define(s, "scale", scale), 0);
    cr_assert_eq(hadal_load(s, path, "m"), 0, "%s", words(s));
    add(out, s, "graph", hadal_ir_text(s, 1));
    cr_assert_eq(hadal_run_passes(s, &pipeline), 0, "%s", words(s));
    add(out, s, "kernels", hadal_ir_text(s, 1));
    for (int json = 0; json < 2; json++) {
        add(out, s, "inspect", hadal_inspect(s, json));
        add(out, s, "ledger", hadal_ledger_text(s, json));
    }
    for (size_t i = 0; i < hadal_remarks(s); i++)
        add(out, s, "remark", hadal_remark_at(s, i).text);
    if (scale) tell_code(out, s);
    hadal_close(s);
}

/* Numbers of JSON: a config, and what is wrong with one. */
static void tell_config(hd_text *out) {
    const char *folder_of_model = TEST_DATA "/golden/attnres-block";
    tell_model(out, folder_of_model, NULL);
    mkdir(in_folder("bad"), 0777);
    FILE *f = fopen(in_folder("bad/config.json"), "w");
    fputs("{\"model_type\": \"llama\", \"rms_norm_eps\": 2.5, \"hidden_size\": 1.75}", f);
    fclose(f);
    hadal_session *s = hadal_open();
    cr_assert(hadal_load(s, in_folder("bad"), "m") != 0);
    for (size_t i = 0; i < hadal_diagnostics(s); i++)
        add(out, s, "refused", hadal_diagnostic_text(s, i, 0));
    hadal_close(s);
}

static void tell_mixing(hd_text *out) {
    const int32_t tokens[] = {1, 2, 3, 4};
    hadal_session *s = open_spec(TEST_DATA "/golden/attnres-block");
    add(out, s, "mixing", hadal_mixing_matrix(s, tokens, 4, in_folder("mix.svg")));
    add(out, s, "picture", contents("mix.svg"));
    hadal_close(s);
}

static void tell_numbers(hd_text *out) {
    hadal_session *s = hadal_open();
    double bits;
    int64_t latency;
    cr_assert_eq(hadal_read_link(s, "network=2.5G,latency=1.5us", &bits, &latency), 0);
    hd_text_f(out, "link %lld %lld\n", (long long)bits, (long long)latency);
    hadal_close(s);
}

static const char *everything(void) {
    hd_text out;
    hd_text_init(&out, arena);
    tell_model(&out, in_folder("m.hadal"), "0.125");
    tell_config(&out);
    tell_mixing(&out);
    tell_numbers(&out);
    return out.at;
}

static void write_spec(void) {
    FILE *f = fopen(in_folder("m.hadal"), "w");
    fputs(spec, f);
    fclose(f);
}

static void compare(const char *with, const char *without, const char *what) {
    size_t at = 0;
    while (with[at] && with[at] == without[at])
        at++;
    if (with[at] == without[at]) return;
    at = at > 60 ? at - 60 : 0;
    cr_assert_fail("%s: '%.120s' instead of '%.120s'", what, with + at, without + at);
}

TestSuite(host, .init = make_locales, .fini = close_folder, .timeout = 120);

Test(host, numbers_do_not_depend_on_the_locale) {
    write_spec();
    const char *plain = everything();
    cr_assert(strstr(plain, "0.5") && strstr(plain, "0.0015"));
    for (int i = 0; i < LOCALES; i++) {
        take_locale(i);
        const char *point = strdup(localeconv()->decimal_point);
        compare(everything(), plain, points[i]);
        cr_assert_str_eq(localeconv()->decimal_point, point, "it is the host's own again");
    }
}

/* The locale of the thread, which goes before that of the process. */
Test(host, the_locale_of_a_thread_is_given_back) {
    locale_t own = newlocale(LC_NUMERIC_MASK, "xx_0", (locale_t)0);
    cr_assert(own);
    uselocale(own);
    write_spec();
    hadal_close(open_spec(in_folder("m.hadal")));
    cr_assert_eq(uselocale((locale_t)0), own);
    hadal_session *s = hadal_open();
    cr_assert(hadal_load(s, in_folder("absent.hadal"), "m") != 0);
    cr_assert_eq(uselocale((locale_t)0), own, "after a failure, too");
    hadal_close(s);
    char message[200], number[32];
    cr_assert_null(hadal_tokenizer_open(in_folder("absent"), message, sizeof message));
    cr_assert_eq(uselocale((locale_t)0), own);
    snprintf(number, sizeof number, "%.1f", 0.5);
    cr_assert_str_eq(number, "0,5");
    uselocale(LC_GLOBAL_LOCALE);
    freelocale(own);
}

Test(host, lowest_functions_read_and_write_numbers_without_it) {
    for (int i = 0; i < LOCALES; i++) {
        double x = 0;
        hd_text out;
        hd_text_init(&out, arena);
        take_locale(i);
        cr_assert(hd_read_double("2.5e-3", 6, &x) && x == 2.5e-3);
        cr_assert_not(hd_read_double("2,5", 3, &x));
        hd_text_double(&out, 0.1);
        cr_assert_str_eq(out.at, "0.1");
    }
}

Test(host, numbers_do_not_depend_on_rounding_or_traps) {
    static const int directions[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    write_spec();
    const char *plain = everything();
    for (int i = 0; i < 3; i++) {
        fesetround(directions[i]);
        feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW | FE_INEXACT);
        const char *with = everything();
        cr_assert_eq(fegetround(), directions[i]);
        cr_assert_eq(fegetexcept(), FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW | FE_INEXACT);
        fesetenv(FE_DFL_ENV);
        compare(with, plain, "rounding");
    }
}
