/* Loading JSON with jansson: strict UTF-8, duplicate keys refused, errors that name file, line and
 * column; typed access to members that names file and key. */
#ifndef MOTE_BASE_JSON_H
#define MOTE_BASE_JSON_H

#include <jansson.h>

#include "base/err.h"
#include "base/json_text.h"

/* Parse a whole file of at most max_bytes. Release with json_decref. */
int mote__json_load(json_t **root, const char *path, size_t max_bytes, mote_err *err);
/* Parse text; `what` stands in for the path in messages. Numbers that jansson cannot hold:
 * base/json_text.h. */
int mote__json_parse(json_t **root, const char *text, size_t n, const char *what, mote_err *err);

/* JSON that will be written again: any value, also no array or object; strings may hold U+0000; of
 * equal keys the last one counts, at the first one's place (as in Python). Numbers that jansson
 * cannot hold stand in *kept, which may serve several texts: write the value with
 * base/json_write.h. */
int mote__json_parse_exact(json_t **root, mote__buf *kept, const char *text, size_t n,
                           const char *what, mote_err *err);

/* "an object", "a string", ...; "nothing" for NULL */
const char *mote__json_kind(const json_t *value);

/* Member `key` of `object`, borrowed. A missing member and null give MOTE_OK and *value == NULL;
 * another type than `type` is MOTE_EFORMAT "what: 'key' is a string, expected an integer".
 * JSON_TRUE asks for either boolean, JSON_REAL takes integers too. `what` names the place: a path,
 * or a path and an element ("tokenizer.json: added_tokens[3]"). */
int mote__json_get(json_t **value, const json_t *object, const char *key, json_type type,
                   const char *what, mote_err *err);
/* The same, where a missing member and null are errors. */
int mote__json_need(json_t **value, const json_t *object, const char *key, json_type type,
                    const char *what, mote_err *err);

#endif
