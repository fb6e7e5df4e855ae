/* Llama-style models: against the NumPy reference under every cache format, and the same bits
 * however a prompt is cut, whoever shares the step and whatever runs it. */
#include "golden.h"

enum { N = 300 };
static const char *const names[] = { "mha", "gqa", "tied", "fp8", "mistral", "qwen2", "qwen3" };
enum { MODELS = sizeof names / sizeof *names };
static size_t vocab;

static mote_model *open_named(const char *name, mote_math math, int threads)
{
    char path[64];
    snprintf(path, sizeof path, "checkpoints/llama-%s", name);
    mote_model *m = model_open(golden_path(path), math, threads);
    vocab = m->net.config.vocab_size;
    return m;
}

static mote__checkpoint *open_rows(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "llama/%s.safetensors", name);
    return golden_open(golden_path(path));
}

/* logits of one pass over ids, all rows; caller frees */
static float *one_pass(mote_model *m, const int32_t *ids, size_t n, const char *kv)
{
    mote_session *s = session_open(m, kv, MOTE_PREFILL_BOUNDED);
    size_t rows, first;
    const float *x = feed(s, ids, n, MOTE_LOGITS_ALL, &rows, &first);
    assert_int_equal(rows, n);
    assert_int_equal(first, 0);
    float *copy = malloc(n * vocab * sizeof *copy);
    memcpy(copy, x, n * vocab * sizeof *copy);
    mote_session_destroy(s);
    return copy;
}

/* f32: nothing rounds but sums. Quantised: a key or value next to a rounding boundary may fall on
 * the other side, which moves the rows that attend to it. */
static void reference(void **state)
{
    (void)state;
    size_t n_files = 0;
    for (size_t i = 0; i < MODELS; i++) {
        mote_model *m = open_named(names[i], MOTE_MATH_FP32, 1);
        mote__checkpoint *g = open_rows(names[i]);
        const int32_t *ids = golden_i32(g, "ids", NULL, NULL);
        for (size_t t = 0; t < mote__checkpoint_n_tensors(g); t++) {
            const char *cache = mote__checkpoint_tensor(g, t)->name;
            if (!strcmp(cache, "ids"))
                continue;
            int exact = !strcmp(cache, "f32");
            double limit = exact ? 2e-5 : 2e-3;
            size_t rows, cols;
            const float *want = golden_f32(g, cache, &rows, &cols);
            assert_int_equal(rows, N);
            assert_int_equal(cols, vocab);
            float *got = one_pass(m, ids, N, cache);
            deviation d = { 0 };
            compare_rows(&d, want, got, N, vocab, limit);
            printf("  %-8s %-18s %zu of %zu rows over %g, worst %.2e\n", names[i], cache, d.over,
                   d.rows, limit, d.worst);
            assert_true(exact ? d.over == 0 : d.over * 20 <= d.rows && d.worst <= 0.1);
            free(got);
            n_files++;
        }
        mote__checkpoint_close(g);
        mote_model_close(m);
    }
    assert_true(n_files >= 30);
}

static void same(const float *want, const float *got, size_t n, const char *name, const char *what,
                 size_t arg)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&want[i], &got[i], 4))
            fail_msg("%s, %s %zu: value %zu of row %zu is %.9g, not %.9g", name, what, arg,
                     i % vocab, i / vocab, (double)got[i], (double)want[i]);
}

static const char *formats_of(const char *name)
{
    return !strcmp(name, "gqa") ? "key=fp8,value=mxfp4" : !strcmp(name, "tied") ? "bf16" : "fp4";
}

static void chunks(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        const char *kv = formats_of(names[i]);
        mote_model *m = open_named(names[i], MOTE_MATH_FP32, 1);
        mote__checkpoint *g = open_rows(names[i]);
        const int32_t *ids = golden_i32(g, "ids", NULL, NULL);
        float *want = one_pass(m, ids, N, kv);
        static const size_t sizes[] = { 1, 7, 64, 255 };
        for (size_t k = 0; k < 4; k++) {
            mote_session *s = session_open(m, kv, MOTE_PREFILL_BOUNDED);
            for (size_t at = 0, rows; at < N; at += sizes[k]) {
                size_t n = N - at < sizes[k] ? N - at : sizes[k];
                const float *x = feed(s, ids + at, n, MOTE_LOGITS_ALL, &rows, NULL);
                assert_int_equal(rows, n);
                same(want + at * vocab, x, n * vocab, names[i], "pieces of", sizes[k]);
            }
            mote_session_destroy(s);
            size_t usual = m->chunk_rows;
            m->chunk_rows = sizes[k];
            float *got = one_pass(m, ids, N, kv);
            same(want, got, N * vocab, names[i], "passes of", sizes[k]);
            free(got);
            m->chunk_rows = usual;
        }
        free(want);
        mote__checkpoint_close(g);
        mote_model_close(m);
    }
}

