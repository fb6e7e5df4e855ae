/* What programs built against another version rely on: sizes of public structs, reserved fields
 * that are zeros on the way out and refused on the way in; and what statistics count. */
#include "engine/engine.h"

#include "test.h"

/* Sizes of version 0.1 on x86-64. A new field takes from `reserved`; these do not change. */
_Static_assert(sizeof(mote_model_params) == 184, "mote_model_params");
_Static_assert(sizeof(mote_model_info) == 448, "mote_model_info");
_Static_assert(sizeof(mote_memory) == 320, "mote_memory");
_Static_assert(sizeof(mote_model_stats) == 240, "mote_model_stats");
_Static_assert(sizeof(mote_session_params) == 104, "mote_session_params");
_Static_assert(sizeof(mote_step_params) == 40, "mote_step_params");
_Static_assert(sizeof(mote_truncated) == 56, "mote_truncated");
_Static_assert(sizeof(mote_sample_params) == 88, "mote_sample_params");
_Static_assert(sizeof(mote_store_params) == 192, "mote_store_params");
_Static_assert(sizeof(mote_restored) == 64, "mote_restored");
_Static_assert(sizeof(mote_probed) == 56, "mote_probed");
_Static_assert(sizeof(mote_chat_params) == 88, "mote_chat_params");
_Static_assert((int)MOTE_MEM_CLASSES <= (int)MOTE_MEM_ROOM, "room for classes");
_Static_assert((int)MOTE_WEIGHT_GROUPS <= (int)MOTE_GROUP_ROOM, "room for groups");

static mote_model *open_nano(void)
{
    mote_err err;
    mote_model *m;
    mote_model_params p = { .n_threads = 1 };
    if (mote_model_open(&m, source_path("models/nano"), &p, &err))
        fail_msg("%s", err.message);
    return m;
}

#define LAST(p) ((p).reserved[sizeof(p).reserved / sizeof *(p).reserved - 1])
static void refused(int rc, const mote_err *err, const char *name)
{
    assert_int_equal(rc, MOTE_EUNSUPPORTED);
    if (strncmp(err->message, name, strlen(name)))
        fail_msg("%s: %s", name, err->message);
}

static void fields_of_later_versions(void **state)
{
    (void)state;
    mote_err err;
    mote_model *m = open_nano(), *other;
    mote_session *s;
    mote_sampler *sampler;
    mote_store *store;
    mote_model_params mp = { 0 };
    mote_session_params sp = { 0 };
    mote_step_params step = { 0 };
    mote_sample_params sample = { .top_p = 1 };
    mote_store_params st = { 0 };
    mote_chat_params chat = { 0 };
    LAST(mp) = LAST(sp) = LAST(step) = LAST(sample) = LAST(st) = LAST(chat) = 1;
    refused(mote_model_open(&other, source_path("models/nano"), &mp, &err), &err,
            "mote_model_params");
    refused(mote_session_create(&s, m, &sp, &err), &err, "mote_session_params");
    refused(mote_sampler_create(&sampler, &sample, &err), &err, "mote_sample_params");
    refused(mote_store_open(&store, "/nowhere", &st, &err), &err, "mote_store_params");
    char *text;
    size_t n;
    refused(mote_chat_prompt(m, "[]", &chat, &text, &n, &err), &err, "mote_chat_params");
    assert_int_equal(mote_session_create(&s, m, NULL, &err), 0);
    mote_stepped done;
    refused(mote_step(m, &s, 1, &step, &done, &err), &err, "mote_step_params");

    /* values of later versions */
    mote_model_params odd[] = { { .math = (mote_math)9 },
                                { .weights = (mote_weights)9 },
                                { .place = { [MOTE_GROUP_HEAD] = (mote_weights)9 } },
                                { .place = { [MOTE_GROUP_ROOM - 1] = MOTE_WEIGHTS_COPY } } };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        refused(mote_model_open(&other, source_path("models/nano"), &odd[i], &err), &err,
                "mote_model_params.");
    mote_session_params what = { .prefill = (mote_prefill)9 };
    mote_session *none;
    refused(mote_session_create(&none, m, &what, &err), &err, "mote_session_params.prefill");

    mote_model_info info;
    mote_memory memory;
    mote_model_stats stats;
    memset(&info, 0xff, sizeof info);
    memset(&memory, 0xff, sizeof memory);
    memset(&stats, 0xff, sizeof stats);
    mote_model_get_info(m, &info);
    mote_model_get_memory(m, &memory);
    mote_model_get_stats(m, &stats);
    for (size_t i = 0; i < sizeof info.reserved / 8; i++)
        assert_true(!info.reserved[i] && !stats.reserved[i]);
    for (size_t i = 0; i < sizeof memory.reserved / 8; i++)
        assert_false(memory.reserved[i]);
    for (size_t i = MOTE_MEM_CLASSES; i < MOTE_MEM_ROOM; i++)
        assert_false(memory.bytes[i]);
    for (size_t i = MOTE_WEIGHT_GROUPS; i < MOTE_GROUP_ROOM; i++)
        assert_true(!info.group_bytes[i] && !info.placed[i]);
    mote_session_destroy(s);
    assert_int_equal(mote_model_close(m), 0);
}

