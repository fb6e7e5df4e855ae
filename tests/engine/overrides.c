/* What only the lab asks for: a selection of another size, no candidate blocks, and how far one
 * session's KV is from another's. */
#include "golden.h"

enum { N = 700 };
static mote_model *model;
static int32_t ids[N];

static int setup(void **state)
{
    (void)state;
    model = model_open(source_path("models/nano"), MOTE_MATH_FP32, 2);
    rnd r = { 5 };
    for (size_t i = 0; i < N; i++)
        ids[i] = (int32_t)(3 + rnd_below(&r, 4000));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mote_model_close(model);
    return 0;
}

static mote_session *open_with(const char *kv, size_t topk, int all)
{
    mote_session_params p = {
        .kv = kv, .prefill = MOTE_PREFILL_FULL, .topk = topk, .all_candidates = all
    };
    mote_session *s;
    mote_err err;
    if (mote_session_create(&s, model, &p, &err))
        fail_msg("%s", err.message);
    return s;
}

/* Logits of the last of n tokens, read in pieces of `piece`; caller frees. */
static float *last_logits(size_t topk, int all, size_t n, size_t piece)
{
    size_t vocab = model->net.config.vocab_size, rows, first;
    mote_session *s = open_with("main=f32,index=f32,window=f32", topk, all);
    const float *x = NULL;
    for (size_t at = 0; at < n; at += piece)
        x = feed(s, ids + at, n - at < piece ? n - at : piece, MOTE_LOGITS_LAST, &rows, &first);
    float *copy = malloc(vocab * sizeof *copy);
    memcpy(copy, x, vocab * sizeof *copy);
    mote_session_destroy(s);
    return copy;
}

static int same(size_t topk, int all, size_t piece, const float *want, size_t n)
{
    float *x = last_logits(topk, all, n, piece);
    int equal = !memcmp(x, want, model->net.config.vocab_size * sizeof *x);
    free(x);
    return equal;
}

static void selection_of_another_size(void **state)
{
    (void)state;
    size_t k = model->net.config.index_topk;
    float *few = last_logits(0, 0, k, 256), *many = last_logits(0, 0, N, 256);
    /* as long as everything visible is selected anyway, more changes nothing; the model's own size
     * is the default */
    assert_true(same(SIZE_MAX, 0, 256, few, k) && same(2 * k, 1, 256, few, k) &&
                same(k, 0, 256, few, k));
    assert_true(same(k, 0, 256, many, N));
    assert_false(same(SIZE_MAX, 0, 256, many, N));
    assert_false(same(k / 4, 0, 256, many, N));
    assert_false(same(1, 0, 256, few, k));
    /* 32 candidate blocks of 8 hold 256 entries: beyond them every entry can win */
    assert_false(same(0, 1, 256, many, N));
    free(few);
    free(many);
}

/* How a sequence is cut into steps changes nothing, here neither; and sessions with and without
 * share a step. */
static void any_cut_gives_the_same(void **state)
{
    (void)state;
    float *all = last_logits(SIZE_MAX, 1, 300, 256);
    assert_true(same(SIZE_MAX, 1, 37, all, 300));
    mote_session *wide = open_with("main=f32,index=f32,window=f32", SIZE_MAX, 1),
                 *usual = open_with("main=f32,index=f32,window=f32", 0, 0);
    mote_session *forked;
    mote_feed f[2] = { { wide, ids, 299, MOTE_LOGITS_LAST },
                       { usual, ids, 299, MOTE_LOGITS_LAST } };
    assert_int_equal(mote_run(model, f, 2, NULL, NULL, NULL), 0);
    assert_int_equal(mote_session_fork(&forked, wide, NULL), 0);
    size_t rows, first, vocab = model->net.config.vocab_size;
    assert_memory_equal(feed(forked, ids + 299, 1, MOTE_LOGITS_LAST, &rows, &first), all,
                        vocab * sizeof *all);
    float *plain = last_logits(0, 0, 300, 300);
    assert_memory_equal(feed(usual, ids + 299, 1, MOTE_LOGITS_LAST, &rows, &first), plain,
                        vocab * sizeof *plain);
    free(plain);
    free(all);
    mote_session_destroy(forked);
    mote_session_destroy(wide);
    mote_session_destroy(usual);
}

