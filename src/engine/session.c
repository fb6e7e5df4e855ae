/* Sessions: tokens, cache and windows of one sequence; fork, mark, truncate. What a step does is in
 * step.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "model/kv_shape.h"

int mote_session_create(mote_session **out, mote_model *model, const mote_session_params *params,
                        mote_err *err)
{
    *out = NULL;
    const mote__config *c = &model->net.config;
    mote__kv_shape shape;
    mote__kv_spec spec;
    int rc = params ? MOTE_CHECK_RESERVED(params, "mote_session_params", err) : 0;
    if (!rc && params && (unsigned)params->prefill > MOTE_PREFILL_FULL)
        rc = mote__fail(err, MOTE_EUNSUPPORTED, "mote_session_params.prefill is %d",
                        (int)params->prefill);
    if (rc)
        return rc;
    mote__kv_shape_of(&shape, c);
    if ((rc = mote__kv_spec_parse(&spec, params ? params->kv : NULL, &shape, err)))
        return rc;
    size_t limit = params && params->max_context ? params->max_context : c->max_context;
    if (limit > c->max_context)
        return mote__fail(err, MOTE_EINVAL,
                          "a context of %zu tokens is more than the model's limit of %zu", limit,
                          c->max_context);
    mote_session *s = mote__alloc(&model->meter, MOTE_MEM_OTHER, sizeof *s);
    mote__kv_pool *pool = mote__model_pool(model, &spec);
    if (!s || !pool || mote__kv_state_init(&s->seq.state, &shape, &spec, &model->meter)) {
        mote__free(&model->meter, MOTE_MEM_OTHER, s, sizeof *s);
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a session");
    }
    s->model = model;
    s->max_context = limit;
    s->seq.topk = params ? params->topk : 0;
    s->seq.all_candidates = params && params->all_candidates;
    s->prefill = params ? params->prefill : MOTE_PREFILL_BOUNDED;
    s->live = 1;
    s->approximate_from = UINT64_MAX;
    mote__kv_cache_init(&s->seq.kv, pool);
    mote__buf_init(&s->ids, &model->meter, MOTE_MEM_OTHER);
    mote__buf_init(&s->logits, &model->meter, MOTE_MEM_OTHER);
    mote__model_count(model, 1);
    *out = s;
    return 0;
}

static void drop_marks(mote_session *s, size_t keep)
{
    while (s->n_marks > keep)
        mote__kv_state_deinit(&s->marks[--s->n_marks].state);
}

void mote_session_destroy(mote_session *s)
{
    if (!s)
        return;
    mote_model *m = s->model;
    drop_marks(s, 0);
    mote__kv_cache_deinit(&s->seq.kv);
    mote__kv_state_deinit(&s->seq.state);
    mote__buf_deinit(&s->ids);
    mote__buf_deinit(&s->logits);
    mote__free(&m->meter, MOTE_MEM_OTHER, s, sizeof *s);
    mote__model_count(m, -1);
}

/* A session that is idle gives its last row, so that a fork can be sampled from at once; in the
 * middle of a prompt all rows so far, and room for the others. */
static int copy_logits(mote_session *f, const mote_session *s)
{
    size_t bytes = s->model->net.config.vocab_size * sizeof(float);
    size_t n = s->prompt.begun ? s->n_logits : s->n_logits != 0;
    f->n_logits = n;
    f->first_logits = s->first_logits + s->n_logits - n;
    if (s->prompt.pending && mote__buf_reserve(&f->logits, s->logits.capacity))
        return MOTE_ENOMEM;
    return n ? mote__buf_append(&f->logits,
                                (const char *)s->logits.data + (s->n_logits - n) * bytes, n * bytes)
             : 0;
}

static int copy_marks(mote_session *f, const mote_session *s)
{
    for (; f->n_marks < s->n_marks; f->n_marks++) {
        const struct mark *from = &s->marks[f->n_marks];
        struct mark *to = &f->marks[f->n_marks];
        *to = *from;
        if (mote__kv_state_clone(&to->state, &from->state))
            return MOTE_ENOMEM;
    }
    return 0;
}

