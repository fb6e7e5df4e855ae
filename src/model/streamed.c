/* Slots, and the experts that come into them.
 *
 * key = layer * n_experts + id. A slot is empty, being read, or ready. One that is pinned
 * belongs to the present layer: its expert is wanted and was not released yet. `absent` are wanted
 * experts that have no pinned slot yet, in the order in which they will get one. */
#include "model/streamed.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "file/runs.h"
#include "model/catalog.h"

/* GUESSES: read for a layer that is to come; PASSING: slots a prompt's experts go through that are
 * not worth a place of their own, one in so many */
enum { PAGE = 4096, PARTS = 6, DEPTH = 16, MIN_DEPTH = 2 * PARTS, TRIES = 2, GUESSES = 2 };
enum { PASSING = 8, MOST_PASSING = 64 };
#define ARENA ((size_t)1 << 30)

/* Where an expert's matrices lie in the files. Parts: w1, w2, w3, then their scales. */
typedef struct home {
    mote__runs runs;
} home;

typedef enum slot_state { EMPTY, READING, READY } slot_state;

typedef struct slot {
    uint8_t *memory; /* of an arena */
    slot_state state;
    uint8_t pinned;
    uint8_t guess;     /* it came as a guess and was not wanted since */
    uint8_t passing;   /* of a prompt, not worth its place: the first to go */
    uint8_t n_tries;   /* of reading it */
    uint8_t n_reads;   /* not reported yet */
    uint8_t cancelled; /* one of them was given up before it began */
    int error;         /* of the first that failed: an errno, or 0 */
    unsigned error_run;
    mote__expert view;
} slot;

struct mote__streamed {
    mote__experts base;
    const mote__weights *weights; /* borrowed */
    mote__meter *meter;
    size_t n_layers, n_experts, n_keys;
    size_t slot_bytes, n_slots;
    home *homes;         /* [n_keys] */
    int32_t *slot_of;    /* [n_keys] or -1 */
    slot *slots;         /* [n_slots] */
    uint32_t *keys;      /* [n_slots] whose expert it holds */
    uint8_t *kept;       /* [n_slots] 0: ready, and nobody's: it may be emptied */
    uint32_t *free_list; /* [n_slots] empty slots */
    size_t n_free;
    void **arenas;
    size_t n_arenas, slots_per_arena;
    mote__read_file *files; /* [n_shards] */
    size_t n_files;
    mote__reads *reads;
    size_t depth; /* reads held at most */
    size_t n_guess_reads;
    mote__score score;
    uint32_t *passing; /* [MOST_PASSING] slots of passing experts, the first to be emptied */
    size_t n_passing;
    /* the present layer */
    size_t layer, n_pinned;
    int prompt, in_order;
    uint32_t *absent, *ready; /* [n_experts] ids; slots */
    size_t n_absent, first_absent, n_ready, first_ready, n_left;
    const uint32_t *order; /* in_order: the ids wanted, borrowed; n_left of them are to come */
    int fault_code;
    mote_err fault;
    uint64_t busy_since, checked_at;
    /* read by other threads */
    _Atomic uint64_t n_wanted, n_hits, n_guessed, n_read, n_guesses, bytes_wanted, bytes_guessed;
    _Atomic uint64_t wait_ns, busy_ns;
};

static mote__streamed *self(mote__experts *base) { return (mote__streamed *)base; }

