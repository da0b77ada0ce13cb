/* LLVM's functions. Its shared object is not loaded with the compiler but when code is first
 * generated: loading it takes longer than most commands run, and reading, checking, evaluating and
 * packing models do not need it (docs/decisions/making-code.md).
 *
 * To be included instead of the headers of llvm-c: from here on the names of the functions in
 * llvm.def stand for pointers, which hcg_llvm_open fills in. */
#ifndef HCG_LLVM_H
#define HCG_LLVM_H

#include <llvm-c/Analysis.h>
#include <llvm-c/BitWriter.h>
#include <llvm-c/Core.h>
#include <llvm-c/DebugInfo.h>
#include <llvm-c/Error.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdbool.h>

#include "support/diag.h"

typedef struct hcg_llvm_functions {
#define F(name) __typeof__(LLVM##name) *name;
#include "codegen/emit/llvm.def"
#undef F
} hcg_llvm_functions;

extern hcg_llvm_functions hcg_llvm_calls;

/* Loads LLVM unless it is loaded, and initialises its targets; false and an error where LLVM is
 * not found. To be called before anything else of LLVM. */
bool hcg_llvm_open(hd_diags *d);

#include "llvm_names.h" /* made of llvm.def by CMakeLists.txt */

#endif
