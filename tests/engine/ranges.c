/* Both ends of every range of config.json: a made-up checkpoint with that value loads and runs a
 * few tokens in both kinds of math, or is refused by a line that names the key. Under ASan this
 * holds every fixed array of the code against the range. Large tensors are holes in a sparse file
 * behind their first values. */
#include "test.h"
#include "base/le.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include <jansson.h>

#include "engine/engine.h"
#include "file/config_read.h"
#include "file/names.h"
#include "num/formats.h"

static const char v41[] = "{'model_type':'deepseek_v41','vocab_size':64,'hidden_size':32,'num_"
                          "hidden_layers':5,'num_attention_heads':2,'head_dim':32,"
                          "'qk_rope_head_dim':8,'q_lora_rank':32,'o_lora_rank':32,'o_groups':2,'"
                          "moe_intermediate_size':32,'n_routed_experts':3,"
                          "'num_experts_per_tok':2,'sliding_window':4,'rms_norm_eps':1e-6,'rope_"
                          "theta':10000,'compress_rope_theta':160000,"
                          "'max_position_embeddings':4096,'rope_scaling':{'rope_type':'yarn','"
                          "factor':4,'original_max_position_embeddings':64},"
                          "'index_n_heads':2,'index_head_dim':32,'index_topk':3,'candidate_source_"
                          "layer_id':2,'candidate_topk_blocks':3,"
                          "'candidate_block_size':2,'hc_mult':2,'hc_sinkhorn_iters':3,'hc_eps':1e-"
                          "6,'compress_ratios':[0,2,1,1,1],"
                          "'kv_source_layer_ids':[1,2],'index_source_layer_ids':[1,2,3],'engram_"
                          "layer_ids':[0],'engram_num_embeddings':[1],"
                          "'engram_max_ngram_size':3,'engram_vocab_size':5,'engram_n_heads':2,'"
                          "engram_head_dim':32,'engram_pad_token_id':2,"
                          "'engram_compressed_vocab_size':7}";
static const char dense[] = "{'model_type':'qwen3','vocab_size':64,'hidden_size':32,'num_hidden_"
                            "layers':2,'num_attention_heads':4,'num_key_value_heads':2,"
                            "'head_dim':16,'intermediate_size':32,'rms_norm_eps':1e-6,'rope_theta':"
                            "10000,'max_position_embeddings':4096}";

/* One layer, one expert, no candidates and no Engram: for values that make every matrix large. */
#define SMALL                                                                                     \
    "'num_hidden_layers':1,'compress_ratios':[2],'kv_source_layer_ids':[0],'index_source_layer_"  \
    "ids':[0],"                                                                                   \
    "'candidate_source_layer_id':-1,'n_routed_experts':1,'num_experts_per_tok':1,'vocab_size':8," \
    "'num_attention_heads':1,'o_groups':1,'index_n_heads':1,'engram_layer_ids':[],'engram_num_"   \
    "embeddings':[]"
#define NO_ENGRAM "'engram_layer_ids':[],'engram_num_embeddings':[]"
#define DEEP "@layers" /* 256 layers, each a source: lists are made by deepen */

/* What the other fields must be for an end to be possible; refused: words of the line where it
 * never is. */
