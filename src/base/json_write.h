/* Writes JSON exactly as Python's json.dumps(value, ensure_ascii=False) does: separators ", " and
 * ": ", members in their order, only the necessary escapes, integers with all their digits, reals
 * by repr (1.0, 1e-05, 1e+16). Chat templates need these bytes. All functions append to `out` and
 * return 0 or MOTE_ENOMEM. */
#ifndef MOTE_BASE_JSON_WRITE_H
#define MOTE_BASE_JSON_WRITE_H

#include "base/mem.h"
#include "base/json.h"

/* A value from mote__json_parse_exact, with the `kept` that was passed to it. */
int mote__json_write(mote__buf *out, const json_t *value, const mote__buf *kept);
/* A key of such a value as plain text: not quoted, U+0000 restored. */
int mote__json_write_key(mote__buf *out, const char *key);
/* A double by Python's repr: the fewest digits that read back as the same value. v must be
 * finite. */
int mote__json_write_real(mote__buf *out, double v);
/* s[0..n), valid UTF-8, as a quoted string. */
int mote__json_write_string(mote__buf *out, const char *s, size_t n);

#endif
