/* Experts in slots: opening, and what a layer asks for. Inside: streamed_impl.h. */
#include <assert.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "model/streamed_impl.h"

/* GUESSES: read for a layer that is to come */
enum { DEPTH = 16, MIN_DEPTH = 2 * MOTE_EXPERT_PARTS, GUESSES = 2 };

static mote__streamed *self(mote__experts *base) { return (mote__streamed *)base; }

static void join(mote__streamed *s, mote__xslot *t)
{
    int first_use = t->guess;
    t->pinned = 1;
    s->n_pinned++;
    t->passing = 0;
    mote__xslot_note(s, t);
    mote__streamed_add(first_use ? &s->n_guessed : &s->n_hits, 1);
    if (t->state == MOTE_SLOT_READY) {
        s->ready[s->n_ready++] = mote__xslot_number(s, t);
    } else if (t->guess) {
        mote__xslot_promote(s, t);
    }
    t->guess = 0;
}

/* Begin reading absent experts, as far as slots and reads in flight allow. */
static void begin_absent(mote__streamed *s)
{
    while (s->first_absent < s->n_absent && !s->fault.code) {
        size_t key = s->layer * s->n_experts + s->absent[s->first_absent];
        int pass = 0;
        mote__xslot *t = NULL;
        if (s->slot_of[key] >= 0) {
            join(s, &s->slots[s->slot_of[key]]);
            s->first_absent++;
            continue;
        }
        if (mote__reads_held(s->reads) + s->homes[key].runs.n <= s->depth)
            t = mote__xslot_take(s, key, s->prompt, &pass);
        if (!t)
            break;
        s->first_absent++;
        mote__xslot_read(s, t, key, 0);
        t->pinned = 1;
        t->passing = (uint8_t)pass;
        if (pass)
            s->passing[s->n_passing++] = mote__xslot_number(s, t);
        s->n_pinned++;
        mote__streamed_add(&s->n_read, 1);
    }
    mote__reads_start(s->reads);
}

/* Guesses of other layers that have not begun make room. */
static void drop_guesses(mote__streamed *s)
{
    for (size_t i = 0; i < s->n_slots && s->n_guess_reads; i++) {
        mote__xslot *t = &s->slots[i];
        if (t->state == MOTE_SLOT_READING && t->guess &&
            mote__xslot_key(s, t) / s->n_experts != s->layer)
            mote__xslot_drop(s, t);
    }
}

static void routed(mote__experts *base, size_t layer, const int32_t *ids, size_t n_rows,
                   size_t n_per_row, int prompt)
{
    mote__streamed *s = self(base);
    enum { SOME = 512 };
    uint16_t some[SOME];
    s->prompt = prompt;
    for (size_t r = 0, n; r < n_rows; r += n) {
        n = n_rows - r < SOME / n_per_row ? n_rows - r : SOME / n_per_row;
        for (size_t i = 0; i < n * n_per_row; i++)
            some[i] = (uint16_t)ids[r * n_per_row + i];
        mote__score_use(&s->score, layer, some, n, n_per_row, prompt);
    }
}

/* A file that has changed is not read any more: what is in it now may be anything. Looked at once a
 * second. */
