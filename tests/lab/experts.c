/* Traces and their replay: policies against plain references, the optimum against all that is
 * possible, the generator against the public figures it is fitted to. */
#include "base/mem.h"
#include "lab/expert_replay.h"
#include "test.h"

#include <math.h>

/* ---- tiny traces ---- */

/* A random trace of `n_layers` x `n_experts` (at most 8 keys), some passes of several rows. */
static void random_trace(lab_trace *t, rnd *r, uint32_t n_layers, uint32_t n_experts,
                         size_t n_passes)
{
    *t = (lab_trace){ .n_layers = n_layers, .n_experts = n_experts, .expert_bytes = 1 };
    t->n_per_token = 1 + (uint32_t)rnd_below(r, n_experts < 3 ? n_experts : 3);
    for (size_t p = 0; p < n_passes; p++) {
        int is_prompt = rnd_below(r, 4) == 0;
        uint32_t n_sessions = 1 + (rnd_below(r, 4) == 0);
        for (uint32_t i = 0; i < n_layers * n_sessions; i++) {
            lab_trace_record rec = { .n_rows = is_prompt ? 2 + (uint32_t)rnd_below(r, 3) : 1,
                                     .layer = (uint16_t)(i / n_sessions),
                                     .session = i % n_sessions,
                                     .is_prompt = (uint8_t)is_prompt,
                                     .begins_pass = i == 0 };
            uint16_t *ids;
            mote_err err;
            assert_int_equal(lab_trace_add(t, &rec, &ids, &err), 0);
            for (size_t k = 0; k < rec.n_rows * t->n_per_token; k++)
                ids[k] = (uint16_t)rnd_below(r, n_experts);
        }
    }
}

/* The groups of a trace as sets of keys. */
typedef struct groups {
    unsigned set[512];
    int is_prompt[512];
    size_t n;
} groups;

static void group(groups *g, const lab_trace *t)
{
    g->n = 0;
    int layer = -1;
    for (size_t i = 0; i < t->n_records; i++) {
        const lab_trace_record *rec = &t->records[i];
        if (rec->begins_pass || rec->layer != layer) {
            g->set[g->n] = 0;
            g->is_prompt[g->n++] = rec->is_prompt;
        }
        layer = rec->layer;
        for (size_t k = 0; k < rec->n_rows * t->n_per_token; k++)
            g->set[g->n - 1] |= 1u << (rec->layer * t->n_experts + t->ids[rec->first_id + k]);
    }
}

/* The most decode hits of all ways to keep at most n_slots of what was there or was read. */
static size_t most_hits(const groups *g, unsigned n_keys, size_t n_slots)
{
    int best[256], next[256];
    for (unsigned m = 0; m < 256; m++)
        best[m] = m ? -1 : 0;
    for (size_t i = 0; i < g->n; i++) {
        memset(next, 0xff, sizeof next);
        for (unsigned m = 0; m < 1u << n_keys; m++) {
            if (best[m] < 0)
                continue;
            int hits = best[m] + (g->is_prompt[i] ? 0 : __builtin_popcount(m & g->set[i]));
            unsigned all = m | g->set[i];
            for (unsigned keep = all;; keep = (keep - 1) & all) {
                if ((size_t)__builtin_popcount(keep) <= n_slots && next[keep] < hits)
                    next[keep] = hits;
                if (!keep)
                    break;
            }
        }
        memcpy(best, next, sizeof best);
    }
    int most = 0;
    for (unsigned m = 0; m < 1u << n_keys; m++)
        most = best[m] > most ? best[m] : most;
    return (size_t)most;
}

static size_t popcounts(const groups *g, int is_prompt)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++)
        n += g->is_prompt[i] == is_prompt ? (size_t)__builtin_popcount(g->set[i]) : 0;
    return n;
}