struct end {
    const char *with, *refused;
};
static const struct rule {
    const char *key;
    struct end low, high;
} rules_v41[] = {
    { "vocab_size",
      { "'engram_compressed_vocab_size':1,'engram_pad_token_id':0", 0 },
      { "'hidden_size':32", 0 } },
    { "hidden_size", { 0 }, { SMALL ",'hc_mult':1", 0 } },
    { "num_hidden_layers",
      { "'compress_ratios':[1],'kv_source_layer_ids':[0],'index_source_layer_ids':[0],'candidate_"
        "source_layer_id':-1",
        0 },
      { DEEP, 0 } },
    { "num_attention_heads", { "'o_groups':1", 0 }, { 0 } },
    { "head_dim", { 0 }, { 0 } },
    { "qk_rope_head_dim", { 0 }, { "'head_dim':4096,'index_head_dim':4096", 0 } },
    { "q_lora_rank", { 0 }, { SMALL, 0 } },
    { "o_lora_rank", { 0 }, { SMALL, 0 } },
    { "o_groups", { 0 }, { "'num_attention_heads':1024", 0 } },
    { "moe_intermediate_size", { 0 }, { SMALL, 0 } },
    { "n_routed_experts", { "'num_experts_per_tok':1", 0 }, { SMALL, 0 } },
    { "num_experts_per_tok", { 0 }, { "'n_routed_experts':256", 0 } },
    { "index_topk", { 0 }, { "'candidate_topk_blocks':1048576", 0 } },
    { "candidate_source_layer_id", { 0 }, { DEEP ",'num_hidden_layers':256", 0 } },
    { "candidate_topk_blocks", { "'candidate_source_layer_id':-1", 0 }, { 0 } },
    { "candidate_block_size", { "'candidate_source_layer_id':-1", 0 }, { 0 } },
    { "engram_max_ngram_size", { NO_ENGRAM, 0 }, { "'engram_n_heads':32", 0 } },
    { "engram_vocab_size", { NO_ENGRAM, 0 }, { NO_ENGRAM, 0 } },
    { "engram_n_heads",
      { NO_ENGRAM, 0 },
      { "'engram_max_ngram_size':8,'hidden_size':64,'hc_mult':8", 0 } },
    { "engram_head_dim", { NO_ENGRAM, 0 }, { 0 } },
    { "engram_pad_token_id",
      { 0 },
      { 0, "'engram_pad_token_id' is 16777215, outside the vocabulary" } },
    { "engram_compressed_vocab_size",
      { NO_ENGRAM, 0 },
      { 0, "'engram_compressed_vocab_size' is 16777216, outside 1 to 'vocab_size'" } },
};
static const struct rule rules_dense[] = {
    { "vocab_size", { 0 }, { "'hidden_size':2", 0 } },
    { "hidden_size",
      { 0 },
      { "'num_hidden_layers':1,'vocab_size':8,'head_dim':2,'num_attention_heads':1,'num_key_value_"
        "heads':1,'intermediate_size':2",
        0 } },
    { "intermediate_size", { 0 }, { "'num_hidden_layers':1", 0 } },
    { "num_attention_heads", { "'num_key_value_heads':1", 0 }, { "'num_key_value_heads':1", 0 } },
    { "num_key_value_heads", { 0 }, { "'num_attention_heads':1024", 0 } },
};

/* Values that are no end of a table's row. */
static const struct more {
    int dense;
    const char *with;
} more[] = {
    { 0, "'compress_ratios':[16,16,8,8,8],'kv_source_layer_ids':[0,2],'index_source_layer_ids':[0,"
         "2,3]" },
    { 0, "'compress_ratios':[4,4,1,1,1],'kv_source_layer_ids':[0,2],'index_source_layer_ids':[0,2,"
         "3],'candidate_block_size':1,"
         "'candidate_topk_blocks':1048576" },
    { 0, "'hc_mult':5" },
    { 0, "'o_groups':65,'num_attention_heads':65" },
    { 0, "'o_groups':128,'num_attention_heads':128" },
    { 0, "'head_dim':1024" },
    { 0, "'head_dim':512,'qk_rope_head_dim':512,'index_head_dim':544" },
    { 0, "'qk_rope_head_dim':514,'head_dim':544,'index_head_dim':1024" },
    { 0, "'num_hidden_layers':16,'compress_ratios':[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],'kv_source_"
         "layer_ids':[0],'index_source_layer_ids':[0],"
         "'candidate_source_layer_id':0,'engram_layer_ids':[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15],"
         "'engram_num_embeddings':[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]" },
    { 0, "'scoring_func':'softmax'" },
    { 0, "'scoring_func':'sigmoid'" },
    { 0, "'rope_scaling':{'rope_type':'yarn','factor':1,'beta_fast':1000000,'beta_slow':0.001,'"
         "original_max_position_embeddings':1}" },
    { 0, "'rope_scaling':{'rope_type':'yarn','factor':1000000,'beta_fast':0.001,'beta_slow':0.001,"
         "'original_max_position_embeddings':1073741824}" },
    { 1,
      "'rope_scaling':{'rope_type':'yarn','factor':1000000,'beta_fast':1000000,'beta_slow':0.001,"
      "'original_max_position_embeddings':1073741824,'attention_factor':1000}" },
    { 1, "'head_dim':2,'hidden_size':2" },
    { 1, "'tie_word_embeddings':true,'num_key_value_heads':1" },
};

