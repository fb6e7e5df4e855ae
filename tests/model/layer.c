/* Passes below the engine: cut between layers and carried on elsewhere, layers on different
 * backends, experts that come in any order. Always the bits of one pass on one backend. */
#include "double.h"
#include "golden.h"
#include "model/kv_shape.h"

enum { N = 150, MOST = 3 };
/* Random batches of each kind: fewer under a sanitizer, which looks for faults of memory. */
#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 2 };
#else
enum { SEEDS = 6 };
#endif

/* ---- sequences made by hand ---- */

struct batch_run {
    mote_model *m;
    mote__kv_pool pool;
    mote__seq seq[MOST];
    mote__extent extent[MOST];
    size_t n, n_logits;
    int32_t ids[MOST][N];
    float *logits;
};

/* Extents of random lengths and cones behind random prefixes (which a first pass made). The same
 * seed gives the same. */
static void open_run(struct batch_run *b, mote_model *m, uint64_t seed)
{
    const mote__config *c = &m->net.config;
    mote__kv_spec spec;
    mote__kv_layout layout;
    rnd r = { seed };
    *b = (struct batch_run){ .m = m, .n = 1 + rnd_below(&r, MOST) };
    mote__kv_shape shape;
    mote__kv_shape_of(&shape, c);
    assert_int_equal(mote__kv_spec_parse(&spec, NULL, &shape, NULL), 0);
    mote__kv_layout_init(&layout, &shape, &spec);
    mote__kv_pool_init_in(&b->pool, &layout, m->net.kv_memory, &m->meter);
    for (size_t i = 0; i < b->n; i++) {
        mote__seq *s = &b->seq[i];
        mote__kv_cache_init(&s->kv, &b->pool);
        assert_int_equal(mote__kv_state_init(&s->state, &shape, &spec, &m->meter), 0);
        for (size_t k = 0; k < N; k++)
            b->ids[i][k] = (int32_t)rnd_below(&r, c->vocab_size);
        s->ids = b->ids[i];
        assert_int_equal(mote__kv_reserve(&s->kv, 0, N), 0);
        size_t n = 1 + rnd_below(&r, N);
        uint64_t apex = rnd_below(&r, 2) ? rnd_below(&r, n) : 0;
        b->extent[i] = (mote__extent){ .seq = s, .n = n, .apex = c->window ? apex : 0 };
    }
}

static void close_run(struct batch_run *b)
{
    for (size_t i = 0; i < b->n; i++) {
        mote__kv_cache_deinit(&b->seq[i].kv);
        mote__kv_state_deinit(&b->seq[i].state);
    }
    mote__kv_pool_deinit(&b->pool);
    free(b->logits);
}

static void ok(int rc) { assert_int_equal(rc, 0); }

/* Layers from `first` on, the decoder's KV at its place, and logits of all rows left. */
static void go_on(struct batch_run *b, mote__pass *p, size_t first)
{
    const mote__config *c = &b->m->net.config;
    size_t half = c->decoder_start;
    if (first < half)
        ok(mote__pass_layers(p, first, half));
    if (first <= half)
        ok(mote__pass_publish_decoder(p));
    if (half < c->n_layers)
        ok(mote__pass_layers(p, first > half ? first : half, c->n_layers));
    b->n_logits = p->batch.n_rows * c->vocab_size;
    b->logits = malloc(b->n_logits * sizeof *b->logits);
    uint32_t rows[MOST * N];
    for (size_t i = 0; i < p->batch.n_rows; i++)
        rows[i] = (uint32_t)i;
    ok(mote__pass_logits(p, rows, p->batch.n_rows, b->logits));
}

static void whole(struct batch_run *b)
{
    mote__pass p;
    mote__pass_init(&p, &b->m->net);
    ok(mote__pass_begin(&p, b->extent, b->n));
    ok(mote__pass_embed(&p));
    go_on(b, &p, 0);
    mote__pass_deinit(&p);
}

