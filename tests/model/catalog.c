/* The one list of tensors: every tensor of a family has a place, every place has a tensor, and no
 * matrix or vector of a loaded model is left out of the list. */
#include "model/catalog.h"

#include "golden.h"

static void mark(uint8_t *seen, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        seen[i]++;
}

static int note(void *ctx, const mote__expected *e)
{
    unsigned *n = ctx;
    if (!e->is_scale) {
        n[e->id]++;
        /* what it is as published fits the place */
        mote__form f = mote__catalog(e->id)->form;
        int matrix = f == MOTE_FORM_MATRIX || f == MOTE_FORM_TABLE;
        assert_true(!matrix || e->n_dims == 2);
        assert_int_equal(mote__catalog(e->id)->owner == MOTE_OF_EXPERT, e->expert >= 0);
        assert_int_equal(mote__catalog(e->id)->owner == MOTE_OF_MODEL, e->layer < 0);
        /* a family without experts has its feed-forward parts in the shared one's place */
        if (e->cls != MOTE_TC_FFN)
            assert_int_equal(mote__catalog(e->id)->group, mote__tclass_placed(e->cls));
        if (e->cls == MOTE_TC_NORM || e->cls == MOTE_TC_EXPERT)
            assert_int_equal(matrix, e->cls == MOTE_TC_EXPERT);
    }
    return 0;
}

static void every_tensor(void **state)
{
    (void)state;
    mote_err err;
    unsigned n[MOTE_TENSOR_IDS] = { 0 };
    mote__config c;
    assert_int_equal(mote__config_load(&c, source_path("tests/data/config/v41-flash.json"), &err),
                     0);
    assert_int_equal(mote__expected_tensors(&c, note, n), 0);
    assert_int_equal(n[MOTE_T_EXPERT_W2], 40 * 384);
    assert_int_equal(
        mote__config_load(&c, source_path("tests/data/config/deepseek-67b.json"), &err), 0);
    c.qkv_bias = c.qk_norm = 1;
    assert_int_equal(mote__expected_tensors(&c, note, n), 0);
    for (size_t i = 0; i < MOTE_TENSOR_IDS; i++)
        if (!n[i])
            fail_msg("tensor %zu is of no family", i);
}

static void every_member(void **state)
{
    (void)state;
    uint8_t layer[sizeof(mote__layer_weights)] = { 0 }, expert[sizeof(mote__expert)] = { 0 };
    for (int i = 0; i < MOTE_TENSOR_IDS; i++) {
        const mote__catalog_row *r = mote__catalog((mote__tensor_id)i);
        size_t n = r->form <= MOTE_FORM_TABLE ? sizeof(mote__mat) : sizeof(float *);
        if (r->form == MOTE_FORM_FACTOR || r->owner == MOTE_OF_MODEL)
            continue;
        mark(r->owner == MOTE_OF_LAYER ? layer : expert, r->at, n);
    }
    mark(layer, offsetof(mote__layer_weights, experts), sizeof(mote__expert *));
    for (size_t i = 0; i < sizeof layer; i++)
        if (layer[i] != 1)
            fail_msg("byte %zu of mote__layer_weights is in %d rows", i, layer[i]);
    for (size_t i = 0; i < sizeof expert; i++)
        if (expert[i] != 1)
            fail_msg("byte %zu of mote__expert is in %d rows", i, expert[i]);
}

struct walk {
    mote__weights *w;
    size_t n;
    uint64_t bytes;
};
static void add(void *ctx, mote__tensor_id id, mote__mat *m)
{
    struct walk *k = ctx;
    k->n++;
    k->bytes += mote__mat_code_bytes(m) + mote__mat_scale_bytes(m, mote__catalog(id)->form);
}

static void every_matrix(void **state)
{
    (void)state;
    mote_model *m = model_open(source_path("models/nano"), MOTE_MATH_FP32, 1);
    mote__weights *w = &m->net.weights;
    struct walk k = { .w = w };
    uint64_t sum = 0;
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++) {
        k = (struct walk){ .w = w };
        mote__weights_each(w, 1u << g, add, &k);
        assert_true(k.n > 0 && k.bytes <= w->group_bytes[g]);
        /* all but vectors, which are dense */
        if (g != MOTE_GROUP_DENSE)
            assert_int_equal(k.bytes, w->group_bytes[g]);
        sum += w->group_bytes[g];
    }
    assert_int_equal(sum, w->used_bytes);
    k = (struct walk){ .w = w };
    mote__weights_each(w, 1u << MOTE_GROUP_EXPERTS, add, &k);
    assert_int_equal(k.n, 3 * w->n_layers * w->n_experts);
    mote_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor),
        cmocka_unit_test(every_member),
        cmocka_unit_test(every_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