/* ---- a checkpoint from a configuration ---- */

static json_t *parse_quoted(const char *text)
{
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *j = json_loads(copy, 0, NULL);
    if (!j)
        fail_msg("%s", copy);
    free(copy);
    return j;
}

static void deepen(json_t *root)
{
    json_t *ones = json_array(), *all = json_array();
    for (int i = 0; i < 256; i++) {
        json_array_append_new(ones, json_integer(1));
        json_array_append_new(all, json_integer(i));
    }
    json_object_set_new(root, "compress_ratios", ones);
    json_object_set(root, "kv_source_layer_ids", all);
    json_object_set_new(root, "index_source_layer_ids", all);
    json_object_set_new(root, "candidate_source_layer_id", json_integer(255));
    json_object_set_new(root, "n_routed_experts", json_integer(2));
}

static json_t *variant(int is_dense, const char *with)
{
    json_t *root = parse_quoted(is_dense ? dense : v41);
    if (with && !strncmp(with, DEEP, strlen(DEEP))) {
        deepen(root);
        with += strlen(DEEP);
        with += *with == ',';
    }
    if (with && *with) {
        char *text;
        assert_true(asprintf(&text, "{%s}", with) > 0);
        json_t *changes = parse_quoted(text);
        json_object_update(root, changes);
        json_decref(changes);
        free(text);
    }
    return root;
}

static int parse(mote__config *c, const json_t *root, mote_err *err)
{
    char *text = json_dumps(root, 0);
    int rc = mote__config_parse(c, text, strlen(text), "config.json", err);
    free(text);
    return rc;
}

/* Engram's tables say how many rows they have. */
static int settle(mote__config *c, json_t *root, mote_err *err)
{
    static mote__engram_table tables[MOTE_MAX_ENGRAM];
    int rc = parse(c, root, err);
    for (size_t i = 0; !rc && i < c->n_engram_layers; i++) {
        memset(tables, 0, sizeof tables);
        mote__engram_tables(tables, c, NULL);
        json_array_set_new(json_object_get(root, "engram_num_embeddings"), i,
                           json_integer((json_int_t)tables[i].n_rows));
        rc = parse(c, root, err);
    }
    return rc;
}

/* The first tensor of every name in every dtype: loader and inspection both take it, or neither
 * does. */
struct swap {
    const char *name;
    mote__dtype dtype;
    const mote__config *c;
};
static struct swap swapped;

static mote__dtype dtype_of(const mote__expected *e, uint64_t shape[2], uint64_t *n_bytes)
{
    const char *weight = e->is_scale ? e->weight : e->name;
    int ours = swapped.name && !strcmp(weight, swapped.name);
    mote__dtype as = ours ? swapped.dtype : e->weight_dtype, d = e->is_scale ? MOTE_DT_F8_E8M0 : as;
    int exists = mote__expected_shape(shape, e, as);
    *n_bytes = exists ? mote__shape_bytes(d, shape, e->n_dims) : 0;
    return d;
}

enum { FILLED = 1 << 15, LARGE = 32 << 20 };
struct writer {
    json_t *header;
    int fd;
    uint64_t at, data;
    rnd r;
};

static int list_tensor(void *ctx, const mote__expected *e)
{
    struct writer *w = ctx;
    uint64_t dims[2], n_bytes;
    mote__dtype dtype = dtype_of(e, dims, &n_bytes);
    if (!n_bytes)
        return 0;
    json_t *shape = json_array();
    for (unsigned i = 0; i < e->n_dims; i++)
        json_array_append_new(shape, json_integer((json_int_t)dims[i]));
    json_object_set_new(w->header, e->name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", mote__dtype_name(dtype), "shape",
                                  shape, "data_offsets", (json_int_t)w->at,
                                  (json_int_t)(w->at + n_bytes)));
    w->at += n_bytes;
    return 0;
}

