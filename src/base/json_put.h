/* Members of a JSON object, of values that may not have come about. */
#ifndef MOTE_BASE_JSON_PUT_H
#define MOTE_BASE_JSON_PUT_H

#include <stdint.h>

#include <jansson.h>

/* Takes the reference. A NULL value (no memory, text that is not UTF-8) becomes null. */
static inline void mote__json_put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value ? value : json_null());
}

/* v up to INT64_MAX, the largest integer of jansson. */
static inline void mote__json_put_u64(json_t *object, const char *key, uint64_t v)
{
    mote__json_put(object, key, json_integer((json_int_t)v));
}

#endif
