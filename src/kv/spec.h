/* Which format each part of the cache is stored in, and the text that says so.
 *
 * Grammar, words separated by commas, no blanks:   word = FORMAT | PART=FORMAT | PART.LAYER=FORMAT
 *   PART    V4.1: main, index or window; FORMAT alone means main=FORMAT.   Dense models: key or
 * value; FORMAT alone means both LAYER   a KV source of the model; not for window. It wins over the
 * plain part, whatever the order. What is not named keeps its default:
 * main=fp4,index=mxfp4,window=fp8, what V4.1 was trained for, and key=bf16,value=bf16. Naming the
 * same thing twice is an error. */
#ifndef MOTE_KV_SPEC_H
#define MOTE_KV_SPEC_H

#include "base/err.h"
#include "kv/shape.h"
#include "num/kvfmt.h"

/* main[i], index[i]: the two parts of source i; in a dense model its keys and its
 * values (and no window) */
typedef struct mote__kv_spec {
    mote__kvfmt_id main[MOTE_KV_MAX_SOURCES], index[MOTE_KV_MAX_SOURCES], window;
} mote__kv_spec;

/* text: NULL or "" = the default. MOTE_EINVAL names the bad word and what is known;
 * MOTE_EUNSUPPORTED a format whose groups do not divide this model's vectors. */
int mote__kv_spec_parse(mote__kv_spec *spec, const char *text, const mote__kv_shape *shape,
                        mote_err *err);

/* The shortest text that parses to `spec`, all parts named
 * ("main=fp4,main.8=fp8,index=mxfp4,window=fp8"); malloc'd, NULL when out of memory. */
char *mote__kv_spec_text(const mote__kv_spec *spec, const mote__kv_shape *shape);

typedef enum mote__kv_part {
    MOTE_KV_MAIN,
    MOTE_KV_INDEX,
    MOTE_KV_WINDOW,
    MOTE_KV_PARTS,
    MOTE_KV_KEY = MOTE_KV_MAIN,
    MOTE_KV_VALUE = MOTE_KV_INDEX
} mote__kv_part;
/* The whole default as a text. */
const char *mote__kv_default(int dense);

#endif
