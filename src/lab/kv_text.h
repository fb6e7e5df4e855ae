/* --kv texts taken apart by part of the cache and put together again, with some parts unrounded.
 * The parts of a model are those that its default formats name: main, index and window; or key and
 * value. */
#ifndef MOTE_LAB_KV_TEXT_H
#define MOTE_LAB_KV_TEXT_H

#include <stddef.h>

#include <mote/mote.h>

enum { LAB_PARTS = 3, LAB_SPEC_BYTES = 2048 };

/* The words of a spec by part: "main=fp4,main.8=fp8"; a part that is not named has its default. */
typedef struct lab_spec {
    size_t n_parts;
    char name[LAB_PARTS][16], words[LAB_PARTS][LAB_SPEC_BYTES / LAB_PARTS];
} lab_spec;

/* defaults: the model's, all parts named ("main=fp4,index=mxfp4,window=fp8"); kv NULL: nothing
 * else. A word without '=' is a main format, or, where there is no main, the format of every part.
 * 0, or -1 for a text that is too long or names no known part (formats are the engine's affair). */
int lab_spec_split(lab_spec *spec, const char *kv, const char *defaults);
/* All parts; those whose bit is set in `exact` as f32. */
void lab_spec_join(char out[LAB_SPEC_BYTES], const lab_spec *spec, unsigned exact);

/* Of a model: the defaults, and formats that round nothing. */
const char *lab_default_kv(mote_model *model);
const char *lab_exact_kv(mote_model *model);

#endif