static int fill_tensor(void *ctx, const mote__expected *e)
{
    struct writer *w = ctx;
    static uint8_t bytes[FILLED];
    uint64_t dims[2], n_bytes;
    mote__dtype dtype = dtype_of(e, dims, &n_bytes);
    size_t n = n_bytes < FILLED ? (size_t)n_bytes : FILLED;
    for (size_t i = 0; i < n; i++) {
        uint8_t u = (uint8_t)(rnd_u64(&w->r) >> 56);
        switch (dtype) {
        case MOTE_DT_F8_E4M3: u &= 0xb7; break; /* below 2 */
        case MOTE_DT_F8_E8M0: u = (uint8_t)(120 + u % 4); break;
        case MOTE_DT_BF16: u = i % 2 ? (u & 0x80) | 0x3d : u; break; /* 0.03 to 0.125 */
        case MOTE_DT_F32: u = i % 4 == 3 ? (u & 0x80) | 0x3d : u; break;
        default: break;
        }
        bytes[i] = u;
    }
    if (n)
        assert_int_equal(pwrite(w->fd, bytes, n, (off_t)(w->data + w->at)), n);
    w->at += n_bytes;
    return 0;
}

static void write_file(const char *folder, const char *name, const void *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static uint64_t write_checkpoint(const char *folder, const mote__config *c, const json_t *root)
{
    struct writer w = { .header = json_object(), .r = { 17 } };
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    mote__expected_tensors(c, list_tensor, &w);
    uint64_t total = w.at;
    char *header = json_dumps(w.header, JSON_COMPACT);
    uint64_t n = (strlen(header) + 7) / 8 * 8;
    char *padded = malloc(n + 8);
    memset(padded, ' ', n + 8);
    for (int i = 0; i < 8; i++)
        padded[i] = (char)(n >> 8 * i);
    memcpy(padded + 8, header, strlen(header));
    w.fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    assert_true(w.fd >= 0 && ftruncate(w.fd, (off_t)(8 + n + total)) == 0);
    assert_int_equal(pwrite(w.fd, padded, (size_t)n + 8, 0), n + 8);
    w.at = 0;
    w.data = n + 8;
    mote__expected_tensors(c, fill_tensor, &w);
    close(w.fd);
    free(padded);
    free(header);
    json_decref(w.header);
    char *text = json_dumps(root, 0);
    write_file(folder, "config.json", text, strlen(text));
    free(text);
    if (c->n_engram_layers) {
        int32_t *map = malloc(c->vocab_size * sizeof *map);
        for (size_t i = 0; i < c->vocab_size; i++)
            map[i] = (int32_t)(i % c->engram_compressed_vocab);
        write_file(folder, "engram_token_map.i32", map, c->vocab_size * sizeof *map);
        free(map);
    }
    return total;
}

/* ---- running it ---- */

static void run_model(const char *folder, mote_math math, int large, const char *what)
{
    enum { N = 9 };
    mote_err err;
    mote_model *m;
    mote_session *s;
    mote_model_params p = { .n_threads = 2, .math = math, .weights = MOTE_WEIGHTS_MAP };
    if (mote_model_open(&m, folder, &p, &err) || mote_session_create(&s, m, NULL, &err))
        fail_msg("%s: %s", what, err.message);
    const mote__config *c = &m->net.config;
    size_t room = large ? 3 : N;
    room = c->max_context < room ? c->max_context : room;
    for (size_t at = 0, n; at < room; at += n) {
        n = at ? 1 : room > 2 ? room - 2 : room;
        int32_t ids[N];
        for (size_t i = 0; i < n; i++)
            ids[i] = (int32_t)((at + i * 5) % c->vocab_size);
        mote_feed f = { s, ids, n, MOTE_LOGITS_LAST };
        if (mote_run(m, &f, 1, NULL, NULL, &err))
            fail_msg("%s: %s", what, err.message);
        assert_non_null(mote_session_logits(s, NULL, NULL));
    }
    mote_session_destroy(s);
    mote_model_close(m);
}

static void try_variant(json_t *root, const char *what, const char *refused)
{
    char folder[] = "/tmp/mote-ranges-XXXXXX";
    mote__config *c = malloc(sizeof *c);
    mote_err err = { 0 };
    int rc = settle(c, root, &err);
    if (getenv("MOTE_TEST_VERBOSE"))
        fprintf(stderr, "%s\n", what);
    if ((rc == 0) != (refused == NULL) || (rc && refused && !strstr(err.message, refused)))
        fail_msg("%s: %d '%s', expected '%s'", what, rc, err.message, refused ? refused : "");
    if (!rc) {
        make_tree(folder);
        int large = write_checkpoint(folder, c, root) > LARGE;
        if (!large)
            run_model(folder, MOTE_MATH_FP32, 0, what);
        /* it has the rounded inputs as well */
        run_model(folder, MOTE_MATH_PUBLISHED, large, what);
        remove_tree(folder);
    }
    free(c);
    json_decref(root);
}

static json_t *number(const field *f, double v)
{
    return f->kind == FLAG                    ? json_boolean((int)v)
           : f->kind == F32 || f->kind == F64 ? json_real(v)
                                              : json_integer((json_int_t)v);
}

static void walk(int is_dense, const struct rule *rules, size_t n_rules)
{
    size_t n = 0, used = 0;
    const field *fields = mote__config_fields(is_dense ? MOTE_ARCH_DENSE : MOTE_ARCH_V41, &n);
    for (size_t i = 0; i < n; i++) {
        const struct rule *rule = NULL;
        for (size_t k = 0; k < n_rules; k++)
            if (!strcmp(rules[k].key, fields[i].published))
                rule = &rules[k];
        used += rule != NULL;
        for (int high = 0; high < 2; high++) {
            char what[120];
            double v = high ? fields[i].max : fields[i].min;
            const struct end end = rule ? high ? rule->high : rule->low : (struct end){ 0 };
            snprintf(what, sizeof what, "%s: '%s' = %.9g", is_dense ? "dense" : "v41",
                     fields[i].published, v);
            json_t *root = variant(is_dense, end.with);
            json_object_set_new(root, fields[i].published, number(&fields[i], v));
            try_variant(root, what, end.refused);
            /* one step further is always refused, and the key is named */
            if (fields[i].kind == FLAG)
                continue;
            mote__config c;
            mote_err err = { 0 };
            root = variant(is_dense, end.with);
            int real = fields[i].kind == F32 || fields[i].kind == F64;
            json_object_set_new(root, fields[i].published,
                                number(&fields[i], high            ? v * 2 + 1
                                                   : real && v > 0 ? v / 2
                                                                   : v - 1));
            int rc = parse(&c, root, &err);
            char quoted[60];
            snprintf(quoted, sizeof quoted, "'%s'", fields[i].published);
            if (rc == MOTE_OK || !strstr(err.message, quoted))
                fail_msg("beyond %s: %d '%s'", what, rc, rc ? err.message : "");
            json_decref(root);
        }
    }
    assert_int_equal(used, n_rules); /* no rule of a field that is not there */
}

static void v41_ends(void **state)
{
    (void)state;
    walk(0, rules_v41, sizeof rules_v41 / sizeof *rules_v41);
}
static void dense_ends(void **state)
{
    (void)state;
    walk(1, rules_dense, sizeof rules_dense / sizeof *rules_dense);
}

static void other_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        try_variant(variant(more[i].dense, more[i].with), more[i].with, NULL);
}

