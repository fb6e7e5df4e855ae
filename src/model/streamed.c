/* Slots, and the experts that come into them.
 *
 * key = layer * n_experts + id. A slot is empty (key -1), being read, or ready. One that is pinned
 * belongs to the present layer: its expert is wanted and was not released yet. `absent` are wanted
 * experts that have no slot yet, in the order in which they will get one. */
#include "model/streamed.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "file/runs.h"

enum { PAGE = 4096, PARTS = 6, DEPTH = 16, MIN_DEPTH = 2 * PARTS, TRIES = 2, SAMPLE = 16, GUESSES = 2 };
#define ARENA ((size_t)1 << 30)

/* Where an expert's matrices lie in the files. Parts: w1, w2, w3, then their scales. */
typedef struct home {
    mote__runs runs;
} home;

typedef enum slot_state { EMPTY, READING, READY } slot_state;

typedef struct slot {
    uint8_t *memory; /* of an arena */
    int64_t key;
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
    uint32_t *free_list; /* [n_slots] empty slots */
    size_t n_free;
    void **arenas;
    size_t n_arenas, slots_per_arena;
    mote__read_file *files; /* [n_shards] */
    size_t n_files;
    mote__reads *reads;
    size_t depth; /* reads held at most */
    size_t n_guess_reads;
    mote__score *score;
    uint64_t random;
    /* the present layer */
    size_t layer, n_pinned;
    uint32_t *absent, *ready; /* [n_experts] ids; slots */
    size_t n_absent, first_absent, n_ready, first_ready, n_left;
    int fault_code;
    mote_err fault;
    struct timespec busy_since;
    /* read by other threads */
    _Atomic uint64_t n_wanted, n_hits, n_guessed, n_read, n_guesses, bytes_wanted, bytes_guessed;
    _Atomic uint64_t wait_ns, busy_ns;
};

static mote__streamed *self(mote__experts *base) { return (mote__streamed *)base; }

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

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

static size_t data_bytes(const mote__mat *m)
{
    static const size_t bits[MOTE_W_KINDS] = { 32, 16, 8, 4, 4 };
    return m->n_out * m->n_in * bits[m->kind] / 8;
}

static size_t scale_bytes(const mote__mat *m)
{
    return (m->kind == MOTE_W_FP8 ? (m->n_out + 31) / 32 : m->n_out) * m->scale_stride;
}

