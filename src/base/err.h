/* Errors: how a failing function tells its caller a code and a person a sentence.
 * Codes and sentences are defined in the public header; this adds the one function that fills them
 * in. */
#ifndef MOTE_BASE_ERR_H
#define MOTE_BASE_ERR_H

#include <mote/mote.h>

/* Fill `err` (may be NULL) with `code` and a printf-style sentence, and return `code`, so that a
 * caller can write `return mote__fail(err, MOTE_EFORMAT, "%s: tensor '%s': ...", path, name)`. One
 * line: control characters in the result are replaced by '?', so that hostile file contents cannot
 * forge output lines. */
int mote__fail(mote_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
