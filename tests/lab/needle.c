/* Needle contexts: where the facts stand, that they are distinct, that all follows from the seed;
 * and that asking finds what is there. */
#include <math.h>

#include "golden.h"
#include "lab/needle.h"
#include "lab/needle_text.h"

static mote_model *model;
static lab_text text;

static int setup(void **state)
{
    (void)state;
    mote_err err;
    mote__map map;
    model = model_open(source_path("models/nano"), MOTE_MATH_FP32, 2);
    if (mote__map_open(&map, source_path("models/nano/heldout.txt"), &err) ||
        lab_text_init(&text, model, "heldout.txt", (const char *)map.data, map.size, 0, &err))
        fail_msg("%s", err.message);
    mote__map_close(&map);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lab_text_deinit(&text);
    mote_model_close(model);
    return 0;
}

static char *decoded(const int32_t *ids, size_t n)
{
    char *all = calloc(1, n * 32 + 1);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        const char *s = mote_token_bytes(model, ids[i], &bytes);
        if (s && !mote_token_is_special(model, ids[i]))
            strncat(all, s, bytes);
    }
    return all;
}

static const double depths[] = { 0, 0.25, 0.5, 0.75, 1 };

static void facts_stand_where_they_should(void **state)
{
    (void)state;
    for (size_t ctx = 400; ctx <= 3000; ctx += 1300) {
        lab_haystack h, again, other;
        mote_err err;
        if (lab_haystack_make(&h, model, &text, ctx, depths, 5, 7, 1, &err))
            fail_msg("%s", err.message);
        assert_int_equal(lab_haystack_make(&again, model, &text, ctx, depths, 5, 7, 1, &err), 0);
        assert_int_equal(lab_haystack_make(&other, model, &text, ctx, depths, 5, 8, 1, &err), 0);
        assert_int_equal(h.n_ids, again.n_ids);
        assert_memory_equal(h.ids, again.ids, h.n_ids * sizeof *h.ids);
        assert_true(h.n_ids != other.n_ids || memcmp(h.ids, other.ids, h.n_ids * sizeof *h.ids));
        assert_int_equal(h.ids[0], text.bos);
        char *all = decoded(h.ids, h.n_ids);
        size_t needles = 0, tail = 0;
        for (size_t i = 0; i < 5; i++) {
            const lab_needle *n = &h.needle[i];
            needles += n->n_ids;
            for (size_t k = i % 2; k < 5; k += 2) {
                size_t room = n->n_question + h.needle[k].n_answer - (k != i);
                tail = room > tail ? room : tail;
            }
            char fact[128];
            snprintf(fact, sizeof fact, "%s%s.", n->question, n->answer);
            assert_non_null(strstr(all, fact));
            assert_memory_equal(h.ids + n->at, n->ids, n->n_ids * sizeof *n->ids);
            /* at its depth, or at the end of a sentence up to 64 tokens before; what stands before
             * it is text and the needles before it */
            double at = depths[i] * (double)(ctx - 1), shift = 0;
            for (size_t j = 0; j < i; j++)
                shift += (double)h.needle[j].n_ids;
            assert_true((double)n->at <= at + shift + 2 &&
                        (double)n->at + 64 + (double)needles + 40 >= at);
            for (size_t j = 0; j < i; j++) {
                assert_string_not_equal(n->answer, h.needle[j].answer);
                assert_string_not_equal(n->question, h.needle[j].question);
            }
        }
        assert_int_equal(h.needle[0].at, 1);
        assert_int_equal(h.needle[4].at + h.needle[4].n_ids, h.n_ids);
        assert_int_equal(h.n_ids + tail, ctx);
        free(all);
        lab_haystack_free(&h);
        lab_haystack_free(&again);
        lab_haystack_free(&other);
    }
    lab_haystack h;
    mote_err err;
    assert_int_equal(lab_haystack_make(&h, model, &text, 100, depths, 5, 7, 0, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "too short"));
    assert_int_equal(lab_haystack_make(&h, model, &text, 200000, depths, 5, 7, 0, &err),
                     MOTE_EINVAL);
    assert_non_null(strstr(err.message, "heldout.txt"));
    lab_haystack_free(&h);
}

