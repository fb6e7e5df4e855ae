/* Text of a person, a file or a model as a JSON string. The JSON library refuses what is not UTF-8
 * by giving NULL, which its builders pass on as if memory had run out, or drop without a word:
 * every text that is not a constant goes through here. */
#ifndef MOTE_BASE_JSON_STRING_H
#define MOTE_BASE_JSON_STRING_H

#include <jansson.h>
#include <stddef.h>

/* n bytes, zero bytes among them; what is not UTF-8 becomes U+FFFD, as the tokenizer has it. NULL:
 * out of memory. */
json_t *mote__json_bytes(const char *bytes, size_t n);
/* The same of a 0-terminated text; NULL gives null. */
json_t *mote__json_string(const char *text);

#endif
