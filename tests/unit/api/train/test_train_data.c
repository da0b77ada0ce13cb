/* What a batch is made of: windows over several files, and documents that do not see each other. */
#include <criterion/criterion.h>

#include "api/train/data.h"

static hadal_session *s;

static void open_session(void) {
    s = hadal_open();
    cr_assert(s);
}

static void close_session(void) {
    hadal_close(s);
}

TestSuite(train_data, .init = open_session, .fini = close_session);

/* Files of the ids 0 .. 9: {0 1 2 3}, {4}, {5 6 7 8 9}. */
static const hadal_data *const *three_files(void) {
    static const int32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    static hadal_data files[3];
    static const hadal_data *at[3];
    files[0] = (hadal_data){.path = "a", .n = 4, .ids = ids};
    files[1] = (hadal_data){.path = "b", .n = 1, .ids = ids + 4};
    files[2] = (hadal_data){.path = "c", .n = 5, .ids = ids + 5};
    for (int i = 0; i < 3; i++)
        at[i] = &files[i];
    return at;
}

static train_data all(void) {
    train_data d;
    cr_assert(train_data_open(s, three_files(), 3, 10, 2, "--data", &d));
    cr_assert_eq(d.tokens, 10);
    return d;
}

Test(train_data, files_are_one_sequence) {
    const train_data d = all();
    int32_t got[10];
    for (int64_t first = 0; first < 10; first++)
        for (int64_t n = 0; first + n <= 10; n++) {
            train_data_copy(&d, first, n, got);
            for (int64_t i = 0; i < n; i++)
                cr_assert_eq(got[i], first + i);
        }
}

static void expect_batch(const train_batch *b, const int32_t *targets, const int64_t *lengths,
                         int64_t sequences) {
    int64_t n = 0;
    cr_assert_eq(b->sequences, sequences, "%lld", (long long)b->sequences);
    for (int64_t i = 0; i < sequences; i++) {
        cr_expect_eq(b->lengths[i], lengths[i]);
        n += lengths[i];
    }
    cr_assert_eq(b->n_tokens, n);
    for (int64_t i = 0; i < n; i++)
        cr_expect_eq(b->targets[i], targets[i], "target %lld is %d", (long long)i, b->targets[i]);
}

Test(train_data, windows_go_over_the_ends_of_documents) {
    const train_data d = all();
    const train_documents documents = {false, -1};
    train_batch b = train_batch_new(s->arena, 2, 4);
    train_batch_add(&b, &d, &documents, 1, 4);
    train_batch_add(&b, &d, &documents, 5, 4);
    const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8}, targets[] = {2, 3, 4, 5, 6, 7, 8, 9};
    expect_batch(&b, targets, (const int64_t[]){4, 4}, 2);
    for (int i = 0; i < 8; i++)
        cr_expect_eq(b.tokens[i], tokens[i]);
    train_batch_clear(&b);
    train_batch_add(&b, &d, &documents, 0, 4);
    expect_batch(&b, (const int32_t[]){1, 2, 3, 4}, (const int64_t[]){4}, 1);
}

Test(train_data, documents_end_with_files_and_with_a_token) {
    const train_data d = all();
    train_batch b = train_batch_new(s->arena, 1, 9);
    train_batch_add(&b, &d, &(train_documents){true, -1}, 0, 9);
    expect_batch(&b, (const int32_t[]){1, 2, 3, -1, -1, 6, 7, 8, 9}, (const int64_t[]){4, 1, 4}, 3);
    train_batch_clear(&b);
    train_batch_add(&b, &d, &(train_documents){true, 6}, 0, 9);
    expect_batch(&b, (const int32_t[]){1, 2, 3, -1, -1, 6, -1, 8, 9}, (const int64_t[]){4, 1, 2, 2},
                 4);
    /* a window that ends with a document has no empty sequence after it */
    train_batch_clear(&b);
    train_batch_add(&b, &d, &(train_documents){true, -1}, 2, 2);
    expect_batch(&b, (const int32_t[]){3, -1}, (const int64_t[]){2}, 1);
}

Test(train_data, the_digest_tells_tokens_and_files_apart) {
    static const int32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
                         others[] = {0, 1, 2, 3, 4, 5, 6, 7, 9, 8};
    const hadal_data one = {.path = "one", .n = 10, .ids = ids};
    const hadal_data other = {.path = "one", .n = 10, .ids = others};
    const hadal_data *list[2][1] = {{&one}, {&other}};
    char digests[4][TRAIN_DIGEST];
    train_data d = all();
    train_data_digest(&d, digests[0]);
    train_data_digest(&d, digests[1]);
    cr_expect_str_eq(digests[0], digests[1]);
    for (int i = 0; i < 2; i++) {
        cr_assert(train_data_open(s, list[i], 1, 10, 2, "--data", &d));
        train_data_digest(&d, digests[i + 1]);
    }
    cr_expect_str_neq(digests[0], digests[1]);
    cr_expect_str_neq(digests[1], digests[2]);
}

Test(train_data, what_cannot_be_learnt_is_rejected) {
    train_data d;
    cr_expect_not(train_data_open(s, three_files(), 3, 10, 11, "--data", &d));
    cr_expect_str_eq(s->diags.list.at[0].message, "--data has 10 tokens");
    cr_expect_not(train_data_open(s, three_files(), 3, 9, 2, "--data", &d));
    cr_expect_str_eq(s->diags.list.at[1].message, "token 4 of 'c' is 9, outside of the vocabulary");
    cr_expect_not(train_data_open(s, three_files(), 0, 9, 2, "--data", &d));
    cr_expect_str_eq(s->diags.list.at[2].message, "--data is missing");
}
