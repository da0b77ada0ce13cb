/* States what a reader of the code knows and a static analyser cannot deduce, such as that a list
 * with elements has memory. Only the analyser sees the statement: it compiles to no code and checks
 * nothing. */
#ifndef HD_KNOWN_H
#define HD_KNOWN_H

#ifdef __clang_analyzer__
#define hd_known(condition) ((condition) ? (void)0 : __builtin_unreachable())
#else
#define hd_known(condition) ((void)0)
#endif

#endif
