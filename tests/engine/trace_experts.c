/* Recording of routing on the bundled model: the file holds what the router chose, as the trace
 * hook sees it; recording changes no logit; a file that cannot be written fails no step. */
#include "engine/engine.h"
#include "lab/expert_trace.h"
#include "test.h"

#include <mote/mote.h>

/* What the hook saw: (layer, ids of all rows), one after the other. */
typedef struct seen {
    struct {
        size_t layer, n_rows, first;
    } call[4096];
    uint16_t ids[65536];
    size_t n_calls, n_ids;
} seen;

static void on_i32(void *ctx, size_t layer, const char *name, const int32_t *data, size_t n_rows,
                   size_t n_cols)
{
    seen *s = ctx;
    if (strcmp(name, "router_ids") != 0)
        return;
    assert_in_range(s->n_calls, 0, 4095);
    assert_in_range(s->n_ids + n_rows * n_cols, 0, 65536);
    s->call[s->n_calls].layer = layer;
    s->call[s->n_calls].first = s->n_ids;
    s->call[s->n_calls++].n_rows = n_rows;
    for (size_t i = 0; i < n_rows * n_cols; i++)
        s->ids[s->n_ids++] = (uint16_t)data[i];
}

static mote_model *open_model(const char *folder)
{
    mote_model *m;
    mote_err err;
    mote_model_params params = { .n_threads = 1, .no_tokenizer = 1 };
    if (mote_model_open(&m, source_path(folder), &params, &err))
        fail_msg("%s", err.message);
    return m;
}

/* Prompts of 40 and 25 tokens in shared passes, then three tokens of both; the last logits of the
 * first session are added up. */
static double work(mote_model *m)
{
    static const size_t n_prompt[] = { 40, 25 };
    mote_session *s[2];
    mote_err err;
    int32_t ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = 100 + 37 * i;
    mote_feed feeds[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mote_session_create(&s[i], m, NULL, &err), 0);
        feeds[i] = (mote_feed){ s[i], ids, n_prompt[i], MOTE_LOGITS_LAST };
    }
    assert_int_equal(mote_run(m, feeds, 2, NULL, NULL, &err), 0);
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 2; i++)
            feeds[i] = (mote_feed){ s[i], ids + k + i, 1, MOTE_LOGITS_LAST };
        assert_int_equal(mote_run(m, feeds, 2, NULL, NULL, &err), 0);
    }
    size_t n_rows, first;
    const float *logits = mote_session_logits(s[0], &n_rows, &first);
    mote_model_info info;
    mote_model_get_info(m, &info);
    double sum = 0;
    for (size_t i = 0; i < info.vocab; i++)
        sum += (double)logits[i] * (double)(i % 7 + 1);
    mote_session_destroy(s[0]);
    mote_session_destroy(s[1]);
    return sum;
}

static void read_trace(lab_trace *t, const char *path)
{
    static uint8_t bytes[1 << 18];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    mote_err err;
    if (lab_trace_parse(t, path, bytes, n, &err))
        fail_msg("%s", err.message);
    assert_int_equal(t->cut_bytes, 0);
}

static void the_file_holds_the_router(void **state)
{
    (void)state;
    static seen s;
    char dir[] = "/tmp/mote-trace-XXXXXX", path[64];
    make_tree(dir);
    snprintf(path, sizeof path, "%s/t", dir);
    mote_model *m = open_model("models/nano");
    mote_err err;
    double plain = work(m);
    mote__trace hook = { .ctx = &s, .i32 = on_i32 };
    m->net.trace = &hook;
    assert_int_equal(mote_model_trace_experts(m, path, &err), 0);
    double recorded = work(m);
    assert_memory_equal(&plain, &recorded, sizeof plain);
    assert_int_equal(mote_model_trace_experts(m, NULL, &err), 0);
    size_t n_calls = s.n_calls;
    work(m); /* recorded no more */
    s.n_calls = n_calls;

    lab_trace t;
    read_trace(&t, path);
    const mote__expert *x = m->net.weights.layers[0].experts;
    assert_int_equal(t.expert_bytes, 3 * (x->w1.n_out * x->w1.n_in / 2 * 17 / 16));
    assert_int_equal(t.n_layers, 12);
    assert_int_equal(t.n_experts, 12);
    assert_int_equal(t.n_per_token, 3);
    size_t record = 0, id = 0, decoded[2] = { 0, 0 }, prompted[2] = { 0, 0 };
    for (size_t c = 0; c < n_calls; c++) {
        size_t n_rows = 0, first_record = record;
        for (; record < t.n_records && n_rows < s.call[c].n_rows; record++) {
            const lab_trace_record *rec = &t.records[record];
            assert_int_equal(rec->layer, s.call[c].layer);
            assert_int_equal(rec->begins_pass, rec->layer == 0 && record == first_record);
            assert_in_range(rec->session, 0, 1);
            if (rec->layer == 0)
                (rec->is_prompt ? prompted : decoded)[rec->session] += rec->n_rows;
            n_rows += rec->n_rows;
        }
        assert_int_equal(n_rows, s.call[c].n_rows);
        assert_memory_equal(t.ids + id, s.ids + s.call[c].first,
                            n_rows * t.n_per_token * sizeof *t.ids);
        id += n_rows * t.n_per_token;
    }
    assert_int_equal(record, t.n_records);
    assert_int_equal(prompted[0], 40);
    assert_int_equal(prompted[1], 25);
    assert_int_equal(decoded[0], 3);
    assert_int_equal(decoded[1], 3);
    lab_trace_deinit(&t);
    assert_int_equal(mote_model_close(m), 0);
    remove_tree(dir);
}

static void a_bad_file_fails_no_step(void **state)
{
    (void)state;
    mote_model *m = open_model("models/nano");
    mote_err err = { 0 };
    assert_int_equal(mote_model_trace_experts(m, "/nowhere/t", &err), MOTE_EIO);
    assert_non_null(strstr(err.message, "/nowhere/t"));
    double plain = work(m);
    assert_int_equal(mote_model_trace_experts(m, "/dev/full", &err), 0);
    double recorded = work(m);
    assert_memory_equal(&plain, &recorded, sizeof plain);
    assert_int_equal(mote_model_trace_experts(m, NULL, &err), MOTE_EIO);
    assert_non_null(strstr(err.message, "/dev/full"));
    assert_int_equal(mote_model_trace_experts(m, NULL, &err), 0);
    /* one that is open when the model is closed */
    assert_int_equal(mote_model_trace_experts(m, "/dev/null", &err), 0);
    assert_int_equal(mote_model_close(m), 0);

    m = open_model("models/twins/mha");
    assert_int_equal(mote_model_trace_experts(m, "/dev/null", &err), MOTE_EUNSUPPORTED);
    assert_int_equal(mote_model_close(m), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_holds_the_router),
        cmocka_unit_test(a_bad_file_fails_no_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