/* The numbers of an answer are what plain feeding of the same tokens gives. */
static void answers_are_what_feeding_gives(void **state)
{
    (void)state;
    lab_haystack h;
    mote_err err;
    mote_session_params params = { .kv = "main=f32,index=f32,window=f32",
                                   .prefill = MOTE_PREFILL_FULL };
    lab_answer answers[LAB_MAX_NEEDLES];
    assert_int_equal(lab_haystack_make(&h, model, &text, 260, depths, 5, 3, 0, &err), 0);
    if (lab_needle_ask(answers, model, &params, &h, "test", NULL, &err))
        fail_msg("%s", err.message);
    double logp[5][5];
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = i % 2; k < 5; k += 2) {
            const lab_needle *q = &h.needle[i], *a = &h.needle[k];
            size_t n = h.n_ids + q->n_question + a->n_answer, rows, first;
            int32_t *ids = malloc(n * sizeof *ids);
            memcpy(ids, h.ids, h.n_ids * sizeof *ids);
            memcpy(ids + h.n_ids, q->ids, q->n_question * sizeof *ids);
            memcpy(ids + h.n_ids + q->n_question, a->ids + a->n_question,
                   a->n_answer * sizeof *ids);
            mote_session *s = session_open(model, params.kv, MOTE_PREFILL_FULL);
            const float *x = feed(s, ids, n, MOTE_LOGITS_ALL, &rows, &first);
            mote_score scores[64];
            size_t from = n - a->n_answer - 1;
            mote_score_rows(model, x + from * model->net.config.vocab_size, NULL, a->n_answer,
                            ids + from + 1, scores);
            logp[i][k] = 0;
            int exact = 1;
            for (size_t t = 0; t < a->n_answer; t++) {
                logp[i][k] -= scores[t].loss;
                exact &= scores[t].best == ids[from + 1 + t];
            }
            if (i == k)
                assert_int_equal(answers[i].exact, exact);
            mote_session_destroy(s);
            free(ids);
        }
        assert_true(fabs(answers[i].logp - logp[i][i]) < 1e-9);
    }
    /* needles 0, 2, 4 are numbers, 1 and 3 names */
    assert_true(fabs(answers[0].margin - (logp[0][0] - (logp[0][2] + logp[0][4]) / 2)) < 1e-9);
    assert_true(fabs(answers[3].margin - (logp[3][3] - logp[3][1])) < 1e-9);
    assert_int_equal(answers[2].chosen, logp[2][2] > logp[2][0] && logp[2][2] > logp[2][4]);
    lab_haystack_free(&h);
}

/* A context as long as a session may hold: the same answers as with room behind it. */
static void a_full_context_can_be_asked(void **state)
{
    (void)state;
    enum { CTX = 400 };
    lab_haystack h;
    mote_err err;
    mote_session_params params = { .kv = "fp4" };
    lab_answer room[LAB_MAX_NEEDLES], full[LAB_MAX_NEEDLES];
    assert_int_equal(lab_haystack_make(&h, model, &text, CTX, depths, 5, 3, 0, &err), 0);
    if (lab_needle_ask(room, model, &params, &h, "test", NULL, &err))
        fail_msg("%s", err.message);
    params.max_context = CTX;
    if (lab_needle_ask(full, model, &params, &h, "test", NULL, &err))
        fail_msg("%s", err.message);
    int greedy = 0;
    for (size_t i = 0; i < h.n_needles; i++) {
        assert_true(full[i].logp == room[i].logp && full[i].exact == room[i].exact &&
                    full[i].greedy == room[i].greedy);
        greedy += full[i].greedy;
    }
    assert_true(greedy > 0);
    lab_haystack_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(facts_stand_where_they_should),
                                        cmocka_unit_test(answers_are_what_feeding_gives),
                                        cmocka_unit_test(a_full_context_can_be_asked) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
