/* Internal to src/file/config*.c: the state while a config.json is read, and readers of single
 * fields whose messages name file and key. They return 0, MOTE_EFORMAT or MOTE_EUNSUPPORTED. */
#ifndef MOTE_FILE_CONFIG_READ_H
#define MOTE_FILE_CONFIG_READ_H

#include <stddef.h>

#include "file/config.h"
#include "base/json.h"

typedef enum kind { SIZE, I32, U64, F32, F64, FLAG } kind;

/* One numeric field. Integers may be written with a zero fraction (64.0), reals as integers. Bounds
 * are inclusive and exact in a double. `missing` is the value of an absent optional field. */
typedef struct field {
    const char *published, *flat;
    kind kind;
    size_t offset; /* in mote__config */
    double min, max;
    int optional;
    double missing;
} field;

typedef struct reader {
    mote__config *config;
    /* the whole file; the object with the fields of the text model; both borrowed */
    const json_t *root, *text;
    int flat;
    const char *what;
    mote_err *err;
} reader;

/* 1 if v is an integer, also one written as a real; *value is it as a double, else 0. */
int mote__config_whole(const json_t *v, double *value);
/* Get member `key`, an integer, borrowed; absent or null: MOTE_OK and *value NULL. */
int mote__config_integer(const reader *r, const json_t *object, const char *key, json_t **value);
/* Read field f from `object` into its place in r->config. */
int mote__config_field(const reader *r, const field *f, const json_t *object);
/* Check a string field that must be `expected` or absent. */
int mote__config_string(const reader *r, const json_t *object, const char *key,
                        const char *expected);
/* Check quantization_config, which applies to the checkpoint as a whole; how each tensor is stored
 * follows from its dtype. */
int mote__config_quantization(const reader *r);
/* Read token ids: null, one id, or a list of at most `room` different ids. */
int mote__config_ids(const reader *r, const char *key, const json_t *value, int32_t *ids,
                     size_t room, size_t *n);
/* Read one token id, -1: none. In the published form it is at the top of the file. */
int mote__config_token(const reader *r, const char *key, int32_t *id);
/* The table of an architecture's numeric fields, for the test of their ranges; static. */
const field *mote__config_fields(mote__arch arch, size_t *n);
const field *mote__config_dense_fields(size_t *n);
/* Read all RoPE fields (config_rope.c). head_dim, rope_dim, max_context and both thetas (0: absent)
 * must have been read. */
int mote__config_rope(const reader *r);
/* Read all fields of a Llama-style model except token ids (config_dense.c). */
int mote__config_dense(reader *r);

#endif
