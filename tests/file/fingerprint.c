/* A fingerprint names a checkpoint's content, however it is spread over files, and a note of one is
 * believed only for files that have not been touched since. */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "file/fingerprint.h"

static char dir[64];

static const char *in_dir(const char *name)
{
    static char paths[4][400];
    static int turn;
    char *p = paths[turn++ & 3];
    snprintf(p, sizeof paths[0], "%s/%s", dir, name);
    return p;
}

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/mote-fingerprint-XXXXXX");
    make_tree(dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_tree(dir);
    return 0;
}

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* One I8 tensor "t"; its bytes are a hole. */
static void write_sparse(const char *name, uint64_t n)
{
    char header[128];
    uint8_t length[8] = { 0 };
    int h = snprintf(header, sizeof header,
                     "{\"t\":{\"dtype\":\"I8\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}",
                     (unsigned long long)n, (unsigned long long)n);
    length[0] = (uint8_t)h;
    int fd = open(in_dir(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, length, 8), 8);
    assert_int_equal(write(fd, header, (size_t)h), h);
    assert_int_equal(ftruncate(fd, (off_t)(8 + (uint64_t)h + n)), 0);
    close(fd);
}

static void poke(const char *name, uint64_t from_end, uint8_t value)
{
    struct stat st;
    int fd = open(in_dir(name), O_RDWR);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pwrite(fd, &value, 1, st.st_size - (off_t)from_end), 1);
    close(fd);
}

typedef struct digest {
    uint8_t b[32];
} digest;
static int same(digest a, digest b) { return !memcmp(a.b, b.b, 32); }

enum { PLAIN, NOTED, NOTED_READ_ONLY };
static digest take(int how)
{
    mote__checkpoint *c;
    mote_err err = { 0 };
    digest d;
    if (mote__checkpoint_open(&c, dir, &err))
        fail_msg("%s", err.message);
    const char *config = in_dir("config.json");
    int rc = how == PLAIN ? mote__fingerprint(d.b, c, config, &err)
                          : mote__fingerprint_noted(d.b, c, config, dir, how == NOTED, &err);
    if (rc)
        fail_msg("%s", err.message);
    mote__checkpoint_close(c);
    return d;
}

static void content(void **state)
{
    (void)state;
    write_text("config.json", "{}");
    write_sparse("model.safetensors", 100000);
    digest first = take(PLAIN);
    assert_true(same(first, take(PLAIN)));
    poke("model.safetensors", 70001, 1); /* small: every byte counts */
    assert_false(same(first, take(PLAIN)));
    poke("model.safetensors", 70001, 0);
    assert_true(same(first, take(PLAIN)));
    write_text("config.json", "{ }");
    assert_false(same(first, take(PLAIN)));
    write_text("config.json", "{}");
    write_sparse("model.safetensors", 100001);
    assert_false(same(first, take(PLAIN)));
    /* another shard layout of the same tensors is the same checkpoint */
    unlink(in_dir("model.safetensors"));
    write_sparse("other-00001-of-00001.safetensors", 100000);
    write_text("model.safetensors.index.json",
               "{\"weight_map\":{\"t\":\"other-00001-of-00001.safetensors\"}}");
    assert_true(same(first, take(PLAIN)));
    unlink(in_dir("model.safetensors.index.json"));
    unlink(in_dir("other-00001-of-00001.safetensors"));
}

/* From 1 GiB on: the first, the middle and the last page of a tensor. */
static void pages(void **state)
{
    (void)state;
    const uint64_t n = (uint64_t)1 << 30;
    write_text("config.json", "{}");
    write_sparse("model.safetensors", n);
    digest first = take(PLAIN);
    static const struct {
        uint64_t from_end;
        int seen;
    } pokes[] = { { 1, 1 },        { 4096, 1 },     { 4097, 0 },
                  { 1u << 29, 1 }, { 1u << 30, 1 }, { 1u << 28, 0 } };
    for (size_t i = 0; i < sizeof pokes / sizeof *pokes; i++) {
        poke("model.safetensors", pokes[i].from_end, 1);
        assert_int_equal(same(first, take(PLAIN)), !pokes[i].seen);
        poke("model.safetensors", pokes[i].from_end, 0);
    }
    assert_true(same(first, take(PLAIN)));
}

/* The only note in dir, or "" */
static const char *note(void)
{
    static char name[300];
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (!strncmp(e->d_name, "model-", 6)) {
            snprintf(name, sizeof name, "%s", e->d_name);
            n++;
        }
    closedir(d);
    assert_true(n <= 1);
    return n ? name : "";
}

static void rewrite_note(const uint8_t *b, size_t n)
{
    FILE *f = fopen(in_dir(note()), "w");
    assert_int_equal(fwrite(b, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void notes(void **state)
{
    (void)state;
    write_text("config.json", "{\"a\": 1}");
    write_sparse("model.safetensors", 5000);
    digest want = take(PLAIN);
    assert_true(same(want, take(NOTED)));
    /* touched a moment ago: the clock may not tell the next change from this one */
    assert_string_equal(note(), "");
    sleep(4);
    assert_true(same(want, take(NOTED_READ_ONLY)));
    assert_string_equal(note(), "");
    assert_true(same(want, take(NOTED)));
    assert_int_equal(strlen(note()), 6 + 32 + 5);
    struct stat st;
    assert_int_equal(stat(in_dir(note()), &st), 0);
    assert_int_equal(st.st_size, 80);
    assert_int_equal(st.st_mode & 0777, 0600);

    uint8_t good[81] = { 0 }, b[81];
    FILE *f = fopen(in_dir(note()), "r");
    assert_int_equal(fread(good, 1, 81, f), 80);
    fclose(f);
    assert_memory_equal(good + 40, want.b, 32);
    /* any flipped byte, a cut and a longer file: worked out anew, and noted again */
    for (size_t i = 0; i < 76; i++) {
        memcpy(b, good, 80);
        b[i] ^= 0x10;
        rewrite_note(b, 80);
        assert_true(same(want, take(NOTED)));
    }
    rewrite_note(good, 79);
    assert_true(same(want, take(NOTED)));
    rewrite_note(good, 81);
    assert_true(same(want, take(NOTED)));
    /* it is read at all: another digest under a right checksum is believed, as long as the files
     * stay as they are ... */
    memcpy(b, good, 80);
    b[40] ^= 1;
    uint32_t crc = mote__crc32c(0, b, 72);
    for (int i = 0; i < 4; i++)
        b[72 + i] = (uint8_t)(crc >> 8 * i);
    rewrite_note(b, 80);
    assert_false(same(want, take(NOTED)));
    /* ... and not once one was written, with the same byte and the old time of content */
    assert_int_equal(stat(in_dir("model.safetensors"), &st), 0);
    poke("model.safetensors", 1, 0);
    struct timespec times[2] = { st.st_atim, st.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, in_dir("model.safetensors"), times, 0), 0);
    assert_true(same(want, take(NOTED)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(content, setup, teardown),
        cmocka_unit_test_setup_teardown(pages, setup, teardown),
        cmocka_unit_test_setup_teardown(notes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
