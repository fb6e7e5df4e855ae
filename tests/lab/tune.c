/* The knapsack against brute force, and profiles that are none. */
#include <math.h>

#include "lab/knapsack.h"
#include "lab/profile.h"
#include "test.h"

static void knapsack_is_exact(void **state)
{
    (void)state;
    enum { ITEMS = 5, OPTIONS = 4 };
    rnd r = { 11 };
    for (int round = 0; round < 300; round++) {
        lab_option options[ITEMS][OPTIONS];
        lab_item items[ITEMS];
        size_t n = rnd_below(&r, ITEMS + 1), all = 1;
        double least = 0, most = 0;
        for (size_t i = 0; i < n; i++) {
            items[i] = (lab_item){ options[i], 1 + rnd_below(&r, OPTIONS) };
            double small = 1e9, large = 0;
            for (size_t o = 0; o < items[i].n; o++) {
                /* few different values: ties everywhere; costs fall with bytes or do not */
                options[i][o] = (lab_option){ 0.5 * (double)(1 + rnd_below(&r, 12)),
                                              0.25 * (double)rnd_below(&r, 9) };
                small = fmin(small, options[i][o].bytes);
                large = fmax(large, options[i][o].bytes);
            }
            least += small;
            most += large;
            all *= items[i].n;
        }
        lab_frontier f;
        assert_int_equal(lab_frontier_make(&f, items, n), 0);
        for (double budget = least - 0.5; budget <= most + 0.5; budget += 0.5) {
            double best = INFINITY, best_bytes = INFINITY;
            for (size_t code = 0; code < all; code++) {
                double bytes = 0, cost = 0;
                size_t left = code;
                for (size_t i = 0; i < n; i++, left /= items[i - 1].n) {
                    bytes += options[i][left % items[i].n].bytes;
                    cost += options[i][left % items[i].n].cost;
                }
                if (bytes <= budget && (cost < best || (cost == best && bytes < best_bytes))) {
                    best = cost;
                    best_bytes = bytes;
                }
            }
            const lab_point *p = lab_frontier_best(&f, budget);
            if (isinf(best)) {
                assert_null(p);
                continue;
            }
            assert_non_null(p);
            assert_true(p->cost == best && p->bytes == best_bytes);
            /* the choice is what the point says */
            double bytes = 0, cost = 0;
            for (size_t i = 0; i < n; i++) {
                assert_true(p->choice[i] < items[i].n);
                bytes += options[i][p->choice[i]].bytes;
                cost += options[i][p->choice[i]].cost;
            }
            assert_true(bytes == p->bytes && cost == p->cost);
        }
        for (size_t i = 1; i < f.n; i++)
            assert_true(f.points[i].bytes > f.points[i - 1].bytes &&
                        f.points[i].cost < f.points[i - 1].cost);
        lab_frontier_free(&f);
    }
}

#define PRINT "446147eac802be273d18e5b77f24ad587d82c6f743e95628f4533b92b15d0a46"
#define WITH(version, model, kv) \
    "{\"format\":\"mote-profile\",\"version\":" version ",\"model\":" model ",\"kv\":" kv "}"
#define GOOD_MODEL "{\"fingerprint\":\"" PRINT "\"}"

