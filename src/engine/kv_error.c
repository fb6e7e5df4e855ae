/* How far one session's stored KV is from another's, by layer and part: what rounding does by
 * itself, and what it adds up to when every layer computes from rounded values. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

typedef struct sums {
    double norm, rounding, error;
    size_t n;
} sums;

/* One vector: b of the base, a of the session, b rounded as the session stores it (scratch of dim
 * floats). */
static void add(sums *s, const float *a, const float *b, float *scratch, size_t dim,
                const mote__kvfmt *fmt)
{
    memcpy(scratch, b, dim * sizeof *b);
    mote__kvfmt_round(fmt, scratch, dim);
    for (size_t i = 0; i < dim; i++) {
        double v = (double)b[i], e = (double)a[i] - v, r = (double)scratch[i] - v;
        s->norm += v * v;
        s->error += e * e;
        s->rounding += r * r;
    }
    s->n++;
}

static int append(json_t *rows, size_t layer, const char *part, const mote__kvfmt *fmt,
                  const sums *s)
{
    double norm = s->norm > 0 ? s->norm : 1;
    return json_array_append_new(
        rows, json_pack("{s:I, s:s, s:s, s:I, s:f, s:f}", "layer", (json_int_t)layer, "part", part,
                        "format", fmt->name, "vectors", (json_int_t)s->n, "rounding",
                        sqrt(s->rounding / norm), "error", sqrt(s->error / norm)));
}

static void window_of(float *dst, const mote_session *s, size_t layer, uint64_t pos, size_t dim)
{
    mote__kv_ref ref = mote__kv_window(&s->seq.state, layer, pos);
    s->seq.state.fmt->decode(dst, ref.codes, ref.scales, dim);
}

static int compare(json_t *rows, const mote_session *s, const mote_session *base, float *a,
                   float *b, float *scratch)
{
    const mote__config *c = &s->model->net.config;
    int rc = 0;
    for (size_t i = 0; i < c->n_kv_sources; i++) {
        sums m = { 0 }, x = { 0 };
        const mote__kv_source *src = &s->seq.kv.pool->layout.source[i];
        for (size_t e = 0; e < s->seq.kv.n_entries[i] && e < base->seq.kv.n_entries[i]; e++) {
            mote__kv_main_decode(a, &s->seq.kv, i, e);
            mote__kv_main_decode(b, &base->seq.kv, i, e);
            add(&m, a, b, scratch, c->head_dim, src->main);
            mote__kv_index_decode(a, &s->seq.kv, i, e);
            mote__kv_index_decode(b, &base->seq.kv, i, e);
            add(&x, a, b, scratch, c->index_head_dim, src->index);
        }
        rc |= append(rows, c->kv_sources[i], "main", src->main, &m) |
              append(rows, c->kv_sources[i], "index", src->index, &x);
    }
    for (size_t l = 0; l < c->n_layers; l++) {
        sums w = { 0 };
        const mote__kv_ring *p = &s->seq.state.ring[l], *q = &base->seq.state.ring[l];
        for (uint64_t pos = p->start > q->start ? p->start : q->start; pos < p->end && pos < q->end;
             pos++) {
            window_of(a, s, l, pos, c->head_dim);
            window_of(b, base, l, pos, c->head_dim);
            add(&w, a, b, scratch, c->head_dim, s->seq.state.fmt);
        }
        rc |= append(rows, l, "window", s->seq.state.fmt, &w);
    }
    return rc;
}

int mote_kv_error_json(const mote_session *s, const mote_session *base, char **json, mote_err *err)
{
    *json = NULL;
    const mote__config *c = &s->model->net.config;
    if (base->model != s->model || base->n_kv != s->n_kv ||
        memcmp(s->ids.data, base->ids.data, s->n_kv * sizeof(int32_t)))
        return mote__fail(
            err, MOTE_EINVAL,
            "two sessions whose KV is compared must be of one model and hold the same tokens");
    size_t dim = c->head_dim > c->index_head_dim ? c->head_dim : c->index_head_dim;
    float *vectors = malloc(3 * dim * sizeof *vectors);
    json_t *rows = json_array();
    int rc = vectors && rows ? compare(rows, s, base, vectors, vectors + dim, vectors + 2 * dim)
                             : -1;
    if (!rc)
        *json = json_dumps(rows, JSON_REAL_PRECISION(9));
    json_decref(rows);
    free(vectors);
    return *json ? 0 : mote__fail(err, MOTE_ENOMEM, "out of memory");
}
