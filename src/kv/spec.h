/* Which format each part of the cache is stored in, and the text that says so.
 *
 * Grammar, words separated by commas, no blanks:   word = FORMAT | PART=FORMAT | PART.LAYER=FORMAT
 *   PART    main, index or window; FORMAT alone means main=FORMAT
 *   LAYER   a KV source of the model; main and index only. It wins over the plain part, whatever the order.
 * What is not named keeps its default: main=fp4,index=mxfp4,window=fp8. Naming the same thing twice is an error. */
#ifndef MOTE_KV_SPEC_H
#define MOTE_KV_SPEC_H

#include "file/config.h"
#include "num/kvfmt.h"

/* main[i], index[i]: of config->kv_sources[i] */
typedef struct mote__kv_spec { mote__kvfmt_id main[MOTE_MAX_SOURCES], index[MOTE_MAX_SOURCES], window; } mote__kv_spec;

/* text: NULL or "" = the default. MOTE_EINVAL names the bad word and what is known; MOTE_EUNSUPPORTED a format whose groups do
 * not divide this model's vectors. */
int mote__kv_spec_parse(mote__kv_spec *spec, const char *text, const mote__config *config, mote_err *err);

/* The shortest text that parses to `spec`, all three parts named ("main=fp4,main.8=fp8,index=mxfp4,window=fp8"); malloc'd, NULL
 * when out of memory. */
char *mote__kv_spec_text(const mote__kv_spec *spec, const mote__config *config);

/* The formats a part may take, and their names for messages and help. */
typedef enum mote__kv_part { MOTE_KV_MAIN, MOTE_KV_INDEX, MOTE_KV_WINDOW, MOTE_KV_PARTS } mote__kv_part;
int mote__kv_part_takes(mote__kv_part part, mote__kvfmt_id format);

/* Exact bytes of global KV per token: parts[0..3] = main codes, main scales, index codes, index scales; returns the sum. (Exact:
 * ratios are powers of two.) */
double mote__kv_spec_bytes_per_token(const mote__kv_spec *spec, const mote__config *config, double parts[4]);
/* Bytes of window KV of one sequence, all layers, codes and scales. */
size_t mote__kv_spec_window_bytes(const mote__kv_spec *spec, const mote__config *config);

#endif
