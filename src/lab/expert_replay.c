/* Replay of expert caches.
 *
 * A group is what one layer of a pass uses: its experts are wanted together, so those that are
 * there stay until the group is done, and in decode those that come stay too. Experts of a prompt's
 * group go through one after the other.
 *
 * The optimum: an expert that is used in groups a < b, and in none between, either stays over the
 * boundaries a .. b - 1 and hits in b, or does not. The slots bound how many stay over a boundary.
 * Where they are too many, giving up the stay that ends last is optimal (intervals in k machines);
 * stays that end in a prompt are given up first, as they save nothing in decode. */
#include "lab/expert_replay.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "lab/rng.h"
#include "model/score.h"

const char *const lab_policy_names[LAB_POLICIES] = { "lru", "lru-random", "score", "optimum" };

enum { OLDEST_PERCENT = 8 };
#define NONE UINT32_MAX

typedef struct replay {
    const lab_trace *t;
    lab_policy policy;
    size_t n_slots, n_keys, n_used; /* slots [0, n_used) hold an expert */
    uint32_t *slot_of;              /* [n_keys] or NONE */
    uint32_t *key_of;               /* [n_slots] */
    uint8_t *kept;                  /* [n_slots] of the group that runs */
    uint32_t *older, *newer;        /* [n_slots + 1] a ring by last use; n_slots is its head */
    uint64_t random;
    mote__score score;
    /* the group that runs */
    uint32_t *group; /* [n_experts] its keys, each once */
    size_t *seen;    /* [n_keys] 1 + the last group that used it */
    size_t n_group, group_no;
    int is_prompt;
    lab_replay_result *r;
} replay;

/* ---- groups ---- */

/* Records [first, end) of one layer of a pass. */
static size_t group_end(const lab_trace *t, size_t first)
{
    size_t end = first + 1;
    while (end < t->n_records && !t->records[end].begins_pass &&
           t->records[end].layer == t->records[first].layer)
        end++;
    return end;
}

static void collect(replay *p, size_t first, size_t end)
{
    const lab_trace *t = p->t;
    p->n_group = 0;
    p->group_no++;
    p->is_prompt = 0;
    for (size_t i = first; i < end; i++) {
        const lab_trace_record *rec = &t->records[i];
        p->is_prompt |= rec->is_prompt;
        for (size_t k = 0; k < (size_t)rec->n_rows * t->n_per_token; k++) {
            uint32_t key = (uint32_t)(rec->layer * t->n_experts + t->ids[rec->first_id + k]);
            if (p->seen[key] != p->group_no)
                p->group[p->n_group++] = key;
            p->seen[key] = p->group_no;
        }
    }
}

static void count(replay *p, int hit)
{
    *(p->is_prompt ? &p->r->prompt_uses : &p->r->decode_uses) += 1;
    *(p->is_prompt ? &p->r->prompt_misses : &p->r->decode_misses) += !hit;
}

/* ---- policies with slots ---- */

static void unlink_slot(replay *p, uint32_t slot)
{
    p->newer[p->older[slot]] = p->newer[slot];
    p->older[p->newer[slot]] = p->older[slot];
}
/* older[head] is the newest, newer[head] the oldest. */
static void link_newest(replay *p, uint32_t slot)
{
    uint32_t head = (uint32_t)p->n_slots;
    p->older[slot] = p->older[head];
    p->newer[slot] = head;
    p->newer[p->older[head]] = slot;
    p->older[head] = slot;
}

static long oldest(replay *p, size_t skip)
{
    uint32_t head = (uint32_t)p->n_slots, slot = p->newer[head];
    while (skip-- && p->newer[slot] != head)
        slot = p->newer[slot];
    uint32_t from = slot;
    while (slot != head && p->kept[slot])
        slot = p->newer[slot];
    if (slot == head) /* all newer ones are kept */
        for (slot = from; slot != head && p->kept[slot];)
            slot = p->older[slot];
    return slot == head ? -1 : (long)slot;
}

static long victim(replay *p)
{
    size_t share = p->n_slots * OLDEST_PERCENT / 100;
    switch (p->policy) {
    case LAB_POLICY_LRU: return oldest(p, 0);
    case LAB_POLICY_LRU_RANDOM:
        return oldest(p, share > 1 ? lab_random_below(&p->random, share) : 0);
    default: return mote__score_victim(&p->score, p->key_of, p->kept, p->n_slots);
    }
}

