/* The sparse indexer of a selecting layer: scores of all visible entries of its source (or of those
 * inside the candidate blocks), in strips with a running top-k. Nothing grows with the context but
 * block maxima of the candidate source. */
#ifndef MOTE_MODEL_CPU_SELECT_H
#define MOTE_MODEL_CPU_SELECT_H

#include <stddef.h>

#include "file/config.h"

size_t mote__select_thread_bytes(const mote__config *config);

#endif
