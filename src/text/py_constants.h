/* Reads string constants from a Python source file without running it: NAME = "..." and NAME:
 * annotation = "..." at the top level. The value is one or more adjacent string literals, with or
 * without parentheses. All other statements are skipped, but they must be valid as Python tokens
 * (strings, comments, brackets, lines). Of several assignments the last one counts. */
#ifndef MOTE_TEXT_PY_CONSTANTS_H
#define MOTE_TEXT_PY_CONSTANTS_H

#include "base/mem.h"

typedef struct mote__py_constant {
    const char *name; /* name to look for; borrowed */
    int found;
    mote__buf
        value; /* owned by the caller; UTF-8, may contain NUL; initialised by mote__py_constants */
} mote__py_constant;

/* Find c[0..n_c) in text[0..n), UTF-8 with any line ends. 0, MOTE_ENOMEM, or MOTE_EFORMAT naming
 * `what`, the line and, if one is the cause, the constant: an f- or b-string, \N{...}, a computed
 * value, or a name assigned in another way. Call mote__py_constants_deinit in all cases. */
int mote__py_constants(mote__py_constant *c, size_t n_c, const char *text, size_t n,
                       const char *what, mote_err *err);
void mote__py_constants_deinit(mote__py_constant *c, size_t n_c);

#endif
