/* Reading JSON with jansson: strict UTF-8, duplicate keys refused, errors that name file, line and
 * column; typed access to members with errors that name file and key. */
#ifndef MOTE_BASE_JSON_H
#define MOTE_BASE_JSON_H

#include <jansson.h>

#include "base/err.h"
#include "base/json_text.h"

/* Parse a whole file. *root is owned by the caller (json_decref), NULL on failure. MOTE_EIO: cannot
 * be read; MOTE_EFORMAT: longer than max_bytes or not valid JSON; MOTE_ENOMEM. */
int mote__json_load(json_t **root, const char *path, size_t max_bytes, mote_err *err);
/* The same for text[0..n); messages begin with `what` instead of a path. base/json_text.h says what
 * becomes of numbers that jansson cannot hold. */
int mote__json_parse(json_t **root, const char *text, size_t n, const char *what, mote_err *err);

/* Parse JSON that will be written again by base/json_write.h. Differences: the root may be any
 * value, not only an array or object; strings may hold U+0000; of equal keys the last value counts
 * and stays at the place of the first (as in Python). The digits of numbers that jansson cannot
 * hold are appended to *kept, which must live as long as *root and may be shared by several
 * texts. */
int mote__json_parse_exact(json_t **root, mote__buf *kept, const char *text, size_t n,
                           const char *what, mote_err *err);

/* "an object", "a string", ...; "nothing" for NULL */
const char *mote__json_kind(const json_t *value);

/* Set *value to member `key` of `object`, borrowed. A member that is missing or null gives MOTE_OK
 * and *value == NULL. A member of another type gives MOTE_EFORMAT, "what: 'key' is a string,
 * expected an integer". type JSON_TRUE accepts both booleans, JSON_REAL accepts integers too.
 * `what` names the object in messages: a path, or a path and an element ("tokenizer.json:
 * added_tokens[3]"). */
int mote__json_get(json_t **value, const json_t *object, const char *key, json_type type,
                   const char *what, mote_err *err);
/* The same, but a member that is missing or null is MOTE_EFORMAT too. */
int mote__json_need(json_t **value, const json_t *object, const char *key, json_type type,
                    const char *what, mote_err *err);

#endif
