/* A buffer takes every score that can still win; when it is full, a radix select over the scores' bits finds the k-th
 * best, and the rest is dropped in place. A select costs a few passes over the buffer and frees at least k places, so a
 * score costs O(1) whatever the order and whatever the values. Entries stay in ascending index order throughout, which
 * settles ties (the first of equal scores stay) and gives the result sorted. */
#include "kern/topk.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/formats.h"

enum { TILE = 1024 };            /* places beyond 2k, so that a small k does not select after every few scores */

static size_t capacity_of(size_t k) { return mote__add(mote__mul(k, 2), TILE); }

size_t mote__topk_bytes(size_t k)
{
    size_t bytes = mote__mul(capacity_of(k), sizeof(float) + sizeof(uint32_t));
    return bytes > (size_t)-64 ? (size_t)-1 : (bytes + 63) / 64 * 64;
}

void mote__topk_init(mote__topk *t, size_t k, void *memory)
{
    *t = (mote__topk){ .k = k, .capacity = capacity_of(k), .score = memory };
    t->index = (uint32_t *)(void *)(t->score + t->capacity);
    mote__topk_reset(t);
}

void mote__topk_reset(mote__topk *t)
{
    t->n = 0;
    t->threshold = t->k ? -INFINITY : INFINITY;
}

/* unsigned order of the result = order of the scores; both zeros give the same key. No NaN comes here. */
static uint32_t key_of(float score)
{
    uint32_t u = mote__f32_bits(score + 0.f);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* keep the k best of n > k */
static void select_best(mote__topk *t)
{
    uint32_t prefix = 0, mask = 0;
    size_t want = t->k;                                      /* how many of those that match the prefix must stay */
    for (int shift = 24; shift >= 0; shift -= 8) {
        size_t count[256] = { 0 };
        for (size_t i = 0; i < t->n; i++) {
            uint32_t key = key_of(t->score[i]);
            count[key >> shift & 255] += (key & mask) == prefix;
        }
        uint32_t digit = 255;
        while (count[digit] < want)
            want -= count[digit--];
        prefix |= digit << shift;
        mask |= 255u << shift;
    }
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++) {
        uint32_t key = key_of(t->score[i]);
        int stays = key > prefix || (key == prefix && want > 0);
        want -= key == prefix && stays;
        float score = t->score[i];
        uint32_t index = t->index[i];
        if (stays) {
            t->score[kept] = score;
            t->index[kept++] = index;
        }
    }
    t->n = kept;
    t->threshold = mote__bits_f32(prefix & 0x80000000u ? prefix ^ 0x80000000u : ~prefix);
}

void mote__topk_push(mote__topk *t, const float *scores, size_t n, uint32_t first)
{
    if (t->k == 0)
        return;
    for (size_t at = 0; at < n;) {
        if (t->n == t->capacity)
            select_best(t);
        size_t chunk = n - at < t->capacity - t->n ? n - at : t->capacity - t->n, held = t->n;
        float threshold = t->threshold;
        /* A later equal score has a larger index and loses: hence >. NaN and -inf fail it from the start. Written
         * without a branch: whether a score passes is hard to predict. */
        for (size_t i = at; i < at + chunk; i++) {
            t->score[held] = scores[i];
            t->index[held] = first + (uint32_t)i;
            held += scores[i] > threshold;
        }
        t->n = held;
        at += chunk;
    }
}

size_t mote__topk_finish(mote__topk *t, uint32_t *out)
{
    if (t->n > t->k)
        select_best(t);
    if (t->n)
        memcpy(out, t->index, t->n * sizeof *out);
    return t->n;
}
