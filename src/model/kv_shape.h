/* From a configuration to the shape of its cache. */
#ifndef MOTE_MODEL_KV_SHAPE_H
#define MOTE_MODEL_KV_SHAPE_H

#include "file/config.h"
#include "kv/shape.h"

void mote__kv_shape_of(mote__kv_shape *shape, const mote__config *config);

#endif