static int home_of(home *h, const mote__weights *w, const mote__expert *x)
{
    mote__source parts[PARTS];
    for (size_t i = 0; i < PARTS; i++) {
        const uint8_t *data = part_data(x, i);
        size_t bytes = i < 3 ? data_bytes(part_of(x, i))
                             : scale_bytes(part_of(x, i));
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

static uint64_t draw(mote__streamed *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return s->random >> 33;
}

static void set_free(mote__streamed *s, slot *t)
{
    if (t->key >= 0)
        s->slot_of[t->key] = -1;
    t->key = -1;
    t->state = EMPTY;
    s->free_list[s->n_free++] = (uint32_t)(t - s->slots);
}

static int may_go(const slot *t) { return t->state == READY && !t->pinned; }

/* The least of a sample of ready slots; NULL: none in it may go. */
static slot *sample_least(mote__streamed *s, int sample)
{
    slot *least = NULL;
    float score = 0;
    for (int i = 0; i < sample; i++) {
        slot *t = &s->slots[draw(s) % s->n_slots];
        float v = may_go(t) ? t->passing ? -1 : mote__score_of(s->score, (size_t)t->key) : 0;
        if (may_go(t) && (!least || v < score)) {
            least = t;
            score = v;
        }
    }
    return least;
}

/* An empty slot, or the ready one that is worth least of a sample. NULL: all are pinned or being
 * read. */
static slot *take_slot(mote__streamed *s)
{
    if (s->n_free)
        return &s->slots[s->free_list[--s->n_free]];
    slot *t = sample_least(s, SAMPLE);
    for (size_t i = 0; i < s->n_slots && !t; i++) /* few may go: look at all */
        t = may_go(&s->slots[i]) ? &s->slots[i] : NULL;
    if (t)
        s->slot_of[t->key] = -1;
    return t;
}

/* The views of a slot's expert: the checkpoint's matrices, over the slot's bytes. */
static void make_view(mote__streamed *s, slot *t)
{
    const home *h = &s->homes[t->key];
    size_t begin[PARTS], at = 0;
    for (unsigned i = 0; i < h->runs.n; i++) {
        begin[i] = at + (size_t)(h->runs.run[i].offset % PAGE);
        at += run_room(&h->runs.run[i]);
    }
    t->view = s->weights->layers[(size_t)t->key / s->n_experts]
                  .experts[(size_t)t->key % s->n_experts];
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
    const home *h = &s->homes[t->key];
    uint8_t *to = t->memory;
    for (unsigned i = 0; i < run; i++)
        to += run_room(&h->runs.run[i]);
    const mote__source *r = &h->runs.run[run];
    uint64_t begin = r->offset / PAGE * PAGE;
    /* the room was looked at: `depth` */
    mote__reads_submit(s->reads, &s->files[r->shard], begin, run_room(r), to, tag_of(s, t, run),
                       t->guess ? MOTE_READ_GUESS : MOTE_READ_DEMAND);
    t->n_reads++;
    s->n_guess_reads += t->guess;
}

static void begin_reading(mote__streamed *s, slot *t, size_t key, int guess)
{
    unsigned n = s->homes[key].runs.n;
    *t = (slot){ .memory = t->memory, .key = (int64_t)key, .state = READING, .guess = !!guess };
    s->slot_of[key] = (int32_t)(t - s->slots);
    if (!mote__reads_held(s->reads))
        clock_gettime(CLOCK_MONOTONIC, &s->busy_since);
    for (unsigned i = 0; i < n; i++)
        submit(s, t, i);
}

static int fail(mote__streamed *s, const slot *t, int error)
{
    if (s->fault_code)
        return s->fault_code;
    const mote__source *r = &s->homes[t->key].runs.run[t->error_run];
    const char *path = mote__checkpoint_shard_path(s->weights->ckpt, r->shard);
    size_t layer = (size_t)t->key / s->n_experts, id = (size_t)t->key % s->n_experts;
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
        if (t->pinned)
            s->ready[s->n_ready++] = (uint32_t)(t - s->slots);
        return;
    }
    uint8_t *memory = t->memory;
    int pinned = t->pinned, error = t->error, tries = t->n_tries;
    size_t key = (size_t)t->key;
    if (pinned && (!error || (error != ENODATA && tries + 1 < TRIES))) {
        begin_reading(s, t, key, 0);
        t->pinned = 1;
        t->n_tries = (uint8_t)(tries + (error != 0));
        return;
    }
    if (pinned) {
        fail(s, t, error);
        s->n_pinned--;
        s->n_left--;
    }
    t->pinned = 0;
    t->memory = memory;
    set_free(s, t);
}

static void take_done(mote__streamed *s, const mote__read_done *done)
{
    uintptr_t tag = (uintptr_t)done->tag - 1;
    slot *t = &s->slots[tag / PARTS];
    unsigned run = (unsigned)(tag % PARTS);
    const mote__source *r = &s->homes[t->key].runs.run[run];
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
    if (!mote__reads_held(s->reads)) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        count(&s->busy_ns, (uint64_t)((now.tv_sec - s->busy_since.tv_sec) * 1000000000 +
                                      (now.tv_nsec - s->busy_since.tv_nsec)));
    }
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
    uint64_t begin = now_ns();
    if (mote__reads_next(s->reads, 1, &done))
        take_done(s, &done);
    count(&s->wait_ns, now_ns() - begin);
}

/* Begin reading absent experts, as far as slots and reads in flight allow. */
static void begin_absent(mote__streamed *s)
{
    while (s->first_absent < s->n_absent && !s->fault_code) {
        size_t key = s->layer * s->n_experts + s->absent[s->first_absent];
        slot *t = NULL;
        if (mote__reads_held(s->reads) + s->homes[key].runs.n <= s->depth)
            t = take_slot(s);
        if (!t)
            break;
        s->first_absent++;
        begin_reading(s, t, key, 0);
        t->pinned = 1;
        s->n_pinned++;
        count(&s->n_read, 1);
    }
    mote__reads_start(s->reads);
}

/* ---- a layer's use ---- */

static void join(mote__streamed *s, slot *t)
{
    int first_use = t->guess;
    t->pinned = 1;
    s->n_pinned++;
    t->passing = 0;
    count(first_use ? &s->n_guessed : &s->n_hits, 1);
    if (t->state == READY) {
        s->ready[s->n_ready++] = (uint32_t)(t - s->slots);
    } else if (t->guess) {
        s->n_guess_reads -= t->n_reads;
        for (unsigned i = 0; i < s->homes[t->key].runs.n; i++)
            mote__reads_promote(s->reads, tag_of(s, t, i));
    }
    t->guess = 0;
}

/* Guesses of other layers that have not begun make room. */
static void drop_guesses(mote__streamed *s)
{
    for (size_t i = 0; i < s->n_slots && s->n_guess_reads; i++) {
        slot *t = &s->slots[i];
        if (t->state == READING && t->guess && (size_t)t->key / s->n_experts != s->layer)
            for (unsigned k = 0; k < s->homes[t->key].runs.n; k++)
                mote__reads_drop(s->reads, tag_of(s, t, k));
    }
}

static int want(mote__experts *base, size_t layer, const uint32_t *ids, const uint32_t *n_rows,
                size_t n)
{
    mote__streamed *s = self(base);
    s->layer = layer;
    s->fault_code = 0;
    s->n_absent = s->first_absent = s->n_ready = s->first_ready = 0;
    s->n_left = n;
    count(&s->n_wanted, n);
    poll_reads(s);
    for (size_t i = 0; i < n; i++) {
        size_t key = layer * s->n_experts + ids[i];
        mote__score_use(s->score, key, n_rows[i]);
        if (s->slot_of[key] >= 0)
            join(s, &s->slots[s->slot_of[key]]);
        else
            s->absent[s->n_absent++] = ids[i];
    }
    drop_guesses(s);
    begin_absent(s);
    return 0;
}

