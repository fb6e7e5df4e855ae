/* Version 1 of the formats, as bytes that must not change: what this program makes now equals
 * tests/data/store/v1.kvx, and that file is read. The clock, the tokens and the contents are fixed.
 *
 *   golden FILE      writes the file instead */
#include "common.h"

enum { BYTES = 1000 };

static void make(const char *path)
{
    fixture f;
    int32_t ids[3 * 256 + 20];
    uint8_t blob[100];
    char *text = NULL;
    mote_err err = { 0 };
    fixture_init(&f, BYTES);
    must_open(&f);
    for (int i = 0; i < 3 * 256 + 20; i++)
        ids[i] = i * 7 % 1000;
    mote__chain c = { 0 };
    put_blocks(&f, &f.context, &f.pool, &c, ids, 3, 2); /* exact, exact, approximate */
    for (int i = 0; i < 100; i++)
        blob[i] = (uint8_t)(i * 3);
    mote__store_put_snapshot(f.store, &f.context, &c, ids, 3 * 256 + 20, 0, blob, sizeof blob);
    if (mote_store_export_json(f.store, path, &text, &err))
        fail_msg("%s", err.message);
    mote_free(text);
    fixture_end(&f);
}

static void same_bytes(void **state)
{
    char path[300], dir[256];
    scratch_dir(dir);
    snprintf(path, sizeof path, "%s.kvx", dir);
    make(path);
    static uint8_t got[65536], want[65536];
    FILE *a = fopen(path, "rb"), *b = fopen(source_path("tests/data/store/v1.kvx"), "rb");
    assert_true(a && b);
    size_t n = fread(got, 1, sizeof got, a), m = fread(want, 1, sizeof want, b);
    fclose(a);
    fclose(b);
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("byte %zu differs", i);
    unlink(path);
}

static void is_read(void **state)
{
    fixture f;
    char *text = NULL;
    mote_err err = { 0 };
    int32_t ids[3 * 256 + 20];
    for (int i = 0; i < 3 * 256 + 20; i++)
        ids[i] = i * 7 % 1000;
    fixture_init(&f, BYTES);
    must_open(&f);
    if (mote_store_import_json(f.store, source_path("tests/data/store/v1.kvx"), &text, &err))
        fail_msg("%s", err.message);
    mote_free(text);
    mote__chain c;
    mote__snapshot s;
    assert_int_equal(match_checked(f.store, &f.context, &f.pool, ids, 3 * 256 + 20, NULL, &c), 3);
    assert_int_equal(c.n_exact, 2);
    assert_int_equal(mote__store_find_snapshot(f.store, &f.context, ids, 3 * 256 + 20, 0, &s), 1);
    assert_int_equal(s.blob_bytes, 100);
    assert_int_equal(((uint8_t *)s.blob)[99], 297 & 255);
    mote__snapshot_free(&s);
    fixture_end(&f);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        make(argv[1]);
        return 0;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_bytes), cmocka_unit_test(is_read) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
