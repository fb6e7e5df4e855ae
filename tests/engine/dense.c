/* Sessions of a Llama-style model: bytes by part, truncation to any position, forks, marks,
 * cancelled steps, stored prefixes and snapshots, all with the bits of a session that never left
 * memory. */
#include <unistd.h>

#include "golden.h"

enum { N = 700, VOCAB = 160 };
static int32_t ids[N];
static mote_model *model;
static const char kv[] = "key=fp8,value=fp4,value.1=mxfp4";
static float *want; /* logits of every position */

static int setup(void **state)
{
    (void)state;
    rnd r = { 12 };
    for (size_t i = 0; i < N; i++)
        ids[i] = (int32_t)rnd_below(&r, VOCAB);
    model = model_open(golden_path("checkpoints/llama-gqa"), MOTE_MATH_FP32, 2);
    mote_session *s = session_open(model, kv, MOTE_PREFILL_BOUNDED);
    const float *x = feed(s, ids, N, MOTE_LOGITS_ALL, NULL, NULL);
    want = malloc(sizeof *want * N * VOCAB);
    memcpy(want, x, sizeof *want * N * VOCAB);
    mote_session_destroy(s);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(want);
    mote_model_close(model);
    return 0;
}

/* Feed positions [at, n) and compare each with the session that read everything at once. */
static void go_on(mote_session *s, size_t at, size_t n)
{
    assert_int_equal(mote_session_length(s), at);
    size_t rows, first;
    const float *x = feed(s, ids + at, n - at, MOTE_LOGITS_ALL, &rows, &first);
    assert_true(rows == n - at && first == at);
    assert_memory_equal(x, want + at * VOCAB, rows * VOCAB * sizeof *x);
}

/* 2 layers x 2 heads x 128 = 256 values: FP8 256 codes and 8 scales; FP4 128 and 16; MXFP4 128 and
 * 8 */
static void bytes(void **state)
{
    (void)state;
    mote_session *s = session_open(model, kv, MOTE_PREFILL_BOUNDED);
    double parts[4], total = mote_session_kv_bytes_per_token(s, parts);
    assert_true(parts[0] == 2 * 256 && parts[1] == 2 * 8 && parts[2] == 2 * 128 &&
                parts[3] == 16 + 8);
    assert_true(total == parts[0] + parts[1] + parts[2] + parts[3]);
    static const char *const names[4] = { "key_codes", "key_scales", "value_codes",
                                          "value_scales" };
    for (int i = 0; i < 4; i++)
        assert_string_equal(mote_session_kv_part_name(s, i), names[i]);
    assert_int_equal(mote_session_window_bytes(s), 0);
    mote_memory before, m, share;
    mote_model_get_memory(model, &before);
    feed(s, ids, 300, MOTE_LOGITS_NONE, NULL, NULL); /* two blocks */
    mote_model_get_memory(model, &m);
    mote_session_get_memory(s, &share);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(m.bytes[MOTE_MEM_KV_KEY_CODES + i], 2 * 256 * (size_t)parts[i]);
        assert_int_equal(share.bytes[MOTE_MEM_KV_KEY_CODES + i], 2 * 256 * (size_t)parts[i]);
        assert_int_equal(m.bytes[MOTE_MEM_KV_MAIN_CODES + i], 0);
        assert_int_equal(before.bytes[MOTE_MEM_KV_KEY_CODES + i], 0);
    }
    assert_string_equal(mote_memory_class_name(MOTE_MEM_KV_VALUE_SCALES), "kv_value_scales");
    mote_session_destroy(s);
    mote_model_info info;
    mote_model_get_info(model, &info);
    assert_string_equal(info.family, "llama");
    assert_string_equal(info.kv, "key=bf16,value=bf16");
    assert_true(info.n_encoder_layers == 0 && info.window == 0 && info.n_experts == 0 &&
                !info.has_chat && info.prefix_multiple == 1);
}

static void truncate_anywhere(void **state)
{
    (void)state;
    mote_session *s = session_open(model, kv, MOTE_PREFILL_BOUNDED);
    feed(s, ids, 200, MOTE_LOGITS_NONE, NULL, NULL);
    /* of no use here, and in nobody's way */
    assert_int_equal(mote_session_mark(s, NULL), 0);
    feed(s, ids + 200, N - 200, MOTE_LOGITS_NONE, NULL, NULL);
    /* each length is shorter than what the one before left */
    static const size_t lengths[] = { 699, 600, 513, 512, 511, 257, 256, 255, 201, 100, 63, 1, 0 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        mote_truncated t;
        assert_int_equal(mote_session_truncate(s, lengths[i], MOTE_REPLAY_BOUNDED, &t, NULL), 0);
        assert_true(t.length == lengths[i] && t.windows == MOTE_WINDOWS_LIVE &&
                    t.replay_tokens == 0);
        int32_t wrong[40];
        for (size_t k = 0; k < 40; k++)
            wrong[k] = ids[(lengths[i] + k) % N] ^ 1;
        feed(s, wrong, 40, MOTE_LOGITS_NONE, NULL, NULL);
        assert_int_equal(mote_session_truncate(s, lengths[i], MOTE_REPLAY_EXACT, &t, NULL), 0);
        assert_int_equal(mote_session_forget_windows(s, MOTE_REPLAY_EXACT, NULL), 0);
        go_on(s, lengths[i], lengths[i] + 1);
    }
    go_on(s, 1, N);
    assert_int_equal(mote_session_truncate(s, N + 1, MOTE_REPLAY_BOUNDED, NULL, NULL), MOTE_EINVAL);
    mote_session_destroy(s);
}

