/* Words and signs of other languages: what somebody who comes from them writes by habit, and what
 * is written here in their place. The lexer and the parser ask once something is wrong already. */
#include <stddef.h>
#include <string.h>

#include "frontend/language/lexer.h"

#define VARIABLES "variables are set without a word: x = value"
#define LOOPS     "loops run over lists: for i in 0..n { ... }"
#define TO_ENDS                                                                                    \
    "a loop runs to its end; what it runs over may be chosen before: [x for x in xs if condition]"
#define CHOICES   "a choice of values is written: if condition { a } else { b }"
#define FUNCTIONS "functions are written: fn name(a, b) { ... }"
#define FILES     "other files are made known at the top of a file: use \"path\""
#define CHANGES   "a variable is changed in full words: x = x + 1"
#define BOOLEANS  "boolean operators are the words 'and', 'or' and 'not'"
#define COMMENTS  "a comment runs from '#' to the end of the line"

static const struct foreign {
    const char *text, *hint;
} words[] = {
    {"let", VARIABLES},
    {"var", VARIABLES},
    {"const", VARIABLES},
    {"while", LOOPS},
    {"break", TO_ENDS},
    {"continue", TO_ENDS},
    {"elif", "write 'else if'"},
    {"if", CHOICES}, /* behind a value, the only place where it is not expected */
    {"def", FUNCTIONS},
    {"func", FUNCTIONS},
    {"function", FUNCTIONS},
    {"class", "objects are written: object name(a, b) { ... }"},
    {"import", FILES},
    {"include", FILES},
};

/* A sign comes before those that it begins with. */
static const struct foreign signs[] = {
    {"++", CHANGES},
    {"--", CHANGES},
    {"+=", CHANGES},
    {"-=", CHANGES},
    {"*=", CHANGES},
    {"/=", CHANGES},
    {"//", COMMENTS},
    {"/*", COMMENTS},
    {"&", BOOLEANS},
    {"|", BOOLEANS},
    {"!", BOOLEANS},
    {"?", CHOICES},
    {"'", "strings are written in double quotes"},
    {"**", "powers are products: x * x"},
    {"@", "matrices are multiplied by linear(x, w)"},
};

const char *hfe_foreign_word(const char *word) {
    for (size_t i = 0; word != NULL && i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i].text) == 0) {
            return words[i].hint;
        }
    }
    return NULL;
}

const char *hfe_foreign_sign(const char *at, const char *end) {
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        const size_t n = strlen(signs[i].text);
        if ((size_t)(end - at) >= n && memcmp(at, signs[i].text, n) == 0) {
            return signs[i].hint;
        }
    }
    return NULL;
}