/* The same up to the cut in one pass object, from its carry on in another one. */
static void cut_at(struct batch_run *b, size_t layer)
{
    const mote__config *c = &b->m->net.config;
    mote__pass p, q;
    mote__carry view, carry;
    mote__pass_init(&p, &b->m->net);
    mote__pass_init(&q, &b->m->net);
    ok(mote__pass_begin(&p, b->extent, b->n));
    ok(mote__pass_embed(&p));
    ok(mote__pass_layers(&p, 0, layer));
    ok(mote__pass_carry(&p, &view));
    size_t n = view.n_tokens;
    assert_int_equal(view.h_width, c->hc_mult * c->hidden_size);
    carry = view;
    carry.h = calloc(n * view.h_width + 1, sizeof *carry.h);
    carry.mix = calloc(n * view.mix_width + 1, sizeof *carry.mix);
    carry.topk = calloc(n * view.topk_room + 1, sizeof *carry.topk);
    carry.n_topk = calloc(n + 1, sizeof *carry.n_topk);
    carry.candidates = calloc(n * view.candidate_room + 1, sizeof *carry.candidates);
    carry.n_candidates = calloc(n + 1, sizeof *carry.n_candidates);
    mote__carry_copy(&carry, &view);
    mote__extent extents[MOST];
    memcpy(extents, b->extent, sizeof extents); /* `skip` as the first pass left it */
    mote__pass_deinit(&p);
    ok(mote__pass_begin(&q, extents, b->n));
    ok(mote__pass_take(&q, layer, &carry));
    go_on(b, &q, layer);
    mote__pass_deinit(&q);
    free(carry.h);
    free(carry.mix);
    free(carry.topk);
    free(carry.n_topk);
    free(carry.candidates);
    free(carry.n_candidates);
}

static void same(const struct batch_run *want, const struct batch_run *got, const char *what,
                 size_t arg)
{
    assert_int_equal(want->n_logits, got->n_logits);
    if (memcmp(want->logits, got->logits, want->n_logits * sizeof *want->logits))
        fail_msg("%s %zu: other logits", what, arg);
    for (size_t i = 0; i < want->n; i++) { /* and what the next pass would read */
        const mote__kv_state *s = &want->seq[i].state, *t = &got->seq[i].state;
        assert_memory_equal(s->n_pending, t->n_pending, sizeof s->n_pending);
        assert_memory_equal(s->memory, t->memory, s->bytes);
        assert_memory_equal(want->seq[i].kv.n_entries, got->seq[i].kv.n_entries,
                            sizeof want->seq[i].kv.n_entries);
        for (size_t k = 0; k < want->seq[i].kv.n_blocks; k++) {
            mote__kv_view a, b;
            ok(mote__kv_view_open(&a, &want->pool, want->seq[i].kv.blocks[k], 1));
            ok(mote__kv_view_open(&b, &got->pool, got->seq[i].kv.blocks[k], 1));
            assert_memory_equal(a.bytes, b.bytes, want->pool.layout.block_bytes);
            mote__kv_view_close(&a, &want->pool, want->seq[i].kv.blocks[k], 0);
            mote__kv_view_close(&b, &got->pool, got->seq[i].kv.blocks[k], 0);
        }
    }
}

static const char *const models[] = { "tiny-a", "tiny-b", "tiny-c", "llama-gqa" };
enum { N_MODELS = sizeof models / sizeof models[0] };

static mote_model *open_tiny(size_t i, mote_math math)
{
    char path[64];
    snprintf(path, sizeof path, "checkpoints/%s", models[i]);
    return model_open(golden_path(path), math, 2);
}

/* ---- tests ---- */

