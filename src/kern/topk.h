/* The k best of a stream of (score, index): larger score wins, ties go to the smaller index; -0
 * equals +0; NaN and -inf are never selected. Memory: 2k + a strip, whatever the stream's length.
 * Amortised O(1) a score for any order of scores. */
#ifndef MOTE_KERN_TOPK_H
#define MOTE_KERN_TOPK_H

#include <stddef.h>
#include <stdint.h>

#include "kern/kern.h"

enum { MOTE_TOPK_STRIP = 4096 }; /* scores that one push takes best */

typedef struct mote__topk {
    const mote__kern_ops *kern;
    size_t k, n; /* held: n <= capacity */
    size_t capacity;
    float threshold; /* only scores above it can be selected */
    int crowded;     /* many of the last strip were above it */
    float *score;    /* [capacity + slack], caller's memory */
    uint32_t *index;
} mote__topk;

/* Bytes of memory (64-byte aligned) that mote__topk_init needs for k. */
size_t mote__topk_bytes(size_t k);
void mote__topk_init(mote__topk *t, const mote__kern_ops *kern, size_t k, void *memory);
void mote__topk_reset(mote__topk *t);
/* Scores of indices first, first+1, ... first+n-1. Indices must come in ascending order over all
 * pushes. */
void mote__topk_push(mote__topk *t, const float *scores, size_t n, uint32_t first);
/* What `from` holds, all of it behind what t was given so far. */
void mote__topk_merge(mote__topk *t, const mote__topk *from);
/* The selected indices in ascending order; returns how many (<= k). out has room for k. Leaves t
 * ready for reset. */
size_t mote__topk_finish(mote__topk *t, uint32_t *out);

#endif
