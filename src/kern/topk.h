/* The k best of a stream of (score, index). The larger score is better, of equal scores the smaller
 * index; -0 equals +0; NaN and -inf are never selected. Memory for 2k scores and a strip, for a
 * stream of any length; amortised O(1) per score for any order of scores. */
#ifndef MOTE_KERN_TOPK_H
#define MOTE_KERN_TOPK_H

#include <stddef.h>
#include <stdint.h>

#include "kern/kern.h"

enum { MOTE_TOPK_STRIP = 4096 }; /* scores processed at once; best size of a push */

typedef struct mote__topk {
    const mote__kern_ops *kern;
    size_t k, n; /* n: scores held, n <= capacity */
    size_t capacity;
    float threshold; /* only scores above it can be selected */
    int crowded;     /* many scores of the last strip were above the threshold */
    float *score;    /* [capacity + MOTE_PACK_SLACK], in the caller's memory; so is index */
    uint32_t *index;
} mote__topk;

/* Bytes of 64-byte aligned memory that mote__topk_init needs for k; SIZE_MAX if that overflows. */
size_t mote__topk_bytes(size_t k);
/* `memory` is borrowed for the life of *t. */
void mote__topk_init(mote__topk *t, const mote__kern_ops *kern, size_t k, void *memory);
/* Begin a new stream. */
void mote__topk_reset(mote__topk *t);
/* Add the scores of indices first..first+n-1. Indices must ascend over all pushes. */
void mote__topk_push(mote__topk *t, const float *scores, size_t n, uint32_t first);
/* Add what `from` holds; all its indices must be above those pushed to t. Same k. */
void mote__topk_merge(mote__topk *t, const mote__topk *from);
/* Write the selected indices to out (room for k) in ascending order; returns their number. Call
 * mote__topk_reset before the next push. */
size_t mote__topk_finish(mote__topk *t, uint32_t *out);

#endif
