/* Operands and attributes of an op, parsed from its row of ops.def. */
#ifndef HIR_SIGNATURE_H
#define HIR_SIGNATURE_H

#include "ir/ir.h"

enum { HIR_MAX_OPERANDS = 9, HIR_MAX_OP_ATTRS = 16 };

typedef struct hir_operand_spec {
    char name[16];
    bool optional;
    bool rest;  /* one or more operands; only the last can be this */
    bool state; /* a state ($) */
} hir_operand_spec;

typedef struct hir_attr_spec {
    hir_attr_id id;
    bool optional;
} hir_attr_spec;

typedef struct hir_signature {
    uint32_t n_operands, n_attrs;
    hir_operand_spec operands[HIR_MAX_OPERANDS];
    hir_attr_spec attrs[HIR_MAX_OP_ATTRS];
} hir_signature;

/* Parsed from the table's strings on every call: no state, thread-safe. */
hir_signature hir_signature_of(hir_opcode code);
const hir_attr_spec *hir_signature_attr(const hir_signature *s, hir_attr_id id); /* or NULL */
/* "x", or "xs[3]" for an operand that stands for the rest. */
const char *hir_operand_name(const hir_signature *s, uint32_t i, hd_arena *a);

bool hir_attr_by_name(const char *name, hir_attr_id *out);
/* The copy has its own string and list, too. */
hir_attr hir_copy_attr(hd_arena *a, hir_attr attr);
/* Memory for the lists of an op, by its n_attrs, n_args and n_results. They lie next to each other, as
 * a walk over a module reads them together. */
void hir_new_lists(hd_arena *a, hir_op *op);
/* How many results an op of this kind has: 0 or 1. Kernels have as many as they yield. */
uint32_t hir_result_count(hir_opcode code);

#endif
