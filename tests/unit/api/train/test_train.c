/* hadal_train rejects what it is asked for before it touches a file. */
#define FOLDER "/tmp/hadal-train-XXXXXX"
#include <criterion/criterion.h>

#include "hadal/hadal.h"
#include "support/file.h"
#include "tests/unit/folder_fixture.h"

TestSuite(train, .init = open_folder, .fini = close_folder);

static const hadal_data *data;

static hadal_session *loaded(void) {
    hadal_session *s = hadal_open();
    const char *text = in_folder("text");
    cr_assert(hd_write_file(arena, &diags, text, "it is read and written", 22));
    cr_assert(!hadal_include_path(s, HADAL_SOURCE "/frontend/std") &&
                  !hadal_load(s, HADAL_SOURCE "/tests/train/small.hadal", "model") &&
                  !hadal_data_open(s, text, NULL, 0, &data),
              "%s", hadal_diagnostics(s) ? hadal_diagnostic_text(s, 0, 0) : "?");
    return s;
}

static hadal_train_options options_of_test(void) {
    return (hadal_train_options){
        .struct_size = sizeof(hadal_train_options),
        .run = in_folder("run"),
        .data = &data,
        .n_data = 1,
        .document_end = -1,
        .context = 4,
        .batch = 2,
        .steps = 3,
        .schedule = "cosine",
        .learning_rate = 1e-3,
        .clip = 1,
        .seed = 1,
    };
}

static void run_passes(hadal_session *s, int gradients) {
    const hadal_pipeline p = {.struct_size = sizeof p, .gradients = gradients, .chunk = 4};
    cr_assert_not(hadal_run_passes(s, &p));
}

/* Fails with this message, and leaves no folder. */
static void expect_rejected(hadal_session *s, const hadal_train_options *o, const char *message) {
    hadal_trained done;
    const size_t before = hadal_diagnostics(s);
    cr_expect_eq(hadal_train(s, o, &done), 1);
    cr_assert_gt(hadal_diagnostics(s), before);
    cr_expect_str_eq(hadal_diagnostic_at(s, before).message, message);
    cr_expect_not(hd_exists(in_folder("run")));
}

Test(train, a_model_without_gradients) {
    hadal_session *s = loaded();
    const hadal_train_options o = options_of_test();
    run_passes(s, 0);
    expect_rejected(s, &o, "the model was compiled without its gradients");
    hadal_close(s);
}

Test(train, options_out_of_range) {
    hadal_session *s = loaded();
    run_passes(s, 1);
    hadal_train_options o = options_of_test();
    o.run = NULL;
    expect_rejected(s, &o, "a run has no folder");
    o = options_of_test(), o.batch = 0;
    expect_rejected(s, &o, "context, batch and steps are at least 1");
    o = options_of_test(), o.keep = -1;
    expect_rejected(s, &o, "a number of steps or checkpoints is below 0");
    o = options_of_test(), o.learning_rate = -1;
    expect_rejected(s, &o, "learning rate, weight decay and clip are not below 0");
    o = options_of_test(), o.schedule = NULL;
    expect_rejected(s, &o, "there is no schedule \"\"");
    o = options_of_test(), o.n_data = 0;
    expect_rejected(s, &o, "--data is missing");
    o = options_of_test(), o.context = 22;
    expect_rejected(s, &o, "--data has 22 tokens");
    hadal_close(s);
}
