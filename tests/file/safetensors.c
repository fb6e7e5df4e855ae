/* safetensors, one file: what a good file gives back, and a table of bad ones with words that only
 * the right check says. */
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "file/safetensors.h"

/* A file in memory: header text and n_data bytes of data. */
static uint8_t *make_file(const char *header, size_t n_data, size_t *n)
{
    size_t h = strlen(header);
    *n = 8 + h + n_data;
    uint8_t *b = malloc(*n); /* exact size, so that ASan sees a step outside */
    assert_non_null(b);
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)((uint64_t)h >> 8 * i);
    memcpy(b + 8, header, h);
    for (size_t i = 0; i < n_data; i++)
        b[8 + h + i] = (uint8_t)i;
    return b;
}

struct seen {
    mote__tensor t[8];
    char names[8][32];
    size_t n;
    int stop_at;
};
static int see(void *ctx, const mote__tensor *t, mote_err *err)
{
    struct seen *s = ctx;
    if ((int)s->n == s->stop_at)
        return mote__fail(err, MOTE_ECANCELED, "enough");
    assert_true(s->n < 8);
    snprintf(s->names[s->n], sizeof s->names[0], "%s", t->name);
    s->t[s->n++] = *t;
    return 0;
}

static void test_good(void **state)
{
    (void)state;
    size_t n;
    /* given out of order; an empty tensor between; a scalar */
    uint8_t *b = make_file("{\"__metadata__\":{\"format\":\"pt\"},\"c\":{\"dtype\":\"F32\","
                           "\"shape\":[],\"data_offsets\":[6,10]},"
                           "\"a\":{\"dtype\":\"BF16\",\"shape\":[1,3],\"data_offsets\":[0,6]},"
                           "\"e\":{\"dtype\":\"I64\",\"shape\":[4,0],\"data_offsets\":[6,6]}}   ",
                           10, &n);
    struct seen s = { .stop_at = -1 };
    mote_err err = { 0 };
    if (mote__safetensors_parse(b, n, "f", see, &s, &err))
        fail_msg("%s", err.message);
    assert_int_equal(s.n, 3);
    assert_string_equal(s.names[0], "a");
    assert_string_equal(s.names[1], "e");
    assert_string_equal(s.names[2], "c");
    assert_int_equal(s.t[0].dtype, MOTE_DT_BF16);
    assert_int_equal(s.t[0].n_dims, 2);
    assert_true(s.t[0].shape[0] == 1 && s.t[0].shape[1] == 3 && s.t[0].n_bytes == 6);
    assert_int_equal(s.t[1].n_bytes, 0);
    assert_int_equal(s.t[2].n_dims, 0);
    assert_int_equal(s.t[2].n_bytes, 4);
    assert_int_equal(s.t[2].data[0], 6);
    assert_int_equal(mote__safetensors_parse(b, n, "f", NULL, NULL, &err), 0);
    s = (struct seen){ .stop_at = 1 };
    assert_int_equal(mote__safetensors_parse(b, n, "f", see, &s, &err), MOTE_ECANCELED);
    assert_string_equal(err.message, "enough");
    free(b);
    b = make_file("{}", 0, &n);
    assert_int_equal(mote__safetensors_parse(b, n, "f", see, &s, &err), 0);
    free(b);
}

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
static const struct bad {
    const char *header;
    size_t n_data;
    int code;
    const char *words;
} bad[] = {
    { "", 0, MOTE_EFORMAT, "f: line 1" },
    { "[]", 0, MOTE_EFORMAT, "f: the header is not a JSON object" },
    { "{\"a\":", 0, MOTE_EFORMAT, "f: line 1 column" },
    { "{} {}", 0, MOTE_EFORMAT, "end of file expected" },
    { "{\"a\":3}", 0, MOTE_EFORMAT, "tensor 'a': its entry is not an object" },
    { "{\"\\ud800\":3}", 0, MOTE_EFORMAT, "Unicode" },
    { "{\"__metadata__\":[]}", 0, MOTE_EFORMAT, "'__metadata__' is not an object" },
    { "{\"__metadata__\":{\"x\":1}}", 0, MOTE_EFORMAT, "'__metadata__': 'x' is not a string" },
    { "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, MOTE_EFORMAT,
      "tensor 'a': 'dtype' is missing" },
    { "{\"a\":{\"dtype\":\"I8\",\"data_offsets\":[0,1]}}", 1, MOTE_EFORMAT,
      "tensor 'a': 'shape' is missing" },
    { "{\"a\":{\"dtype\":\"I8\",\"shape\":[1]}}", 1, MOTE_EFORMAT,
      "tensor 'a': 'data_offsets' is missing" },
    { "{" T("a", "7", "[1]", "[0,1]") "}", 1, MOTE_EFORMAT, "tensor 'a': 'dtype' is not a string" },
    { "{" T("a", "\"F4\"", "[1]", "[0,1]") "}", 1, MOTE_EUNSUPPORTED,
      "tensor 'a': 'dtype' 'F4' is not known" },
    { "{" T("a", "\"I8\"", "1", "[0,1]") "}", 1, MOTE_EFORMAT,
      "tensor 'a': 'shape' is not an array" },
    { "{" T("a", "\"I8\"", "[-1]", "[0,1]") "}", 1, MOTE_EFORMAT,
      "tensor 'a': 'shape'[0] is not a non-negative integer" },
    { "{" T("a", "\"I8\"", "[1,1.0]", "[0,1]") "}", 1, MOTE_EFORMAT,
      "tensor 'a': 'shape'[1] is not a non-negative" },
    { "{" T("a", "\"I8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, MOTE_EUNSUPPORTED,
      "tensor 'a': 'shape' has 9 dimensions" },
    { "{" T("a", "\"I8\"", "[4294967296,4294967296,2]", "[0,0]") "}", 0, MOTE_EFORMAT,
      "tensor 'a': 'shape' times 'dtype' overflows" },
    { "{" T("a", "\"F32\"", "[4611686018427387904]", "[0,0]") "}", 0, MOTE_EFORMAT,
      "tensor 'a': 'shape' times 'dtype' overflows" },
    { "{" T("a", "\"I8\"", "[0,4294967296,4294967296]", "[0,0]") "}", 0, MOTE_EFORMAT,
      "tensor 'a': 'shape' times 'dtype' overflows" },
    { "{" T("a", "\"I8\"", "[99999999999999999999]", "[0,0]") "}", 0, MOTE_EFORMAT,
      "'shape'[0] is not" },
    { "{" T("a", "\"I8\"", "[1]", "[0]") "}", 1, MOTE_EFORMAT,
      "tensor 'a': 'data_offsets' is not a pair" },
    { "{" T("a", "\"I8\"", "[1]", "[0,1,1]") "}", 1, MOTE_EFORMAT,
      "tensor 'a': 'data_offsets' is not a pair" },
    { "{" T("a", "\"I8\"", "[1]", "[-1,0]") "}", 1, MOTE_EFORMAT,
      "tensor 'a': 'data_offsets' is not a pair of non-negative" },
    { "{" T("a", "\"I8\"", "[1]", "[0,\"1\"]") "}", 1, MOTE_EFORMAT,
      "tensor 'a': 'data_offsets' is not a pair" },
    { "{" T("a", "\"I8\"", "[1]", "[2,1]") "}", 2, MOTE_EFORMAT,
      "tensor 'a': 'data_offsets' end (1) before they begin (2)" },
    { "{" T("a", "\"I8\"", "[2]", "[0,2]") "}", 1, MOTE_EFORMAT,
      "tensor 'a': 'data_offsets' end at 2, the file has 1 data bytes" },
    { "{" T("a", "\"I8\"", "[1]", "[9223372036854775806,9223372036854775807]") "}", 1, MOTE_EFORMAT,
      "'data_offsets' end at 9223372036854775807" },
    { "{" T("a", "\"F32\"", "[2]", "[0,4]") "}", 4, MOTE_EFORMAT,
      "tensor 'a': 'data_offsets' span 4 bytes, 'shape' and 'dtype' make 8" },
    { "{" T("a", "\"I8\"", "[2]", "[0,2]") "," T("b", "\"I8\"", "[2]", "[1,3]") "}", 3,
      MOTE_EFORMAT, "tensor 'b': 'data_offsets' begin at 1 and overlap 'a'" },
    { "{" T("a", "\"I8\"", "[1]", "[0,1]") "," T("b", "\"I8\"", "[1]", "[2,3]") "}", 3,
      MOTE_EFORMAT, "tensor 'b': 'data_offsets' begin at 2 and leave a hole from 1" },
    { "{" T("a", "\"I8\"", "[1]", "[1,2]") "}", 2, MOTE_EFORMAT,
      "tensor 'a': 'data_offsets' begin at 1 and leave a hole from 0" },
    { "{" T("a", "\"I8\"", "[1]", "[0,1]") "}", 3, MOTE_EFORMAT,
      "f: 2 bytes after the last tensor belong to none" },
    { "{" T("a", "\"I8\"", "[1]", "[0,1]") "," T("a", "\"I8\"", "[1]", "[1,2]") "}", 2,
      MOTE_EFORMAT, "duplicate" },
    { "{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1],\"codec\":\"lz\"}}", 1,
      MOTE_EUNSUPPORTED, "tensor 'a': field 'codec' is not known" },
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t n;
        uint8_t *b = make_file(bad[i].header, bad[i].n_data, &n);
        mote_err err = { 0 };
        int rc = mote__safetensors_parse(b, n, "f", NULL, NULL, &err);
        if (rc != bad[i].code || !strstr(err.message, bad[i].words) ||
            strncmp(err.message, "f: ", 3))
            fail_msg("%s: %d '%s', expected '%s'", bad[i].header, rc, err.message, bad[i].words);
        free(b);
    }
}

