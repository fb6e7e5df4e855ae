/* JSON values as Python's json.dumps(value, ensure_ascii=False) writes them: ", " and ": ", members
 * in their order, characters unescaped beyond need, integers with all their digits, reals by repr
 * (1.0, 1e-05, 1e+16). */
#ifndef MOTE_BASE_JSON_WRITE_H
#define MOTE_BASE_JSON_WRITE_H

#include "base/mem.h"
#include "base/json.h"

/* Append `value`, which mote__json_parse_exact gave with `kept`. 0 or MOTE_ENOMEM. */
int mote__json_write(mote__buf *out, const json_t *value, const mote__buf *kept);
/* Append a key of such a value as its plain text. */
int mote__json_write_key(mote__buf *out, const char *key);
/* Append a double: its repr. At least the shortest digits that read back the same. */
int mote__json_write_real(mote__buf *out, double v);
/* Append n bytes of UTF-8 as a string in quotes. */
int mote__json_write_string(mote__buf *out, const char *s, size_t n);

#endif