static void optimum_is_the_best_there_is(void **state)
{
    (void)state;
    static groups g;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        rnd r = { seed * 7919 };
        uint32_t n_layers = 1 + (uint32_t)rnd_below(&r, 3);
        uint32_t n_experts = 2 + (uint32_t)rnd_below(&r, 7 / n_layers - 1);
        lab_trace t;
        mote_err err;
        random_trace(&t, &r, n_layers, n_experts, 4 + rnd_below(&r, 20));
        group(&g, &t);
        for (size_t n_slots = 1; n_slots <= n_layers * n_experts; n_slots++)
            for (int p = LAB_POLICIES; p-- > 0;) {
                lab_replay_params params = { .n_slots = n_slots, .seed = seed };
                lab_replay_result a;
                assert_int_equal(lab_replay(&a, &t, (lab_policy)p, &params, &err), 0);
                assert_int_equal(a.decode_uses, popcounts(&g, 0));
                assert_int_equal(a.prompt_uses, popcounts(&g, 1));
                size_t most = most_hits(&g, n_layers * n_experts, n_slots);
                size_t hits = a.decode_uses - a.decode_misses;
                if (p == LAB_POLICY_OPTIMUM ? hits != most : hits > most)
                    fail_msg("seed %llu, %zu slots, %s: %zu hits, the most is %zu",
                             (unsigned long long)seed, n_slots, lab_policy_names[p], hits, most);
            }
        lab_trace_deinit(&t);
    }
}

/* LRU with single uses, written plainly: an array in order of use. */
static size_t plain_lru_misses(const lab_trace *t, size_t n_slots)
{
    uint32_t order[64];
    size_t n = 0, misses = 0;
    for (size_t i = 0; i < t->n_records; i++) {
        uint32_t key = t->records[i].layer * t->n_experts + t->ids[i];
        size_t at = 0;
        while (at < n && order[at] != key)
            at++;
        misses += at == n;
        if (at == n)
            at = n < n_slots ? n++ : n - 1;
        memmove(order + 1, order, at * sizeof *order);
        order[0] = key;
    }
    return misses;
}

static void lru_is_lru(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        rnd r = { seed * 104729 };
        lab_trace t = { .n_layers = 3, .n_experts = 9, .n_per_token = 1 };
        mote_err err;
        for (int i = 0; i < 600; i++) {
            lab_trace_record rec = { .n_rows = 1, .layer = i % 3, .begins_pass = i % 3 == 0 };
            uint16_t *ids;
            assert_int_equal(lab_trace_add(&t, &rec, &ids, &err), 0);
            ids[0] = (uint16_t)(rnd_below(&r, 9) * rnd_below(&r, 9) / 8);
        }
        for (size_t n_slots = 1; n_slots <= 27; n_slots++) {
            lab_replay_params params = { .n_slots = n_slots };
            lab_replay_result a;
            assert_int_equal(lab_replay(&a, &t, LAB_POLICY_LRU, &params, &err), 0);
            assert_int_equal(a.decode_misses, plain_lru_misses(&t, n_slots));
            assert_int_equal(a.decode_tokens, 200);
        }
        lab_trace_deinit(&t);
    }
}

static void room_for_all_misses_once(void **state)
{
    (void)state;
    rnd r = { 4242 };
    lab_trace t;
    mote_err err;
    random_trace(&t, &r, 2, 4, 100);
    for (int p = 0; p < LAB_POLICIES; p++) {
        lab_replay_params params = { .n_slots = 8, .seed = 1 };
        lab_replay_result a, b;
        assert_int_equal(lab_replay(&a, &t, (lab_policy)p, &params, &err), 0);
        assert_int_equal(a.decode_misses + a.prompt_misses, 8);
        /* the same seed: the same replay */
        params.n_slots = 3;
        assert_int_equal(lab_replay(&a, &t, (lab_policy)p, &params, &err), 0);
        assert_int_equal(lab_replay(&b, &t, (lab_policy)p, &params, &err), 0);
        assert_memory_equal(&a, &b, sizeof a);
    }
    lab_replay_params none = { .n_slots = 0 };
    lab_replay_result a;
    assert_int_equal(lab_replay(&a, &t, LAB_POLICY_LRU, &none, &err), MOTE_EINVAL);
    for (int p = 0; p < LAB_POLICIES; p++)
        for (long n = 1;; n++) { /* the n-th allocation fails */
            lab_replay_params params = { .n_slots = 3 };
            mote__alloc_fail_at = n;
            int rc = lab_replay(&a, &t, (lab_policy)p, &params, &err);
            mote__alloc_fail_at = 0;
            if (!rc)
                break;
            assert_int_equal(rc, MOTE_ENOMEM);
            assert_in_range(n, 1, 10);
        }
    lab_trace_deinit(&t);
}

