/* Golden files: read, compare, and run the model as the reference did. Used by tests/model. */
#ifndef MOTE_TESTS_GOLDEN_H
#define MOTE_TESTS_GOLDEN_H

#include <math.h>

#include <jansson.h>

#include "engine/engine.h"
#include "test.h"

/* "<MOTE_GOLDEN_DIR>/<relative>": where tests/reference/regenerate.py wrote */
static inline const char *golden_path(const char *relative)
{
    static char paths[4][4096];
    static int turn;
    const char *root = getenv("MOTE_GOLDEN_DIR");
    char *p = paths[turn++ & 3];
    snprintf(p, sizeof paths[0], "%s/%s", root ? root : "build/golden", relative);
    return p;
}

static inline mote__checkpoint *golden_open(const char *path)
{
    mote_err err;
    mote__checkpoint *g = NULL;
    if (mote__checkpoint_open(&g, path, &err))
        fail_msg("%s", err.message);
    return g;
}

static inline const float *golden_f32(mote__checkpoint *g, const char *name, size_t *rows,
                                      size_t *cols)
{
    const mote__tensor *t = mote__checkpoint_find(g, name);
    if (!t)
        return NULL;
    if (rows)
        *rows = (size_t)t->shape[0];
    if (cols)
        *cols = t->n_dims < 2 ? 1 : (size_t)(t->n_bytes / 4 / (t->shape[0] ? t->shape[0] : 1));
    return (const float *)(const void *)t->data;
}

static inline const int32_t *golden_i32(mote__checkpoint *g, const char *name, size_t *rows,
                                        size_t *cols)
{
    return (const int32_t *)(const void *)golden_f32(g, name, rows, cols);
}

/* Called with every model that is opened: tests/model/double.h puts another backend under it. */
static void (*model_opened)(mote_model *m);

static inline mote_model *model_open(const char *path, mote_math math, int threads)
{
    mote_err err;
    mote_model *m = NULL;
    mote_model_params p = { .math = math, .n_threads = threads };
    if (mote_model_open(&m, path, &p, &err))
        fail_msg("%s", err.message);
    if (model_opened)
        model_opened(m);
    return m;
}

static inline mote_session *session_open(mote_model *m, const char *kv, mote_prefill prefill)
{
    mote_err err;
    mote_session *s = NULL;
    mote_session_params p = { .kv = kv, .prefill = prefill };
    if (mote_session_create(&s, m, &p, &err))
        fail_msg("%s", err.message);
    return s;
}

static inline const float *feed(mote_session *s, const int32_t *ids, size_t n,
                                mote_logits_rows rows, size_t *n_rows, size_t *first)
{
    mote_err err;
    mote_feed f = { s, ids, n, rows };
    if (mote_step(s->model, &f, 1, NULL, NULL, &err))
        fail_msg("%s", err.message);
    return mote_session_logits(s, n_rows, first);
}

/* How far rows of logits are apart. */
typedef struct deviation {
    size_t rows, over;
    double worst;
} deviation;

static inline void compare_rows(deviation *d, const float *want, const float *got, size_t rows,
                                size_t cols, double limit)
{
    for (size_t r = 0; r < rows; r++) {
        double worst = 0;
        for (size_t i = 0; i < cols; i++) {
            double e = fabs((double)want[r * cols + i] - (double)got[r * cols + i]);
            worst = e > worst || isnan(e) ? e : worst;
        }
        d->rows++;
        d->over += !(worst <= limit);
        d->worst = worst > d->worst || isnan(worst) ? worst : d->worst;
    }
}

/* Everything that make_golden.py's scenario() recorded: prefill, decoder replay, encoder replay,
 * each with its greedy steps. */
static inline void scenario(mote_model *m, mote__checkpoint *g, const char *kv, size_t cut,
                            double limit, deviation *d)
{
    size_t n = 0, vocab = 0, rows = 0, got = 0, first = 0;
    const int32_t *ids = golden_i32(g, "ids", &n, NULL);
    static const struct {
        const char *name;
        mote_prefill prefill;
        int cut;
    } runs[] = {
        { "prefill", MOTE_PREFILL_FULL, 0 },
        { "bounded", MOTE_PREFILL_BOUNDED, 0 },
        { "encreplay", MOTE_PREFILL_BOUNDED, 1 },
        { "encreplay_whole", MOTE_PREFILL_FULL, 1 },
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_logits", runs[i].name);
        const float *want = golden_f32(g, name, &rows, &vocab);
        if (!want)
            continue;
        mote_session *s = session_open(m, kv, runs[i].prefill);
        size_t fed = 0;
        if (runs[i].cut) {
            feed(s, ids, fed = cut, MOTE_LOGITS_NONE, NULL, NULL);
            assert_int_equal(mote_session_forget_windows(s, MOTE_REPLAY_BOUNDED, NULL), 0);
        }
        const float *x = feed(s, ids + fed, n - fed, MOTE_LOGITS_ALL, &got, &first);
        assert_true(got >= rows); /* some files keep only the last rows */
        if (first + got != n)
            fail_msg("%s: rows end at %zu, not %zu", runs[i].name, first + got, n);
        compare_rows(d, want, x + (got - rows) * vocab, rows, vocab, limit);
        char ids_name[64], logits_name[64];
        snprintf(ids_name, sizeof ids_name, "%s%sgreedy_ids", i ? runs[i].name : "", i ? "_" : "");
        snprintf(logits_name, sizeof logits_name, "%s%sgreedy_logits", i ? runs[i].name : "",
                 i ? "_" : "");
        size_t steps = 0, kept = 0;
        const int32_t *fed_ids = golden_i32(g, ids_name, &steps, NULL);
        const float *after = fed_ids ? golden_f32(g, logits_name, &kept, &vocab) : NULL;
        for (size_t k = 0; after && k < steps; k++) {
            x = feed(s, fed_ids + k, 1, MOTE_LOGITS_LAST, NULL, NULL);
            if (k >= steps - kept)
                compare_rows(d, after + (k - (steps - kept)) * vocab, x, 1, vocab, limit);
        }
        mote_session_destroy(s);
    }
}

#endif
