/* Engram's hashes against NumPy (tests/data/engram/vectors.json) and against published and derived
 * tables. */
#include "model/engram_hash.h"

#include "base/json.h"
#include "test.h"

static json_t *load(const char *relative)
{
    mote_err err = { 0 };
    json_t *j;
    if (mote__json_load(&j, source_path(relative), 1 << 22, &err))
        fail_msg("%s", err.message);
    return j;
}

static size_t number(const json_t *object, const char *key)
{
    json_t *v = json_object_get(object, key);
    assert_true(json_is_integer(v));
    return (size_t)json_integer_value(v);
}

static void test_integers(void **state)
{
    json_t *all = load("tests/data/engram/vectors.json"), *v, *x;
    size_t i, k;
    json_array_foreach(json_object_get(all, "integers"), i, v)
    {
        int64_t got[6];
        mote__numpy_integers(got, 6, number(v, "seed"),
                             json_integer_value(json_object_get(v, "bound")));
        json_array_foreach(json_object_get(v, "values"), k, x) if (got[k] != json_integer_value(x))
            fail_msg("seed %zu bound %zu value %zu: %lld, NumPy has %lld", number(v, "seed"),
                     number(v, "bound"), k, (long long)got[k], (long long)json_integer_value(x));
        assert_int_equal(k, 6);
    }
    assert_int_equal(i, 96);
    json_decref(all);
}

/* A file of derived tables: {layer_ids, compressed_vocab_size, primes, offsets, rows, multipliers}.
 */
static void check_tables(const char *relative, uint64_t vocab)
{
    json_t *j = load(relative), *primes = json_object_get(j, "primes");
    mote__config c = { .engram_vocab = vocab,
                       .engram_compressed_vocab = number(j, "compressed_vocab_size"),
                       .n_engram_layers = json_array_size(json_object_get(j, "layer_ids")),
                       .engram_max_ngram = json_array_size(json_array_get(primes, 0)) + 1,
                       .engram_heads = json_array_size(
                           json_array_get(json_array_get(primes, 0), 0)) };
    for (size_t l = 0; l < c.n_engram_layers; l++) {
        c.engram_layers[l] = (size_t)json_integer_value(
            json_array_get(json_object_get(j, "layer_ids"), l));
        c.engram_rows[l] = (uint64_t)json_integer_value(
            json_array_get(json_object_get(j, "rows"), l));
    }
    mote__engram_table *t = calloc(MOTE_MAX_ENGRAM, sizeof *t);
    mote_err err = { 0 };
    if (mote__engram_tables(t, &c, &err))
        fail_msg("%s: %s", relative, err.message);
    for (size_t l = 0; l < c.n_engram_layers; l++) {
        json_t *offsets = json_array_get(json_object_get(j, "offsets"), l);
        json_t *multipliers = json_array_get(json_object_get(j, "multipliers"), l);
        for (size_t i = 0; i < (c.engram_max_ngram - 1) * c.engram_heads; i++) {
            json_t *order = json_array_get(json_array_get(primes, l), i / c.engram_heads);
            assert_int_equal(t[l].primes[i],
                             json_integer_value(json_array_get(order, i % c.engram_heads)));
            assert_int_equal(t[l].offsets[i], json_integer_value(json_array_get(offsets, i)));
        }
        assert_int_equal(json_array_size(multipliers), c.engram_max_ngram);
        for (size_t i = 0; i < c.engram_max_ngram; i++)
            assert_int_equal(t[l].multipliers[i],
                             json_integer_value(json_array_get(multipliers, i)));
        assert_int_equal(t[l].n_rows, c.engram_rows[l]);
    }
    c.engram_rows[0]++;
    assert_int_equal(mote__engram_tables(t, &c, &err), MOTE_EFORMAT);
    assert_non_null(strstr(err.message, "engram_num_embeddings"));
    free(t);
    json_decref(j);
}

static void test_tables(void **state)
{
    check_tables("tests/data/engram/release.json", 16000000);
    check_tables("models/nano/engram_tables.json", 4096);
    check_tables("tests/data/engram/tiny-a.json", 500);
    check_tables("tests/data/engram/tiny-b.json", 400);
}