static void forks(void **state)
{
    (void)state;
    mote_session *s = session_open(model, kv, MOTE_PREFILL_BOUNDED), *f[3];
    feed(s, ids, 400, MOTE_LOGITS_NONE, NULL, NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mote_session_fork(&f[i], s, NULL), 0);
    mote_memory m;
    /* a shared full block counts once: 1 + 4 unfinished ones */
    mote_model_get_memory(model, &m);
    assert_int_equal(m.bytes[MOTE_MEM_KV_KEY_CODES], 5 * 256 * 512);
    int32_t other[50];
    for (size_t k = 0; k < 50; k++)
        other[k] = ids[k] ^ 2;
    /* neighbours see nothing of each other */
    feed(f[0], other, 50, MOTE_LOGITS_NONE, NULL, NULL);
    go_on(s, 400, 520);
    go_on(f[1], 400, 401);
    assert_int_equal(mote_session_truncate(f[2], 100, MOTE_REPLAY_BOUNDED, NULL, NULL), 0);
    feed(f[2], other, 50, MOTE_LOGITS_NONE, NULL, NULL); /* into the block that others share */
    go_on(f[1], 401, 700);
    go_on(s, 520, 700);
    assert_int_equal(mote_session_truncate(f[0], 400, MOTE_REPLAY_BOUNDED, NULL, NULL), 0);
    go_on(f[0], 400, 410);
    assert_int_equal(mote_session_truncate(f[2], 100, MOTE_REPLAY_BOUNDED, NULL, NULL), 0);
    go_on(f[2], 100, 300);
    for (int i = 0; i < 3; i++)
        mote_session_destroy(f[i]);
    mote_session_destroy(s);
}

static int stop(void *ctx, size_t done, size_t all)
{
    (void)ctx, (void)done, (void)all;
    return 1;
}

static void cancelled(void **state)
{
    (void)state;
    mote_session *s = session_open(model, kv, MOTE_PREFILL_BOUNDED);
    feed(s, ids, 301, MOTE_LOGITS_NONE, NULL, NULL);
    size_t usual = model->chunk_rows;
    model->chunk_rows = 100;
    mote_feed f = { s, ids + 301, 300, MOTE_LOGITS_LAST };
    mote_err err;
    assert_int_equal(mote_run(model, &f, 1, stop, NULL, &err), MOTE_ECANCELED);
    model->chunk_rows = usual;
    go_on(s, 301, N);
    mote_session_destroy(s);
}

/* ---- the store ---- */

static char dir[64];

static mote_store *store_open(void)
{
    mote_store *s;
    mote_err err;
    if (mote_store_open(&s, dir, NULL, &err))
        fail_msg("%s", err.message);
    return s;
}

static mote_session *over(mote_store *store, const char *formats)
{
    mote_session *s = session_open(model, formats, MOTE_PREFILL_BOUNDED);
    assert_int_equal(mote_session_use_store(s, store, NULL, NULL), 0);
    return s;
}

