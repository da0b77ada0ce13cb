/* What the printer and the parser of the text form share. */
#ifndef HIR_TEXT_H
#define HIR_TEXT_H

#include "ir/ir.h"

enum { HIR_TEXT_VERSION = 1 };

const char *hir_place_name(hir_place place);
/* Letters, digits and _ . - /: what a name may hold without quotes. */
bool hir_plain_name_char(char c);
/* Letters, digits, _ and . and no digit in front: words such as op names and option keys. */
bool hir_is_word(const char *s);

/* For printing a module op by op: the numbers of unnamed values in the whole text, by value. */
uint32_t *hir_number_values(const hir_module *m, hd_arena *a);
/* The line of each op in the printed module: the lines before the body, then one op a line, and one
 * more line for the closing brace of a kernel. 0: an erased op. */
uint32_t *hir_op_lines(const hir_module *m, hd_arena *a);
void hir_print_numbered(const hir_module *m, hir_id op, const uint32_t *numbers, hd_text *out);
void hir_print_ref(const hir_module *m, hir_ref r, const uint32_t *numbers, hd_text *out);
void hir_print_attr(hd_text *out, const hir_attr *a);      /* its value */
void hir_print_place(hd_text *out, const hir_value *v);    /* " in arena[0]", or nothing */
void hir_print_derived(hd_text *out, const hir_weight *w); /* " = @a * @b, @c", or nothing */

#endif