static void test_lengths(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        size_t n;
        const char *words;
    } rows[] = {
        { 0, 0, "0 bytes are too short" },
        { 0, 7, "7 bytes are too short" },
        { 3, 10, "the header length 3 passes the end of the file (10 bytes)" },
        { 100000001, 10, "the header length 100000001 is over the format's limit of 100000000" },
        { UINT64_MAX, 10, "over the format's limit" },
        { 100000000, 10, "passes the end" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t *b = malloc(rows[i].n + 1);
        for (size_t k = 0; k < rows[i].n; k++)
            b[k] = k < 8 ? (uint8_t)(rows[i].length >> 8 * k) : '{';
        b = realloc(b, rows[i].n ? rows[i].n : 1);
        mote_err err = { 0 };
        assert_int_equal(mote__safetensors_parse(b, rows[i].n, "f", NULL, NULL, &err),
                         MOTE_EFORMAT);
        if (!strstr(err.message, rows[i].words))
            fail_msg("'%s' lacks '%s'", err.message, rows[i].words);
        free(b);
    }
    /* every cut of a good file is refused, without a step outside */
    size_t n;
    uint8_t *whole = make_file("{" T("a", "\"I8\"", "[3]", "[0,3]") "}", 3, &n);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *b = malloc(cut ? cut : 1);
        memcpy(b, whole, cut);
        assert_int_not_equal(mote__safetensors_parse(b, cut, "f", NULL, NULL, NULL), 0);
        free(b);
    }
    free(whole);
}