int mote_session_fork(mote_session **out, const mote_session *s, mote_err *err)
{
    mote_model *m = s->model;
    *out = NULL;
    mote_session *f = mote__alloc(&m->meter, MOTE_MEM_OTHER, sizeof *f);
    if (!f)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a fork");
    *f = (mote_session){ .model = m,
                         .n_ids = s->n_ids,
                         .n_kv = s->n_kv,
                         .max_context = s->max_context,
                         .live = s->live,
                         .prefill = s->prefill,
                         .replay = s->replay,
                         .approximate_from = s->approximate_from,
                         .origin = s->origin,
                         .follow_origin = s->follow_origin,
                         .follow_until = s->follow_until,
                         .store = s->store,
                         .context = s->context,
                         .chain = s->chain,
                         .prompt = s->prompt };
    size_t written = mote__session_written(s), end = s->n_ids + s->prompt.n;
    mote__buf_init(&f->ids, &m->meter, MOTE_MEM_OTHER);
    mote__buf_init(&f->logits, &m->meter, MOTE_MEM_OTHER);
    mote__kv_cache_init(&f->seq.kv, s->seq.kv.pool);
    mote__model_count(m, 1);
    if (mote__kv_state_clone(&f->seq.state, &s->seq.state) ||
        mote__kv_cache_fork(&f->seq.kv, &s->seq.kv, written) ||
        (s->prompt.pending && mote__kv_reserve(&f->seq.kv, written, end)) ||
        mote__buf_append(&f->ids, s->ids.data, end * sizeof(int32_t)) || copy_logits(f, s) ||
        copy_marks(f, s)) {
        mote_session_destroy(f);
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a fork");
    }
    f->seq.ids = f->ids.data;
    f->seq.topk = s->seq.topk;
    f->seq.all_candidates = s->seq.all_candidates;
    *out = f;
    return 0;
}

/* A session without windows is always live: its blocks are all it has. */
static int has_windows(const mote_session *s) { return s->seq.state.window > 0; }

size_t mote_session_length(const mote_session *s) { return s->n_ids; }
size_t mote_session_origin(const mote_session *s) { return (size_t)s->origin; }

int mote_session_follow(mote_session *s, size_t origin, size_t n_tokens, mote_err *err)
{
    int rc = mote__session_idle(s, err);
    if (rc)
        return rc;
    if (s->n_ids)
        return mote__fail(err, MOTE_EINVAL,
                          "only an empty session can follow another: this one holds %zu tokens",
                          s->n_ids);
    s->follow_origin = s->follow_until = 0;
    if (!has_windows(s) || s->prefill != MOTE_PREFILL_BOUNDED) /* they begin at 0 there */
        return 0;
    if (n_tokens && origin >= n_tokens)
        return mote__fail(err, MOTE_EINVAL, "windows cannot begin at position %zu of %zu tokens",
                          origin, n_tokens);
    s->follow_origin = n_tokens ? origin : 0;
    s->follow_until = n_tokens;
    return 0;
}

const int32_t *mote_session_tokens(const mote_session *s) { return s->ids.data; }

int mote_session_mark(mote_session *s, mote_err *err)
{
    if (!s->live)
        return mote__fail(
            err, MOTE_EINVAL,
            "the session awaits a replay: there is no state to mark before the next step");
    if (s->n_marks && s->marks[s->n_marks - 1].n == s->n_ids)
        return 0;
    size_t room = sizeof s->marks / sizeof s->marks[0];
    mote__kv_state state;
    if (mote__kv_state_clone(&state, &s->seq.state))
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a mark (%zu bytes)",
                          s->seq.state.bytes);
    if (s->n_marks == room) {
        mote__kv_state_deinit(&s->marks[0].state);
        memmove(s->marks, s->marks + 1, (room - 1) * sizeof s->marks[0]);
        s->n_marks--;
    }
    s->marks[s->n_marks++] = (struct mark){
        .n = s->n_ids, .origin = s->origin, .approximate_from = s->approximate_from, .state = state
    };
    return 0;
}

static size_t min2(size_t a, size_t b) { return a < b ? a : b; }

static size_t replay_tokens(const mote_session *s)
{
    mote__schedule k = mote__schedule_make(s, s->max_context > s->n_ids ? 1 : 0);
    return (size_t)(k.publish_from - k.begin);
}

/* Keep n tokens without windows. */
static void cut(mote_session *s, size_t n, mote_replay replay)
{
    const mote__config *c = &s->model->net.config;
    s->n_ids = s->n_kv = n;
    mote__kv_cache_truncate(&s->seq.kv, n);
    mote__kv_state_clear_pending(&s->seq.state);
    mote__kv_state_clear_windows(&s->seq.state, 0, c->n_layers);
    s->replay = replay;
    s->live = n == 0 || !has_windows(s);
    s->origin = s->follow_until = s->follow_origin = 0;
    s->n_logits = 0;
    if (n <= s->approximate_from) /* the windows are gone, and with them what was approximate */
        s->approximate_from = UINT64_MAX;
    mote__persist_cut(s);
}