/* n passes of one layer, each with rows of the experts first .. first + 2. */
static void add_passes(lab_trace *t, size_t n, int is_prompt, uint16_t first)
{
    for (size_t i = 0; i < n; i++) {
        lab_trace_record rec = { .n_rows = is_prompt ? 2 : 1,
                                 .is_prompt = (uint8_t)is_prompt,
                                 .begins_pass = 1 };
        uint16_t *ids;
        mote_err err;
        assert_int_equal(lab_trace_add(t, &rec, &ids, &err), 0);
        for (uint16_t k = 0; k < rec.n_rows * 3; k++)
            ids[k] = (uint16_t)(first + k % 3);
    }
}

/* What a decode step read does not push out what it read before; a prompt's experts with fewer uses
 * than those that are there do not enter. */
static void steps_keep_theirs_and_prompts_ask(void **state)
{
    (void)state;
    lab_trace t = { .n_layers = 1, .n_experts = 9, .n_per_token = 3 };
    add_passes(&t, 10, 0, 0); /* misses 3 */
    add_passes(&t, 2, 0, 3);  /* misses 3, then hits though all have fewer uses */
    lab_replay_params params = { .n_slots = 3, .half_life = 1000, .seed = 1 };
    lab_replay_result r;
    mote_err err;
    assert_int_equal(lab_replay(&r, &t, LAB_POLICY_SCORE, &params, &err), 0);
    assert_int_equal(r.decode_misses, 6);
    lab_trace_deinit(&t);
    t = (lab_trace){ .n_layers = 1, .n_experts = 9, .n_per_token = 3 };
    add_passes(&t, 10, 0, 0); /* misses 3 */
    add_passes(&t, 1, 1, 6);
    add_passes(&t, 1, 0, 0); /* hits */
    add_passes(&t, 6, 1, 6); /* taught: more uses now */
    add_passes(&t, 1, 0, 6); /* hits */
    assert_int_equal(lab_replay(&r, &t, LAB_POLICY_SCORE, &params, &err), 0);
    assert_int_equal(r.decode_misses, 3);
    lab_trace_deinit(&t);
}

/* ---- the generator ---- */

static double hit(const lab_trace *t, lab_policy policy, size_t n_slots)
{
    lab_replay_params params = { .n_slots = n_slots, .seed = 1 };
    lab_replay_result r;
    mote_err err;
    assert_int_equal(lab_replay(&r, t, policy, &params, &err), 0);
    return 1 - (double)r.decode_misses / (double)r.decode_uses;
}

static void generator_has_the_public_figures(void **state)
{
    (void)state;
    static const size_t slots[] = { 3000, 4000, 4500, 5000, 6000 };
    static const double lru[] = { .805, .855, .875, .891, .917 };
    lab_trace_shape shape = lab_trace_published();
    lab_trace t;
    mote_err err;
    assert_int_equal(lab_trace_generate(&t, &shape, &err), 0);
    for (int i = 0; i < 5; i++) {
        double h = hit(&t, LAB_POLICY_LRU, slots[i]);
        if (fabs(h - lru[i]) > 0.015)
            fail_msg("%zu slots: LRU hits %.4f, public %.3f", slots[i], h, lru[i]);
        assert_true(hit(&t, LAB_POLICY_SCORE, slots[i]) >= h);
    }
    assert_true(hit(&t, LAB_POLICY_SCORE, 700) >= hit(&t, LAB_POLICY_LRU, 700));
    lab_trace_deinit(&t);
}