static long next(mote__experts *base, mote__ready_expert *ready, size_t most)
{
    mote__streamed *s = self(base);
    if (!s->n_left)
        return 0;
    poll_reads(s);
    begin_absent(s);
    while (s->first_ready == s->n_ready && !s->fault_code) {
        wait_read(s);
        begin_absent(s);
    }
    if (s->fault_code)
        return s->fault_code;
    size_t n = 0;
    for (; n < most && s->first_ready < s->n_ready; n++) {
        const slot *t = &s->slots[s->ready[s->first_ready++]];
        ready[n] = (mote__ready_expert){ (uint32_t)((size_t)t->key % s->n_experts), &t->view };
    }
    s->n_left -= n;
    return (long)n;
}

static void release(mote__experts *base, const mote__ready_expert *ready, size_t n)
{
    mote__streamed *s = self(base);
    for (size_t i = 0; i < n; i++) {
        slot *t = &s->slots[s->slot_of[s->layer * s->n_experts + ready[i].id]];
        t->pinned = 0;
        s->n_pinned--;
    }
}

static void drop(mote__experts *base)
{
    mote__streamed *s = self(base);
    for (size_t i = 0; i < s->n_slots && s->n_pinned; i++) {
        s->n_pinned -= s->slots[i].pinned;
        s->slots[i].pinned = 0;
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
        slot *t = NULL;
        if (s->n_guess_reads + runs <= s->depth / 4 &&
            mote__reads_held(s->reads) + runs <= s->depth)
            t = take_slot(s);
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
    s->free_list = mote__alloc(s->meter, MOTE_MEM_WEIGHTS, n * sizeof *s->free_list);
    s->arenas = mote__alloc(s->meter, MOTE_MEM_WEIGHTS, n_arenas * sizeof *s->arenas);
    s->n_slots = n;
    int ok = s->slots && s->free_list && s->arenas;
    for (size_t i = 0; i < n && ok; i++) {
        size_t in = i % s->slots_per_arena;
        if (!in) {
            size_t bytes = arena_bytes(s, s->n_arenas);
            ok = (s->arenas[s->n_arenas] =
                      mote__map_large_pages(s->meter, MOTE_MEM_WEIGHTS, &bytes)) != NULL;
            s->n_arenas += (size_t)ok;
        }
        if (ok) {
            s->slots[i] = (slot){ .memory = (uint8_t *)s->arenas[i / s->slots_per_arena] +
                                            in * s->slot_bytes,
                                  .key = -1 };
            s->free_list[n - 1 - i] = (uint32_t)i; /* the first one is taken first */
        }
    }
    s->n_free = ok ? n : 0;
    return ok ? 0
              : mote__fail(err, MOTE_ENOMEM, "out of memory for %zu experts of %zu bytes", n,
                           s->slot_bytes);
}

static const mote__experts_ops ops = { want, next, release, drop, guess };

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
    s->random = params->seed;
    size_t n_shards = mote__checkpoint_n_shards(w->ckpt);
    s->homes = mote__alloc(meter, MOTE_MEM_WEIGHTS, s->n_keys * sizeof *s->homes);
    s->slot_of = mote__alloc(meter, MOTE_MEM_WEIGHTS, s->n_keys * sizeof *s->slot_of);
    s->files = mote__alloc(meter, MOTE_MEM_WEIGHTS, n_shards * sizeof *s->files);
    s->absent = mote__alloc(meter, MOTE_MEM_WEIGHTS, s->n_experts * sizeof *s->absent);
    s->ready = mote__alloc(meter, MOTE_MEM_WEIGHTS, s->n_experts * sizeof *s->ready);
    int rc = 0;
    if (!s->homes || !s->slot_of || !s->files || !s->absent || !s->ready)
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
        rc = mote__score_open(&s->score, s->n_keys, meter, err);
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
    mote__score_close(s->score);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->arenas, n_arenas * sizeof *s->arenas);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->slots, s->n_slots * sizeof *s->slots);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->free_list, s->n_slots * sizeof *s->free_list);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->homes, s->n_keys * sizeof *s->homes);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->slot_of, s->n_keys * sizeof *s->slot_of);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->files, n_shards * sizeof *s->files);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->absent, s->n_experts * sizeof *s->absent);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->ready, s->n_experts * sizeof *s->ready);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s, sizeof *s);
}

mote__experts *mote__streamed_experts(mote__streamed *s) { return &s->base; }
const char *mote__streamed_fault(const mote__streamed *s) { return s->fault.message; }

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void mote__streamed_get_stats(const mote__streamed *s, mote__streamed_stats *stats)
{
    static const char *const engines[] = { "", "io_uring", "threads", "plain" };
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
        .engine = engines[mote__reads_engine_of(s->reads)],
    };
}