static void cuts_of_the_published_model(void **state)
{
    (void)state;
    mote__config c = { .arch = MOTE_ARCH_V41,
                       .n_layers = 40,
                       .kv_sources = { 2, 8, 14, 20 },
                       .n_kv_sources = 4,
                       .candidate_source = -1,
                       .decoder_start = 20 };
    mote__layer_plan plan[MOTE_MAX_LAYERS];
    for (size_t l = 2; l < 40; l++) {
        c.kv_source_of[l] = l < 8 ? 0 : l < 14 ? 1 : l < 20 ? 2 : 3;
        c.compress_ratios[l] = l < 20 ? 2 : 1;
    }
    mote__plan_init(plan, &c);
    for (size_t l = 0; l < 40; l++)
        assert_int_equal(mote__plan_cuts(plan, 40, l), l == 2 || l == 8 || l == 14 || l == 20);
    /* a layer far behind that reads what an early source made forbids those between */
    c.kv_source_of[30] = 1;
    mote__plan_init(plan, &c);
    for (size_t l = 0; l < 40; l++)
        assert_int_equal(mote__plan_cuts(plan, 40, l), l == 2 || l == 8);
}

static void carried(void **state)
{
    (void)state;
    size_t n_cuts = 0;
    for (size_t i = 0; i < N_MODELS; i++) {
        mote_model *m = open_tiny(i, MOTE_MATH_FP32);
        const mote__config *c = &m->net.config;
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct batch_run want;
            if (seed == SEEDS / 2 + 1) /* on the double from here on */
                use_double(m);
            open_run(&want, m, seed);
            whole(&want);
            for (size_t l = 0; l < c->n_layers; l++) {
                if (!mote__plan_cuts(m->net.plan, c->n_layers, l))
                    continue;
                struct batch_run got;
                open_run(&got, m, seed);
                cut_at(&got, l);
                same(&want, &got, "cut before layer", l);
                close_run(&got);
                n_cuts++;
            }
            close_run(&want);
        }
        mote_model_close(m);
    }
    printf("  %zu cuts\n", n_cuts);
    assert_true(n_cuts >= 10 * SEEDS);
}

/* Each layer on the CPU or on its double, at random: the carry moves wherever they differ. */
static void mixed(void **state)
{
    (void)state;
    rnd r = { 3 };
    for (size_t i = 0; i < N_MODELS; i++) {
        mote_model *m = open_tiny(i, i == 1 ? MOTE_MATH_PUBLISHED : MOTE_MATH_FP32);
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct batch_run want, got;
            mote__net_use(&m->net, mote__cpu_backend());
            open_run(&want, m, seed);
            whole(&want);
            for (size_t l = 0; l < m->net.config.n_layers; l++)
                if (rnd_below(&r, 2))
                    m->net.plan[l].backend = double_backend();
            open_run(&got, m, seed);
            whole(&got);
            same(&want, &got, "mixed backends, seed", (size_t)seed);
            close_run(&want);
            close_run(&got);
        }
        mote_model_close(m);
    }
    assert_true(double_counts[CALL_TAKE] > 3 * SEEDS && double_counts[CALL_DENSE_ADD] > 0 &&
                double_counts[CALL_NARROW] > 0);
}

/* A decoder whose source has an Engram lookup: its KV is made of h with the lookup added, and h
 * itself comes back, for the layer adds it once more. */
static void lookup_before_the_decoder(void **state)
{
    (void)state;
    mote_model *m = open_tiny(0, MOTE_MATH_FP32);
    size_t half = m->net.config.decoder_start, from = m->net.config.engram_layers[0];
    assert_true(m->net.plan[from].engram >= 0 && m->net.plan[half].engram < 0);
    mote__layer_weights *to = &m->net.weights.layers[half], *with = &m->net.weights.layers[from];
    struct batch_run b[2];
    use_double(m);
    for (int lookup = 0; lookup < 2; lookup++) {
        mote__pass p;
        mote__carry before, after;
        if (lookup) {
            m->net.plan[half].engram = m->net.plan[from].engram;
            to->e_table = with->e_table;
            to->e_wkv = with->e_wkv;
            to->e_qk = with->e_qk;
        }
        open_run(&b[lookup], m, 5);
        mote__pass_init(&p, &m->net);
        ok(mote__pass_begin(&p, b[lookup].extent, b[lookup].n));
        ok(mote__pass_embed(&p));
        ok(mote__pass_layers(&p, 0, half));
        ok(mote__pass_carry(&p, &before));
        size_t n = before.n_tokens * before.h_width;
        float *h = malloc(n * sizeof *h);
        memcpy(h, before.h, n * sizeof *h);
        ok(mote__pass_publish_decoder(&p));
        ok(mote__pass_carry(&p, &after));
        assert_memory_equal(h, after.h, n * sizeof *h);
        free(h);
        mote__pass_deinit(&p);
    }
    size_t source = (size_t)m->net.plan[half].source, n_other = 0;
    float row[2][512];
    assert_true(m->net.config.head_dim <= 512);
    for (size_t i = 0; i < b[0].n; i++)
        for (size_t k = 0; k < b[0].seq[i].kv.n_entries[source]; k++) {
            for (int lookup = 0; lookup < 2; lookup++)
                mote__kv_main_decode(row[lookup], &b[lookup].seq[i].kv, source, k);
            n_other += memcmp(row[0], row[1], m->net.config.head_dim * sizeof(float)) != 0;
        }
    assert_true(n_other > 0);
    for (int lookup = 0; lookup < 2; lookup++)
        close_run(&b[lookup]);
    assert_true(double_counts[CALL_STASH] == 1 && double_counts[CALL_UNSTASH] == 1);
    mote_model_close(m);
}

