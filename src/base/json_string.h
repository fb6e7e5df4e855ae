/* JSON strings from text that may not be valid UTF-8: from a user, a file or a model. jansson
 * returns NULL for invalid UTF-8, and its builders then fail as if out of memory or silently omit
 * the member. Every text that is not a constant must therefore be converted here. */
#ifndef MOTE_BASE_JSON_STRING_H
#define MOTE_BASE_JSON_STRING_H

#include <jansson.h>
#include <stddef.h>

/* bytes[0..n), which may hold zero bytes, as a new reference. Invalid UTF-8 becomes U+FFFD
 * (base/utf8.h). NULL: out of memory. */
json_t *mote__json_bytes(const char *bytes, size_t n);
/* The same for a 0-terminated text; a NULL text gives JSON null. */
json_t *mote__json_string(const char *text);

#endif
