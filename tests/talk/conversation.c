/* A conversation over the bundled model: each turn computes what is new and no more, and its logits
 * are those of a session that was given the same tokens at once. */
#include "talk/conversation.h"

#include "test.h"

typedef struct fed {
    mote_model *model;
    size_t n_created, n_tokens;
} fed;

static int create(void *ctx, mote_session **session, mote_err *err)
{
    fed *f = ctx;
    f->n_created++;
    return mote_session_create(session, f->model,
                               &(mote_session_params){ .prefill = MOTE_PREFILL_FULL }, err);
}

static int feed(void *ctx, mote_session *session, const int32_t *ids, size_t n,
                mote_logits_rows logits, mote_err *err)
{
    fed *f = ctx;
    mote_feed one = { session, ids, n, logits };
    f->n_tokens += n;
    return mote_run(f->model, &one, 1, NULL, NULL, err);
}

static const float *logits_of(mote_session *s)
{
    size_t n, first;
    const float *logits = mote_session_logits(s, &n, &first);
    assert_int_equal(n, 1);
    return logits;
}

/* The session's logits are those of its tokens fed at once. */
static void check(fed *f, talk_conversation *c, const char *prompt, size_t n)
{
    mote_session *s;
    mote_err err;
    mote_model_info info;
    fed other = { f->model, 0, 0 };
    mote_model_get_info(f->model, &info);
    assert_int_equal(c->held.n, n);
    assert_memory_equal(c->held.data, prompt, n);
    assert_int_equal(create(&other, &s, &err), 0);
    assert_int_equal(feed(&other, s, mote_session_tokens(c->session),
                          mote_session_length(c->session), MOTE_LOGITS_LAST, &err),
                     0);
    assert_memory_equal(logits_of(s), logits_of(c->session), info.vocab * sizeof(float));
    mote_session_destroy(s);
}

static void bring(fed *f, talk_conversation *c, const char *messages, int thinking, talk_brought *b)
{
    mote_err err;
    char *text;
    size_t n;
    mote_chat_params format = { .thinking = thinking };
    if (mote_chat_prompt(f->model, messages, &format, &text, &n, &err) ||
        talk_conversation_bring(c, messages, &format, text, n, b, &err))
        fail_msg("%s", err.message);
    check(f, c, text, n);
    mote_free(text);
}

static void turns(void **state)
{
    (void)state;
    mote_err err;
    fed f = { 0 };
    mote_model_params p = { .n_threads = 2 };
    if (mote_model_open(&f.model, source_path("models/nano"), &p, &err))
        fail_msg("%s", err.message);
    const talk_hooks hooks = { .create = create, .feed = feed, .ctx = &f };
    for (int thinking = 0; thinking < 2; thinking++) {
        talk_conversation c;
        talk_brought b;
        talk_conversation_init(&c, f.model, &hooks);
        f.n_created = 0;
        static const char one[] = "[{\"role\":\"user\",\"content\":\"How do you do?\"}]";
        bring(&f, &c, one, thinking, &b);
        assert_true(f.n_created == 1 && b.n_new == mote_session_length(c.session) && b.n_new > 4);
        assert_true(c.mark_tokens > 0 && c.mark_tokens < b.n_new && !c.approximate);
        size_t prompt = b.n_new;

        /* a reply, of which the last token was not fed */
        int32_t *ids;
        size_t n_ids;
        static const char said[] = "Very well, I thank you.";
        assert_int_equal(mote_encode(f.model, said, strlen(said), 0, &ids, &n_ids, &err), 0);
        assert_int_equal(feed(&f, c.session, ids, n_ids - 1, MOTE_LOGITS_LAST, &err), 0);
        assert_int_equal(talk_conversation_hold(&c, ids, n_ids - 1, &err), 0);
        mote_free(ids);

        /* the same prompt again (another reply): only what opens the reply is computed */
        bring(&f, &c, one, thinking, &b);
        assert_true(f.n_created == 1 && b.n_new == prompt - c.mark_tokens);

        static const char two[] = "[{\"role\":\"user\",\"content\":\"How do you do?\"},"
                                  "{\"role\":\"assistant\",\"content\":\"Very well.\"},"
                                  "{\"role\":\"user\",\"content\":\"And your sister?\"}]";
        bring(&f, &c, two, thinking, &b);
        assert_true(f.n_created == 1 && b.n_new + c.saved.n < mote_session_length(c.session));

        /* another beginning: anew, with the saved tokens as far as they are the prompt's */
        assert_int_equal(talk_conversation_save(&c, &err), 0);
        assert_int_equal(c.saved.n, mote_session_length(c.session));
        bring(&f, &c,
              "[{\"role\":\"system\",\"content\":\"x\"},{\"role\":\"user\",\"content\":"
              "\"How do you do?\"}]",
              thinking, &b);
        assert_int_equal(f.n_created, 2);
        assert_int_equal(b.n_new, mote_session_length(c.session));
        talk_conversation_drop(&c);
        assert_null(c.session);
        bring(&f, &c, two, thinking, &b);
        assert_int_equal(f.n_created, 3);
        assert_true(mote_session_length(c.session) == c.saved.n);
        assert_memory_equal(mote_session_tokens(c.session), c.saved.ids,
                            c.saved.mark * sizeof *c.saved.ids);
        talk_conversation_deinit(&c);
    }
    assert_int_equal(mote_model_close(f.model), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(turns) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
