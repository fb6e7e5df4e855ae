/* The trained Llama-style twins say what NumPy says of them, on real weights and a real text. */
#include "golden.h"

static void twins(void **state)
{
    (void)state;
    static const char *const names[] = { "gqa", "mha" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[200];
        snprintf(path, sizeof path, "models/twins/%s", names[i]);
        mote_model *m = model_open(source_path(path), MOTE_MATH_FP32, 2);
        snprintf(path, sizeof path, "models/twins/%s/reference.safetensors", names[i]);
        mote__checkpoint *g = golden_open(source_path(path));
        size_t n = 0, n_positions = 0, rows = 0, vocab = 0;
        const int32_t *ids = golden_i32(g, "ids", &n, NULL),
                      *positions = golden_i32(g, "positions", &n_positions, NULL);
        const float *want = golden_f32(g, "logits", NULL, &vocab);
        mote_session *s = session_open(m, "f32", MOTE_PREFILL_FULL);
        const float *got = feed(s, ids, n, MOTE_LOGITS_ALL, &rows, NULL);
        assert_int_equal(rows, n);
        assert_int_equal(vocab, m->net.config.vocab_size);
        deviation d = { 0 };
        for (size_t k = 0; k < n_positions; k++)
            compare_rows(&d, want + k * vocab, got + (size_t)positions[k] * vocab, 1, vocab, 5e-5);
        if (d.over || d.rows != 8)
            fail_msg("%s: %zu of %zu rows differ by more than 5e-5, at most by %g", names[i],
                     d.over, d.rows, d.worst);
        mote_session_destroy(s);
        mote__checkpoint_close(g);
        mote_model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(twins) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