struct names {
    char list[80][80];
    size_t n;
};
static int first_names(void *ctx, const mote__expected *e)
{
    struct names *names = ctx;
    if (e->is_scale || e->layer > 1 || e->expert > 0)
        return 0;
    snprintf(names->list[names->n++], sizeof names->list[0], "%s", e->name);
    return 0;
}

static void dtypes_agree(void **state)
{
    (void)state;
    static struct names names;
    for (int is_dense = 0; is_dense < 2; is_dense++) {
        char folder[] = "/tmp/mote-ranges-XXXXXX";
        mote__config *c = malloc(sizeof *c);
        mote_err err;
        json_t *root = variant(is_dense, is_dense ? "'num_hidden_layers':1"
                                                  : "'hidden_size':64,'num_attention_heads':4");
        assert_int_equal(settle(c, root, &err), 0);
        make_tree(folder);
        names.n = 0;
        mote__expected_tensors(c, first_names, &names);
        size_t taken = 0, refused = 0;
        for (size_t i = 0; i < names.n; i++)
            for (int d = 0; d < MOTE_DTYPES; d++) {
                if (d != MOTE_DT_F32 && d != MOTE_DT_BF16 && d != MOTE_DT_F16 &&
                    d != MOTE_DT_F8_E4M3 && d != MOTE_DT_I8)
                    continue;
                swapped = (struct swap){ names.list[i], (mote__dtype)d, c };
                write_checkpoint(folder, c, root);
                char *text;
                assert_int_equal(mote_inspect_json(folder, &text, &err), 0);
                int complete = strstr(text, "\"complete\":true") != NULL;
                mote_free(text);
                mote_model *m;
                mote_model_params p = { .n_threads = 1, .weights = MOTE_WEIGHTS_MAP };
                int rc = mote_model_open(&m, folder, &p, &err);
                if ((rc == 0) != complete || (rc && !strstr(err.message, names.list[i])))
                    fail_msg("%s as %s: inspection says %scomplete, the loader %s", names.list[i],
                             mote__dtype_name((mote__dtype)d), complete ? "" : "in",
                             rc ? err.message : "takes it");
                if (!rc)
                    mote_model_close(m);
                taken += !rc;
                refused += rc != 0;
                if (!rc && d != MOTE_DT_F16)
                    run_model(folder, MOTE_MATH_PUBLISHED, 0, names.list[i]);
            }
        assert_true(taken > 40 - 10u * (unsigned)is_dense && refused > 10);
        swapped = (struct swap){ 0 };
        remove_tree(folder);
        free(c);
        json_decref(root);
    }
}

