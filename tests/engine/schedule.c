/* The schedule of a step against the question it answers, asked row by row: with windows of W,
 * which rows must each layer run over, so that the wanted outputs are exact? */
#include "engine/engine.h"
#include "test.h"

static mote_model model;

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The first row that the first of n_layers reads, when the last one's outputs from `apex` on are to
 * be exact. Layer by layer, a query row at p reads its layer's inputs at p - W + 1 .. p; inputs
 * before `known` lie in windows already. */
static uint64_t first_input(uint64_t apex, size_t n_layers, uint64_t known)
{
    uint64_t w = model.net.config.window, need = apex;
    for (size_t layer = n_layers; layer-- > 0;)
        need = most(known, need < w - 1 ? 0 : need - (w - 1));
    return need;
}

static mote_session make(rnd *r)
{
    mote__config *c = &model.net.config;
    c->n_layers = 2 + rnd_below(r, 8);
    c->decoder_start = 1 + rnd_below(r, c->n_layers - 1);
    c->window = 1 + rnd_below(r, 40);
    mote_session s = { .model = &model };
    s.prefill = (mote_prefill)rnd_below(r, 3);
    s.replay = (mote_replay)rnd_below(r, 2);
    s.n_kv = s.n_ids = rnd_below(r, 4) ? rnd_below(r, 900) : 0;
    s.live = s.n_kv == 0 || rnd_below(r, 2);
    return s;
}

static void is_in_order(const mote__schedule *k, const mote_session *s)
{
    assert_true(k->begin <= k->publish_from && k->publish_from == s->n_kv &&
                k->publish_from <= k->end);
    assert_true(k->begin <= k->decoder_begin && k->decoder_begin <= k->end);
    assert_true(k->decoder_apex < k->end && k->encoder_apex <= k->end);
}

static void live_sessions(void **state)
{
    (void)state;
    rnd r = { 21 };
    for (int i = 0; i < 20000; i++) {
        mote_session s = make(&r);
        size_t n_new = 1 + rnd_below(&r, 300);
        s.live = 1;
        mote__schedule k = mote__schedule_make(&s, n_new);
        is_in_order(&k, &s);
        const mote__config *c = &model.net.config;
        size_t n_decoder = c->n_layers - c->decoder_start;
        /* windows are there: nothing runs twice */
        assert_int_equal(k.begin, s.n_kv);
        assert_false(k.fresh_encoder);
        if (s.prefill == MOTE_PREFILL_FULL || n_new < c->window) {
            /* every layer goes on over every row */
            assert_int_equal(k.decoder_begin, s.n_kv);
            assert_int_equal(k.decoder_apex, 0);
            assert_false(k.fresh_decoder);
        } else if (s.prefill == MOTE_PREFILL_BOUNDED) {
            assert_int_equal(k.decoder_begin, k.end - c->window);
            assert_true(k.fresh_decoder);
        } else {
            assert_int_equal(k.decoder_begin, first_input(k.end - 1, n_decoder, s.n_kv));
            assert_int_equal(k.decoder_apex, k.end - 1);
        }
    }
}

static void exact_replay_is_the_smallest_cone(void **state)
{
    (void)state;
    rnd r = { 22 };
    for (int i = 0; i < 20000; i++) {
        mote_session s = make(&r);
        size_t n_new = rnd_below(&r, 300);
        if (s.n_kv == 0)
            continue;
        s.live = 0;
        s.replay = MOTE_REPLAY_EXACT;
        mote__schedule k = mote__schedule_make(&s, n_new);
        is_in_order(&k, &s);
        const mote__config *c = &model.net.config;
        size_t n_decoder = c->n_layers - c->decoder_start;
        uint64_t last = k.end - 1, apex = s.prefill == MOTE_PREFILL_EXACT ? last
                                          : s.n_kv < last                 ? s.n_kv
                                                                          : last;
        uint64_t want = s.prefill == MOTE_PREFILL_BOUNDED
                            ? (k.end > c->window ? k.end - c->window : 0)
                            : first_input(apex, n_decoder, 0);
        assert_true(k.fresh_encoder && k.fresh_decoder);
        assert_int_equal(k.decoder_begin, want);
        /* encoder outputs are needed from the decoder's first row, and windows from the first new
         * row */
        assert_int_equal(k.encoder_apex, want < s.n_kv ? want : s.n_kv);
        assert_int_equal(k.begin, first_input(k.encoder_apex, c->decoder_start, 0));
    }
}

static void bounded_replay_runs_one_window(void **state)
{
    (void)state;
    rnd r = { 23 };
    for (int i = 0; i < 20000; i++) {
        mote_session s = make(&r);
        size_t n_new = rnd_below(&r, 300);
        if (s.n_kv == 0)
            continue;
        s.live = 0;
        s.replay = MOTE_REPLAY_BOUNDED;
        mote__schedule k = mote__schedule_make(&s, n_new);
        is_in_order(&k, &s);
        assert_int_equal(k.publish_from - k.begin,
                         s.n_kv < model.net.config.window ? s.n_kv : model.net.config.window);
    }
}

static void no_windows_no_replay(void **state)
{
    (void)state;
    rnd r = { 24 };
    for (int i = 0; i < 2000; i++) {
        mote_session s = make(&r);
        size_t n_new = 1 + rnd_below(&r, 300);
        model.net.config.window = 0;
        mote__schedule k = mote__schedule_make(&s, n_new);
        assert_true(k.begin == s.n_kv && k.decoder_begin == s.n_kv && k.end == s.n_kv + n_new);
        assert_true(!k.fresh_encoder && !k.fresh_decoder && !k.decoder_apex);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_sessions),
        cmocka_unit_test(exact_replay_is_the_smallest_cone),
        cmocka_unit_test(bounded_replay_runs_one_window),
        cmocka_unit_test(no_windows_no_replay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
