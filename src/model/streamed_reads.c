/* Streamed experts: from a slot that was taken to one that is ready, or a fault. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "model/streamed_impl.h"

enum { TRIES = 2 }; /* of a read that fails */

/* A read's tag: slot and run. */
static void *tag_of(const mote__streamed *s, const mote__xslot *t, unsigned run)
{
    return (void *)((uintptr_t)(t - s->slots) * MOTE_EXPERT_PARTS + run + 1);
}

static void submit(mote__streamed *s, mote__xslot *t, unsigned run)
{
    const mote__home *h = &s->homes[mote__xslot_key(s, t)];
    uint8_t *to = t->memory;
    for (unsigned i = 0; i < run; i++)
        to += mote__run_room(&h->runs.run[i]);
    const mote__source *r = &h->runs.run[run];
    uint64_t begin = r->offset / MOTE_SLOT_PAGE * MOTE_SLOT_PAGE;
    /* the room was looked at: `depth` */
    (t->guess ? mote__reads_guess : mote__reads_submit)(s->reads, &s->files[r->shard], begin,
                                                        mote__run_room(r), to, tag_of(s, t, run));
    t->n_reads++;
    s->n_guess_reads += t->guess;
}

void mote__xslot_read(mote__streamed *s, mote__xslot *t, size_t key, int guess)
{
    unsigned n = s->homes[key].runs.n;
    *t = (mote__xslot){ .memory = t->memory, .state = MOTE_SLOT_READING, .guess = !!guess };
    s->keys[mote__xslot_number(s, t)] = (uint32_t)key;
    s->slot_of[key] = (int32_t)mote__xslot_number(s, t);
    mote__xslot_note(s, t);
    if (!mote__reads_held(s->reads))
        s->busy_since = mote__clock_ns();
    for (unsigned i = 0; i < n; i++)
        submit(s, t, i);
}

static void fail(mote__streamed *s, const mote__xslot *t, int error)
{
    if (s->fault.code)
        return;
    const mote__source *r = &s->homes[mote__xslot_key(s, t)].runs.run[t->error_run];
    const char *path = mote__checkpoint_shard_path(s->weights->ckpt, r->shard);
    size_t layer = mote__xslot_key(s, t) / s->n_experts, id = mote__xslot_key(s, t) % s->n_experts;
    if (error == ENODATA)
        mote__fail(&s->fault, MOTE_EFORMAT,
                   "%s: ends before %llu, where expert %zu of layer %zu lies: changed while in use",
                   path, (unsigned long long)(r->offset + r->bytes), id, layer);
    else
        mote__fail(&s->fault, MOTE_EIO,
                   "%s: cannot read %llu bytes at %llu (expert %zu of layer %zu): %s", path,
                   (unsigned long long)r->bytes, (unsigned long long)r->offset, id, layer,
                   strerror(error));
}

/* All reads of the slot were reported. */
static void end_reading(mote__streamed *s, mote__xslot *t)
{
    if (!t->error && !t->cancelled) {
        mote__xslot_view(s, t);
        t->state = MOTE_SLOT_READY;
        mote__xslot_note(s, t);
        if (t->pinned)
            s->ready[s->n_ready++] = mote__xslot_number(s, t);
        return;
    }
    int tries = t->n_tries + (t->error != 0), passing = t->passing;
    if (t->pinned && (!t->error || (t->error != ENODATA && tries < TRIES))) {
        mote__xslot_read(s, t, mote__xslot_key(s, t), 0);
        t->pinned = 1;
        t->passing = (uint8_t)passing;
        t->n_tries = (uint8_t)tries;
        return;
    }
    if (t->pinned) {
        fail(s, t, t->error);
        s->n_pinned--;
        s->n_left--;
        t->pinned = 0;
    }
    t->passing = 0;
    mote__xslot_clear(s, t);
}

static void take_done(mote__streamed *s, const mote__read_done *done)
{
    uintptr_t tag = (uintptr_t)done->tag - 1;
    mote__xslot *t = &s->slots[tag / MOTE_EXPERT_PARTS];
    unsigned run = (unsigned)(tag % MOTE_EXPERT_PARTS);
    const mote__source *r = &s->homes[mote__xslot_key(s, t)].runs.run[run];
    mote__streamed_add(t->guess ? &s->bytes_guessed : &s->bytes_wanted, done->bytes);
    t->n_reads--;
    s->n_guess_reads -= t->guess;
    if (done->bytes <
        r->offset % MOTE_SLOT_PAGE + r->bytes) { /* what lies behind it is not missed */
        if (done->error == ECANCELED)
            t->cancelled = 1;
        else if (!t->error) {
            t->error = done->error;
            t->error_run = run;
        }
    }
    if (!t->n_reads)
        end_reading(s, t);
    if (!mote__reads_held(s->reads))
        mote__streamed_add(&s->busy_ns, mote__clock_ns() - s->busy_since);
}

void mote__streamed_poll(mote__streamed *s)
{
    mote__read_done done;
    while (mote__reads_next(s->reads, 0, &done))
        take_done(s, &done);
}

void mote__streamed_wait(mote__streamed *s)
{
    mote__read_done done;
    uint64_t begin = mote__clock_ns();
    if (mote__reads_next(s->reads, 1, &done))
        take_done(s, &done);
    mote__streamed_add(&s->wait_ns, mote__clock_ns() - begin);
}

void mote__xslot_promote(mote__streamed *s, mote__xslot *t)
{
    s->n_guess_reads -= t->n_reads;
    for (unsigned i = 0; i < s->homes[mote__xslot_key(s, t)].runs.n; i++)
        mote__reads_promote(s->reads, tag_of(s, t, i));
}

void mote__xslot_drop(mote__streamed *s, mote__xslot *t)
{
    for (unsigned i = 0; i < s->homes[mote__xslot_key(s, t)].runs.n; i++)
        mote__reads_drop(s->reads, tag_of(s, t, i));
}
