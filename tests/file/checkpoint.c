/* A checkpoint folder: index and shards must agree both ways; the published number of tensors opens
 * fast. */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "file/safetensors.h"

static char folder[64];

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/mote-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static const char *in_folder(const char *name)
{
    static char paths[4][400];
    static int turn;
    char *p = paths[turn++ & 3];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

static void empty_folder(void)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' || strlen(e->d_name) > 2)
            unlink(in_folder(e->d_name));
    closedir(d);
}

static int teardown(void **state)
{
    (void)state;
    empty_folder();
    return rmdir(folder);
}

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void write_shard(const char *name, const char *const *names, size_t n)
{
    static const uint8_t data[4] = { 1, 2, 3, 4 };
    mote__tensor t[8];
    for (size_t i = 0; i < n; i++)
        t[i] = (mote__tensor){ .name = names[i],
                               .dtype = MOTE_DT_I8,
                               .n_dims = 1,
                               .shape = { 4 },
                               .data = data,
                               .n_bytes = 4 };
    assert_int_equal(mote__safetensors_write(in_folder(name), t, n, NULL), 0);
}

#define INDEX "model.safetensors.index.json"
static void write_two_shards(void)
{
    write_shard("s1.safetensors", (const char *const[]){ "b", "a" }, 2);
    write_shard("s2.safetensors", (const char *const[]){ "c" }, 1);
}

static void test_folder(void **state)
{
    (void)state;
    write_two_shards();
    write_text(INDEX, "{\"metadata\":{\"total_size\":99},\"weight_map\":{\"a\":\"s1.safetensors\","
                      "\"b\":\"s1.safetensors\","
                      "\"c\":\"s2.safetensors\"}}");
    mote__checkpoint *c;
    mote_err err = { 0 };
    if (mote__checkpoint_open(&c, folder, &err))
        fail_msg("%s", err.message);
    assert_int_equal(mote__checkpoint_n_shards(c), 2);
    assert_int_equal(mote__checkpoint_n_tensors(c), 3);
    assert_int_equal(mote__checkpoint_bytes(c), 12);
    static const char *const sorted[] = { "a", "b", "c" };
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(mote__checkpoint_tensor(c, i)->name, sorted[i]);
    assert_int_equal(mote__checkpoint_find(c, "a")->shard, 0);
    assert_int_equal(mote__checkpoint_find(c, "c")->shard, 1);
    assert_int_equal(mote__checkpoint_find(c, "c")->data[2], 3);
    assert_null(mote__checkpoint_find(c, ""));
    assert_string_equal(mote__checkpoint_shard_path(c, 1), in_folder("s2.safetensors"));
    struct stat st;
    assert_int_equal(stat(in_folder("s2.safetensors"), &st), 0);
    assert_int_equal(mote__checkpoint_shard_bytes(c, 1), st.st_size);
    mote__checkpoint_close(c);
    mote__checkpoint_close(NULL);
    empty_folder();
    /* a folder with one file and no index */
    write_shard("model.safetensors", (const char *const[]){ "x" }, 1);
    assert_int_equal(mote__checkpoint_open(&c, folder, &err), 0);
    assert_non_null(mote__checkpoint_find(c, "x"));
    mote__checkpoint_close(c);
    empty_folder();
}