static void profiles_that_are_none(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word;
        int code;
    } rows[] = {
        { "", "line 1", MOTE_EFORMAT },
        { "{", "line 1", MOTE_EFORMAT },
        { "[]", "no JSON object", MOTE_EFORMAT },
        { "{}", "'format'", MOTE_EFORMAT },
        { "{\"format\":\"mote-profile\",\"format\":\"mote-profile\"}", "duplicate", MOTE_EFORMAT },
        { "{\"format\":\"other\"}", "'format'", MOTE_EFORMAT },
        { WITH("\"1\"", GOOD_MODEL, "\"fp4\""), "'version'", MOTE_EFORMAT },
        { WITH("0", GOOD_MODEL, "\"fp4\""), "'version'", MOTE_EFORMAT },
        { WITH("2", GOOD_MODEL, "\"fp4\""), "version 2", MOTE_EVERSION },
        { WITH("1", "[]", "\"fp4\""), "'model.fingerprint'", MOTE_EFORMAT },
        { WITH("1", "{\"fingerprint\":\"446147EA\"}", "\"fp4\""), "'model.fingerprint'",
          MOTE_EFORMAT },
        { WITH("1", "{\"fingerprint\":\"" PRINT "0\"}", "\"fp4\""), "'model.fingerprint'",
          MOTE_EFORMAT },
        { WITH("1", GOOD_MODEL, "7"), "'kv'", MOTE_EFORMAT },
        { WITH("1", GOOD_MODEL, "\"\""), "'kv'", MOTE_EFORMAT },
        { WITH("1", GOOD_MODEL, "\"fp4\\u0000,fp8\""), "", MOTE_EFORMAT },
    };
    lab_profile p;
    mote_err err;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(lab_profile_parse(&p, "some.profile", rows[i].text, strlen(rows[i].text),
                                           &err),
                         rows[i].code);
        assert_null(p.root);
        if (!strstr(err.message, rows[i].word) || !strstr(err.message, "some.profile"))
            fail_msg("'%s' does not name '%s'", err.message, rows[i].word);
    }
    char *longest = malloc(LAB_PROFILE_MAX_BYTES + 2), *kv = malloc(LAB_PROFILE_KV_BYTES + 1);
    memset(longest, ' ', LAB_PROFILE_MAX_BYTES + 1);
    assert_int_equal(lab_profile_parse(&p, "some.profile", longest, LAB_PROFILE_MAX_BYTES + 1,
                                       &err),
                     MOTE_EFORMAT);
    for (size_t n = LAB_PROFILE_KV_BYTES - 1; n <= LAB_PROFILE_KV_BYTES; n++) {
        memset(kv, 'x', n);
        kv[n] = 0;
        int bytes = snprintf(longest, LAB_PROFILE_MAX_BYTES, WITH("1", GOOD_MODEL, "\"%s\""), kv);
        int rc = lab_profile_parse(&p, "some.profile", longest, (size_t)bytes, &err);
        assert_int_equal(rc, n < LAB_PROFILE_KV_BYTES ? 0 : MOTE_EFORMAT);
        if (!rc)
            assert_string_equal(p.kv, kv);
        lab_profile_free(&p);
    }
    free(kv);
    free(longest);
}

static void a_profile_is_of_one_model(void **state)
{
    (void)state;
    char hex[65], text[400];
    mote_err err;
    lab_profile p;
    if (mote_fingerprint(source_path("models/nano"), hex, &err))
        fail_msg("%s", err.message);
    assert_int_equal(strlen(hex), 64);
    snprintf(text, sizeof text, WITH("1", "{\"fingerprint\":\"%s\"}", "\"main=fp8\""), hex);
    assert_int_equal(lab_profile_parse(&p, "p", text, strlen(text), &err), 0);
    assert_string_equal(p.kv, "main=fp8");
    assert_int_equal(lab_profile_check(&p, "p", source_path("models/nano"), &err), 0);
    p.fingerprint[5] = p.fingerprint[5] == 'a' ? 'b' : 'a';
    assert_int_equal(lab_profile_check(&p, "p", source_path("models/nano"), &err), MOTE_EINVAL);
    assert_non_null(strstr(err.message, "another model"));
    assert_non_null(strstr(err.message, "--kv 'main=fp8'"));
    lab_profile_free(&p);
    assert_int_equal(mote_fingerprint(source_path("docs"), hex, &err) != 0, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knapsack_is_exact),
        cmocka_unit_test(profiles_that_are_none),
        cmocka_unit_test(a_profile_is_of_one_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