int mote_session_truncate(mote_session *s, size_t length, mote_replay replay,
                          mote_truncated *result, mote_err *err)
{
    const mote__config *c = &s->model->net.config;
    mote_truncated t = { 0 };
    int rc = mote__session_idle(s, err);
    if (rc)
        return rc;
    if (length > s->n_ids)
        return mote__fail(err, MOTE_EINVAL, "cannot truncate to %zu tokens: the session holds %zu",
                          length, s->n_ids);
    /* without windows every position is as good as a mark */
    size_t usable = has_windows(s) ? s->n_marks : 0;
    while (usable && s->marks[usable - 1].n > length)
        usable--;
    if (length == s->n_ids) {
        t = (mote_truncated){ .length = length,
                              .windows = s->live ? MOTE_WINDOWS_LIVE : MOTE_WINDOWS_REPLAY };
    } else if (usable) {
        struct mark *mark = &s->marks[usable - 1];
        drop_marks(s, usable);
        mote__kv_state_copy(&s->seq.state, &mark->state);
        s->n_ids = s->n_kv = mark->n;
        mote__kv_cache_truncate(&s->seq.kv, mark->n);
        s->live = 1;
        s->n_logits = 0;
        s->origin = mark->origin;
        s->approximate_from = mark->approximate_from;
        mote__persist_cut(s);
        s->follow_origin = s->follow_until = 0;
        t = (mote_truncated){ .length = mark->n, .windows = MOTE_WINDOWS_MARK };
    } else {
        drop_marks(s, 0);
        cut(s, min2(length, s->n_kv) / c->prefix_multiple * c->prefix_multiple, replay);
        t = (mote_truncated){ .length = s->n_ids,
                              .windows = s->live ? MOTE_WINDOWS_LIVE : MOTE_WINDOWS_REPLAY };
    }
    if (t.windows == MOTE_WINDOWS_REPLAY)
        t.replay_tokens = replay_tokens(s);
    if (result)
        *result = t;
    return 0;
}

int mote_session_forget_windows(mote_session *s, mote_replay replay, mote_err *err)
{
    size_t multiple = s->model->net.config.prefix_multiple;
    int rc = mote__session_idle(s, err);
    if (rc)
        return rc;
    if (s->n_kv != s->n_ids || s->n_ids % multiple)
        return mote__fail(err, MOTE_EINVAL,
                          "a prefix of %zu tokens cannot be cut: it must be a multiple of %zu",
                          s->n_ids, multiple);
    drop_marks(s, 0);
    cut(s, s->n_ids, replay);
    return 0;
}

void mote_session_get_memory(const mote_session *s, mote_memory *memory)
{
    const mote__kv_layout *l = &s->seq.kv.pool->layout;
    memset(memory, 0, sizeof *memory);
    for (int i = 0; i < 4; i++)
        memory->bytes[l->part_class[i]] = s->seq.kv.n_blocks * l->part_bytes[i];
    memory->bytes[MOTE_MEM_KV_SLACK] = s->seq.kv.capacity * sizeof(void *);
    memory->bytes[MOTE_MEM_KV_WINDOW] = s->seq.state.bytes * (1 + s->n_marks);
    memory->bytes[MOTE_MEM_OTHER] = sizeof *s + s->ids.capacity + s->logits.capacity;
    for (int i = 0; i < MOTE_MEM_CLASSES; i++)
        memory->total += memory->bytes[i];
    memory->peak = memory->total;
}

double mote_session_kv_bytes_per_token(const mote_session *s, double parts[4])
{
    const mote__kv_layout *l = &s->seq.kv.pool->layout;
    for (int i = 0; i < 4 && parts; i++)
        parts[i] = mote__kv_layout_part_per_token(l, i);
    return mote__kv_layout_bytes_per_token(l);
}

const char *mote_session_kv_part_name(const mote_session *s, int part)
{
    return part >= 0 && part < 4
               ? mote_memory_class_name(s->seq.kv.pool->layout.part_class[part]) + strlen("kv_")
               : "unknown";
}

size_t mote_session_window_bytes(const mote_session *s)
{
    return s->seq.state.n_layers * s->seq.state.window * s->seq.state.row_bytes;
}

const float *mote_session_logits(const mote_session *s, size_t *n_rows, size_t *first)
{
    if (n_rows)
        *n_rows = s->n_logits;
    if (first)
        *first = s->first_logits;
    return s->n_logits ? s->logits.data : NULL;
}
