/* Several feeds to their end: pushed together, stepped until all are done. */
#include "engine/engine.h"

/* Feeds are named by their number. */
static int named(size_t i, size_t n, const mote_err *from, mote_err *err)
{
    if (n == 1)
        return mote__fail(err, from->code, "%s", from->message);
    return mote__fail(err, from->code, "feed %zu: %s", i, from->message);
}

static void drop_all(const mote_feed *feeds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mote_session_drop(feeds[i].session);
}

static int push_all(mote_model *m, const mote_feed *feeds, size_t n, mote_err *err)
{
    for (size_t i = 0; i < n; i++) {
        mote_session *s = feeds[i].session;
        mote_err own = { 0 };
        int rc = 0;
        if (!s || s->model != m)
            rc = mote__fail(&own, MOTE_EINVAL, "the session is not one of this model");
        for (size_t j = 0; j < i && !rc; j++)
            if (feeds[j].session == s)
                rc = mote__fail(&own, MOTE_EINVAL, "the session is also in feed %zu", j);
        if (!rc)
            rc = mote__session_idle(s, &own);
        if (!rc)
            rc = mote_session_push(s, feeds[i].ids, feeds[i].n_ids, 0, feeds[i].logits, &own);
        if (rc) {
            drop_all(feeds, i);
            return named(i, n, &own, err);
        }
    }
    return 0;
}

int mote_run(mote_model *m, const mote_feed *feeds, size_t n, mote_run_progress progress,
             void *progress_ctx, mote_err *err)
{
    enum { ON_STACK = 8 };
    mote_session *few_sessions[ON_STACK], **sessions = few_sessions;
    mote_stepped few_stepped[ON_STACK], *stepped = few_stepped;
    size_t bytes = n * (sizeof *stepped + sizeof *sessions), all = 0, done = 0;
    void *memory = NULL;
    int rc = push_all(m, feeds, n, err);
    if (rc || n == 0)
        return rc;
    if (n > ON_STACK) {
        stepped = memory = mote__alloc(&m->meter, MOTE_MEM_SCRATCH, bytes);
        sessions = (mote_session **)(void *)(stepped + n);
        if (!memory)
            rc = mote__fail(err, MOTE_ENOMEM, "out of memory for a step of %zu sessions", n);
    }
    for (size_t i = 0; i < n && !rc; i++) {
        sessions[i] = feeds[i].session;
        all += (size_t)(sessions[i]->prompt.k.end - sessions[i]->prompt.k.begin);
    }
    while (!rc && done < all) {
        rc = mote_step(m, sessions, n, NULL, stepped, err);
        for (size_t i = 0; i < n && !rc; i++) {
            done += stepped[i].n_rows;
            if (stepped[i].err.code)
                rc = named(i, n, &stepped[i].err, err);
        }
        if (!rc && progress && progress(progress_ctx, done, all) && done < all)
            rc = mote__fail(err, MOTE_ECANCELED, "cancelled after %zu of %zu tokens", done, all);
    }
    if (rc)
        drop_all(feeds, n);
    mote__free(&m->meter, MOTE_MEM_SCRATCH, memory, bytes);
    return rc;
}