/* A fork can be sampled from at once: the last row goes along, and only that one. */
static void a_fork_has_the_last_logits(void **state)
{
    (void)state;
    size_t vocab = model->net.config.vocab_size, rows, first, n, at;
    mote_session *s = open_with(NULL, 0, 0), *fork, *again;
    assert_int_equal(mote_session_fork(&fork, s, NULL), 0);
    assert_null(mote_session_logits(fork, &n, NULL)); /* nothing was run */
    mote_session_destroy(fork);
    const float *all = feed(s, ids, 20, MOTE_LOGITS_ALL, &rows, &first);
    assert_true(rows > 1 && first + rows == 20);
    assert_int_equal(mote_session_fork(&fork, s, NULL), 0);
    const float *last = mote_session_logits(fork, &n, &at);
    assert_true(last && n == 1 && at == 19);
    assert_memory_equal(last, all + (rows - 1) * vocab, vocab * sizeof *last);
    /* a fork of a fork */
    assert_int_equal(mote_session_fork(&again, fork, NULL), 0);
    assert_memory_equal(mote_session_logits(again, NULL, NULL), last, vocab * sizeof *last);
    /* the fork keeps its own */
    feed(s, ids + 20, 1, MOTE_LOGITS_LAST, NULL, NULL);
    assert_memory_equal(mote_session_logits(fork, NULL, NULL),
                        mote_session_logits(again, NULL, NULL), vocab * sizeof *last);
    assert_memory_equal(feed(fork, ids + 20, 1, MOTE_LOGITS_LAST, NULL, NULL),
                        mote_session_logits(s, NULL, NULL), vocab * sizeof *last);
    feed(s, ids, 1, MOTE_LOGITS_NONE, NULL, NULL);
    mote_session_destroy(fork);
    assert_int_equal(mote_session_fork(&fork, s, NULL), 0);
    /* no logits were asked for */
    assert_null(mote_session_logits(fork, &n, NULL));
    assert_int_equal(n, 0);
    mote_session_destroy(again);
    mote_session_destroy(fork);
    mote_session_destroy(s);
}

static void no_store_with_a_selection_of_its_own(void **state)
{
    (void)state;
    mote_err err;
    mote_session *s = open_with(NULL, 8, 0);
    assert_int_equal(mote_session_use_store(s, NULL, NULL, &err), MOTE_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "topk"));
    mote_session_destroy(s);
}

static json_t *errors_of(const mote_session *s, const mote_session *base)
{
    char *text;
    mote_err err;
    if (mote_kv_error_json(s, base, &text, &err))
        fail_msg("%s", err.message);
    json_t *rows = json_loads(text, 0, NULL);
    mote_free(text);
    return rows;
}

static void stored_kv_is_compared(void **state)
{
    (void)state;
    const mote__config *c = &model->net.config;
    mote_session *base = open_with("main=f32,index=f32,window=f32", 0, 0),
                 *fp4 = open_with(NULL, 0, 0),
                 *bf16 = open_with("main=bf16,index=bf16,window=bf16", 0, 0);
    feed(base, ids, 301, MOTE_LOGITS_NONE, NULL, NULL);
    feed(fp4, ids, 301, MOTE_LOGITS_NONE, NULL, NULL);
    feed(bf16, ids, 301, MOTE_LOGITS_NONE, NULL, NULL);
    json_t *zero = errors_of(base, base), *coarse = errors_of(fp4, base),
           *fine = errors_of(bf16, base), *row;
    assert_int_equal(json_array_size(coarse), 2 * c->n_kv_sources + c->n_layers);
    size_t i;
    json_array_foreach(coarse, i, row)
    {
        const json_t *z = json_array_get(zero, i), *f = json_array_get(fine, i);
        assert_true(json_number_value(json_object_get(z, "error")) == 0 &&
                    json_number_value(json_object_get(z, "rounding")) == 0);
        double rounding = json_number_value(json_object_get(row, "rounding")),
               error = json_number_value(json_object_get(row, "error"));
        int is_window = !strcmp(json_string_value(json_object_get(row, "part")), "window");
        /* half a step of E2M1 is at most 1/6 of the group's maximum; E4M3 has 3 bits behind the
         * leading one, BF16 7 */
        assert_true(is_window ? rounding > 0.005 && rounding < 1.0 / 16
                              : rounding > 0.03 && rounding < 1.0 / 6);
        assert_true(error > 0.001 && error < 1);
        double finer = json_number_value(json_object_get(f, "rounding"));
        assert_true(finer > 1e-4 && finer < 1.0 / 256);
        size_t layer = (size_t)json_integer_value(json_object_get(row, "layer"));
        size_t vectors = is_window ? c->window : 301 / c->compress_ratios[layer];
        assert_int_equal(json_integer_value(json_object_get(row, "vectors")), vectors);
    }
    /* layer 0's window comes straight from the embedding: nothing before it was rounded */
    row = json_array_get(coarse, 2 * c->n_kv_sources);
    assert_true(fabs(json_number_value(json_object_get(row, "rounding")) -
                     json_number_value(json_object_get(row, "error"))) < 1e-6);
    json_decref(zero);
    json_decref(coarse);
    json_decref(fine);
    mote_err err;
    char *text;
    feed(base, ids, 1, MOTE_LOGITS_NONE, NULL, NULL);
    assert_int_equal(mote_kv_error_json(fp4, base, &text, &err), MOTE_EINVAL);
    mote_session_destroy(base);
    mote_session_destroy(fp4);
    mote_session_destroy(bf16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selection_of_another_size),
        cmocka_unit_test(any_cut_gives_the_same),
        cmocka_unit_test(a_fork_has_the_last_logits),
        cmocka_unit_test(no_store_with_a_selection_of_its_own),
        cmocka_unit_test(stored_kv_is_compared),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
