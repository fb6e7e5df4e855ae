/* String constants of a Python source file, read without running it: NAME = "..." and NAME:
 * annotation = "..." at the top level, the value made of string literals next to each other,
 * perhaps in parentheses. Everything else in the file is passed over, but it must be cut into
 * Python's tokens without doubt (strings, comments, brackets, lines). Of several assignments the
 * last counts. */
#ifndef MOTE_TEXT_PY_CONSTANTS_H
#define MOTE_TEXT_PY_CONSTANTS_H

#include "base/mem.h"

typedef struct mote__py_constant {
    const char *name; /* wanted */
    int found;
    mote__buf value; /* owned: UTF-8, may hold NUL; initialised here */
} mote__py_constant;

/* text: UTF-8, any line ends. MOTE_EFORMAT names `what`, the line, and the constant where it is at
 * fault: an f- or b-string, \N{...}, a value that is computed, a name that is assigned in another
 * way. The caller releases the values in either case. */
int mote__py_constants(mote__py_constant *c, size_t n_c, const char *text, size_t n,
                       const char *what, mote_err *err);
void mote__py_constants_deinit(mote__py_constant *c, size_t n_c);

#endif