static void test_bad_index(void **state)
{
    (void)state;
#define MAP(text) "{\"weight_map\":{" text "}}"
#define A "\"a\":\"s1.safetensors\","
#define B "\"b\":\"s1.safetensors\","
    static const struct {
        const char *index;
        int code;
        const char *words;
    } rows[] = {
        { "[]", MOTE_EFORMAT, "'weight_map' is missing" },
        { "{", MOTE_EFORMAT, "line 1" },
        { "{\"weight_map\":[]}", MOTE_EFORMAT, "'weight_map' is not an object" },
        { MAP(""), MOTE_EFORMAT, "'weight_map' is empty" },
        { MAP(A B "\"c\":2"), MOTE_EFORMAT, "'weight_map': 'c' is not a string" },
        { MAP(A B "\"c\":\"../s2.safetensors\""), MOTE_EFORMAT,
          "tensor 'c': shard '../s2.safetensors' is not the plain name" },
        { MAP(A B "\"c\":\"/tmp/s2.safetensors\""), MOTE_EFORMAT,
          "shard '/tmp/s2.safetensors' is not the plain name" },
        { MAP(A B "\"c\":\"d/s2.safetensors\""), MOTE_EFORMAT,
          "shard 'd/s2.safetensors' is not the plain name" },
        { MAP(A B "\"c\":\"..\""), MOTE_EFORMAT, "shard '..' is not the plain name" },
        { MAP(A B "\"c\":\"..safetensors\""), MOTE_EFORMAT,
          "shard '..safetensors' is not the plain name" },
        { MAP(A B "\"c\":\"\""), MOTE_EFORMAT, "shard '' is not the plain name" },
        { MAP(A B "\"c\":\".safetensors\""), MOTE_EFORMAT,
          "shard '.safetensors' is not the plain name" },
        { MAP(A B "\"c\":\"s2.bin\""), MOTE_EFORMAT, "shard 's2.bin' is not the plain name" },
        { MAP(A B "\"c\":\"s3.safetensors\""), MOTE_EIO,
          "s3.safetensors: cannot open: No such file or directory (a shard named by" },
        { MAP(A B "\"c\":\"s2.safetensors\",\"d\":\"s2.safetensors\""), MOTE_EFORMAT,
          "tensor 'd' is not in 's2.safetensors', where the index" },
        { MAP(A "\"c\":\"s2.safetensors\""), MOTE_EFORMAT,
          "s1.safetensors: tensor 'b' is not in model.safetensors.index.json" },
        { MAP(A "\"b\":\"s2.safetensors\",\"c\":\"s2.safetensors\""), MOTE_EFORMAT,
          "tensor 'b' is here, but model.safetensors.index.json places it in 's2" },
        { MAP(A B A "\"c\":\"s2.safetensors\""), MOTE_EFORMAT, "duplicate" },
    };
    write_two_shards();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_text(INDEX, rows[i].index);
        mote__checkpoint *c = (void *)1;
        mote_err err = { 0 };
        int rc = mote__checkpoint_open(&c, folder, &err);
        if (rc != rows[i].code || c || !strstr(err.message, rows[i].words) ||
            strncmp(err.message, folder, strlen(folder)))
            fail_msg("%s: %d '%s', expected '%s'", rows[i].index, rc, rc ? err.message : "",
                     rows[i].words);
    }
    /* the same tensor in two shards */
    mote__checkpoint *c;
    mote_err err = { 0 };
    write_shard("s2.safetensors", (const char *const[]){ "a", "c" }, 2);
    write_text(INDEX, MAP(A B "\"c\":\"s2.safetensors\""));
    assert_int_equal(mote__checkpoint_open(&c, folder, &err), MOTE_EFORMAT);
    assert_non_null(strstr(err.message, "s2.safetensors: tensor 'a' is here, but"));
    /* a damaged shard is named */
    write_text("s2.safetensors", "short");
    assert_int_equal(mote__checkpoint_open(&c, folder, &err), MOTE_EFORMAT);
    assert_non_null(strstr(err.message, "s2.safetensors: 5 bytes are too short"));
    empty_folder();
    assert_int_equal(mote__checkpoint_open(&c, folder, &err), MOTE_EIO);
    assert_non_null(
        strstr(err.message, "holds neither model.safetensors.index.json nor model.safetensors"));
    assert_int_equal(mote__checkpoint_open(&c, "/dev/null", &err), MOTE_EIO);
    assert_non_null(strstr(err.message, "/dev/null: not a regular file"));
    assert_int_equal(mote__checkpoint_open(&c, "/nonexistent", &err), MOTE_EIO);
    assert_non_null(strstr(err.message, "/nonexistent: cannot open: No such"));
}

/* Every allocation in turn fails: a sentence, no leak (ASan looks), and the same folder opens
 * afterwards. */
static void test_no_memory(void **state)
{
    (void)state;
    int failures = 0;
    for (long n = 1;; n++) {
        mote__checkpoint *c;
        mote_err err = { 0 };
        mote__alloc_fail_at = n;
        int rc = mote__checkpoint_open(&c, source_path("models/nano"), &err);
        mote__alloc_fail_at = 0;
        mote__checkpoint_close(c);
        if (!rc)
            break;
        failures++;
        assert_int_equal(rc, MOTE_ENOMEM);
        assert_null(c);
        assert_non_null(strstr(err.message, "out of memory"));
    }
    assert_true(failures >= 5);
}

/* 96,085 tensors in 48 shards, as published (of one byte each), measured at half a second on one
 * slow core. */
static void test_many(void **state)
{
    (void)state;
    enum { TENSORS = 96085, SHARDS = 48 };
    FILE *index = fopen(in_folder(INDEX), "w");
    assert_non_null(index);
    fputs("{\"weight_map\":{", index);
    static const uint8_t data[1];
    mote__tensor *t = calloc(TENSORS, sizeof *t);
    char(*names)[64] = calloc(TENSORS, sizeof *names);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "layers.%d.ffn.experts.%d.w%d.weight", i / 3 % 40,
                 i / 120, i % 3 + 1);
        t[i] = (mote__tensor){ .name = names[i],
                               .dtype = MOTE_DT_I8,
                               .n_dims = 1,
                               .shape = { 1 },
                               .data = data,
                               .n_bytes = 1 };
        fprintf(index, "%s\"%s\":\"model-%05d-of-%05d.safetensors\"", i ? "," : "", names[i],
                (int)((int64_t)i * SHARDS / TENSORS) + 1, SHARDS);
    }
    fputs("}}", index);
    assert_int_equal(fclose(index), 0);
    for (int s = 0, i = 0; s < SHARDS; s++) {
        int first = i;
        while (i < TENSORS && (int64_t)i * SHARDS / TENSORS == s)
            i++;
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", s + 1, SHARDS);
        assert_int_equal(
            mote__safetensors_write(in_folder(name), t + first, (size_t)(i - first), NULL), 0);
    }
    struct timespec a, b;
    mote__checkpoint *c;
    mote_err err = { 0 };
    clock_gettime(CLOCK_MONOTONIC, &a);
    if (mote__checkpoint_open(&c, folder, &err))
        fail_msg("%s", err.message);
    for (int i = 0; i < TENSORS; i++)
        assert_non_null(mote__checkpoint_find(c, names[i]));
    clock_gettime(CLOCK_MONOTONIC, &b);
    double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    print_message("opened and found %d tensors in %.3f s\n", TENSORS, seconds);
    /* a quadratic search would take minutes; sanitizers and busy machines do not */
    assert_true(seconds < 10);
    mote__checkpoint_close(c);
    free(names);
    free(t);
}

