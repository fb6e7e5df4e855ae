/* A generator fed with logits that a script made: tokens, text, reasons to end, replies taken
 * apart, zero bytes. No model runs. */
#include "talk/generator.h"

#include "test.h"

static mote_model *model;
static mote_model_info info;
static float *row; /* [vocab] */

static int open_model(void **state)
{
    mote_err err;
    mote_model_params p = { .n_threads = 1 };
    if (mote_model_open(&model, source_path("models/nano"), &p, &err))
        fail_msg("%s", err.message);
    mote_model_get_info(model, &info);
    row = calloc(info.vocab, sizeof *row);
    return 0;
}
static int close_model(void **state)
{
    free(row);
    return mote_model_close(model);
}

/* What a generator gave. */
typedef struct given {
    char text[2][8000];
    size_t n[2], n_tokens;
    int rc;
    talk_finish finish;
    json_t *message;
} given;

static void take(talk_generator *g, given *out)
{
    mote_reply_part part;
    const char *text;
    size_t n;
    while (talk_generator_text(g, &part, &text, &n)) {
        assert_true(n > 0 && out->n[part] + n < sizeof out->text[0]);
        memcpy(out->text[part] + out->n[part], text, n);
        out->n[part] += n;
    }
}

/* Greedy over a script: token i is ids[i]; after the last one the caller cancels. */
static given play(talk_params p, const int32_t *ids, size_t n)
{
    talk_generator *g;
    mote_err err;
    given out = { .rc = 1 };
    assert_int_equal(talk_generator_create(&g, model, &p, &err), 0);
    for (size_t i = 0; i < n && out.rc == 1; i++) {
        row[ids[i]] = 9;
        out.rc = talk_generator_next(g, row, &err);
        row[ids[i]] = 0;
        take(g, &out);
        assert_int_equal(talk_generator_ended(g), out.rc == 0);
    }
    if (out.rc == 1)
        assert_int_equal(talk_generator_end(g, TALK_CANCELLED, &err), 0);
    take(g, &out);
    out.finish = talk_generator_finish(g);
    const int32_t *drawn = talk_generator_tokens(g, &out.n_tokens);
    assert_true(out.n_tokens <= n);
    assert_memory_equal(drawn, ids, out.n_tokens * sizeof *ids);
    assert_int_equal(talk_generator_next(g, row, &err), 0); /* it stays ended */
    if (p.take_apart)
        assert_int_equal(talk_generator_message(g, &out.message, &err), 0);
    talk_generator_destroy(g);
    return out;
}

static size_t encode(const char *text, size_t n, int32_t *ids, size_t room)
{
    int32_t *got;
    size_t n_ids;
    mote_err err;
    assert_int_equal(mote_encode(model, text, n, 0, &got, &n_ids, &err), 0);
    assert_true(n_ids <= room);
    memcpy(ids, got, n_ids * sizeof *ids);
    mote_free(got);
    return n_ids;
}

static void same_text(const given *g, const char *want, size_t n)
{
    assert_int_equal(g->n[MOTE_REPLY_CONTENT], n);
    assert_memory_equal(g->text[MOTE_REPLY_CONTENT], want, n);
}

static void ends(void **state)
{
    (void)state;
    static const char text[] = "It was a truth, na\xc3\xafve and plain.";
    int32_t ids[64];
    size_t n = encode(text, sizeof text - 1, ids, 63);
    talk_params p = { .max_tokens = 1000 };
    given g = play(p, ids, n);
    assert_int_equal(g.finish, TALK_CANCELLED);
    same_text(&g, text, sizeof text - 1);

    ids[n] = info.eos[0];
    g = play(p, ids, n + 1);
    assert_true(g.finish == TALK_EOS && g.n_tokens == n);
    same_text(&g, text, sizeof text - 1);
    p.ignore_eos = 1;
    g = play(p, ids, n + 1);
    assert_true(g.finish == TALK_CANCELLED && g.n_tokens == n + 1);
    p.ignore_eos = 0;

    for (size_t most = 0; most <= n; most++) {
        p.max_tokens = most;
        g = play(p, ids, n);
        assert_true(g.n_tokens == most && g.finish == TALK_LENGTH && g.rc == 0);
        /* what was cut inside a character ends in U+FFFD */
        assert_true(g.n[MOTE_REPLY_CONTENT] <= sizeof text + 2);
    }
    same_text(&g, text, sizeof text - 1);

    p.max_tokens = 1000;
    p.stops = (const char *const[]){ "truth", "plain" };
    p.n_stops = 2;
    g = play(p, ids, n);
    assert_true(g.finish == TALK_STOP && g.n_tokens < n);
    same_text(&g, text, strlen("It was a "));
}