static void threads_and_levels(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        const char *kv = formats_of(names[i]);
        mote__checkpoint *g = open_rows(names[i]);
        const int32_t *ids = golden_i32(g, "ids", NULL, NULL);
        mote_model *m = open_named(names[i], MOTE_MATH_FP32, 1);
        float *want = one_pass(m, ids, N, kv);
        mote_model_close(m);
        for (int run = 0; run < 5; run++) {
            const mote__kern_ops *kern = run < 2 ? mote__kern() : mote__kern_at(run - 2);
            if (!kern)
                continue;
            m = open_named(names[i], MOTE_MATH_FP32, run < 2 ? 2 + 3 * run : 1);
            m->net.kern = kern;
            float *got = one_pass(m, ids, N, kv);
            same(want, got, N * vocab, names[i], kern->name, (size_t)run);
            free(got);
            mote_model_close(m);
        }
        free(want);
        mote__checkpoint_close(g);
    }
}

/* Two sessions of different formats and lengths in one step. */
static void together(void **state)
{
    (void)state;
    mote_model *m = open_named("gqa", MOTE_MATH_FP32, 2);
    mote__checkpoint *g = open_rows("gqa");
    const int32_t *ids = golden_i32(g, "ids", NULL, NULL);
    float *want[2] = { one_pass(m, ids, N, "fp4"), one_pass(m, ids, N, "key=fp8,value=fp4-128") };
    mote_session *s[2] = { session_open(m, "fp4", MOTE_PREFILL_FULL),
                           session_open(m, "key=fp8,value=fp4-128", MOTE_PREFILL_EXACT) };
    for (size_t at[2] = { 0, 0 }, step = 0; at[0] < N && at[1] < N; step++) {
        size_t n[2] = { step % 5 == 0 ? 40 : 1, step % 3 == 0 ? 1 : 17 };
        mote_feed f[2];
        for (int k = 0; k < 2; k++) {
            n[k] = N - at[k] < n[k] ? N - at[k] : n[k];
            f[k] = (mote_feed){ s[k], ids + at[k], n[k], k ? MOTE_LOGITS_ALL : MOTE_LOGITS_LAST };
        }
        assert_int_equal(mote_step(m, f, 2, NULL, NULL, NULL), 0);
        for (int k = 0; k < 2; k++) {
            size_t rows, first;
            const float *x = mote_session_logits(s[k], &rows, &first);
            assert_int_equal(rows, k ? n[k] : 1);
            at[k] += n[k];
            same(want[k] + first * vocab, x, rows * vocab, "gqa", "in company, step", step);
        }
    }
    for (int k = 0; k < 2; k++) {
        mote_session_destroy(s[k]);
        free(want[k]);
    }
    mote__checkpoint_close(g);
    mote_model_close(m);
}

/* BF16 activations: alike in prefill and decode, and not what fp32 gives. */
static void published_math(void **state)
{
    (void)state;
    static const char *const some[] = { "gqa", "fp8", "qwen2", "qwen3" };
    for (size_t i = 0; i < 4; i++) {
        mote__checkpoint *g = open_rows(some[i]);
        const int32_t *ids = golden_i32(g, "ids", NULL, NULL);
        mote_model *m = open_named(some[i], MOTE_MATH_PUBLISHED, 2);
        enum { SHORT = 80 };
        float *want = one_pass(m, ids, SHORT, NULL);
        mote_session *s = session_open(m, NULL, MOTE_PREFILL_FULL);
        for (size_t at = 0; at < SHORT; at++)
            same(want + at * vocab, feed(s, ids + at, 1, MOTE_LOGITS_LAST, NULL, NULL), vocab,
                 some[i], "published math, decoding", at);
        mote_session_destroy(s);
        deviation d = { 0 };
        compare_rows(&d, golden_f32(g, "bf16", NULL, NULL), want, SHORT, vocab, 0);
        printf("  %-8s published math is at most %.2e from fp32\n", some[i], d.worst);
        assert_true(d.over == SHORT && d.worst < 0.5);
        free(want);
        mote_model_close(m);
        mote__checkpoint_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference),          cmocka_unit_test(chunks),
        cmocka_unit_test(threads_and_levels), cmocka_unit_test(together),
        cmocka_unit_test(published_math),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
