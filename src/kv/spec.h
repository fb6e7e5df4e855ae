#ifndef MOTE_KV_SPEC_H
#define MOTE_KV_SPEC_H
#include "file/config.h"
#include "num/kvfmt.h"
typedef struct mote__kv_spec { mote__kvfmt_id main[MOTE_MAX_SOURCES], index[MOTE_MAX_SOURCES], window; } mote__kv_spec;
int mote__kv_spec_parse(mote__kv_spec *spec, const char *text, const mote__config *config, mote_err *err);
#endif
