/* hadal generate. */
#include "driver/commands.h"
#include "driver/generate.h"
#include "driver/interrupt.h"
#include "driver/report.h"

static int generate(hadal_session *s, const command_line *line, const prompt *p, workspace *w,
                    ranks *group) {
    hadal_generate_options o;
    hadal_generated done = {0};
    writer out = {0};
    if (generate_options_of(s, line, p->folder, 256, &o) || prepare_model(s, line, w, group))
        return 1;
    o.library = w->files.library, o.packed = w->files.weights, o.context = &out;
    out.silent = group->silent;
    if (open_writer(s, p->tokenizer, p->ids, p->n, &out)) return 1;
    report_step("reading the prompt");
    defer_interrupt();
    const int failed = hadal_generate(s, &o, p->ids, p->n, &done);
    close_writer(&out);
    if (failed) return 1;
    if (!group->silent && !option_given(line, OPTION_QUIET)) tell_rates(&done);
    return was_interrupted() ? EXIT_INTERRUPTED : 0;
}

int cmd_generate(hadal_session *s, const command_line *line) {
    workspace w = {0};
    prompt p;
    ranks group = {0};
    int failed = read_prompt(s, line, &p) ? 1 : generate(s, line, &p, &w, &group);
    failed = leave_ranks(&group, failed);
    free_prompt(&p);
    remove_workspace(&w);
    return failed;
}