static void count(_Atomic uint64_t *counter, uint64_t n)
{
    /* one writer */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* ---- where experts lie ---- */

static const mote__mat *part_of(const mote__expert *x, size_t part)
{
    const mote__mat *const m[] = { &x->w1, &x->w2, &x->w3 };
    return m[part % 3];
}

static const uint8_t *part_data(const mote__expert *x, size_t part)
{
    return part < 3 ? part_of(x, part)->data : part_of(x, part)->scale;
}

static int home_of(home *h, const mote__weights *w, const mote__expert *x)
{
    mote__source parts[PARTS];
    for (size_t i = 0; i < PARTS; i++) {
        const uint8_t *data = part_data(x, i);
        size_t bytes = i < 3 ? mote__mat_code_bytes(part_of(x, i))
                             : mote__mat_scale_bytes(part_of(x, i), MOTE_FORM_MATRIX);
        if (!data)
            bytes = 0;
        parts[i] = (mote__source){ 0 };
        if (bytes && mote__checkpoint_source_at(w->ckpt, data, bytes, &parts[i]))
            return MOTE_EINVAL;
    }
    mote__runs_of(&h->runs, parts, PARTS);
    return 0;
}

/* Bytes that a run takes in a slot: whole pages, as it lies in the file. */
static size_t run_room(const mote__source *run)
{
    uint64_t begin = run->offset / PAGE * PAGE, end = run->offset + run->bytes;
    return (size_t)((end - begin + PAGE - 1) / PAGE * PAGE);
}

static size_t home_bytes(const home *h)
{
    size_t n = 0;
    for (unsigned i = 0; i < h->runs.n; i++)
        n += run_room(&h->runs.run[i]);
    return n;
}

/* ---- slots ---- */

static uint32_t number_of(const mote__streamed *s, const slot *t)
{
    return (uint32_t)(t - s->slots);
}

static size_t key_of(const mote__streamed *s, const slot *t) { return s->keys[t - s->slots]; }

/* Whether it may be emptied is the slot's, the policy sees it in `kept`. */
static void note_kept(mote__streamed *s, const slot *t)
{
    s->kept[t - s->slots] = t->state != READY || t->pinned;
}

static void set_free(mote__streamed *s, slot *t)
{
    s->slot_of[key_of(s, t)] = -1;
    t->state = EMPTY;
    note_kept(s, t);
    s->free_list[s->n_free++] = number_of(s, t);
}

/* A ready slot that a passing expert has left. NULL: there is none. */
static slot *take_passed(mote__streamed *s)
{
    for (size_t i = 0; i < s->n_passing; i++) {
        slot *t = &s->slots[s->passing[i]];
        if (!t->passing) { /* it was used again, and stays */
            s->passing[i--] = s->passing[--s->n_passing];
            continue;
        }
        if (s->kept[s->passing[i]])
            continue;
        s->passing[i] = s->passing[--s->n_passing];
        return t;
    }
    return NULL;
}

static size_t passing_room(const mote__streamed *s)
{
    size_t n = s->n_slots / PASSING;
    return n < 1 ? 1 : n < MOST_PASSING ? n : MOST_PASSING;
}

/* A slot for `key`: an empty one, one that a passing expert has left, or the policy's choice.
 * *pass: 1 where the expert is not worth the place of the one that goes, and so is the first to go
 * itself. NULL: none can be had now. */
static slot *take_slot(mote__streamed *s, size_t key, int prompt, int *pass)
{
    *pass = 0;
    if (s->n_free)
        return &s->slots[s->free_list[--s->n_free]];
    slot *t = prompt ? NULL : take_passed(s);
    long victim = t ? -1 : mote__score_victim(&s->score, s->keys, s->kept, s->n_slots);
    if (!t && victim < 0)
        return NULL;
    if (!t) {
        *pass = !mote__score_admit(&s->score, (uint32_t)key, s->keys[victim], prompt);
        t = *pass ? take_passed(s) : NULL;
        if (*pass && !t && s->n_passing >= passing_room(s))
            return NULL; /* they are in use: one comes back soon */
        t = t ? t : &s->slots[victim];
    }
    if (t->passing) /* the policy chose one: it leaves their list */
        for (size_t i = 0; i < s->n_passing; i++)
            if (s->passing[i] == number_of(s, t))
                s->passing[i--] = s->passing[--s->n_passing];
    s->slot_of[key_of(s, t)] = -1;
    return t;
}

/* The views of a slot's expert: the checkpoint's matrices, over the slot's bytes. */
static void make_view(mote__streamed *s, slot *t)
{
    const home *h = &s->homes[key_of(s, t)];
    size_t begin[PARTS], at = 0;
    for (unsigned i = 0; i < h->runs.n; i++) {
        begin[i] = at + (size_t)(h->runs.run[i].offset % PAGE);
        at += run_room(&h->runs.run[i]);
    }
    t->view = s->weights->layers[key_of(s, t) / s->n_experts].experts[key_of(s, t) % s->n_experts];
    mote__mat *const m[] = { &t->view.w1, &t->view.w2, &t->view.w3 };
    for (size_t i = 0; i < PARTS; i++) {
        const struct mote__run_part *p = &h->runs.part[i];
        const uint8_t *data = p->run < 0 ? NULL : t->memory + begin[p->run] + p->at;
        *(i < 3 ? &m[i]->data : &m[i % 3]->scale) = data;
    }
}

/* ---- reads ---- */

/* A read's tag: slot and run. */
static void *tag_of(const mote__streamed *s, const slot *t, unsigned run)
{
    return (void *)((uintptr_t)(t - s->slots) * PARTS + run + 1);
}

static void submit(mote__streamed *s, slot *t, unsigned run)
{
    const home *h = &s->homes[key_of(s, t)];
    uint8_t *to = t->memory;
    for (unsigned i = 0; i < run; i++)
        to += run_room(&h->runs.run[i]);
    const mote__source *r = &h->runs.run[run];
    uint64_t begin = r->offset / PAGE * PAGE;
    /* the room was looked at: `depth` */
    (t->guess ? mote__reads_guess : mote__reads_submit)(s->reads, &s->files[r->shard], begin,
                                                        run_room(r), to, tag_of(s, t, run));
    t->n_reads++;
    s->n_guess_reads += t->guess;
}

static void begin_reading(mote__streamed *s, slot *t, size_t key, int guess)
{
    unsigned n = s->homes[key].runs.n;
    *t = (slot){ .memory = t->memory, .state = READING, .guess = !!guess };
    s->keys[number_of(s, t)] = (uint32_t)key;
    s->slot_of[key] = (int32_t)number_of(s, t);
    note_kept(s, t);
    if (!mote__reads_held(s->reads))
        s->busy_since = mote__clock_ns();
    for (unsigned i = 0; i < n; i++)
        submit(s, t, i);
}

static int fail(mote__streamed *s, const slot *t, int error)
{
    if (s->fault_code)
        return s->fault_code;
    const mote__source *r = &s->homes[key_of(s, t)].runs.run[t->error_run];
    const char *path = mote__checkpoint_shard_path(s->weights->ckpt, r->shard);
    size_t layer = key_of(s, t) / s->n_experts, id = key_of(s, t) % s->n_experts;
    if (error == ENODATA)
        s->fault_code = mote__fail(
            &s->fault, MOTE_EFORMAT,
            "%s: ends before %llu, where expert %zu of layer %zu lies: changed while in use", path,
            (unsigned long long)(r->offset + r->bytes), id, layer);
    else
        s->fault_code = mote__fail(
            &s->fault, MOTE_EIO, "%s: cannot read %llu bytes at %llu (expert %zu of layer %zu): %s",
            path, (unsigned long long)r->bytes, (unsigned long long)r->offset, id, layer,
            strerror(error));
    return s->fault_code;
}

/* All reads of the slot were reported. */
static void end_reading(mote__streamed *s, slot *t)
{
    if (!t->error && !t->cancelled) {
        make_view(s, t);
        t->state = READY;
        note_kept(s, t);
        if (t->pinned)
            s->ready[s->n_ready++] = number_of(s, t);
        return;
    }
    int tries = t->n_tries + (t->error != 0), passing = t->passing;
    if (t->pinned && (!t->error || (t->error != ENODATA && tries < TRIES))) {
        begin_reading(s, t, key_of(s, t), 0);
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
    set_free(s, t);
}

static void take_done(mote__streamed *s, const mote__read_done *done)
{
    uintptr_t tag = (uintptr_t)done->tag - 1;
    slot *t = &s->slots[tag / PARTS];
    unsigned run = (unsigned)(tag % PARTS);
    const mote__source *r = &s->homes[key_of(s, t)].runs.run[run];
    count(t->guess ? &s->bytes_guessed : &s->bytes_wanted, done->bytes);
    t->n_reads--;
    s->n_guess_reads -= t->guess;
    if (done->bytes < r->offset % PAGE + r->bytes) { /* what lies behind it is not missed */
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
        count(&s->busy_ns, mote__clock_ns() - s->busy_since);
}

static void poll_reads(mote__streamed *s)
{
    mote__read_done done;
    while (mote__reads_next(s->reads, 0, &done))
        take_done(s, &done);
}

static void wait_read(mote__streamed *s)
{
    mote__read_done done;
    uint64_t begin = mote__clock_ns();
    if (mote__reads_next(s->reads, 1, &done))
        take_done(s, &done);
    count(&s->wait_ns, mote__clock_ns() - begin);
}

static void join(mote__streamed *s, slot *t)
{
    int first_use = t->guess;
    t->pinned = 1;
    s->n_pinned++;
    t->passing = 0;
    note_kept(s, t);
    count(first_use ? &s->n_guessed : &s->n_hits, 1);
    if (t->state == READY) {
        s->ready[s->n_ready++] = number_of(s, t);
    } else if (t->guess) {
        s->n_guess_reads -= t->n_reads;
        for (unsigned i = 0; i < s->homes[key_of(s, t)].runs.n; i++)
            mote__reads_promote(s->reads, tag_of(s, t, i));
    }
    t->guess = 0;
}

/* Begin reading absent experts, as far as slots and reads in flight allow. */
static void begin_absent(mote__streamed *s)
{
    while (s->first_absent < s->n_absent && !s->fault_code) {
        size_t key = s->layer * s->n_experts + s->absent[s->first_absent];
        int pass = 0;
        slot *t = NULL;
        if (s->slot_of[key] >= 0) {
            join(s, &s->slots[s->slot_of[key]]);
            s->first_absent++;
            continue;
        }
        if (mote__reads_held(s->reads) + s->homes[key].runs.n <= s->depth)
            t = take_slot(s, key, s->prompt, &pass);
        if (!t)
            break;
        s->first_absent++;
        begin_reading(s, t, key, 0);
        t->pinned = 1;
        t->passing = (uint8_t)pass;
        if (pass)
            s->passing[s->n_passing++] = number_of(s, t);
        s->n_pinned++;
        count(&s->n_read, 1);
    }
    mote__reads_start(s->reads);
}

/* ---- a layer's use ---- */

/* Guesses of other layers that have not begun make room. */
static void drop_guesses(mote__streamed *s)
{
    for (size_t i = 0; i < s->n_slots && s->n_guess_reads; i++) {
        slot *t = &s->slots[i];
        if (t->state == READING && t->guess && key_of(s, t) / s->n_experts != s->layer)
            for (unsigned k = 0; k < s->homes[key_of(s, t)].runs.n; k++)
                mote__reads_drop(s->reads, tag_of(s, t, k));
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
    for (size_t i = 0; i < s->n_files && !s->fault_code; i++) {
        const mote__file_id *old = &mote__checkpoint_shard_map(s->weights->ckpt, i)->id;
        struct stat st;
        if (fstat(s->files[i].fd, &st) || (uint64_t)st.st_size != old->size ||
            (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec != old->mtime_ns)
            s->fault_code = mote__fail(&s->fault, MOTE_EFORMAT, "%s: changed while in use",
                                       mote__checkpoint_shard_path(s->weights->ckpt, i));
    }
}

static int want(mote__experts *base, size_t layer, const uint32_t *ids, size_t n, int in_order)
{
    mote__streamed *s = self(base);
    s->layer = layer;
    s->fault_code = 0;
    s->n_absent = s->first_absent = s->n_ready = s->first_ready = 0;
    s->n_left = n;
    s->in_order = in_order;
    s->order = ids;
    count(&s->n_wanted, n);
    poll_reads(s);
    check_files(s);
    if (s->fault_code)
        return s->fault_code;
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
static const slot *next_in_order(const mote__streamed *s)
{
    int32_t at = s->slot_of[s->layer * s->n_experts + *s->order];
    const slot *t = at < 0 ? NULL : &s->slots[at];
    return t && t->pinned && t->state == READY ? t : NULL;
}

static int has_ready(const mote__streamed *s)
{
    return s->in_order ? next_in_order(s) != NULL : s->first_ready < s->n_ready;
}

static const slot *take_ready(mote__streamed *s)
{
    if (!s->in_order)
        return &s->slots[s->ready[s->first_ready++]];
    const slot *t = next_in_order(s);
    s->order++;
    return t;
}

static long next(mote__experts *base, mote__ready_expert *ready, size_t most)
{
    mote__streamed *s = self(base);
    size_t n = 0;
    if (!s->n_left)
        return 0;
    poll_reads(s);
    begin_absent(s);
    while (!has_ready(s) && !s->fault_code) {
        assert(mote__reads_held(s->reads));
        wait_read(s);
        begin_absent(s);
    }
    if (s->fault_code)
        return s->fault_code;
    for (; n < most && s->n_left && has_ready(s); n++) {
        const slot *t = take_ready(s);
        ready[n] = (mote__ready_expert){ (uint32_t)(key_of(s, t) % s->n_experts), &t->view };
        s->n_left--;
    }
    return (long)n;
}

static void release(mote__experts *base, const mote__ready_expert *ready, size_t n)
{
    mote__streamed *s = self(base);
    for (size_t i = 0; i < n; i++) {
        slot *t = &s->slots[s->slot_of[s->layer * s->n_experts + ready[i].id]];
        t->pinned = 0;
        s->n_pinned--;
        note_kept(s, t);
    }
}

static void drop(mote__experts *base)
{
    mote__streamed *s = self(base);
    for (size_t i = 0; i < s->n_slots && s->n_pinned; i++) {
        s->n_pinned -= s->slots[i].pinned;
        s->slots[i].pinned = 0;
        note_kept(s, &s->slots[i]);
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
        slot *t = NULL;
        if (s->n_guess_reads + runs <= s->depth / 4 + PARTS &&
            mote__reads_held(s->reads) + runs <= s->depth)
            t = take_slot(s, key, 0, &pass);
        if (!t)
            break;
        begin_reading(s, t, key, 1);
        count(&s->n_guesses, 1);
        begun++;
    }
    mote__reads_start(s->reads);
}

/* ---- opening ---- */

static int find_homes(mote__streamed *s, const mote__weights *w, mote_err *err)
{
    for (size_t key = 0; key < s->n_keys; key++) {
        home *h = &s->homes[key];
        size_t layer = key / s->n_experts, id = key % s->n_experts;
        if (home_of(h, w, &w->layers[layer].experts[id]))
            return mote__fail(err, MOTE_EINVAL,
                              "expert %zu of layer %zu does not lie in the checkpoint's files", id,
                              layer);
        size_t bytes = home_bytes(h);
        s->slot_bytes = bytes > s->slot_bytes ? bytes : s->slot_bytes;
    }
    return 0;
}

int mote__streamed_slot_bytes(const mote__weights *w, size_t *slot_bytes, size_t *n_experts)
{
    *slot_bytes = *n_experts = 0;
    for (size_t l = 0; l < w->n_layers; l++)
        for (size_t e = 0; e < w->n_experts && w->layers[l].experts; e++) {
            home h;
            if (home_of(&h, w, &w->layers[l].experts[e]))
                return MOTE_EINVAL;
            size_t bytes = home_bytes(&h);
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

static size_t page_round(size_t n) { return (n + PAGE - 1) / PAGE * PAGE; }

static size_t arena_bytes(const mote__streamed *s, size_t arena)
{
    size_t left = s->n_slots - arena * s->slots_per_arena;
    return (left < s->slots_per_arena ? left : s->slots_per_arena) * s->slot_bytes;
}

static int make_slots(mote__streamed *s, uint64_t budget, mote_err *err)
{
    size_t n = (size_t)(budget / s->slot_bytes);
    n = n < s->n_keys ? n : s->n_keys;
    if (n < MOTE_FEWEST_SLOTS && n < s->n_keys)
        return mote__fail(err, MOTE_EINVAL,
                          "%llu bytes for experts are room for %zu of %zu bytes: at least %d",
                          (unsigned long long)budget, n, s->slot_bytes, MOTE_FEWEST_SLOTS);
    s->slots_per_arena = ARENA / s->slot_bytes ? ARENA / s->slot_bytes : 1;
    size_t n_arenas = (n + s->slots_per_arena - 1) / s->slots_per_arena;
    s->slots = mote__alloc(s->meter, MOTE_MEM_WEIGHTS, n * sizeof *s->slots);
    s->keys = mote__alloc(s->meter, MOTE_MEM_WEIGHTS, n * sizeof *s->keys);
    s->kept = mote__alloc(s->meter, MOTE_MEM_WEIGHTS, n * sizeof *s->kept);
    s->free_list = mote__alloc(s->meter, MOTE_MEM_WEIGHTS, n * sizeof *s->free_list);
    s->arenas = mote__alloc(s->meter, MOTE_MEM_WEIGHTS, n_arenas * sizeof *s->arenas);
    s->n_slots = n;
    int ok = s->slots && s->keys && s->kept && s->free_list && s->arenas;
    for (size_t i = 0; i < n && ok; i++) {
        size_t in = i % s->slots_per_arena;
        if (!in) {
            size_t bytes = arena_bytes(s, s->n_arenas);
            ok = (s->arenas[s->n_arenas] = mote__map_large_pages(s->meter, MOTE_MEM_WEIGHTS,
                                                                 &bytes)) != NULL;
            s->n_arenas += (size_t)ok;
        }
        if (ok) {
            s->slots[i] = (slot){ .memory = (uint8_t *)s->arenas[i / s->slots_per_arena] +
                                            in * s->slot_bytes };
            s->kept[i] = 1;
            s->free_list[n - 1 - i] = (uint32_t)i; /* the first one is taken first */
        }
    }
    s->n_free = ok ? n : 0;
    return ok ? 0
              : mote__fail(err, MOTE_ENOMEM, "out of memory for %zu experts of %zu bytes", n,
                           s->slot_bytes);
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
    s->passing = mote__alloc(meter, MOTE_MEM_WEIGHTS, MOST_PASSING * sizeof *s->passing);
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
        !(rc = make_slots(s, params->budget_bytes, err)))
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
    size_t n_arenas = s->slots_per_arena
                          ? (s->n_slots + s->slots_per_arena - 1) / s->slots_per_arena
                          : 0;
    for (size_t i = 0; i < s->n_arenas; i++)
        mote__unmap_pages(s->meter, MOTE_MEM_WEIGHTS, s->arenas[i], page_round(arena_bytes(s, i)));
    for (size_t i = 0; i < s->n_files; i++)
        mote__read_file_close(&s->files[i]);
    if (s->score.scaled)
        mote__score_deinit(&s->score);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->arenas, n_arenas * sizeof *s->arenas);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->slots, s->n_slots * sizeof *s->slots);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->keys, s->n_slots * sizeof *s->keys);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->kept, s->n_slots * sizeof *s->kept);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->passing, MOST_PASSING * sizeof *s->passing);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->free_list, s->n_slots * sizeof *s->free_list);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->homes, s->n_keys * sizeof *s->homes);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->slot_of, s->n_keys * sizeof *s->slot_of);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->files, n_shards * sizeof *s->files);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->absent, s->n_experts * sizeof *s->absent);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->ready, s->n_experts * sizeof *s->ready);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s, sizeof *s);
}

mote__experts *mote__streamed_experts(mote__streamed *s) { return &s->base; }

const char *mote__streamed_fault(const mote__streamed *s)
{
    return s && s->fault_code ? s->fault.message : "";
}

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