static void counts(void **state)
{
    (void)state;
    mote_err err;
    mote_model *m = open_nano();
    mote_model_stats a, b;
    mote_session *s[2];
    int32_t ids[40];
    mote_stepped done[2];
    for (int i = 0; i < 40; i++)
        ids[i] = 10 + i;
    mote_model_get_stats(m, &a);
    assert_true(a.n_sessions == 0 && a.n_steps == 0 && a.step_s == 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(mote_session_create(&s[i], m, NULL, &err), 0);
    assert_int_equal(mote_session_push(s[0], ids, 40, 0, MOTE_LOGITS_LAST, &err), 0);
    assert_int_equal(mote_session_push(s[1], ids, 3, 0, MOTE_LOGITS_LAST, &err), 0);
    assert_int_equal(mote_step(m, s, 2, &(mote_step_params){ .max_rows = 20 }, done, &err), 0);
    mote_model_get_stats(m, &a);
    assert_true(a.n_sessions == 2 && a.n_steps == 1 && a.finished == 1 && a.failed == 0);
    assert_true(a.decode_rows == 3 && a.prompt_rows == 17 && a.decode_steps == 0);
    assert_true(a.step_s > 0 && a.decode_step_s == 0 && a.most_rows == 20);
    while (mote_session_pending(s[0]))
        assert_int_equal(mote_step(m, s, 1, NULL, done, &err), 0);
    assert_int_equal(mote_session_push(s[1], ids, 1, 0, MOTE_LOGITS_LAST, &err), 0);
    assert_int_equal(mote_step(m, s + 1, 1, NULL, done, &err), 0);
    mote_model_get_stats(m, &b);
    assert_true(b.finished == 3 && b.decode_steps >= 1 && b.decode_step_s > 0);
    assert_true(b.prompt_rows + b.decode_rows >= 44 && b.step_s > a.step_s);
    for (int i = 0; i < 2; i++)
        mote_session_destroy(s[i]);
    mote_model_get_stats(m, &b);
    assert_int_equal(b.n_sessions, 0);
    assert_int_equal(mote_model_close(m), 0);
}

/* The tokenizer and the list of tensors are in the account, and leave it. */
static void metered(void **state)
{
    (void)state;
    mote_err err;
    mote_model *with, *without;
    mote_memory a, b;
    with = open_nano();
    mote_model_params only = { .n_threads = 1, .tokenizer_only = 1 };
    assert_int_equal(mote_model_open(&without, source_path("models/nano"), &only, &err), 0);
    mote_model_get_memory(with, &a);
    mote_model_get_memory(without, &b);
    size_t tokenizer = mote__tokenizer_memory(without->tokenizer),
           tensors = mote__checkpoint_memory(with->net.weights.ckpt);
    assert_true(tokenizer > 100000 && tensors > 100000);
    assert_int_equal(b.bytes[MOTE_MEM_OTHER], tokenizer);
    assert_true(a.bytes[MOTE_MEM_OTHER] >= tokenizer + tensors);
    assert_int_equal(mote_model_close(with), 0);
    assert_int_equal(mote_model_close(without), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_of_later_versions),
        cmocka_unit_test(counts),
        cmocka_unit_test(metered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