static void read_expert(replay *p, uint32_t key)
{
    long slot = p->n_used < p->n_slots ? (long)p->n_used++ : victim(p);
    if (slot < 0)
        return; /* goes through without staying */
    uint32_t s = (uint32_t)slot, old = p->key_of[s];
    if (old != NONE) {
        if (p->policy == LAB_POLICY_SCORE && !mote__score_admit(&p->score, key, old, p->is_prompt))
            return;
        p->slot_of[old] = NONE;
        unlink_slot(p, s);
    }
    p->key_of[s] = key;
    p->slot_of[key] = s;
    link_newest(p, s);
    p->kept[s] = !p->is_prompt;
}

static void run_group(replay *p)
{
    size_t n_missing = 0;
    for (size_t i = 0; i < p->n_group; i++) {
        uint32_t key = p->group[i], slot = p->slot_of[key];
        count(p, slot != NONE);
        if (slot == NONE) {
            p->group[n_missing++] = key;
            continue;
        }
        unlink_slot(p, slot);
        link_newest(p, slot);
        p->kept[slot] = 1;
    }
    for (size_t i = 0; i < n_missing; i++)
        read_expert(p, p->group[i]);
    /* the kept ones are the newest */
    uint32_t head = (uint32_t)p->n_slots, slot = p->older[head];
    for (size_t i = 0; i < p->n_group + n_missing && slot != head; i++, slot = p->older[slot])
        p->kept[slot] = 0;
}

static int run_slots(replay *p)
{
    const lab_trace *t = p->t;
    memset(p->slot_of, 0xff, p->n_keys * sizeof *p->slot_of);
    memset(p->key_of, 0xff, p->n_slots * sizeof *p->key_of);
    p->older[p->n_slots] = p->newer[p->n_slots] = (uint32_t)p->n_slots;
    for (size_t i = 0, end; i < t->n_records; i = end) {
        end = group_end(t, i);
        for (size_t k = i; k < end && p->policy == LAB_POLICY_SCORE; k++)
            mote__score_use(&p->score, t->records[k].layer, t->ids + t->records[k].first_id,
                            t->records[k].n_rows, t->n_per_token, t->records[k].is_prompt);
        collect(p, i, end);
        run_group(p);
    }
    return 0;
}

/* ---- the optimum ---- */

/* Stays that are going on, the one to give up first on top: by end, those that end in a prompt
 * above all others. */
typedef struct stays {
    uint64_t *end;       /* [n_keys] of the key's stay */
    uint32_t *heap, *at; /* [n_keys] keys; [n_keys] place in the heap or NONE */
    size_t n;
} stays;
#define ENDS_IN_PROMPT (UINT64_C(1) << 63)

static void put_stay(stays *s, size_t i, uint32_t key)
{
    s->heap[i] = key;
    s->at[key] = (uint32_t)i;
}
static void sift(stays *s, size_t i)
{
    uint32_t key = s->heap[i];
    for (; i && s->end[s->heap[(i - 1) / 2]] < s->end[key]; i = (i - 1) / 2)
        put_stay(s, i, s->heap[(i - 1) / 2]);
    for (size_t c; (c = 2 * i + 1) < s->n; i = c) {
        if (c + 1 < s->n && s->end[s->heap[c + 1]] > s->end[s->heap[c]])
            c++;
        if (s->end[s->heap[c]] <= s->end[key])
            break;
        put_stay(s, i, s->heap[c]);
    }
    put_stay(s, i, key);
}
static void remove_stay(stays *s, uint32_t key)
{
    size_t i = s->at[key];
    uint32_t last = s->heap[--s->n];
    s->at[key] = NONE;
    if (last == key)
        return;
    put_stay(s, i, last);
    sift(s, i);
}

/* next[u]: where the u-th use (of all groups in order) is followed: group of the next use of the
 * same expert, ENDS_IN_PROMPT where that is a prompt's; 0: never. The groups, from last to first.
 */
static void find_next(replay *p, uint64_t *next, size_t n_uses, const size_t *starts,
                      size_t n_groups, uint64_t *later)
{
    memset(later, 0, p->n_keys * sizeof *later);
    for (size_t g = n_groups; g-- > 0;) {
        collect(p, starts[g], starts[g + 1]);
        for (size_t i = p->n_group; i-- > 0;) {
            next[--n_uses] = later[p->group[i]];
            later[p->group[i]] = (g + 1) | (p->is_prompt ? ENDS_IN_PROMPT : 0);
        }
    }
}

static void stay_or_go(replay *p, const uint64_t *next, const size_t *starts, size_t n_groups,
                       stays *s)
{
    memset(s->at, 0xff, p->n_keys * sizeof *s->at);
    size_t use = 0;
    for (size_t g = 0; g < n_groups; g++) {
        collect(p, starts[g], starts[g + 1]);
        for (size_t i = 0; i < p->n_group; i++, use++) {
            uint32_t key = p->group[i];
            int hit = s->at[key] != NONE;
            count(p, hit);
            if (hit)
                remove_stay(s, key);
            if (!next[use])
                continue;
            s->end[key] = next[use];
            put_stay(s, s->n++, key);
            sift(s, s->n - 1);
        }
        while (s->n > p->n_slots)
            remove_stay(s, s->heap[0]);
    }
}

