/* The steps of a tokenizer.json that work on tokens: decoders, and the template around a text. */
#include <string.h>

#include "text/read.h"

/* ---- decoders -------------------------------------------------------------------------------- */

/* Text is passed on as it arrives. After a step that joins all tokens to one text, only steps can
 * follow that do not need to see all of it. */
static bool may_follow(const field *f, const decoder *d, const char *literal) {
    const bool one_character =
        literal && (size_t)hd_utf8(literal, strlen(literal)) == strlen(literal);
    if (!d->joined || d->kind == DECODER_FUSE || (d->kind == DECODER_STRIP && d->stop == 0) ||
        (d->kind == DECODER_REPLACE && one_character))
        return true;
    field_error(f, HD_E_UNSUPPORTED, "this step is not known after one that joins all tokens")
        ->cause = "text is handed on as it is made, not as a whole";
    return false;
}

static bool read_strip(reader *r, const field *f, decoder *d) {
    const field content = field_get(f, "content"), start = field_get(f, "start"),
                stop = field_get(f, "stop");
    int64_t first, last;
    if (!read_character(r, &content, &d->content) || !field_integer(&start, 0, 1 << 20, &first) ||
        !field_integer(&stop, 0, 1 << 20, &last))
        return false;
    d->start = (size_t)first, d->stop = (size_t)last;
    return true;
}

static bool read_decoder(reader *r, const field *f, size_t kind) {
    decoder d = {.kind = (decoder_kind)kind};
    const decoder *before = r->t->decoders.n ? &r->t->decoders.at[r->t->decoders.n - 1] : NULL;
    d.joined = before && (before->joined || before->kind == DECODER_FUSE ||
                          before->kind == DECODER_BYTE_LEVEL);
    const field pattern = field_get(f, "pattern"), content = field_get(f, "content"),
                literal = field_get(&pattern, "String");
    prepend_scheme scheme = PREPEND_ALWAYS;
    bool split;
    if (kind == DECODER_STRIP && !read_strip(r, f, &d)) return false;
    if (kind == DECODER_REPLACE &&
        (!read_pattern(r, &pattern, &d.pattern) || !read_text(r, &content, &d.content)))
        return false;
    if (kind == DECODER_METASPACE && !read_metaspace(r, f, &d.content, &scheme, &split))
        return false;
    d.drop_first = scheme != PREPEND_NEVER;
    if (!may_follow(f, &d, json_string_value(literal.value))) return false;
    hd_push(r->arena, &r->t->decoders, d);
    return true;
}

bool read_decoders(reader *r, const field *f) {
    static const step_kind kinds[] = {
#define DECODER(id, type, fields) {type, fields},
#include "text/kinds.def"
    };
    return read_steps(r, f, kinds, DECODER_KINDS, "decoders", read_decoder);
}

/* ---- tokens around a text -------------------------------------------------------------------- */

static bool template_ids(reader *r, const field *token, const field *specials, id_list *out) {
    const field name = field_get(token, "id");
    const char *text;
    if (!field_known(token, "id type_id") || !field_string(&name, &text)) return false;
    const field special = field_get(specials, text), ids = field_get(&special, "ids");
    if (!field_is_object(&special) || !field_is_list(&ids)) return false;
    for (size_t i = 0; i < json_array_size(ids.value); i++) {
        const field f = field_element(&ids, i);
        int64_t id;
        if (!field_integer(&f, 0, MOST_IDS - 1, &id)) return false;
        if ((size_t)id >= r->t->n_ids || !r->t->tokens[id].at) {
            field_error(&f, HD_E_FORMAT, "there is no token %lld", (long long)id);
            return false;
        }
        hd_push(r->arena, out, (int32_t)id);
    }
    return true;
}

static id_list chained(reader *r, const id_list *a, const id_list *b) {
    id_list all = {0};
    for (size_t i = 0; i < a->n; i++)
        hd_push(r->arena, &all, a->at[i]);
    for (size_t i = 0; i < b->n; i++)
        hd_push(r->arena, &all, b->at[i]);
    return all;
}

/* Reads the tokens before and after the text; a template may contain another one. */
static bool read_template(reader *r, const field *f) {
    const field single = field_get(f, "single"), specials = field_get(f, "special_tokens");
    id_list sides[2] = {{0}, {0}};
    size_t texts = 0;
    if (!field_is_list(&single) || !field_is_object(&specials)) return false;
    for (size_t i = 0; i < json_array_size(single.value); i++) {
        const field item = field_element(&single, i), token = field_get(&item, "SpecialToken"),
                    text = field_get(&item, "Sequence"), name = field_get(&text, "id");
        const char *sequence = json_string_value(name.value);
        if (!field_known(&item, "SpecialToken Sequence")) return false;
        if (token.value) {
            if (!template_ids(r, &token, &specials, &sides[texts != 0])) return false;
        } else if (!sequence || strcmp(sequence, "A") != 0 || texts++) {
            field_error(&item, HD_E_UNSUPPORTED,
                        "the template of one text has that text, \"A\", once");
            return false;
        }
    }
    if (texts == 0) {
        field_error(&single, HD_E_FORMAT, "the text itself, \"A\", is missing");
        return false;
    }
    r->t->before = chained(r, &sides[0], &r->t->before);
    r->t->after = chained(r, &r->t->after, &sides[1]);
    return true;
}

static bool read_processor(reader *r, const field *f, size_t kind) {
    return kind != 0 ||
           read_template(r, f); /* the other kinds only compute where tokens stood in the text */
}

bool read_post_processor(reader *r, const field *f) {
    static const step_kind kinds[] = {
        {"TemplateProcessing", "single pair special_tokens"},
        {"ByteLevel", "add_prefix_space trim_offsets use_regex"},
    };
    return read_steps(r, f, kinds, sizeof kinds / sizeof *kinds, "processors", read_processor);
}