static void test_nano(void **state)
{
    (void)state;
    mote__checkpoint *c;
    mote_err err = { 0 };
    if (mote__checkpoint_open(&c, source_path("models/nano"), &err))
        fail_msg("%s", err.message);
    assert_int_equal(mote__checkpoint_n_shards(c), 3);
    const mote__tensor *t = mote__checkpoint_find(c, "embed.weight");
    assert_non_null(t);
    assert_true(t->dtype == MOTE_DT_BF16 && t->n_dims == 2 && t->shape[0] == 4096 &&
                t->shape[1] == 256);
    t = mote__checkpoint_find(c, "layers.3.ffn.experts.11.w2.scale");
    assert_non_null(t);
    assert_true(t->dtype == MOTE_DT_F8_E8M0 && t->shape[0] == 256 && t->shape[1] == 4);
    mote__checkpoint_close(c);
}

/* Bytes by source are the bytes of the mapping, for every tensor. */
static void check_sources(const mote__checkpoint *c)
{
    for (size_t i = 0; i < mote__checkpoint_n_tensors(c); i++) {
        const mote__tensor *t = mote__checkpoint_tensor(c, i);
        mote__source source = mote__checkpoint_source(c, t);
        uint8_t *bytes = malloc((size_t)t->n_bytes + 1);
        mote_err err = { 0 };
        assert_non_null(bytes);
        assert_int_equal(source.bytes, t->n_bytes);
        if (mote__checkpoint_read(c, &source, bytes, &err))
            fail_msg("%s: %s", t->name, err.message);
        assert_memory_equal(bytes, t->data, (size_t)t->n_bytes);
        free(bytes);
    }
}

static int lowest_free_fd(void)
{
    int fd = dup(0);
    assert_true(fd >= 0);
    close(fd);
    return fd;
}

static void test_sources(void **state)
{
    (void)state;
    mote__checkpoint *c;
    mote_err err = { 0 };
    const int lowest = lowest_free_fd();
    assert_int_equal(mote__checkpoint_open(&c, source_path("models/nano"), &err), 0);
    for (size_t i = 0; i < mote__checkpoint_n_shards(c); i++) {
        int fd = mote__checkpoint_shard_fd(c, i);
        assert_true(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    }
    check_sources(c);
    uint8_t byte;
    const uint64_t size = mote__checkpoint_shard_bytes(c, 1);
    const mote__source outside[] = {
        { 1, size, 1 }, { 1, size + 1, 0 }, { 1, 1, UINT64_MAX }, { 3, 0, 1 }
    };
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_int_equal(mote__checkpoint_read(c, &outside[i], &byte, &err), MOTE_EINVAL);
    mote__checkpoint_close(c);
    assert_int_equal(lowest_free_fd(), lowest); /* all closed */
}

/* Where the process may have few descriptors, one shard keeps its own and the others are opened
 * for a read: the same bytes, and a file that was replaced meanwhile is refused. */
static void test_few_descriptors(void **state)
{
    (void)state;
    mote__checkpoint *c;
    mote_err err = { 0 };
    struct rlimit before, few;
    write_two_shards();
    write_text(INDEX, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\","
                      "\"c\":\"s2.safetensors\"}}");
    const int lowest = lowest_free_fd();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)(2 * lowest + 2);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int rc = mote__checkpoint_open(&c, folder, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (rc)
        fail_msg("%s", err.message);
    assert_int_equal(mote__checkpoint_shard_fd(c, 0), lowest);
    assert_int_equal(mote__checkpoint_shard_fd(c, 1), -1);
    check_sources(c);
    assert_int_equal(lowest_free_fd(), lowest + 1); /* reads close what they open */
    write_shard("s2.safetensors", (const char *const[]){ "c" }, 1);
    mote__source source = mote__checkpoint_source(c, mote__checkpoint_find(c, "c"));
    uint8_t bytes[4];
    assert_int_equal(mote__checkpoint_read(c, &source, bytes, &err), MOTE_EIO);
    assert_non_null(strstr(err.message, "s2.safetensors: has changed since it was opened"));
    assert_int_equal(lowest_free_fd(), lowest + 1);
    mote__checkpoint_close(c);
    assert_int_equal(lowest_free_fd(), lowest);
    empty_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_bad_index),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_nano),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_few_descriptors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
