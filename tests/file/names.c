/* The table of tensor names: published counts and sizes, names that belong and that do not, and the
 * tiny checkpoints tensor by tensor (names, dtypes, shapes: both ways). */
#include "test.h"

#include "file/names.h"

static mote__config load(const char *path)
{
    mote__config c;
    mote_err err;
    if (mote__config_load(&c, source_path(path), &err))
        fail_msg("%s", err.message);
    return c;
}

struct sums {
    size_t n[MOTE_TCLASSES], named[8];
    uint64_t bytes[MOTE_TGROUPS];
    const mote__config *c;
};
static const char *const endings[8] = { "attn.wq_a.weight",
                                        "compressor.wkv.weight",
                                        "compressor.wgate.weight",
                                        "indexer.wq_b.weight",
                                        "indexer.wk.weight",
                                        "engram.embed.weight",
                                        ".w2.weight",
                                        ".scale" };

static int ends(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static int add(void *ctx, const mote__expected *e)
{
    struct sums *s = ctx;
    /* not the scales of what is published without */
    s->n[e->cls] += e->n_bytes > 0;
    s->bytes[mote__tclass_group(e->cls)] += e->n_bytes;
    for (int i = 0; i < 8; i++)
        s->named[i] += (size_t)ends(e->name, endings[i]);
    int layer, expert;
    if (mote__tensor_class(e->name, s->c, &layer, &expert) != e->cls || layer != e->layer ||
        expert != e->expert)
        fail_msg("%s: class %s layer %d expert %d", e->name,
                 mote__tclass_name(mote__tensor_class(e->name, s->c, NULL, NULL)), layer, expert);
    return 0;
}

static void test_published(void **state)
{
    (void)state;
    mote__config c = load("tests/data/config/v41-flash.json");
    struct sums s = { .c = &c };
    assert_int_equal(mote__expected_tensors(&c, add, &s), 0);
    /* w2: experts and shared experts */
    static const size_t counts[7] = { 40, 4, 3, 8, 4, 2, 15360 + 40 };
    for (int i = 0; i < 7; i++)
        assert_int_equal(s.named[i], counts[i]);
    assert_int_equal(s.n[MOTE_TC_EXPERT], 15360 * 6);
    assert_int_equal(s.bytes[MOTE_TG_EXPERTS], 15360ull * 18800640);
    /* rows of 256 + 8 bytes; wkv [25600, 6144] with its scales; two [4, 5120] in BF16 */
    assert_int_equal(s.bytes[MOTE_TG_ENGRAM],
                     (384006168ull + 384016682) * 264 +
                         2 * (25600ull * 6144 + 800 * 192 + 2 * 4 * 5120 * 2));
    assert_int_equal(s.bytes[MOTE_TG_OTHER], 0);
    size_t all = 0;
    for (int i = 0; i < MOTE_TCLASSES; i++)
        all += s.n[i];
    assert_int_equal(all, 93378);
}

static void test_names(void **state)
{
    (void)state;
    mote__config c = load("tests/data/config/v41-flash.json");
    static const struct {
        const char *name;
        mote__tclass with, without;
        int layer, expert;
    } rows[] = {
        { "embed.weight", MOTE_TC_EMBED, MOTE_TC_EMBED, -1, -1 },
        { "layers.39.attn.wq_a.scale", MOTE_TC_ATTENTION, MOTE_TC_ATTENTION, 39, -1 },
        { "layers.39.attn.wq_a.weight_scale_inv", MOTE_TC_ATTENTION, MOTE_TC_ATTENTION, 39, -1 },
        { "layers.39.attn.wq_a.bias", MOTE_TC_UNKNOWN, MOTE_TC_UNKNOWN, -1, -1 },
        { "layers.40.attn.wq_a.weight", MOTE_TC_UNKNOWN, MOTE_TC_ATTENTION, -1, -1 },
        { "layers.07.attn.wq_a.weight", MOTE_TC_UNKNOWN, MOTE_TC_UNKNOWN, -1, -1 },
        { "layers.999999999999.attn.wq_a.weight", MOTE_TC_UNKNOWN, MOTE_TC_UNKNOWN, -1, -1 },
        { "layers..attn.wq_a.weight", MOTE_TC_UNKNOWN, MOTE_TC_UNKNOWN, -1, -1 },
        { "layers.0.ffn.experts.383.w3.weight", MOTE_TC_EXPERT, MOTE_TC_EXPERT, 0, 383 },
        { "layers.0.ffn.experts.384.w3.weight", MOTE_TC_UNKNOWN, MOTE_TC_EXPERT, -1, -1 },
        { "layers.0.ffn.experts.1.w4.weight", MOTE_TC_UNKNOWN, MOTE_TC_UNKNOWN, -1, -1 },
        { "layers.8.attn.compressor.wgate.weight", MOTE_TC_COMPRESSOR, MOTE_TC_COMPRESSOR, 8, -1 },
        /* ratio 1 */
        { "layers.20.attn.compressor.wgate.weight", MOTE_TC_UNKNOWN, MOTE_TC_COMPRESSOR, -1, -1 },
        { "layers.24.attn.indexer.wq_b.weight", MOTE_TC_INDEXER, MOTE_TC_INDEXER, 24, -1 },
        { "layers.25.attn.indexer.wq_b.weight", MOTE_TC_UNKNOWN, MOTE_TC_INDEXER, -1, -1 },
        { "layers.14.engram.embed.scale", MOTE_TC_ENGRAM_TABLE, MOTE_TC_ENGRAM_TABLE, 14, -1 },
        { "layers.13.engram.embed.scale", MOTE_TC_UNKNOWN, MOTE_TC_ENGRAM_TABLE, -1, -1 },
        { "layers.3.ffn.gate.bias", MOTE_TC_ROUTER, MOTE_TC_ROUTER, 3, -1 },
        { "layers.3.ffn.gate.bias_vl", MOTE_TC_IMAGE_BIAS, MOTE_TC_IMAGE_BIAS, 3, -1 },
        { "layers.40.ffn.gate.bias_vl", MOTE_TC_UNKNOWN, MOTE_TC_IMAGE_BIAS, -1, -1 },
        { "mtp.0.attn.wq_a.weight", MOTE_TC_MTP, MOTE_TC_MTP, -1, -1 },
        { "vision.blocks.0.x", MOTE_TC_VISION, MOTE_TC_VISION, -1, -1 },
        { "aligner.w", MOTE_TC_VISION, MOTE_TC_VISION, -1, -1 },
        { "image_newline", MOTE_TC_VISION, MOTE_TC_VISION, -1, -1 },
        { "model.embed.weight", MOTE_TC_UNKNOWN, MOTE_TC_UNKNOWN, -1, -1 },
        { "embed.weigh", MOTE_TC_UNKNOWN, MOTE_TC_UNKNOWN, -1, -1 },
        { "", MOTE_TC_UNKNOWN, MOTE_TC_UNKNOWN, -1, -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int layer, expert;
        mote__tclass cls = mote__tensor_class(rows[i].name, &c, &layer, &expert);
        if (cls != rows[i].with || layer != rows[i].layer || expert != rows[i].expert)
            fail_msg("%s: %s %d %d", rows[i].name, mote__tclass_name(cls), layer, expert);
        assert_int_equal(mote__tensor_class(rows[i].name, NULL, NULL, NULL), rows[i].without);
    }
    for (int i = 0; i < MOTE_TCLASSES; i++)
        assert_true(mote__tclass_name((mote__tclass)i)[0] &&
                    (unsigned)mote__tclass_group((mote__tclass)i) < MOTE_TGROUPS);
}

struct compare {
    const mote__checkpoint *ckpt;
    size_t n;
};
static int compare(void *ctx, const mote__expected *e)
{
    struct compare *x = ctx;
    if (!e->n_bytes)
        return 0;
    const mote__tensor *t = mote__checkpoint_find(x->ckpt, e->name);
    if (!t || t->dtype != e->dtype || t->n_dims != e->n_dims || t->shape[0] != e->shape[0] ||
        (t->n_dims == 2 && t->shape[1] != e->shape[1]) || t->n_bytes != e->n_bytes)
        fail_msg("%s: %s", e->name, t ? "another dtype or shape" : "missing");
    x->n++;
    return 0;
}

/* The nano model has every kind of tensor: all of them are expected, and nothing else is. */
static void test_nano(void **state)
{
    (void)state;
    mote__config c = load("models/nano/config.json");
    struct compare x = { 0 };
    mote__checkpoint *ckpt;
    assert_int_equal(mote__checkpoint_open(&ckpt, source_path("models/nano"), NULL), 0);
    x.ckpt = ckpt;
    assert_int_equal(mote__expected_tensors(&c, compare, &x), 0);
    assert_int_equal(x.n, mote__checkpoint_n_tensors(ckpt));
    mote__checkpoint_close(ckpt);
}

static int shapes(void *ctx, const mote__expected *e)
{
    (void)ctx;
    uint64_t s[2];
    if (!strcmp(e->name, "layers.0.ffn.experts.0.w1.weight")) {
        assert_true(mote__expected_shape(s, e, MOTE_DT_I8) && s[0] == 2304 && s[1] == 2560);
        assert_true(mote__expected_shape(s, e, MOTE_DT_BF16) && s[0] == 2304 && s[1] == 5120);
    } else if (!strcmp(e->name, "layers.0.ffn.experts.0.w1.scale")) {
        assert_string_equal(e->weight, "layers.0.ffn.experts.0.w1.weight");
        assert_true(mote__expected_shape(s, e, MOTE_DT_I8) && s[0] == 2304 && s[1] == 160);
        assert_true(mote__expected_shape(s, e, MOTE_DT_F8_E4M3) && s[0] == 72 && s[1] == 160);
        assert_false(mote__expected_shape(s, e, MOTE_DT_BF16));
        return 7;
    }
    return 0;
}

static void test_shapes(void **state)
{
    (void)state;
    mote__config c = load("tests/data/config/v41-flash.json");
    assert_int_equal(mote__expected_tensors(&c, shapes, NULL), 7);
}

struct dense {
    size_t n, scales, n_bias;
    uint64_t bytes, values;
};
static int count_dense(void *ctx, const mote__expected *e)
{
    struct dense *d = ctx;
    uint64_t s[2];
    d->n++;
    d->scales += e->is_scale && e->n_bytes == 0;
    d->bytes += e->n_bytes;
    if (!e->is_scale)
        d->values += e->dims[0] * (e->n_dims == 2 ? e->dims[1] : 1);
    if (!strcmp(e->name, "model.layers.7.self_attn.k_proj.scale")) {
        assert_string_equal(e->weight, "model.layers.7.self_attn.k_proj.weight");
        assert_true(e->weight_dtype == MOTE_DT_BF16 && !mote__expected_shape(s, e, MOTE_DT_BF16));
        assert_true(mote__expected_shape(s, e, MOTE_DT_F8_E4M3) && s[0] == 32 && s[1] == 256);
    }
    d->n_bias += strstr(e->name, ".bias") != NULL;
    return 0;
}

/* Llama-style names: DeepSeek 67B has 67,425,001,472 parameters. */
static void test_dense(void **state)
{
    (void)state;
    mote__config c = load("tests/data/config/deepseek-67b.json"),
                 other = load("tests/data/config/v41-flash.json");
    struct dense d = { 0 };
    assert_int_equal(mote__expected_tensors(&c, count_dense, &d), 0);
    assert_true(d.values == 67425001472 && d.bytes == 2 * d.values);
    assert_int_equal(d.n, 4 + 95 * (2 + 7 * 2));
    assert_int_equal(d.scales, 1 + 95 * 7);
    static const struct {
        const char *name;
        mote__tclass cls;
    } rows[] = {
        { "model.embed_tokens.weight", MOTE_TC_EMBED },
        { "lm_head.weight", MOTE_TC_HEAD },
        { "model.norm.weight", MOTE_TC_NORM },
        { "model.layers.94.self_attn.q_proj.weight", MOTE_TC_ATTENTION },
        { "model.layers.0.mlp.up_proj.weight_scale_inv", MOTE_TC_FFN },
        { "model.layers.95.self_attn.q_proj.weight", MOTE_TC_UNKNOWN },
        { "model.layers.3.self_attn.q_proj.bias", MOTE_TC_UNKNOWN },
        { "model.layers.3.self_attn.q_norm.weight", MOTE_TC_UNKNOWN },
        { "model.layers.3.self_attn.rotary_emb.inv_freq", MOTE_TC_UNKNOWN },
        { "embed.weight", MOTE_TC_UNKNOWN },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(mote__tensor_class(rows[i].name, &c, NULL, NULL), rows[i].cls);
    assert_int_equal(mote__tensor_class("lm_head.weight", &other, NULL, NULL), MOTE_TC_UNKNOWN);
    assert_int_equal(mote__tensor_class("lm_head.weight", NULL, NULL, NULL), MOTE_TC_HEAD);
    assert_int_equal(mote__tensor_class("embed.weight", NULL, NULL, NULL), MOTE_TC_EMBED);
    c.tied_embeddings = c.qkv_bias = c.qk_norm = 1;
    d = (struct dense){ 0 };
    assert_int_equal(mote__expected_tensors(&c, count_dense, &d), 0);
    assert_int_equal(d.n, 2 + 95 * (2 + 7 * 2 + 3 + 2));
    assert_int_equal(d.n_bias, 95 * 3);
    assert_int_equal(mote__tensor_class("lm_head.weight", &c, NULL, NULL), MOTE_TC_UNKNOWN);
    assert_int_equal(mote__tensor_class("model.layers.3.self_attn.q_proj.bias", &c, NULL, NULL),
                     MOTE_TC_ATTENTION);
}

struct wanted {
    const char *name;
    unsigned dtypes;
};
static int take_dtypes(void *ctx, const mote__expected *e)
{
    struct wanted *w = ctx;
    if (!strcmp(e->name, w->name))
        w->dtypes = e->dtypes;
    return 0;
}
static unsigned dtypes_of(const char *name, const mote__config *c)
{
    struct wanted w = { name, 0 };
    assert_int_equal(mote__expected_tensors(c, take_dtypes, &w), 0);
    return w.dtypes;
}

/* What the loader takes: scales belong to linears only, a table of rows is FP8 only, half precision
 * is the dense models'. */
static void test_dtypes(void **state)
{
    (void)state;
    mote__config v41 = load("tests/data/config/v41-flash.json"),
                 llama = load("tests/data/config/deepseek-67b.json");
    enum {
        BF16 = 1 << MOTE_DT_BF16,
        F16 = 1 << MOTE_DT_F16,
        F32 = 1 << MOTE_DT_F32,
        FP8 = 1 << MOTE_DT_F8_E4M3,
        I8 = 1 << MOTE_DT_I8,
        E8M0 = 1 << MOTE_DT_F8_E8M0
    };
    static const struct {
        const char *name;
        unsigned dtypes;
    } rows[] = {
        { "layers.2.attn.compressor.wkv.weight", I8 | FP8 | BF16 | F32 },
        { "layers.2.attn.compressor.wkv.scale", E8M0 },
        { "layers.2.attn.compressor.wgate.weight", I8 | FP8 | BF16 | F32 },
        { "layers.2.attn.indexer.wk.scale", E8M0 },
        { "layers.2.attn.indexer.weights_proj.weight", I8 | FP8 | BF16 | F32 },
        { "layers.0.attn.wo_a.weight", I8 | FP8 | BF16 | F32 },
        { "layers.1.engram.embed.weight", FP8 },
        { "layers.1.engram.embed.scale", E8M0 },
        { "layers.0.ffn.gate.weight", BF16 | F32 },
        { "head.weight", BF16 | F32 }, { "head.scale", 0 }, { "lm_head.weight", 0 }, { "", 0 },
    }, dense[] = {
        { "lm_head.weight", FP8 | BF16 | F16 | F32 }, { "lm_head.scale", E8M0 },
        { "model.embed_tokens.weight", BF16 | F16 | F32 },
        { "model.layers.1.mlp.up_proj.weight", FP8 | BF16 | F16 | F32 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (dtypes_of(rows[i].name, &v41) != rows[i].dtypes)
            fail_msg("%s: %x", rows[i].name, dtypes_of(rows[i].name, &v41));
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++)
        if (dtypes_of(dense[i].name, &llama) != dense[i].dtypes)
            fail_msg("%s: %x", dense[i].name, dtypes_of(dense[i].name, &llama));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published), cmocka_unit_test(test_names),
        cmocka_unit_test(test_nano),      cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_dense),     cmocka_unit_test(test_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
