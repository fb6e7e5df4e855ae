/* Every score above a threshold goes into a buffer. When it holds 2k scores, the threshold is
 * raised to about the k-th best and all others are removed in place. Entries stay in ascending
 * order of index, so that the first of equal scores are kept and the result is sorted.
 *
 * The k-th best is found by counting the scores above trial thresholds, which alternate between
 * linear interpolation of the last two counts and bisection in the order of the scores' bits. That
 * is at most 64 counts over the buffer for any scores, and a count is cheap. Before the end of the
 * stream up to 5k/4 scores may stay, for which one or two counts are enough.
 *
 * If many scores of a strip are above the threshold (in the first strip, and in all strips of an
 * ascending stream), the threshold is raised from the strip alone before its scores are taken. So a
 * score costs O(1), in an ascending stream a few counts. Tried and rejected: radix select (four
 * scalar passes over the buffer each time) cost 8 times as much on random scores and 40 times as
 * much on ascending ones. */
#include "kern/topk.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/formats.h"

static size_t capacity_of(size_t k) { return mote__add(mote__mul(k, 2), MOTE_TOPK_STRIP); }

size_t mote__topk_bytes(size_t k)
{
    size_t bytes = mote__mul(mote__add(capacity_of(k), MOTE_PACK_SLACK),
                             sizeof(float) + sizeof(uint32_t));
    return bytes > (size_t)-64 ? (size_t)-1 : (bytes + 63) / 64 * 64;
}

void mote__topk_init(mote__topk *t, const mote__kern_ops *kern, size_t k, void *memory)
{
    *t = (mote__topk){ .kern = kern, .k = k, .capacity = capacity_of(k), .score = memory };
    t->index = (uint32_t *)(void *)(t->score + t->capacity + MOTE_PACK_SLACK);
    mote__topk_reset(t);
}

void mote__topk_reset(mote__topk *t)
{
    t->n = 0;
    t->threshold = t->k ? -INFINITY : INFINITY;
    t->crowded = 1;
}

/* An integer with the order of the scores, except that -0 is directly below +0; not for NaN. */
static int32_t key_of(float score)
{
    uint32_t u = mote__f32_bits(score);
    return (int32_t)(u & 0x80000000u ? u ^ 0x7fffffffu : u);
}

static float score_of(int32_t key)
{
    return mote__bits_f32((uint32_t)key & 0x80000000u ? (uint32_t)key ^ 0x7fffffffu
                                                      : (uint32_t)key);
}

/* Result of find_cut with `most` >= k. If at most `most` scores are above `from`: low = from and
 * above_low = their number. Otherwise thresholds around the k-th best: at least k scores are above
 * low and fewer above high; and either at most `most` are above low, or all scores between low and
 * high are equal to high. */
typedef struct cut {
    float low, high;
    size_t above_low, above_high;
} cut;

static cut find_cut(const mote__topk *t, const float *x, size_t n, float from, size_t most)
{
    cut c = { from, 0, 0, 0 };
    float least;
    c.above_low = t->kern->range_above(x, n, from, &least, &c.high);
    if (c.above_low <= most)
        return c;
    /* -0 is not below +0 */
    int32_t low = key_of(least) - (least == 0 ? 2 : 1), high = key_of(c.high);
    c.low = score_of(low);
    for (int step = 0; c.above_low > most && (int64_t)high - low > 1; step++) {
        int32_t key = (int32_t)(((int64_t)low + high) / 2);
        if (step % 2 == 0) {
            double share = ((double)(t->k + most) / 2 - (double)c.above_high) /
                           (double)(c.above_low - c.above_high);
            double guess = (double)c.high - ((double)c.high - (double)c.low) * share;
            int32_t near = guess > (double)c.low && guess < (double)c.high ? key_of((float)guess)
                                                                           : key;
            key = near > low && near < high ? near : key;
        }
        float at = score_of(key);
        size_t above = t->kern->count_above(x, n, at);
        if (above >= t->k) {
            low = key;
            c.low = at;
            c.above_low = above;
        } else {
            high = key;
            c.high = at;
            c.above_high = above;
        }
    }
    return c;
}

/* Remove all but at least k and at most `most` >= k of the best; t->n > k. */
static void drop(mote__topk *t, size_t most)
{
    /* not from t->threshold: some held scores may be equal to it */
    cut c = find_cut(t, t->score, t->n, -INFINITY, most);
    /* high is the k-th best score, and too many are equal to it */
    int exact = c.above_low > most;
    float limit = exact ? c.high : c.low;
    t->n = t->kern->keep_above(t->score, t->index, t->n, limit, exact ? t->k - c.above_high : 0);
    t->threshold = limit > t->threshold ? limit : t->threshold;
}

void mote__topk_push(mote__topk *t, const float *scores, size_t n, uint32_t first)
{
    if (t->k == 0)
        return;
    size_t full = 2 * t->k, nearly = t->k + t->k / 4;
    for (size_t at = 0, part; at < n; at += part) {
        part = n - at < MOTE_TOPK_STRIP ? n - at : MOTE_TOPK_STRIP;
        const float *x = scores + at;
        if (t->crowded && part > full) {
            cut c = find_cut(t, x, part, t->threshold, full);
            t->crowded = c.low > t->threshold;
            /* at least k scores of this strip are above low */
            if (t->crowded) {
                t->threshold = c.low;
                t->n = t->kern->keep_above(t->score, t->index, t->n, c.low, 0);
            }
        }
        size_t taken = t->kern->take_above(t->score + t->n, t->index + t->n, x, part,
                                           first + (uint32_t)at, t->threshold);
        t->n += taken;
        t->crowded |= taken > full;
        if (t->n >= full)
            drop(t, nearly);
    }
}

void mote__topk_merge(mote__topk *t, const mote__topk *from)
{
    for (size_t at = 0, part; at < from->n; at += part) {
        part = from->n - at < MOTE_TOPK_STRIP ? from->n - at : MOTE_TOPK_STRIP;
        memcpy(t->score + t->n, from->score + at, part * sizeof *t->score);
        memcpy(t->index + t->n, from->index + at, part * sizeof *t->index);
        t->n += part;
        if (t->n > 2 * t->k)
            drop(t, t->k);
    }
}

size_t mote__topk_finish(mote__topk *t, uint32_t *out)
{
    if (t->n > t->k)
        drop(t, t->k);
    if (t->n)
        memcpy(out, t->index, t->n * sizeof *out);
    return t->n;
}
