/* Loading JSON files with jansson: strict, duplicate keys refused, errors that name file, line and column; typed field access
 * that names file and key. */
#ifndef MOTE_FILE_JSON_H
#define MOTE_FILE_JSON_H

#include <jansson.h>

#include "base/err.h"

/* Parse a whole file of at most max_bytes. Release with json_decref. */
int mote__json_load(json_t **root, const char *path, size_t max_bytes, mote_err *err);
/* Parse text; `what` stands in for the path in messages. */
int mote__json_parse(json_t **root, const char *text, size_t n, const char *what, mote_err *err);

#endif