static void test_dtypes(void **state)
{
    (void)state;
    for (int i = 0; i < MOTE_DTYPES; i++) {
        assert_true(mote__dtype_bytes((mote__dtype)i) >= 1);
        char header[200];
        size_t n, bytes = mote__dtype_bytes((mote__dtype)i);
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[0,%zu]}}",
                 mote__dtype_name((mote__dtype)i), bytes);
        uint8_t *b = make_file(header, bytes, &n);
        struct seen s = { .stop_at = -1 };
        assert_int_equal(mote__safetensors_parse(b, n, "f", see, &s, NULL), 0);
        assert_int_equal(s.t[0].dtype, i);
        free(b);
    }
    assert_int_equal(mote__dtype_bytes(MOTE_DT_BF16), 2);
    assert_int_equal(mote__dtype_bytes(MOTE_DT_F64), 8);
    assert_string_equal(mote__dtype_name(MOTE_DTYPES), "?");
}

static void test_write(void **state)
{
    (void)state;
    char folder[] = "/tmp/mote-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    uint8_t data[24];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(200 + i);
    mote__tensor t[3] = {
        { .name = "z \"quoted\" \xc3\xa9",
          .dtype = MOTE_DT_F32,
          .n_dims = 2,
          .shape = { 2, 2 },
          .data = data,
          .n_bytes = 16 },
        { .name = "empty",
          .dtype = MOTE_DT_I8,
          .n_dims = 1,
          .shape = { 0 },
          .data = NULL,
          .n_bytes = 0 },
        { .name = "a",
          .dtype = MOTE_DT_BF16,
          .n_dims = 1,
          .shape = { 4 },
          .data = data + 16,
          .n_bytes = 8 },
    };
    mote_err err = { 0 };
    for (int round = 0; round < 2; round++) { /* the second replaces the first */
        assert_int_equal(mote__safetensors_write(path, t, 3, &err), 0);
        mote__checkpoint *c;
        if (mote__checkpoint_open(&c, path, &err))
            fail_msg("%s", err.message);
        assert_int_equal(mote__checkpoint_n_tensors(c), 3);
        assert_int_equal(mote__checkpoint_bytes(c), 24);
        assert_string_equal(mote__checkpoint_tensor(c, 0)->name, "a");
        const mote__tensor *z = mote__checkpoint_find(c, t[0].name);
        assert_non_null(z);
        assert_int_equal(z->dtype, MOTE_DT_F32);
        assert_memory_equal(z->data, data, 16);
        assert_int_equal((uintptr_t)z->data % 8, 0);
        assert_memory_equal(mote__checkpoint_find(c, "a")->data, data + 16, 8);
        assert_null(mote__checkpoint_find(c, "b"));
        assert_string_equal(mote__checkpoint_shard_path(c, 0), path);
        mote__checkpoint_close(c);
    }
    assert_int_equal(mote__safetensors_write(path, NULL, 0, &err), 0);
    /* refused, and the old file stays */
    mote__tensor twice[2] = { t[2], t[2] }, wrong = t[2], name = t[2], huge = t[1];
    wrong.n_bytes = 7;
    name.name = "\xff";
    huge.n_dims = 2;
    huge.shape[1] = (uint64_t)1 << 63;
    assert_int_equal(mote__safetensors_write(path, twice, 2, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "tensor 'a' is given twice"));
    assert_int_equal(mote__safetensors_write(path, &wrong, 1, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "contradict"));
    assert_int_equal(mote__safetensors_write(path, &name, 1, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "UTF-8"));
    assert_int_equal(mote__safetensors_write(path, &huge, 1, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "shape[1] passes 2^63"));
    mote__tensor nameless = t[2], reserved = t[2], vast[2] = { t[2], t[2] };
    nameless.name = NULL;
    reserved.name = "__metadata__";
    assert_int_equal(mote__safetensors_write(path, &nameless, 1, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "tensor 0 has no usable name"));
    assert_int_equal(mote__safetensors_write(path, &reserved, 1, &err), MOTE_EINVAL);
    /* 2^62 bytes each: refused before a byte is read */
    for (int i = 0; i < 2; i++) {
        vast[i].name = i ? "x" : "y";
        vast[i].dtype = MOTE_DT_I8;
        vast[i].n_bytes = vast[i].shape[0] = (uint64_t)1 << 62;
    }
    assert_int_equal(mote__safetensors_write(path, vast, 2, &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "tensor 'x' passes 2^63 bytes"));
    mote__checkpoint *c;
    assert_int_equal(mote__checkpoint_open(&c, path, &err), 0);
    assert_int_equal(mote__checkpoint_n_tensors(c), 0);
    assert_null(mote__checkpoint_find(c, "a"));
    mote__checkpoint_close(c);
    assert_int_equal(mote__safetensors_write("/nonexistent/x.safetensors", t, 3, &err), MOTE_EIO);
    assert_non_null(strstr(err.message, "/nonexistent/x.safetensors"));
    /* a folder cannot be replaced */
    assert_int_equal(mote__safetensors_write(folder, t, 3, &err), MOTE_EIO);
    unlink(path);
    assert_int_equal(rmdir(folder), 0); /* no temporary file was left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),   cmocka_unit_test(test_bad),   cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_dtypes), cmocka_unit_test(test_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