/* ---- experts in any order ---- */

static struct shuffled {
    mote__experts base;
    const mote__net *net;
    rnd r;
    const uint32_t *ids;
    size_t layer, n, n_given, n_held, fail_after;
    uint32_t order[256];
    mote__expert lent[256]; /* copies that are spoilt when they are released */
    size_t n_wants, n_calls;
} shuffled;

static int shuffled_want(mote__experts *e, size_t layer, const uint32_t *ids, size_t n,
                         int in_order)
{
    struct shuffled *s = (struct shuffled *)e;
    assert_true(s->n_given == s->n && s->n_held == 0 && n > 0 && n <= 256);
    for (size_t i = 0; i < n; i++) {
        assert_true(ids[i] < s->net->plan[layer].n_experts && (i == 0 || ids[i] > ids[i - 1]));
        size_t j = in_order ? i : rnd_below(&s->r, i + 1);
        s->order[i] = s->order[j];
        s->order[j] = ids[i];
    }
    s->layer = layer;
    s->n = n;
    s->n_given = 0;
    s->n_wants++;
    return 0;
}

static long shuffled_next(mote__experts *e, mote__ready_expert *ready, size_t most)
{
    struct shuffled *s = (struct shuffled *)e;
    size_t left = s->n - s->n_given, n = left ? 1 + rnd_below(&s->r, left) : 0;
    if (s->fail_after && --s->fail_after == 0)
        return MOTE_EIO;
    n = n < most ? n : most;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = s->order[s->n_given++];
        s->lent[id] = s->net->weights.layers[s->layer].experts[id];
        ready[i] = (mote__ready_expert){ id, &s->lent[id] };
    }
    s->n_held += n;
    s->n_calls++;
    return (long)n;
}

static void shuffled_release(mote__experts *e, const mote__ready_expert *ready, size_t n)
{
    struct shuffled *s = (struct shuffled *)e;
    for (size_t i = 0; i < n; i++)
        memset(&s->lent[ready[i].id], 0xa5, sizeof s->lent[0]);
    assert_true(n <= s->n_held);
    s->n_held -= n;
}

static void shuffled_drop(mote__experts *e)
{
    struct shuffled *s = (struct shuffled *)e;
    s->n = s->n_given = 0;
}

static void any_order(void **state)
{
    (void)state;
    static const mote__experts_ops ops = { shuffled_want, shuffled_next, shuffled_release,
                                           shuffled_drop };
    for (size_t i = 0; i < 3; i++)
        for (int math = 0; math < 2; math++) {
            mote_model *m = open_tiny(i, math ? MOTE_MATH_PUBLISHED : MOTE_MATH_FP32);
            shuffled = (struct shuffled){ .base = { &ops }, .net = &m->net, .r = { 9 + i } };
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                struct batch_run want, got;
                m->net.experts = &m->net.resident.base;
                open_run(&want, m, seed);
                whole(&want);
                m->net.experts = &shuffled.base;
                open_run(&got, m, seed);
                whole(&got);
                same(&want, &got, "experts in any order, seed", (size_t)seed);
                close_run(&want);
                close_run(&got);
            }
            assert_true(shuffled.n_wants >= SEEDS * m->net.config.n_layers);
            assert_true(shuffled.n_calls > shuffled.n_wants && shuffled.n_held == 0);
            mote_model_close(m);
        }
}

