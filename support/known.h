/* What a reader of the code knows and a static analyser cannot find out, such as that a list which
 * has elements has memory. It is stated for the analyser alone: no code comes of it, and no check.
 */
#ifndef HD_KNOWN_H
#define HD_KNOWN_H

#ifdef __clang_analyzer__
#define hd_known(condition) ((condition) ? (void)0 : __builtin_unreachable())
#else
#define hd_known(condition) ((void)0)
#endif

#endif