static void check_files(mote__streamed *s)
{
    uint64_t now = mote__clock_ns();
    if (now - s->checked_at < 1000000000u)
        return;
    s->checked_at = now;
    for (size_t i = 0; i < s->n_files && !s->fault.code; i++) {
        const mote__file_id *old = &mote__checkpoint_shard_map(s->weights->ckpt, i)->id;
        struct stat st;
        if (fstat(s->files[i].fd, &st) || (uint64_t)st.st_size != old->size ||
            (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec != old->mtime_ns)
            mote__fail(&s->fault, MOTE_EFORMAT, "%s: changed while in use",
                       mote__checkpoint_shard_path(s->weights->ckpt, i));
    }
}

static int want(mote__experts *base, size_t layer, const uint32_t *ids, size_t n, int in_order)
{
    mote__streamed *s = self(base);
    s->layer = layer;
    s->fault.code = 0;
    s->n_absent = s->first_absent = s->n_ready = s->first_ready = 0;
    s->n_left = n;
    s->in_order = in_order;
    s->order = ids;
    mote__streamed_add(&s->n_wanted, n);
    mote__streamed_poll(s);
    check_files(s);
    if (s->fault.code)
        return s->fault.code;
    for (size_t i = 0; i < n; i++) {
        size_t key = layer * s->n_experts + ids[i];
        /* in order: all take their turns, so that the first ones are never without a slot */
        if (s->slot_of[key] >= 0 && !in_order)
            join(s, &s->slots[s->slot_of[key]]);
        else
            s->absent[s->n_absent++] = ids[i];
    }
    drop_guesses(s);
    begin_absent(s);
    return 0;
}

/* in_order: the next one, if it is ready. */
static const mote__xslot *next_in_order(const mote__streamed *s)
{
    int32_t at = s->slot_of[s->layer * s->n_experts + *s->order];
    const mote__xslot *t = at < 0 ? NULL : &s->slots[at];
    return t && t->pinned && t->state == MOTE_SLOT_READY ? t : NULL;
}

static int has_ready(const mote__streamed *s)
{
    return s->in_order ? next_in_order(s) != NULL : s->first_ready < s->n_ready;
}

static const mote__xslot *take_ready(mote__streamed *s)
{
    if (!s->in_order)
        return &s->slots[s->ready[s->first_ready++]];
    const mote__xslot *t = next_in_order(s);
    s->order++;
    return t;
}

static long next(mote__experts *base, mote__ready_expert *ready, size_t most)
{
    mote__streamed *s = self(base);
    size_t n = 0;
    if (!s->n_left)
        return 0;
    mote__streamed_poll(s);
    begin_absent(s);
    while (!has_ready(s) && !s->fault.code) {
        assert(mote__reads_held(s->reads));
        mote__streamed_wait(s);
        begin_absent(s);
    }
    if (s->fault.code)
        return s->fault.code;
    for (; n < most && s->n_left && has_ready(s); n++) {
        const mote__xslot *t = take_ready(s);
        ready[n] = (mote__ready_expert){ (uint32_t)(mote__xslot_key(s, t) % s->n_experts),
                                         &t->view };
        s->n_left--;
    }
    return (long)n;
}

static void release(mote__experts *base, const mote__ready_expert *ready, size_t n)
{
    mote__streamed *s = self(base);
    for (size_t i = 0; i < n; i++) {
        mote__xslot *t = &s->slots[s->slot_of[s->layer * s->n_experts + ready[i].id]];
        t->pinned = 0;
        s->n_pinned--;
        mote__xslot_note(s, t);
    }
}

static void drop(mote__experts *base)
{
    mote__streamed *s = self(base);
    for (size_t i = 0; i < s->n_slots && s->n_pinned; i++) {
        s->n_pinned -= s->slots[i].pinned;
        s->slots[i].pinned = 0;
        mote__xslot_note(s, &s->slots[i]);
    }
    s->n_absent = s->first_absent = s->n_ready = s->first_ready = s->n_left = 0;
}

static void guess(mote__experts *base, size_t layer, const uint32_t *ids, size_t n)
{
    mote__streamed *s = self(base);
    size_t begun = 0;
    for (size_t i = 0; i < n && begun < GUESSES; i++) {
        size_t key = layer * s->n_experts + ids[i];
        unsigned runs = s->homes[key].runs.n;
        if (s->slot_of[key] >= 0)
            continue;
        int pass;
        mote__xslot *t = NULL;
        if (s->n_guess_reads + runs <= s->depth / 4 + MOTE_EXPERT_PARTS &&
            mote__reads_held(s->reads) + runs <= s->depth)
            t = mote__xslot_take(s, key, 0, &pass);
        if (!t)
            break;
        mote__xslot_read(s, t, key, 1);
        mote__streamed_add(&s->n_guesses, 1);
        begun++;
    }
    mote__reads_start(s->reads);
}

/* ---- opening ---- */

static int find_homes(mote__streamed *s, const mote__weights *w, mote_err *err)
{
    for (size_t key = 0; key < s->n_keys; key++) {
        mote__home *h = &s->homes[key];
        size_t layer = key / s->n_experts, id = key % s->n_experts;
        if (mote__home_of(h, w, &w->layers[layer].experts[id]))
            return mote__fail(err, MOTE_EINVAL,
                              "expert %zu of layer %zu does not lie in the checkpoint's files", id,
                              layer);
        size_t bytes = mote__home_bytes(h);
        s->slot_bytes = bytes > s->slot_bytes ? bytes : s->slot_bytes;
    }
    return 0;
}

int mote__streamed_slot_bytes(const mote__weights *w, size_t *slot_bytes, size_t *n_experts)
{
    *slot_bytes = *n_experts = 0;
    for (size_t l = 0; l < w->n_layers; l++)
        for (size_t e = 0; e < w->n_experts && w->layers[l].experts; e++) {
            mote__home h;
            if (mote__home_of(&h, w, &w->layers[l].experts[e]))
                return MOTE_EINVAL;
            size_t bytes = mote__home_bytes(&h);
            *slot_bytes = bytes > *slot_bytes ? bytes : *slot_bytes;
            ++*n_experts;
        }
    return *n_experts ? 0 : MOTE_EINVAL;
}

static int open_files(mote__streamed *s, mote_err *err)
{
    const mote__checkpoint *c = s->weights->ckpt;
    for (size_t i = 0; i < mote__checkpoint_n_shards(c); i++) {
        const char *path = mote__checkpoint_shard_path(c, i);
        mote__file_id id;
        int rc = mote__read_file_open(&s->files[i], path, 1, err);
        if (rc)
            return rc;
        s->n_files++;
        const mote__file_id *mapped = &mote__checkpoint_shard_map(c, i)->id;
        if ((rc = mote__file_id_get(&id, path, err)))
            return rc;
        if (id.device != mapped->device || id.inode != mapped->inode || id.size != mapped->size ||
            id.mtime_ns != mapped->mtime_ns)
            return mote__fail(err, MOTE_EIO, "%s: has changed since it was opened", path);
    }
    return 0;
}

static const mote__experts_ops ops = { want, next, release, drop, routed, guess };

int mote__streamed_open(mote__streamed **out, const mote__weights *w,
                        const mote__streamed_params *params, mote__meter *meter, mote_err *err)
{
    *out = NULL;
    mote__streamed *s = mote__alloc(meter, MOTE_MEM_WEIGHTS, sizeof *s);
    if (!s)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for streamed experts");
    s->base.ops = &ops;
    s->weights = w;
    s->meter = meter;
    s->n_layers = w->n_layers;
    s->n_experts = w->n_experts;
    s->n_keys = s->n_layers * s->n_experts;
    size_t n_shards = mote__checkpoint_n_shards(w->ckpt);
    s->homes = mote__alloc(meter, MOTE_MEM_WEIGHTS, s->n_keys * sizeof *s->homes);
    s->slot_of = mote__alloc(meter, MOTE_MEM_WEIGHTS, s->n_keys * sizeof *s->slot_of);
    s->files = mote__alloc(meter, MOTE_MEM_WEIGHTS, n_shards * sizeof *s->files);
    s->absent = mote__alloc(meter, MOTE_MEM_WEIGHTS, s->n_experts * sizeof *s->absent);
    s->ready = mote__alloc(meter, MOTE_MEM_WEIGHTS, s->n_experts * sizeof *s->ready);
    s->passing = mote__alloc(meter, MOTE_MEM_WEIGHTS, MOTE_MOST_PASSING * sizeof *s->passing);
    int rc = 0;
    if (!s->homes || !s->slot_of || !s->files || !s->absent || !s->ready || !s->passing)
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory for streamed experts");
    for (size_t i = 0; i < s->n_keys && !rc; i++)
        s->slot_of[i] = -1;
    mote__reads_params reads = params->reads;
    reads.depth = reads.depth ? reads.depth : DEPTH;
    reads.depth = reads.depth < MIN_DEPTH ? MIN_DEPTH : reads.depth;
    reads.direct = 1;
    s->depth = reads.depth;
    if (!rc && !(rc = find_homes(s, w, err)) && !(rc = open_files(s, err)) &&
        !(rc = mote__reads_open(&s->reads, &reads, meter, err)) &&
        !(rc = mote__slots_make(s, params->budget_bytes, err)))
        rc = mote__score_init(&s->score, s->n_layers, s->n_experts,
                              mote__score_half_life(s->n_slots, s->n_layers * params->n_per_token),
                              params->seed, meter, err);
    if (rc) {
        mote__streamed_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void mote__streamed_close(mote__streamed *s)
{
    if (!s)
        return;
    mote__reads_close(s->reads);
    size_t n_shards = mote__checkpoint_n_shards(s->weights->ckpt);
    for (size_t i = 0; i < s->n_files; i++)
        mote__read_file_close(&s->files[i]);
    if (s->score.scaled)
        mote__score_deinit(&s->score);
    mote__slots_free(s);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->passing, MOTE_MOST_PASSING * sizeof *s->passing);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->homes, s->n_keys * sizeof *s->homes);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->slot_of, s->n_keys * sizeof *s->slot_of);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->files, n_shards * sizeof *s->files);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->absent, s->n_experts * sizeof *s->absent);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->ready, s->n_experts * sizeof *s->ready);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s, sizeof *s);
}

mote__experts *mote__streamed_experts(mote__streamed *s) { return &s->base; }

const mote_err *mote__streamed_fault(const mote__streamed *s) { return &s->fault; }

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void mote__streamed_get_stats(const mote__streamed *s, mote__streamed_stats *stats)
{
    int direct = 1;
    for (size_t i = 0; i < s->n_files; i++)
        direct &= s->files[i].direct_fd >= 0 && !s->files[i].direct_refused;
    *stats = (mote__streamed_stats){
        .n_wanted = load(&s->n_wanted),
        .n_hits = load(&s->n_hits),
        .n_guessed = load(&s->n_guessed),
        .n_read = load(&s->n_read),
        .n_guesses = load(&s->n_guesses),
        .bytes_wanted = load(&s->bytes_wanted),
        .bytes_guessed = load(&s->bytes_guessed),
        .wait_s = (double)load(&s->wait_ns) * 1e-9,
        .busy_s = (double)load(&s->busy_ns) * 1e-9,
        .n_slots = s->n_slots,
        .slot_bytes = s->slot_bytes,
        .direct = direct,
    };
}