static void test_rows(void **state)
{
    json_t *all = load("tests/data/engram/vectors.json"), *v;
    size_t no, wrapped = 0;
    json_array_foreach(json_object_get(all, "rows"), no, v)
    {
        json_t *layers = json_object_get(v, "layers"), *want = json_object_get(v, "rows");
        mote__config c = { .engram_vocab = number(v, "vocab"),
                           .engram_compressed_vocab = number(v, "compressed"),
                           .n_engram_layers = json_array_size(layers),
                           .engram_max_ngram = number(v, "max_ngram"),
                           .engram_heads = number(v, "heads"),
                           .engram_pad_token = (int32_t)number(v, "pad") };
        int32_t map[600], ids[12];
        for (size_t i = 0; i < 600; i++)
            map[i] = (int32_t)((i * number(v, "a") + number(v, "b")) % number(v, "m"));
        for (size_t i = 0; i < 12; i++)
            ids[i] = (int32_t)json_integer_value(json_array_get(json_object_get(v, "ids"), i));
        wrapped += number(v, "m") > c.engram_compressed_vocab;
        for (size_t l = 0; l < c.n_engram_layers; l++)
            c.engram_layers[l] = (size_t)json_integer_value(json_array_get(layers, l));
        /* the row counts are not in the vectors: learn them from the refusal, layer by layer */
        mote__engram_table t[2];
        mote_err err = { 0 };
        for (size_t l = 0; l < c.n_engram_layers; l++)
            if (mote__engram_tables(t, &c, &err))
                c.engram_rows[l] = t[l].n_rows;
        assert_int_equal(mote__engram_tables(t, &c, &err), MOTE_OK);
        size_t n = (c.engram_max_ngram - 1) * c.engram_heads;
        for (size_t l = 0; l < c.n_engram_layers; l++)
            for (size_t pos = 0; pos < 12; pos++) {
                uint64_t rows[(MOTE_ENGRAM_MAX_NGRAM - 1) * MOTE_ENGRAM_MAX_HEADS];
                mote__engram_rows(rows, &t[l], &c, map, ids, pos);
                json_t *line = json_array_get(json_array_get(want, l), pos);
                assert_int_equal(json_array_size(line), n);
                for (size_t i = 0; i < n; i++) {
                    assert_int_equal(rows[i], json_integer_value(json_array_get(line, i)));
                    assert_true(rows[i] < t[l].n_rows);
                }
            }
    }
    assert_int_equal(no, 3);
    assert_int_equal(wrapped, 1);
    json_decref(all);
}

static void test_refusals(void **state)
{
    static mote__engram_table t[MOTE_MAX_ENGRAM];
    mote__config good = { .engram_vocab = 500,
                          .engram_compressed_vocab = 147,
                          .n_engram_layers = 1,
                          .engram_layers = { 1 },
                          .engram_max_ngram = 3,
                          .engram_heads = 2,
                          .engram_rows = { 2056 } },
                 c = good;
    mote_err err = { 0 };
    assert_int_equal(mote__engram_tables(t, &c, &err), MOTE_OK);
    c = good;
    c.engram_max_ngram = MOTE_ENGRAM_MAX_NGRAM + 1;
    assert_int_equal(mote__engram_tables(t, &c, &err), MOTE_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "engram_max_ngram_size"));
    c = good;
    c.engram_heads = MOTE_ENGRAM_MAX_HEADS + 1;
    assert_int_equal(mote__engram_tables(t, &c, &err), MOTE_EUNSUPPORTED);
    c = good;
    c.engram_heads = 0;
    assert_int_equal(mote__engram_tables(t, &c, &err), MOTE_EUNSUPPORTED);
    c = good;
    c.engram_vocab = UINT64_MAX;
    assert_int_equal(mote__engram_tables(t, &c, &err), MOTE_EFORMAT);
    c = good;
    c.engram_compressed_vocab = 0;
    assert_int_equal(mote__engram_tables(t, &c, &err), MOTE_EFORMAT);
    c = good;
    c.n_engram_layers = 0;
    c.engram_max_ngram = 0;
    assert_int_equal(mote__engram_tables(t, &c, &err), MOTE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("model/engram_hash", tests, NULL, NULL);
}