static int run_optimum(replay *p, mote_err *err)
{
    const lab_trace *t = p->t;
    size_t n_groups = 0, n_uses = 0, room = t->n_records + 1;
    size_t start_bytes = mote__mul(room, sizeof(size_t));
    size_t *starts = mote__alloc(NULL, MOTE_MEM_OTHER, start_bytes);
    uint64_t *next = NULL, *ends = NULL;
    uint32_t *heap = NULL;
    size_t next_bytes = 0, ends_bytes = mote__mul(p->n_keys, 2 * sizeof *ends);
    size_t heap_bytes = mote__mul(p->n_keys, 2 * sizeof *heap);
    int rc = MOTE_ENOMEM;
    if (!starts)
        goto out;
    for (size_t i = 0, end; i < t->n_records; i = end) {
        starts[n_groups++] = i;
        end = group_end(t, i);
        collect(p, i, end);
        n_uses += p->n_group;
    }
    starts[n_groups] = t->n_records;
    next_bytes = mote__mul(n_uses, sizeof *next);
    next = mote__alloc(NULL, MOTE_MEM_OTHER, next_bytes);
    ends = mote__alloc(NULL, MOTE_MEM_OTHER, ends_bytes);
    heap = mote__alloc(NULL, MOTE_MEM_OTHER, heap_bytes);
    if (!next || !ends || !heap)
        goto out;
    find_next(p, next, n_uses, starts, n_groups, ends + p->n_keys);
    stays s = { .end = ends, .heap = heap, .at = heap + p->n_keys };
    stay_or_go(p, next, starts, n_groups, &s);
    rc = 0;
out:
    mote__free(NULL, MOTE_MEM_OTHER, heap, heap_bytes);
    mote__free(NULL, MOTE_MEM_OTHER, ends, ends_bytes);
    mote__free(NULL, MOTE_MEM_OTHER, next, next_bytes);
    mote__free(NULL, MOTE_MEM_OTHER, starts, start_bytes);
    return rc ? mote__fail(err, rc, "out of memory for a replay") : 0;
}

/* ---- one replay ---- */

static void count_tokens(lab_replay_result *r, const lab_trace *t)
{
    for (size_t i = 0, end; i < t->n_records; i = end) {
        end = group_end(t, i);
        for (size_t k = i; k < end && t->records[i].begins_pass; k++)
            *(t->records[k].is_prompt ? &r->prompt_tokens
                                      : &r->decode_tokens) += t->records[k].n_rows;
    }
}

int lab_replay(lab_replay_result *r, const lab_trace *t, lab_policy policy,
               const lab_replay_params *q, mote_err *err)
{
    *r = (lab_replay_result){ 0 };
    if (!q->n_slots || q->n_slots >= NONE)
        return mote__fail(err, MOTE_EINVAL, "a replay with %zu slots", q->n_slots);
    size_t n_keys = (size_t)t->n_layers * t->n_experts, n = q->n_slots;
    replay p = { .t = t, .policy = policy, .n_slots = n, .n_keys = n_keys, .r = r };
    p.random = q->seed;
    size_t bytes = mote__add(n_keys * (sizeof *p.seen + sizeof *p.slot_of) +
                                 t->n_experts * sizeof *p.group,
                             mote__mul(n + 1, 3 * sizeof(uint32_t) + 1));
    uint8_t *memory = mote__alloc(NULL, MOTE_MEM_OTHER, bytes);
    if (!memory)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a replay with %zu slots", n);
    p.seen = (size_t *)(void *)memory;
    p.slot_of = (uint32_t *)(void *)(p.seen + n_keys);
    p.group = p.slot_of + n_keys;
    p.key_of = p.group + t->n_experts;
    p.older = p.key_of + n + 1;
    p.newer = p.older + n + 1;
    p.kept = (uint8_t *)(p.newer + n + 1);
    double half_life = q->half_life > 0
                           ? q->half_life
                           : mote__score_half_life(n, (size_t)t->n_layers * t->n_per_token);
    int rc = 0;
    if (policy == LAB_POLICY_SCORE)
        rc = mote__score_init(&p.score, t->n_layers, t->n_experts, half_life, q->seed, NULL, err);
    if (!rc)
        rc = policy == LAB_POLICY_OPTIMUM ? run_optimum(&p, err) : run_slots(&p);
    if (!rc)
        count_tokens(r, t);
    mote__score_deinit(&p.score);
    mote__free(NULL, MOTE_MEM_OTHER, memory, bytes);
    return rc;
}