static void score_beats_lru_after_prompts(void **state)
{
    (void)state;
    lab_trace_shape shape = lab_trace_published();
    shape.n_sequences = 25;
    shape.prompt_tokens = 512;
    shape.decode_tokens = 128;
    lab_trace t;
    mote_err err;
    assert_int_equal(lab_trace_generate(&t, &shape, &err), 0);
    double lru = 1 - hit(&t, LAB_POLICY_LRU, 2500), score = 1 - hit(&t, LAB_POLICY_SCORE, 2500);
    if (score > 0.8 * lru)
        fail_msg("2,500 slots: score misses %.4f, LRU %.4f", score, lru);
    lab_trace_deinit(&t);
}

/* ---- the file ---- */

/* The worked example of docs/format-trace.md. */
static const uint8_t page[100] = {
    'M', 'O', 'T', 'E', 'E', 'X', 'P', 'T', 1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 0,
    1,   0,   0,   0,   0,   0,   0,   3,   0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 3, 0, 0, 0,
    1,   0,   1,   0,   1,   0,   0,   0,   0, 0, 1, 0, 0, 0, 2, 0, 3, 0, 2, 0, 0, 0, 0, 0, 0,
    0,   1,   0,   0,   0,   3,   0,   1,   0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0,
};

static void traces_are_read(void **state)
{
    (void)state;
    lab_trace t;
    mote_err err;
    assert_int_equal(lab_trace_parse(&t, "page", page, sizeof page, &err), 0);
    assert_int_equal(t.n_records, 4);
    assert_int_equal(t.n_ids, 10);
    assert_int_equal(t.expert_bytes, 256);
    assert_true(t.records[0].is_prompt && t.records[0].begins_pass && t.records[0].n_rows == 2);
    assert_true(!t.records[3].is_prompt && !t.records[3].begins_pass && t.records[3].layer == 1);
    assert_int_equal(t.ids[t.records[2].first_id], 3);
    lab_trace_deinit(&t);
    /* cut anywhere */
    for (size_t n = 0; n < sizeof page; n++) {
        uint8_t *cut = malloc(n + !n); /* an exact end for ASan */
        memcpy(cut, page, n);
        int rc = lab_trace_parse(&t, "page", cut, n, &err);
        assert_int_equal(rc, n < 32 ? MOTE_EFORMAT : 0);
        size_t whole = n < 52 ? 32 : n < 68 ? 52 : n < 84 ? 68 : 84;
        if (!rc)
            assert_int_equal(t.cut_bytes, n - whole);
        lab_trace_deinit(&t);
        free(cut);
    }
}

static void damage_is_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
        int rc;
    } rows[] = {
        { 0, 'm', MOTE_EFORMAT },  { 8, 2, MOTE_EVERSION },  { 8, 0, MOTE_EFORMAT },
        { 12, 0, MOTE_EFORMAT },   { 13, 17, MOTE_EFORMAT }, { 16, 0, MOTE_EFORMAT },
        { 18, 1, MOTE_EFORMAT },   { 20, 0, MOTE_EFORMAT },  { 20, 5, MOTE_EFORMAT },
        { 32, 1, MOTE_EFORMAT },   { 32, 7, MOTE_EFORMAT },  { 33, 1, MOTE_EFORMAT },
        { 34, 2, MOTE_EFORMAT },   { 44, 4, MOTE_EFORMAT },  { 60, 0, MOTE_EFORMAT },
        { 98, 255, MOTE_EFORMAT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t bytes[sizeof page];
        lab_trace t;
        mote_err err = { 0 };
        memcpy(bytes, page, sizeof page);
        bytes[rows[i].at] = rows[i].value;
        int rc = lab_trace_parse(&t, "bad.trace", bytes, sizeof bytes, &err);
        if (rc != rows[i].rc || !strstr(err.message, "bad.trace") || t.records)
            fail_msg("byte %zu = %u: %d, %s", rows[i].at, rows[i].value, rc, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimum_is_the_best_there_is),
        cmocka_unit_test(lru_is_lru),
        cmocka_unit_test(room_for_all_misses_once),
        cmocka_unit_test(steps_keep_theirs_and_prompts_ask),
        cmocka_unit_test(generator_has_the_public_figures),
        cmocka_unit_test(score_beats_lru_after_prompts),
        cmocka_unit_test(traces_are_read),
        cmocka_unit_test(damage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
