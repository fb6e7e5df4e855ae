/* Streamed experts behind the public API: prompts wider than a pass, several sessions, forks and
 * truncation give the bits of mapped weights; memory is what the account says; a file that is cut
 * short while it is in use fails the step that needs it, by name, and nothing else. */
#include "engine/engine.h"

#include <unistd.h>

#include "test.h"

enum { PROMPT = 2600, MORE = 8 };

static mote_model *open_model(const char *path, int streamed, uint64_t ram)
{
    mote_err err;
    mote_model *m;
    mote_model_params p = { .n_threads = 2, .expert_ram = ram };
    p.place[MOTE_GROUP_EXPERTS] = streamed ? MOTE_WEIGHTS_STREAM : MOTE_WEIGHTS_MAP;
    if (mote_model_open(&m, path, &p, &err))
        fail_msg("%s", err.message);
    return m;
}

/* Everything that changes which rows are computed together. All logits, one after the other. */
static size_t use(mote_model *m, float *all)
{
    mote_err err;
    mote_session *s[3];
    size_t vocab = m->net.config.vocab_size, n = 0;
    static int32_t ids[PROMPT + MORE];
    rnd r = { 3 };
    for (size_t i = 0; i < PROMPT + MORE; i++)
        ids[i] = (int32_t)rnd_below(&r, vocab);
    for (int i = 0; i < 2; i++) {
        mote_session_params p = { .prefill = i ? MOTE_PREFILL_EXACT : MOTE_PREFILL_BOUNDED };
        assert_int_equal(mote_session_create(&s[i], m, &p, &err), 0);
    }
    mote_feed feeds[2] = { { s[0], ids, PROMPT, MOTE_LOGITS_LAST },
                           { s[1], ids + 100, 300, MOTE_LOGITS_LAST } };
    assert_int_equal(mote_run(m, feeds, 2, NULL, NULL, &err), 0);
    assert_int_equal(mote_session_fork(&s[2], s[0], &err), 0);
    for (size_t k = 0; k <= MORE; k++) {
        mote_feed more[3];
        for (int i = 0; i < 3; i++) {
            size_t rows, first;
            const float *logits = mote_session_logits(s[i], &rows, &first);
            memcpy(all + n, logits, vocab * sizeof *all);
            n += vocab;
            more[i] = (mote_feed){ s[i], ids + PROMPT + (k + (size_t)i) % MORE, 1,
                                   MOTE_LOGITS_LAST };
        }
        if (k < MORE)
            assert_int_equal(mote_run(m, more, 3, NULL, NULL, &err), 0);
    }
    for (int i = 0; i < 3; i++)
        mote_session_destroy(s[i]);
    return n;
}

static void same_bits(void **state)
{
    (void)state;
    const char *nano = source_path("models/nano");
    mote_model *m = open_model(nano, 0, 0);
    size_t vocab = m->net.config.vocab_size, room = (MORE + 1) * 3 * vocab;
    float *want = malloc(room * sizeof *want), *got = malloc(room * sizeof *got);
    size_t n = use(m, want);
    mote_model_stats st;
    mote_model_get_stats(m, &st);
    assert_true(st.expert_slots == 0 && st.experts_wanted == 0);
    mote_model_close(m);
    /* 8 slots, some, all; 144 experts of about 60 KB */
    static const uint64_t ram[] = { 600 << 10, 3 << 20, 20 << 20 };
    for (int i = 0; i < 3; i++) {
        m = open_model(nano, 1, ram[i]);
        mote_model_info info;
        mote_model_get_info(m, &info);
        for (int g = MOTE_GROUP_EXPERTS; g <= MOTE_GROUP_ENGRAM; g++)
            assert_int_equal(info.placed[g], MOTE_WEIGHTS_STREAM);
        assert_int_equal(use(m, got), n);
        assert_memory_equal(got, want, n * sizeof *got);
        mote_model_get_stats(m, &st);
        assert_int_equal(st.experts_wanted, st.experts_hits + st.experts_guessed + st.experts_read);
        assert_true(st.expert_slots * st.expert_slot_bytes <= ram[i] && st.expert_slots >= 8);
        if (i == 2) /* all fit: each is read once */
            assert_true(st.experts_read + st.experts_guesses <= 144);
        mote_memory mem;
        mote_model_get_memory(m, &mem);
        uint64_t rest = info.weight_bytes;
        for (int g = MOTE_GROUP_EXPERTS; g <= MOTE_GROUP_ENGRAM; g++)
            rest -= info.group_bytes[g];
        assert_in_range(mem.bytes[MOTE_MEM_WEIGHTS], rest + st.expert_slots * st.expert_slot_bytes,
                        rest + st.expert_slots * st.expert_slot_bytes +
                            (7 << 20)); /* vectors, rounding, memory of reads */
        mote_model_close(m);
    }
    free(want);
    free(got);
}

/* Of each shard in turn the last half goes while the model is open. */
static void cut_short(void **state)
{
    (void)state;
    char dir[] = "/tmp/mote-streamed-XXXXXX", command[9000], path[200];
    make_tree(dir);
    for (int shard = 1; shard <= 3; shard++) {
        snprintf(command, sizeof command, "rm -rf %s/m && cp -r '%s' %s/m", dir,
                 source_path("models/nano"), dir);
        assert_int_equal(system(command), 0);
        snprintf(path, sizeof path, "%s/m", dir);
        mote_model *m = open_model(path, 1, 700 << 10);
        mote_err err;
        mote_session *s;
        int32_t ids[200];
        rnd r = { 9 };
        for (int i = 0; i < 200; i++)
            ids[i] = (int32_t)rnd_below(&r, m->net.config.vocab_size);
        assert_int_equal(mote_session_create(&s, m, NULL, &err), 0);
        mote_feed feed = { s, ids, 100, MOTE_LOGITS_LAST };
        assert_int_equal(mote_run(m, &feed, 1, NULL, NULL, &err), 0);
        snprintf(path, sizeof path, "%s/m/model-0000%d-of-00003.safetensors", dir, shard);
        assert_int_equal(truncate(path, 4096 * 100), 0);
        feed = (mote_feed){ s, ids + 100, 100, MOTE_LOGITS_LAST };
        int rc = mote_run(m, &feed, 1, NULL, NULL, &err);
        if (rc != MOTE_EFORMAT || !strstr(err.message, path + strlen(dir) + 3))
            fail_msg("shard %d: %d, %s", shard, rc, err.message);
        assert_int_equal(mote_session_length(s), 100);
        assert_int_equal(mote_session_pending(s), 0);
        mote_session_destroy(s);
        assert_int_equal(mote_model_close(m), 0);
    }
    remove_tree(dir);
}

static void too_little(void **state)
{
    (void)state;
    mote_err err;
    mote_model *m;
    mote_model_params p = { .n_threads = 1, .expert_ram = 100 << 10 };
    p.place[MOTE_GROUP_EXPERTS] = MOTE_WEIGHTS_STREAM;
    assert_int_equal(mote_model_open(&m, source_path("models/nano"), &p, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "at least 8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(cut_short),
        cmocka_unit_test(too_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
