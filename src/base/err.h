/* Errors: a failing function returns a code for its caller and writes a sentence for the user. The
 * codes are defined in the public header; this is the one function that fills a mote_err. */
#ifndef MOTE_BASE_ERR_H
#define MOTE_BASE_ERR_H

#include <mote/mote.h>

/* Fill `err` (may be NULL) with `code` and a printf-style sentence, and return `code`, so that a
 * caller can write `return mote__fail(err, MOTE_EFORMAT, "%s: tensor '%s': ...", path, name)`. A
 * sentence that does not fit is truncated. Control characters, newlines too, are replaced by '?',
 * so that text from a hostile file cannot forge output lines. */
int mote__fail(mote_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The reserved fields of a public struct (mote.h, "Structs"), which `what` names, are zeros: 0, or
 * MOTE_EUNSUPPORTED. */
int mote__check_reserved(const uint64_t *reserved, size_t n, const char *what, mote_err *err);
#define MOTE_CHECK_RESERVED(params, what, err) \
    mote__check_reserved((params)->reserved,   \
                         sizeof(params)->reserved / sizeof(params)->reserved[0], what, err)

#endif
