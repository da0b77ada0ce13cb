/* What --emit=python copies. */
#ifndef HCG_PYTHON_H
#define HCG_PYTHON_H

/* python/model.py, by cmake/python_sources.cmake. */
typedef struct hcg_python_source {
    const char *name, *text;
} hcg_python_source;
extern const hcg_python_source hcg_python_sources[];

#endif
