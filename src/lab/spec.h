/* --kv texts taken apart by part of the cache and put together again, with some parts unrounded or other formats for single sources. */
#ifndef MOTE_LAB_SPEC_H
#define MOTE_LAB_SPEC_H

#include <stddef.h>

enum { LAB_PARTS = 3, LAB_SPEC_BYTES = 2048 };
extern const char *const lab_parts[LAB_PARTS];         /* "main", "index", "window" */

/* The words of a spec by part: "main=fp4,main.8=fp8"; a part that is not named has its default. */
typedef struct lab_spec { char words[LAB_PARTS][LAB_SPEC_BYTES / LAB_PARTS]; } lab_spec;

/* 0, or -1 for a text that is too long or names no known part (whose formats the engine checks). kv NULL: the default. */
int lab_spec_split(lab_spec *spec, const char *kv);
/* All parts; those whose bit is set in `exact` as f32. */
void lab_spec_join(char out[LAB_SPEC_BYTES], const lab_spec *spec, unsigned exact);

#endif
