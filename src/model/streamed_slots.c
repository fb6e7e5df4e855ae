/* Streamed experts: where they lie in the files, and which slot is emptied for which. */
#include "model/catalog.h"
#include "model/streamed_impl.h"

enum { PASSING = 8 }; /* one slot in so many is for experts that pass */
#define ARENA ((size_t)1 << 30)

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

int mote__home_of(mote__home *h, const mote__weights *w, const mote__expert *x)
{
    mote__source parts[MOTE_EXPERT_PARTS];
    for (size_t i = 0; i < MOTE_EXPERT_PARTS; i++) {
        const uint8_t *data = part_data(x, i);
        size_t bytes = i < 3 ? mote__mat_code_bytes(part_of(x, i))
                             : mote__mat_scale_bytes(part_of(x, i), MOTE_FORM_MATRIX);
        if (!data)
            bytes = 0;
        parts[i] = (mote__source){ 0 };
        if (bytes && mote__checkpoint_source_at(w->ckpt, data, bytes, &parts[i]))
            return MOTE_EINVAL;
    }
    mote__runs_of(&h->runs, parts, MOTE_EXPERT_PARTS);
    return 0;
}

size_t mote__run_room(const mote__source *run)
{
    uint64_t begin = run->offset / MOTE_SLOT_PAGE * MOTE_SLOT_PAGE, end = run->offset + run->bytes;
    return (size_t)((end - begin + MOTE_SLOT_PAGE - 1) / MOTE_SLOT_PAGE * MOTE_SLOT_PAGE);
}

size_t mote__home_bytes(const mote__home *h)
{
    size_t n = 0;
    for (unsigned i = 0; i < h->runs.n; i++)
        n += mote__run_room(&h->runs.run[i]);
    return n;
}

/* ---- which slot ---- */

void mote__xslot_clear(mote__streamed *s, mote__xslot *t)
{
    s->slot_of[mote__xslot_key(s, t)] = -1;
    t->state = MOTE_SLOT_EMPTY;
    mote__xslot_note(s, t);
    s->free_list[s->n_free++] = mote__xslot_number(s, t);
}

/* A ready slot that a passing expert has left. NULL: there is none. */
static mote__xslot *take_passed(mote__streamed *s)
{
    for (size_t i = 0; i < s->n_passing; i++) {
        mote__xslot *t = &s->slots[s->passing[i]];
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
    return n < 1 ? 1 : n < MOTE_MOST_PASSING ? n : MOTE_MOST_PASSING;
}

mote__xslot *mote__xslot_take(mote__streamed *s, size_t key, int prompt, int *pass)
{
    *pass = 0;
    if (s->n_free)
        return &s->slots[s->free_list[--s->n_free]];
    mote__xslot *t = prompt ? NULL : take_passed(s);
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
            if (s->passing[i] == mote__xslot_number(s, t))
                s->passing[i--] = s->passing[--s->n_passing];
    s->slot_of[mote__xslot_key(s, t)] = -1;
    return t;
}

void mote__xslot_view(mote__streamed *s, mote__xslot *t)
{
    const mote__home *h = &s->homes[mote__xslot_key(s, t)];
    size_t begin[MOTE_EXPERT_PARTS], at = 0;
    for (unsigned i = 0; i < h->runs.n; i++) {
        begin[i] = at + (size_t)(h->runs.run[i].offset % MOTE_SLOT_PAGE);
        at += mote__run_room(&h->runs.run[i]);
    }
    t->view = s->weights->layers[mote__xslot_key(s, t) / s->n_experts]
                  .experts[mote__xslot_key(s, t) % s->n_experts];
    mote__mat *const m[] = { &t->view.w1, &t->view.w2, &t->view.w3 };
    for (size_t i = 0; i < MOTE_EXPERT_PARTS; i++) {
        const struct mote__run_part *p = &h->runs.part[i];
        const uint8_t *data = p->run < 0 ? NULL : t->memory + begin[p->run] + p->at;
        *(i < 3 ? &m[i]->data : &m[i % 3]->scale) = data;
    }
}

/* ---- memory ---- */

static size_t page_round(size_t n)
{
    return (n + MOTE_SLOT_PAGE - 1) / MOTE_SLOT_PAGE * MOTE_SLOT_PAGE;
}

static size_t arena_bytes(const mote__streamed *s, size_t arena)
{
    size_t left = s->n_slots - arena * s->slots_per_arena;
    return (left < s->slots_per_arena ? left : s->slots_per_arena) * s->slot_bytes;
}

int mote__slots_make(mote__streamed *s, uint64_t budget, mote_err *err)
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
            s->slots[i] = (mote__xslot){ .memory = (uint8_t *)s->arenas[i / s->slots_per_arena] +
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

void mote__slots_free(mote__streamed *s)
{
    size_t n_arenas = s->slots_per_arena
                          ? (s->n_slots + s->slots_per_arena - 1) / s->slots_per_arena
                          : 0;
    for (size_t i = 0; i < s->n_arenas; i++)
        mote__unmap_pages(s->meter, MOTE_MEM_WEIGHTS, s->arenas[i], page_round(arena_bytes(s, i)));
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->arenas, n_arenas * sizeof *s->arenas);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->slots, s->n_slots * sizeof *s->slots);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->keys, s->n_slots * sizeof *s->keys);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->kept, s->n_slots * sizeof *s->kept);
    mote__free(s->meter, MOTE_MEM_WEIGHTS, s->free_list, s->n_slots * sizeof *s->free_list);
}
