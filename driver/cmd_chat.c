/* hadal chat: turns of a user and of a model. The session of the model is kept, so that each turn
 * reads only what is new. */
#include <stdlib.h>
#include <string.h>

#include "driver/chat.h"
#include "driver/commands.h"
#include "driver/generate.h"
#include "driver/interrupt.h"
#include "driver/lines.h"
#include "driver/report.h"

typedef struct conversation {
    hadal_session *s;
    chat chat;
    hadal_generation *generation;
    hadal_generate_options options;
    writer out;
    line_reader *lines;
    size_t first; /* messages that stay when the chat begins anew: that of --system */
    int64_t context;
    bool quiet, times; /* --quiet, --time-passes */
    bool ends;         /* /quit was given */
} conversation;

/* Says something that is no answer; on a terminal these lines stand between the answers. */
static void say(const conversation *t, const char *text) {
    report_end();
    if (!t->quiet) fprintf(stderr, "%s\n", text);
}

/* ---- one answer ------------------------------------------------------------------------------ */

/* After an error: on a terminal the user can say it otherwise, while a pipe ends with it. */
static int give_up_turn(conversation *t) {
    take_back(&t->chat, t->chat.n - 1);
    return !is_edited(t->lines);
}

static int reject_length(conversation *t) {
    static const char hint[] = "/reset begins anew; --context N makes more room";
    char text[160];
    snprintf(text, sizeof text, "the chat has %lld tokens, and the context room for %lld",
             (long long)t->chat.n_ids, (long long)t->context);
    if (!is_edited(t->lines)) return hadal_fail(t->s, "limit", text, hint);
    report_end();
    fprintf(stderr, "error: %s\n  hint: %s\n", text, hint);
    return give_up_turn(t);
}

/* Ends a turn of which nothing or something was answered. */
static int keep_answer(conversation *t, const hadal_generated *done) {
    if (done->interrupted && t->out.n == 0) {
        take_back(&t->chat, t->chat.n - 1); /* the model has seen nothing of it, or said nothing */
        return 0;
    }
    if (t->chat.n_ids + done->tokens == t->context)
        say(t, "hadal: the context is full: /reset begins anew; --context N makes more room");
    /* what a model says in several parts, as reasoning in a channel of its own, ends in its answer */
    const size_t begin = t->out.last < t->out.n ? t->out.last : 0;
    return add_message(t->s, &t->chat, "assistant", t->out.text ? t->out.text + begin : "");
}

static int answer(conversation *t) {
    hadal_generated done = {0};
    if (!encode_chat(&t->chat)) {
        (void)report_rendered(t->chat.error);
        return give_up_turn(t);
    }
    if (reject_no_text(t->s, &t->chat)) return 1;
    if (t->chat.n_ids >= t->context) return reject_length(t);
    t->out.n = t->out.last = 0;
    if (t->out.text) *t->out.text = 0;
    if (open_writer(t->s, t->chat.tokenizer, t->chat.ids, t->chat.n_ids, &t->out)) return 1;
    defer_interrupt();
    const int failed = hadal_generation_continue(t->generation, t->chat.ids, t->chat.n_ids, &done);
    close_writer(&t->out);
    resume_interrupts();
    if (t->times && !failed) tell_rates(&done);
    return failed || ferror(stdout) || keep_answer(t, &done);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static const char help[] = "/reset   forget what was said, but for --system\n"
                           "/quit    leave; so does the end of the input (Ctrl-D)\n"
                           "/help    this list\n"
                           "A line that ends in \\ goes on in the next. // at its beginning stands "
                           "for a /. Ctrl-C ends an answer.";

static void obey(conversation *t, const char *command) {
    if (strcmp(command, "/quit") == 0) {
        t->ends = true;
    } else if (strcmp(command, "/reset") == 0) {
        take_back(&t->chat, t->first);
    } else if (strcmp(command, "/help") == 0) {
        report_end();
        fprintf(stderr, "%s\n", help);
    } else {
        report_end();
        fprintf(stderr, "hadal: there is no command %s\n%s\n", command, help);
    }
}

/* Reads a line and those that it goes on in. *out is the caller's; NULL: there is none. */
static int read_turn(conversation *t, char **out) {
    const char *line;
    size_t n = 0;
    bool more = true;
    *out = NULL;
    while (more && (line = next_line(t->lines, n ? "... " : "> "))) {
        size_t length = strlen(line);
        more = length > 0 && line[length - 1] == '\\';
        length -= more;
        char *larger = realloc(*out, n + length + 2);
        if (!larger) return hadal_fail(t->s, "memory", "no memory for a line", NULL);
        memcpy(larger + n, line, length);
        n += length;
        if (more) larger[n++] = '\n';
        larger[n] = 0;
        *out = larger;
    }
    if (line_error(t->lines)) return hadal_fail(t->s, "io", line_error(t->lines), NULL);
    return 0;
}

static int take_turn(conversation *t, const char *text) {
    if (!*text) return 0;
    if (text[0] == '/' && text[1] != '/') {
        obey(t, text);
        return 0;
    }
    return add_message(t->s, &t->chat, "user", text[0] == '/' ? text + 1 : text) || answer(t);
}

static int converse(conversation *t) {
    int failed = 0;
    char *text = NULL;
    while (!failed && !t->ends) {
        failed = read_turn(t, &text);
        if (!failed && !text) break;
        if (!failed) failed = take_turn(t, text);
        free(text);
        text = NULL;
    }
    free(text);
    if (!failed && !t->ends && is_edited(t->lines)) (void)report_text("\n", 1);
    return failed;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int open_conversation(conversation *t, const command_line *line, const prompt *p,
                             workspace *w, ranks *group) {
    long long context;
    if (!option_number(t->s, line, OPTION_CONTEXT, 8192, 2, 1LL << 32, &context) ||
        generate_options_of(t->s, line, p->folder, 1LL << 32, &t->options) ||
        open_chat(t->s, line, p->tokenizer, p->folder, &t->chat) ||
        prepare_model(t->s, line, w, group))
        return 1;
    t->context = context, t->first = t->chat.n;
    t->quiet = option_given(line, OPTION_QUIET), t->times = option_given(line, OPTION_TIME);
    t->out.keeps = p->tokenizer;
    t->options.library = w->files.library, t->options.packed = w->files.weights;
    t->options.context = &t->out;
    report_step("opening the model");
    t->generation = hadal_generation_open(t->s, &t->options, context);
    if (!t->generation) return 1;
    report_step("");
    report_so_far(t->s, line);
    if (t->options.n_stop == 0)
        say(t, "hadal: no end token is known, so that answers end with --max-tokens");
    t->lines = open_lines(t->s);
    return t->lines == NULL;
}

int cmd_chat(hadal_session *s, const command_line *line) {
    workspace w = {0};
    prompt p = {0};
    ranks group = {0};
    conversation t = {.s = s};
    int failed =
        find_text_model(s, line, &p) || open_conversation(&t, line, &p, &w, &group) || converse(&t);
    close_lines(t.lines);
    hadal_generation_close(t.generation);
    close_chat(&t.chat);
    free(t.out.text);
    failed = leave_ranks(&group, failed);
    remove_workspace(&w);
    return failed;
}
