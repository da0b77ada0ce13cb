/* The options of a compilation as passes and code generation read them: a member for each row of
 * support/compile_options.def, and what is derived from these. */
#ifndef HIR_COMPILE_OPTIONS_H
#define HIR_COMPILE_OPTIONS_H

#include "ir/ir.h"

typedef enum hir_compile_option {
#define P(id, ...) HIR_OPTION_##id,
#include "support/compile_options.def"
#undef P
    HIR_OPTIONS
} hir_compile_option;

/* The type of all states of a kind; if it is not given, each has the type in the module. */
typedef struct hir_state_dtype {
    bool given;
    hir_dtype dtype;
} hir_state_dtype;

/* The words of hir_compile_options.merge_norm, in the order of its row. */
enum { HIR_NORM_OF_DOTS, HIR_NORM_OF_ROW };
/* Those of hir_compile_options.optimizer. */
enum { HIR_OPTIMIZER_ADAMW, HIR_OPTIMIZER_MUON };
/* Those of hir_compile_options.token_sums. */
enum { HIR_SUMS_IN_ROWS, HIR_SUMS_IN_KERNELS };
/* hir_compile_options.overlap; any other number is the number of tiles of rows. */
enum { HIR_OVERLAP_AUTO, HIR_OVERLAP_OFF, HIR_MOST_TILES = 64 };

typedef struct hir_compile_options {
#define HIR_MEMBER_TEXT(missing)                const char *
#define HIR_MEMBER_DTYPE(rejection)             hir_dtype
#define HIR_MEMBER_STATE_DTYPE(rejection)       hir_state_dtype
#define HIR_MEMBER_WORD(rejection)              int
#define HIR_MEMBER_NUMBER(least, most, missing) int64_t
#define HIR_MEMBER_TILES                        int64_t
#define HIR_MEMBER_BYTES                        int64_t
#define P(id, member, name, group, type, ...)   HIR_MEMBER_##type member;
#include "support/compile_options.def"
#undef P
    /* From `memory`: it is bounded, and so many bytes of it are left for the values of a sequence of
     * `chunk` tokens; below 0 where all else is too large already. */
    bool bounded;
    int64_t arena_bytes;
    int64_t rest_bytes; /* what all else of a trainer takes, */
    int64_t free_bytes; /* and all of it where nothing is computed again */
    int64_t beside;     /* what another trainer takes of `memory` then; 0: there is none */
    bool keep_traces;   /* `trace` ops become outputs that the generated code fills */
    bool gradients;     /* the passes make the gradients of the model, too */
    /* From weights_dtype, and from the types in the checkpoint (passes/weight_types.h): storage of
     * matrices that linear and gather read; by name, where a later rule overrides an earlier one.
     */
    hir_dtype matrix_dtype;
    const struct hir_weight_rule *weight_rules;
    size_t n_weight_rules;
} hir_compile_options;

/* The options if none is given. */
extern const hir_compile_options hir_default_options;

const char *hir_compile_option_name(hir_compile_option id); /* without the dashes */
/* Sets the member of a row. NULL, or the number 0, sets the value that it has if the option is not
 * given. False, with a diagnostic, for a value that its row rejects. */
bool hir_compile_option_read_text(hir_compile_options *o, hir_compile_option id, const char *text,
                                  hd_diags *d);
bool hir_compile_option_read_number(hir_compile_options *o, hir_compile_option id, int64_t number,
                                    hd_diags *d);
/* Prints the value in the syntax of the option. */
void hir_compile_option_print(const hir_compile_options *o, hir_compile_option id, hd_text *out);

/* Prints the members of "options" of NAME_info(), each after a comma: `, "chunk": 512, "weights":
 * "q4"`. */
void hir_options_print_info(const hir_compile_options *o, hd_text *out);
/* Prints "settings" of a report: {"weights-dtype": "q4", ..}. */
void hir_options_print_settings(const hir_compile_options *o, hd_text *out);

#endif
