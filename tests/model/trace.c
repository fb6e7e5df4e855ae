/* Layer by layer against the reference's recorded intermediates. fp32: one pass, everything must
 * agree and every discrete choice must be the same. Published math: a flipped BF16 rounding
 * spreads, so each layer starts from the recorded output of the one before and is compared on its
 * own. */
#include "golden.h"

struct watch {
    mote__checkpoint *g;
    const mote__config *c;
    int published, verbose;
    size_t n_tensors, n_choices, n_choice_values, n_choice_wrong;
    double worst;        /* largest rms(got - want) / rms(want) of a tensor */
    double worst_change; /* the same of a layer's output, against what the layer added */
    size_t engram_row;
};

static const char *name_of(size_t layer, const char *what)
{
    static char name[96];
    snprintf(name, sizeof name, "layers.%zu.%s", layer, what);
    return name;
}

static double rms(const float *a, const float *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += ((double)a[i] - (b ? (double)b[i] : 0)) * ((double)a[i] - (b ? (double)b[i] : 0));
    return sqrt(s / (double)(n ? n : 1));
}

static void on_f32(void *ctx, size_t layer, const char *what, const float *data, size_t rows,
                   size_t cols)
{
    struct watch *w = ctx;
    size_t n = 0, m = 0;
    const float *want = golden_f32(w->g, name_of(layer, what), &n, &m);
    if (!want)
        fail_msg("no %s in the file", name_of(layer, what));
    if (n != rows || m != cols)
        fail_msg("%s: %zu x %zu, recorded %zu x %zu", name_of(layer, what), rows, cols, n, m);
    double scale = rms(want, NULL, n * m), e = rms(data, want, n * m) / (scale > 0 ? scale : 1);
    w->n_tensors++;
    if (w->verbose)
        printf("    %-28s %.2e\n", name_of(layer, what), e);
    if (e > w->worst || isnan(e))
        w->worst = e;
    if (strcmp(what, "out") == 0 && layer > 0) {
        const float *before = golden_f32(w->g, name_of(layer - 1, "out"), NULL, NULL);
        double change = rms(data, want, n * m) / rms(want, before, n * m);
        w->worst_change = change > w->worst_change ? change : w->worst_change;
    }
}

static void count(struct watch *w, size_t layer, const char *what, const int32_t *want,
                  const int32_t *got, size_t n)
{
    w->n_choices++;
    w->n_choice_values += n;
    for (size_t i = 0; i < n; i++)
        if (want[i] != got[i]) {
            w->n_choice_wrong++;
            if (!w->published)
                fail_msg("%s: value %zu is %d, recorded %d", name_of(layer, what), i, got[i],
                         want[i]);
        }
}

static void on_i32(void *ctx, size_t layer, const char *what, const int32_t *data, size_t rows,
                   size_t cols)
{
    struct watch *w = ctx;
    size_t n = 0, m = 0;
    if (strcmp(what, "candidate_blocks") == 0) { /* recorded as a mask over positions */
        const int32_t *mask = golden_i32(w->g, name_of(layer, "candidates"), &n, &m);
        assert_non_null(mask);
        assert_int_equal(n, rows);
        int32_t *got = calloc(n * m, sizeof *got);
        for (size_t r = 0; r < rows; r++)
            for (size_t k = 0; k < cols && data[r * cols + k] >= 0; k++)
                for (size_t i = 0; i < w->c->candidate_block_size; i++) {
                    size_t at = (size_t)data[r * cols + k] * w->c->candidate_block_size + i;
                    if (at < (r + 1) / w->c->compress_ratios[layer])
                        got[r * m + at] = 1;
                }
        count(w, layer, "candidates", mask, got, n * m);
        free(got);
        return;
    }
    const int32_t *want = golden_i32(w->g, name_of(layer, what), &n, &m);
    if (!want)
        fail_msg("no %s in the file", name_of(layer, what));
    assert_int_equal(m, cols);
    if (strcmp(what, "engram_ids") == 0) {
        want += w->engram_row++ % n * m;
    } else
        assert_int_equal(n, rows);
    count(w, layer, what, want, data, rows * cols);
}

static void on_enter(void *ctx, size_t layer, float *h, float *mix, size_t rows)
{
    struct watch *w = ctx;
    size_t n = 0, m = 0;
    if (layer == 0)
        return;
    const float *out = golden_f32(w->g, name_of(layer - 1, "out"), &n, &m);
    assert_int_equal(n, rows);
    memcpy(h, out, n * m * sizeof *h);
    const float *pre = golden_f32(w->g, name_of(layer - 1, "pre_mix"), &n, &m);
    memcpy(mix, pre, n * m * sizeof *mix);
}

