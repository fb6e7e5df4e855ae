/* Owns streaming detokenisation: the bytes of a character that is split over tokens are kept in
 * `pending` until it is complete or known to be invalid. The text does not depend on how the bytes
 * are cut into tokens. */
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer.h"
#include "base/utf8.h"

static int reserve(mote__detok *d, size_t n)
{
    if (n <= d->out_capacity)
        return MOTE_OK;
    char *p = mote__alloc(NULL, MOTE_MEM_OTHER, 2 * n);
    if (!p)
        return MOTE_ENOMEM;
    mote__free(NULL, MOTE_MEM_OTHER, d->out, d->out_capacity);
    d->out = p;
    d->out_capacity = 2 * n;
    return MOTE_OK;
}

int mote__detok_push(mote__detok *d, const char *bytes, size_t n, const char **text, size_t *n_text,
                     mote_err *err)
{
    /* layout of out: the text, at most 3 bytes (a U+FFFD) per input byte, and its 0; then pending
     * and new bytes joined */
    *text = "";
    *n_text = 0;
    if (n > ((size_t)1 << 40) || reserve(d, 4 * (n + d->n_pending) + 1))
        return mote__fail(err, MOTE_ENOMEM, "out of memory while turning tokens into text");
    size_t all = n + d->n_pending, used = 0;
    uint8_t *out = (uint8_t *)d->out, *in = out + d->out_capacity - all;
    memcpy(in, d->pending, d->n_pending);
    if (n)
        memcpy(in + d->n_pending, bytes, n);
    d->n_pending = 0;
    for (size_t i = 0; i < all;) {
        uint32_t cp;
        int step = mote__utf8_step(in + i, all - i, &cp);
        if (step > 0) {
            memcpy(out + used, in + i, (size_t)step);
            used += (size_t)step;
            i += (size_t)step;
        } else if (step < 0) {
            memcpy(out + used, "\xEF\xBF\xBD", 3);
            used += 3;
            i += (size_t)-step;
        } else {
            /* at most 3 bytes: a fourth would have completed the character or made it invalid */
            d->n_pending = (unsigned)(all - i);
            memcpy(d->pending, in + i, d->n_pending);
            break;
        }
    }
    out[used] = 0;
    *text = d->out;
    *n_text = used;
    return MOTE_OK;
}

const char *mote__detok_finish(mote__detok *d, size_t *n_text)
{
    unsigned pending = d->n_pending;
    d->n_pending = 0;
    *n_text = pending ? 3 : 0;
    return pending ? "\xEF\xBF\xBD" : "";
}

void mote__detok_deinit(mote__detok *d)
{
    mote__free(NULL, MOTE_MEM_OTHER, d->out, d->out_capacity);
    *d = (mote__detok){ 0 };
}