/* ---- wide passes ---- */

/* Tiles of any size, and so experts added as they are computed, in whatever pieces: the bits of one
 * tile. */
static void tiles(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 3, 7, 16, 50, 100 };
    for (size_t i = 0; i < 3; i++)
        for (int math = 0; math < 2; math++) {
            static const mote__experts_ops ops = { shuffled_want, shuffled_next, shuffled_release,
                                                   shuffled_drop };
            mote_model *m = open_tiny(i, math ? MOTE_MATH_PUBLISHED : MOTE_MATH_FP32);
            shuffled = (struct shuffled){ .base = { &ops }, .net = &m->net, .r = { 3 + i } };
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                struct batch_run want, got;
                open_run(&want, m, seed);
                whole(&want);
                for (size_t k = seed % 2; k < sizeof sizes / sizeof *sizes; k += 2) {
                    m->net.tile_rows = sizes[k];
                    m->net.experts = k % 4 < 2 ? &shuffled.base : &m->net.resident.base;
                    open_run(&got, m, seed);
                    whole(&got);
                    same(&want, &got, "tiles of", sizes[k]);
                    close_run(&got);
                }
                m->net.tile_rows = MOTE_TILE_ROWS;
                m->net.experts = &m->net.resident.base;
                close_run(&want);
            }
            mote_model_close(m);
        }
}

/* What a row of the published model costs behind the first tile: its residual copies, the input and
 * output of a sublayer, and little more. */
static void a_row_costs_little(void **state)
{
    (void)state;
    mote_err err;
    static mote__net net;
    ok(mote__config_load(&net.config, source_path("tests/data/config/v41-flash.json"), &err));
    mote__plan_init(net.plan, &net.config);
    mote__net_use(&net, mote__cpu_backend());
    size_t row = (mote__pass_bytes(&net, 8192) - mote__pass_bytes(&net, 4096)) / 4096;
    size_t copies = net.config.hc_mult * net.config.hidden_size * sizeof(float);
    print_message("%zu bytes a row, %zu a tile\n", row, mote__pass_bytes(&net, 512) - 512 * row);
    assert_in_range(row, copies, copies + 12 * net.config.hidden_size);
}

/* An expert that cannot be had fails its pass, and the next one is as if nothing had been. */
static void experts_fail(void **state)
{
    (void)state;
    static const mote__experts_ops ops = { shuffled_want, shuffled_next, shuffled_release,
                                           shuffled_drop };
    mote_model *m = open_tiny(1, MOTE_MATH_FP32);
    mote_err err;
    int32_t ids[20] = { 1, 2, 3, 4, 5, 6, 7 };
    size_t vocab = m->net.config.vocab_size;
    mote_session *s = session_open(m, NULL, MOTE_PREFILL_FULL);
    float *want = malloc(vocab * sizeof *want);
    memcpy(want, feed(s, ids, 20, MOTE_LOGITS_LAST, NULL, NULL), vocab * sizeof *want);
    mote_session_destroy(s);
    shuffled = (struct shuffled){ .base = { &ops }, .net = &m->net, .r = { 4 } };
    m->net.experts = &shuffled.base;
    for (size_t at = 1; at < 8; at++) {
        s = session_open(m, NULL, MOTE_PREFILL_FULL);
        mote_feed f = { s, ids, 20, MOTE_LOGITS_LAST };
        shuffled.fail_after = at;
        assert_int_equal(mote_run(m, &f, 1, NULL, NULL, &err), MOTE_EIO);
        assert_int_equal(shuffled.n_held, 0);
        shuffled.fail_after = 0;
        assert_memory_equal(feed(s, ids, 20, MOTE_LOGITS_LAST, NULL, NULL), want,
                            vocab * sizeof *want);
        mote_session_destroy(s);
    }
    free(want);
    mote_model_close(m);
}

