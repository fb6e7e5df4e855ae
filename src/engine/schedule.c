/* Which rows of which half a step runs for one session: the three prefill modes, the two replays,
 * and their cones.
 *
 * With window W, a half of D layers and the wish for exact outputs from position A on (the apex),
 * layer d = 0..D-1 of the half needs query rows from A - (D-1-d)(W-1) on and its input from A -
 * D(W-1) on. So with A = the last position the first decoder layer runs over W + (D-2)(W-1) rows
 * and reads W + (D-1)(W-1) encoder outputs: 2,414 and 2,541 at the published size. */
#include "engine/engine.h"

static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The windows begin where somebody else's did (mote_session_follow), not where this step would have
 * them. */
static int follows(const mote_session *s, uint64_t end)
{
    return s->prefill == MOTE_PREFILL_BOUNDED && end <= s->follow_until && end > s->follow_origin;
}

mote__schedule mote__schedule_make(const mote_session *s, size_t n_new)
{
    const mote__config *c = &s->model->net.config;
    uint64_t cached = s->n_kv, end = s->n_ids + n_new, w = c->window, last = minus(end, 1);
    uint64_t encoder_reach = c->decoder_start * minus(w, 1),
             decoder_reach = (c->n_layers - c->decoder_start) * minus(w, 1);
    mote__schedule k = {
        .begin = cached, .end = end, .publish_from = cached, .decoder_begin = cached
    };

    /* no windows: every layer runs over the new tokens, and nothing is ever replayed */
    if (w == 0)
        return k;
    if (s->live) {
        /* fewer new tokens than a window: every layer goes on exactly; otherwise bounded and exact
         * prefill cut the decoder half */
        if (follows(s, end)) {
            if (cached <= s->follow_origin) {
                k.decoder_begin = s->follow_origin;
                k.fresh_decoder = 1;
            }
        } else if (end - cached >= w && s->prefill == MOTE_PREFILL_BOUNDED) {
            k.decoder_begin = end - w;
            k.fresh_decoder = 1;
        } else if (end - cached >= w && s->prefill == MOTE_PREFILL_EXACT) {
            k.decoder_apex = last;
            k.decoder_begin = later(cached, minus(last, decoder_reach));
        }
        return k;
    }

    k.fresh_encoder = k.fresh_decoder = 1;
    /* first decoder row, were the encoder's output known everywhere */
    uint64_t wish = 0;
    if (s->prefill == MOTE_PREFILL_BOUNDED) {
        wish = follows(s, end) ? s->follow_origin : minus(end, w);
    } else {
        k.decoder_apex = s->prefill == MOTE_PREFILL_EXACT ? last : earlier(cached, last);
        wish = minus(k.decoder_apex, decoder_reach);
    }
    if (s->replay == MOTE_REPLAY_EXACT) {
        k.encoder_apex = earlier(cached, wish);
        k.begin = minus(k.encoder_apex, encoder_reach);
        k.decoder_begin = wish;
    } else {
        k.begin = minus(cached, w);
        k.decoder_begin = later(k.begin, wish);
        /* the decoder runs over every row whose encoder output is known */
        if (s->prefill == MOTE_PREFILL_FULL) {
            k.decoder_apex = 0;
            k.decoder_begin = k.begin;
        }
    }
    return k;
}
