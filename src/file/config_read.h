/* Inside src/file/config*.c: a config.json being read, and readers of single fields that name file
 * and key. */
#ifndef MOTE_FILE_CONFIG_READ_H
#define MOTE_FILE_CONFIG_READ_H

#include <stddef.h>

#include "file/config.h"
#include "base/json.h"

typedef enum kind { SIZE, I32, U64, F32, F64, FLAG } kind;

/* One number. Integers may be written with a fraction of zeros (64.0), reals as integers. All
 * bounds are inclusive and exact in a double. `missing` stands in for an absent optional field. */
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
    /* the whole file; the object that holds the text model's fields */
    const json_t *root, *text;
    int flat;
    const char *what;
    mote_err *err;
} reader;

/* 1 for an integer, however it is written; *value: as a double, 0 without one. */
int mote__config_whole(const json_t *v, double *value);
/* Member `key`, an integer; absent or null: MOTE_OK and *value NULL. */
int mote__config_integer(const reader *r, const json_t *object, const char *key, json_t **value);
int mote__config_field(const reader *r, const field *f, const json_t *object);
/* A string field with the one value this version runs; absent means that value. */
int mote__config_string(const reader *r, const json_t *object, const char *key,
                        const char *expected);
/* What is true of a checkpoint's weights as a whole; the dtype in the file decides tensor by
 * tensor. */
int mote__config_quantization(const reader *r);
/* Token ids: null, one, or a list without doubles of at most `room`. */
int mote__config_ids(const reader *r, const char *key, const json_t *value, int32_t *ids,
                     size_t room, size_t *n);
/* One id, -1 where there is none; it stands at the top in the published form. */
int mote__config_token(const reader *r, const char *key, int32_t *id);
/* The table of an architecture's single fields, for the test that walks their ranges. */
const field *mote__config_fields(mote__arch arch, size_t *n);
const field *mote__config_dense_fields(size_t *n);
/* config_rope.c: everything about RoPE; head_dim, rope_dim, max_context and the two thetas (0:
 * absent) are read already. */
int mote__config_rope(const reader *r);
/* config_dense.c: all fields of a Llama-style model but the token ids. */
int mote__config_dense(reader *r);

#endif