/* ---- the bundled model on the double: sessions, forks, snapshots and the store ---- */

/* Everything that moves a block: prefill, decoding, a fork in an unfinished block, a store that is
 * written, read back by another model (of the other memory), and a snapshot. Returns all logits. */
static float *use_everything(mote_model *m, const char *place, size_t *n_values)
{
    enum { PROMPT = 700, MORE = 6 };
    size_t vocab = m->net.config.vocab_size, used = 0;
    float *all = malloc((4 * MORE + 4) * vocab * sizeof *all);
    int32_t ids[PROMPT + MORE];
    rnd r = { 21 };
    mote_err err;
    mote_store *store;
    for (size_t i = 0; i < PROMPT + MORE; i++)
        ids[i] = (int32_t)rnd_below(&r, vocab);
    assert_int_equal(mote_store_open(&store, place, NULL, &err), 0);
    mote_session *s[4] = { NULL };
    mote_restored got;
    for (int i = 0; i < 4; i++) {
        if (i == 1) {
            assert_int_equal(mote_session_fork(&s[1], s[0], &err), 0);
        } else {
            s[i] = session_open(m, NULL, i == 2 ? MOTE_PREFILL_BOUNDED : MOTE_PREFILL_EXACT);
            assert_int_equal(mote_session_use_store(s[i], store, "double", &err), 0);
            size_t held = 0;
            if (i) {
                assert_int_equal(
                    mote_session_restore(s[i], ids, PROMPT - 1, MOTE_REPLAY_EXACT, &got, &err), 0);
                held = mote_session_length(s[i]);
                assert_true(held >= 512);
            }
            memcpy(all + used, feed(s[i], ids + held, PROMPT - held, MOTE_LOGITS_LAST, NULL, NULL),
                   vocab * sizeof *all);
            used += vocab;
        }
        if (i == 0)
            assert_int_equal(mote_session_snapshot(s[0], &err), 0);
        for (size_t k = 0; k < MORE; k++, used += vocab)
            memcpy(all + used, feed(s[i], ids + PROMPT + k, 1, MOTE_LOGITS_LAST, NULL, NULL),
                   vocab * sizeof *all);
        if (i == 1 || i == 2) { /* what was queued is on disk */
            mote_session_destroy(s[i - 1]);
            s[i - 1] = NULL;
        }
        if (i == 1) {
            mote_session_destroy(s[1]);
            s[1] = NULL;
            mote_store_close(store);
            assert_int_equal(mote_store_open(&store, place, NULL, &err), 0);
        }
    }
    for (int i = 0; i < 4; i++)
        mote_session_destroy(s[i]);
    mote_store_close(store);
    *n_values = used;
    return all;
}

static void nano(void **state)
{
    (void)state;
    float *want = NULL;
    for (int turn = 0; turn < 2; turn++) {
        char dir[] = "/tmp/mote-double-XXXXXX";
        make_tree(dir);
        mote_model *m = model_open(source_path("models/nano"), MOTE_MATH_FP32, 2);
        if (turn)
            use_double(m);
        size_t n;
        fenced.n_gets = fenced.n_puts = 0;
        float *got = use_everything(m, dir, &n);
        mote_model_close(m);
        if (turn) {
            assert_memory_equal(got, want, n * sizeof *got);
            assert_true(fenced.n_gets >= 2 && fenced.n_puts >= 4);
            assert_true(fenced.n_slabs == 0 && fenced.n_open == 0);
            free(got);
        } else
            want = got;
        remove_tree(dir);
    }
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_of_the_published_model),
        cmocka_unit_test(carried),
        cmocka_unit_test(mixed),
        cmocka_unit_test(lookup_before_the_decoder),
        cmocka_unit_test(any_order),
        cmocka_unit_test(tiles),
        cmocka_unit_test(a_row_costs_little),
        cmocka_unit_test(experts_fail),
        cmocka_unit_test(nano),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