/* A token may hold any byte: lengths, not ends of strings. */
static void zero_bytes(void **state)
{
    (void)state;
    static const char text[] = "a\0b\0\0c";
    int32_t ids[32];
    size_t n = encode(text, 6, ids, 32);
    talk_params p = { .max_tokens = 100 };
    given g = play(p, ids, n);
    same_text(&g, text, 6);
    p.stops = (const char *const[]){ "c" };
    p.n_stops = 1;
    g = play(p, ids, n);
    assert_int_equal(g.finish, TALK_STOP);
    same_text(&g, text, 5);
    p = (talk_params){ .max_tokens = 100, .take_apart = 1 };
    g = play(p, ids, n);
    same_text(&g, text, 6);
    const json_t *content = json_object_get(g.message, "content");
    assert_int_equal(json_string_length(content), 6);
    assert_memory_equal(json_string_value(content), text, 6);
    json_decref(g.message);
}

static void same_part(const given *g, mote_reply_part part, const char *key)
{
    const json_t *v = json_object_get(g->message, key);
    size_t n = v && json_is_string(v) ? json_string_length(v) : 0;
    if (part == MOTE_REPLY_CONTENT || v) {
        assert_int_equal(g->n[part], n);
        assert_memory_equal(g->text[part], json_string_value(v), n);
    }
}

/* Random replies with tags: what was streamed is what the message says, and what the parser says of
 * all tokens; a stop string ends the content and nothing else. */
static void taken_apart(void **state)
{
    (void)state;
    static const char *const words[] = { "<think>", "</think>",      " Emma", " said", "\n\n", "</",
                                         "!",       " na\xc3\xafve", "<",     "stop",  " st" };
    for (uint64_t seed = 1; seed <= 300; seed++) {
        rnd r = { seed };
        int32_t ids[200];
        size_t n = 0, n_words = 1 + rnd_below(&r, 20);
        for (size_t i = 0; i < n_words; i++) {
            const char *w = words[rnd_below(&r, sizeof words / sizeof *words)];
            n += encode(w, strlen(w), ids + n, 200 - n);
        }
        talk_params p = { .max_tokens = 1000, .take_apart = 1, .thinking = (int)rnd_below(&r, 2) };
        given g = play(p, ids, n);
        mote_reply *reply;
        mote_err err;
        char *json;
        assert_int_equal(mote_reply_create(&reply, model, p.thinking, &err), 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(mote_reply_push(reply, ids[i], &err), 0);
        assert_int_equal(mote_reply_push(reply, -1, &err), 0);
        assert_int_equal(mote_reply_json(reply, &json, &err), 0);
        json_t *want = json_loads(json, JSON_ALLOW_NUL, NULL);
        assert_true(json_equal(want, g.message));
        same_part(&g, MOTE_REPLY_REASONING, "reasoning_content");
        same_part(&g, MOTE_REPLY_CONTENT, "content");

        const char *all = json_string_value(json_object_get(want, "content")), *at;
        /* the last two begin what a reply holds back */
        static const char *const stops[] = { "stop", "\n\n", "<" };
        const char *const *stop = &stops[seed % 3];
        at = strstr(all, *stop);
        p.stops = stop;
        p.n_stops = 1;
        given cut = play(p, ids, n);
        assert_int_equal(cut.finish == TALK_STOP, at != NULL);
        same_part(&cut, MOTE_REPLY_CONTENT, "content");
        same_text(&cut, all, at ? (size_t)(at - all) : strlen(all));
        assert_true(!at || !json_object_get(cut.message, "tool_calls"));
        json_decref(g.message);
        json_decref(cut.message);
        json_decref(want);
        mote_free(json);
        mote_reply_destroy(reply);
    }
}

static void logprobs(void **state)
{
    (void)state;
    talk_generator *g;
    mote_err err;
    talk_params p = { .max_tokens = 3, .want_logprobs = 1, .n_logprobs = 2 };
    assert_int_equal(talk_generator_create(&g, model, &p, &err), 0);
    row[300] = 8;
    row[301] = 7;
    assert_int_equal(talk_generator_next(g, row, &err), 1);
    row[300] = row[301] = 0;
    const talk_logprob *top;
    size_t n;
    talk_logprob own = talk_generator_logprob(g, &top, &n);
    assert_true(own.id == 300 && n == 2 && top[0].id == 300 && top[1].id == 301);
    assert_true(own.logprob == top[0].logprob && top[1].logprob < top[0].logprob);
    talk_generator_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends),
        cmocka_unit_test(zero_bytes),
        cmocka_unit_test(taken_apart),
        cmocka_unit_test(logprobs),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