static struct watch walk(const char *config, const char *mode, size_t n_tokens)
{
    char path[128];
    snprintf(path, sizeof path, "checkpoints/%s", config);
    int published = strcmp(mode, "official") == 0;
    mote_model *m = model_open(golden_path(path), published ? MOTE_MATH_PUBLISHED : MOTE_MATH_FP32,
                               2);
    snprintf(path, sizeof path, "golden/%s.%s.trace.n%zu.safetensors", config, mode, n_tokens);
    struct watch w = { .g = golden_open(golden_path(path)),
                       .c = &m->net.config,
                       .published = published,
                       .verbose = getenv("MOTE_TEST_VERBOSE") != NULL };
    mote__trace trace = {
        .ctx = &w, .f32 = on_f32, .i32 = on_i32, .enter = published ? on_enter : NULL
    };
    size_t n = 0, rows = 0, vocab = 0;
    const int32_t *ids = golden_i32(w.g, "ids", &n, NULL);
    mote_session *s = session_open(m, NULL, MOTE_PREFILL_FULL);
    m->net.trace = &trace;
    const float *x = feed(s, ids, n, MOTE_LOGITS_ALL, NULL, NULL),
                *want = golden_f32(w.g, "logits", &rows, &vocab);
    double e = rms(x, want, rows * vocab) / rms(want, NULL, rows * vocab);
    w.worst = e > w.worst ? e : w.worst;
    /* what was stored: main KV and indexer keys of every source, bit for bit in fp32 */
    float row[4096];
    for (size_t i = 0; i < w.c->n_kv_sources; i++) {
        size_t layer = w.c->kv_sources[i], entries = 0, cols = 0, wrong = 0;
        const float *main = golden_f32(w.g, name_of(layer, "main_kv"), &entries, &cols);
        assert_int_equal(entries, s->seq.kv.n_entries[i]);
        for (size_t k = 0; k < entries; k++) {
            mote__kv_main_decode(row, &s->seq.kv, i, k);
            wrong += memcmp(row, main + k * cols, cols * sizeof *row) != 0;
        }
        const float *key = golden_f32(w.g, name_of(layer, "index_k"), &entries, &cols);
        for (size_t k = 0; k < entries; k++) {
            mote__kv_index_decode(row, &s->seq.kv, i, k);
            wrong += memcmp(row, key + k * cols, cols * sizeof *row) != 0;
        }
        if (!published && wrong)
            fail_msg("%s source %zu: %zu stored entries differ", config, layer, wrong);
        if (published && wrong * 4 > entries)
            fail_msg("%s source %zu: %zu of %zu stored entries differ", config, layer, wrong,
                     2 * entries);
    }
    printf("  %s %-8s %zu tensors, worst rms %.2e (of a layer's change %.2e); %zu of %zu choices "
           "differ\n",
           config, mode, w.n_tensors, w.worst, w.worst_change, w.n_choice_wrong, w.n_choice_values);
    m->net.trace = NULL;
    mote_session_destroy(s);
    mote__checkpoint_close(w.g);
    mote_model_close(m);
    return w;
}

static void fp32_layers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t n;
    } cases[] = { { "tiny-a", 25 }, { "tiny-b", 41 }, { "tiny-c", 41 } };
    for (size_t i = 0; i < 3; i++) {
        struct watch w = walk(cases[i].name, "fp32", cases[i].n);
        assert_int_equal(w.n_choice_wrong, 0);
        /* one flipped FP8 rounding of a window entry; else 1e-6 */
        assert_true(w.worst < 5e-3);
        assert_true(w.n_choices >= 16 && w.n_tensors > 60);
    }
}

static void published_layers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t n;
    } cases[] = { { "tiny-a", 25 }, { "tiny-b", 41 }, { "tiny-c", 41 } };
    for (size_t i = 0; i < 3; i++) {
        struct watch w = walk(cases[i].name, "official", cases[i].n);
        /* a flipped BF16 rounding of a score */
        assert_true(w.n_choice_wrong * 100 <= w.n_choice_values);
        /* BF16 has 8 bits: 2^-8 = 0.004 */
        assert_true(w.worst < 0.02);
        assert_true(w.n_choices >= 16 && w.n_tensors > 60);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(fp32_layers),
                                        cmocka_unit_test(published_layers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
