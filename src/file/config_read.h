/* Inside src/file/config*.c: a config.json being read, and readers of single fields that name file and key. */
#ifndef MOTE_FILE_CONFIG_READ_H
#define MOTE_FILE_CONFIG_READ_H

#include <stddef.h>

#include "file/config.h"
#include "file/json.h"

typedef enum kind { SIZE, I32, U64, F32, F64, FLAG } kind;

/* One number. Integers must be JSON integers; reals may be written as integers. All bounds are inclusive and exact in a
 * double. `missing` stands in for an absent optional field. */
typedef struct field {
    const char *published, *flat;
    kind kind;
    size_t offset;             /* in mote__config */
    double min, max;
    int optional;
    double missing;
} field;

typedef struct reader {
    mote__config *config;
    const json_t *root, *text;     /* the whole file; the object that holds the text model's fields */
    int flat;
    const char *what;
    mote_err *err;
} reader;

int mote__config_field(const reader *r, const field *f, const json_t *object);
/* A string field with the one value this version runs; absent means that value. */
int mote__config_string(const reader *r, const json_t *object, const char *key, const char *expected);
/* What is true of a checkpoint's weights as a whole; the dtype in the file decides tensor by tensor. */
int mote__config_quantization(const reader *r);
/* Token ids stand at the top in the published form. A list gives its first element. */
int mote__config_token(const reader *r, const char *key, int32_t *id);
/* config_dense.c: all fields of a Llama-style model but the token ids. */
int mote__config_dense(reader *r);

#endif