static void stored(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/mote-dense-XXXXXX");
    make_tree(dir);
    mote_store *store = store_open();
    mote_session *s = over(store, kv);
    feed(s, ids, 600, MOTE_LOGITS_NONE, NULL, NULL);
    mote_session_destroy(s);
    mote_store_close(store);

    /* prompt, tokens reused: whole blocks, one token at least is run, nothing is replayed */
    static const struct {
        size_t n, reused;
    } cases[] = { { 100, 0 }, { 256, 0 }, { 257, 256 }, { 512, 256 }, { 513, 512 }, { 700, 512 } };
    store = store_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int replay = MOTE_REPLAY_BOUNDED; replay <= MOTE_REPLAY_EXACT; replay++) {
            s = over(store, kv);
            mote_restored r;
            assert_int_equal(
                mote_session_restore(s, ids, cases[i].n, (mote_replay)replay, &r, NULL), 0);
            assert_true(r.reused_tokens == cases[i].reused && r.replay_tokens == 0 && r.exact &&
                        !r.from_snapshot);
            go_on(s, cases[i].reused, cases[i].n);
            mote_session_destroy(s);
        }
    /* other formats share nothing */
    s = over(store, "fp8");
    mote_restored r;
    assert_int_equal(mote_session_restore(s, ids, 600, MOTE_REPLAY_BOUNDED, &r, NULL), 0);
    assert_int_equal(r.reused_tokens, 0);
    mote_session_destroy(s);

    /* a snapshot brings the unfinished block as well */
    s = over(store, kv);
    feed(s, ids, 605, MOTE_LOGITS_NONE, NULL, NULL);
    assert_int_equal(mote_session_snapshot(s, NULL), 0);
    mote_session_destroy(s);
    mote_store_close(store);
    store = store_open();
    s = over(store, kv);
    assert_int_equal(mote_session_restore(s, ids, N, MOTE_REPLAY_EXACT, &r, NULL), 0);
    assert_true(r.reused_tokens == 605 && r.from_snapshot && r.exact && r.replay_tokens == 0);
    go_on(s, 605, N);
    mote_session_destroy(s);
    mote_store_close(store);
    remove_tree(dir);
}

/* ---- evaluation, and what is refused ---- */

static void eval(void **state)
{
    (void)state;
    mote_eval_result r;
    mote_err err;
    assert_int_equal(mote_eval_window(model, ids, N, "fp8", "fp8", NULL, NULL, &r, &err), 0);
    assert_true(r.kl == 0 && r.top1_agreement == 1 && r.n_predicted == N - 1 &&
                r.kv_bytes_per_token == 2 * 2 * 264);
    double loss = 0;
    assert_int_equal(mote_eval_window(model, ids, N, kv, "bf16", NULL, NULL, &r, &err), 0);
    for (size_t p = 0; p + 1 < N; p++) {
        double sum = 0;
        for (size_t v = 0; v < VOCAB; v++)
            sum += exp((double)want[p * VOCAB + v]);
        loss += log(sum) - (double)want[p * VOCAB + (size_t)ids[p + 1]];
    }
    assert_true(fabs(r.mean_loss - loss / (N - 1)) < 1e-6 && r.kl > 0 && r.kl < 0.1);
}

static void refused(void **state)
{
    (void)state;
    mote_session *s;
    mote_session_params p = { .kv = "main=fp4" };
    mote_err err;
    assert_int_equal(mote_session_create(&s, model, &p, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "there are key, value"));
    s = session_open(model, NULL, MOTE_PREFILL_BOUNDED);
    mote_feed f = { s, ids, 0, MOTE_LOGITS_LAST };
    assert_int_equal(mote_run(model, &f, 1, NULL, NULL, &err), MOTE_EINVAL);
    mote_session_destroy(s);
    char *json = NULL;
    assert_int_equal(mote_model_plan_json(model, &json, &err), 0);
    assert_non_null(strstr(json, "\"role\":\"dense\""));
    assert_non_null(strstr(json, "\"half\":\"all\""));
    mote_free(json);
}

/* What plan makes of a configuration is what the checkpoint's tensors weigh. */
static void planned(void **state)
{
    (void)state;
    static const char *const names[] = { "mha", "gqa", "fp8", "qwen2", "qwen3", "mistral" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[64], config[80], *texts[2];
        snprintf(folder, sizeof folder, "checkpoints/llama-%s", names[i]);
        snprintf(config, sizeof config, "%s/config.json", folder);
        json_t *o[2];
        for (int k = 0; k < 2; k++) {
            assert_int_equal(mote_plan_json(&texts[k], golden_path(k ? config : folder), NULL, NULL,
                                            0, 0, NULL),
                             0);
            o[k] = json_loads(texts[k], 0, NULL);
            mote_free(texts[k]);
        }
        assert_string_equal(json_string_value(json_object_get(o[0], "weights_source")),
                            "checkpoint");
        assert_string_equal(json_string_value(json_object_get(o[1], "weights_source")), "geometry");
        assert_true(json_is_true(json_object_get(o[1], "runs")));
        if (!json_equal(json_object_get(o[0], "weights"), json_object_get(o[1], "weights")) ||
            !json_equal(json_object_get(o[0], "n_parameters"),
                        json_object_get(o[1], "n_parameters")))
            fail_msg("%s: %s %s", names[i], json_dumps(json_object_get(o[0], "weights"), 0),
                     json_dumps(json_object_get(o[1], "weights"), 0));
        json_decref(o[0]);
        json_decref(o[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes),   cmocka_unit_test(truncate_anywhere),
        cmocka_unit_test(forks),   cmocka_unit_test(cancelled),
        cmocka_unit_test(stored),  cmocka_unit_test(eval),
        cmocka_unit_test(refused), cmocka_unit_test(planned),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