/* The published code multiplies with wo_a as a plain BF16 matrix: what is F32 in the file is
 * rounded, so the logits are those of the rounded file. */
static void published_wo_a_is_bf16(void **state)
{
    (void)state;
    char folder[] = "/tmp/mote-ranges-XXXXXX", path[80];
    mote_err err;
    mote__config *c = malloc(sizeof *c);
    json_t *root = variant(0, NULL);
    float logits[2][64];
    assert_int_equal(settle(c, root, &err), 0);
    make_tree(folder);
    swapped = (struct swap){ "layers.1.attn.wo_a.weight", MOTE_DT_F32, c };
    write_checkpoint(folder, c, root);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    for (int rounded = 0; rounded < 2; rounded++) {
        mote__checkpoint *ckpt;
        assert_int_equal(mote__checkpoint_open(&ckpt, folder, &err), 0);
        const mote__tensor *t = mote__checkpoint_find(ckpt, swapped.name);
        const mote__map *map = mote__checkpoint_shard_map(ckpt, 0);
        int fd = open(path, O_RDWR);
        for (size_t i = 0; rounded && i < t->n_bytes; i += 4) {
            float x = mote__bf16_round(mote__bits_f32(mote__le32(t->data + i)));
            assert_int_equal(pwrite(fd, &x, 4, (off_t)((size_t)(t->data - map->data) + i)), 4);
        }
        close(fd);
        mote__checkpoint_close(ckpt);
        mote_model *m;
        mote_session *s;
        mote_model_params p = { .n_threads = 1, .math = MOTE_MATH_PUBLISHED };
        assert_int_equal(mote_model_open(&m, folder, &p, &err), 0);
        assert_int_equal(mote_session_create(&s, m, NULL, &err), 0);
        static const int32_t ids[] = { 1, 2, 3, 4, 5, 6 };
        mote_feed f = { s, ids, 6, MOTE_LOGITS_LAST };
        assert_int_equal(mote_run(m, &f, 1, NULL, NULL, &err), 0);
        memcpy(logits[rounded], mote_session_logits(s, NULL, NULL), sizeof logits[0]);
        mote_session_destroy(s);
        mote_model_close(m);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    swapped = (struct swap){ 0 };
    remove_tree(folder);
    free(c);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(v41_ends), cmocka_unit_test(dense_ends),
                                        cmocka_unit_test(other_values),
                                        cmocka_unit_test(dtypes_agree),
                                        cmocka_unit_test(published_wo_a_is_bf16) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
