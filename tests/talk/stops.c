/* Stop strings over random cuts of random text against a search in the whole of it. */
#include "talk/stops.h"

#include "test.h"

/* The text ends before the stop string that is complete first; of several that end there the one
 * that began first. */
static size_t end_of(const char *text, size_t n, const char *const *stops, size_t n_stops, int *hit)
{
    for (size_t end = 1; end <= n; end++)
        for (size_t at = 0; at < end; at++)
            for (size_t i = 0; i < n_stops; i++)
                if (strlen(stops[i]) == end - at && !memcmp(text + at, stops[i], end - at)) {
                    *hit = 1;
                    return at;
                }
    *hit = 0;
    return n;
}

static void random_cuts(void **state)
{
    (void)state;
    static const char letters[] = "aab\0";
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        rnd r = { seed };
        char text[40], stop[3][8], got[80];
        const char *stops[3] = { stop[0], stop[1], stop[2] };
        size_t n = rnd_below(&r, sizeof text), n_stops = rnd_below(&r, 4), n_got = 0, n_certain;
        for (size_t i = 0; i < n; i++)
            text[i] = letters[rnd_below(&r, 4)];
        for (size_t k = 0; k < n_stops; k++) {
            size_t len = 1 + rnd_below(&r, 5);
            for (size_t i = 0; i < len; i++)
                stop[k][i] = letters[rnd_below(&r, 3)];
            stop[k][len] = 0;
        }
        talk_stops s;
        talk_stops_init(&s, stops, n_stops);
        int hit;
        size_t want = end_of(text, n, stops, n_stops, &hit);
        for (size_t at = 0, some; at < n; at += some) {
            some = 1 + rnd_below(&r, n - at);
            const char *certain = talk_stops_push(&s, text + at, some, &n_certain);
            assert_non_null(certain);
            memcpy(got + n_got, certain, n_certain);
            n_got += n_certain;
            /* never a part of what must not be shown */
            assert_true(n_got <= want && !memcmp(got, text, n_got));
        }
        const char *rest = talk_stops_finish(&s, &n_certain);
        memcpy(got + n_got, rest, n_certain);
        n_got += n_certain;
        assert_int_equal(s.hit, hit);
        assert_int_equal(n_got, want);
        assert_memory_equal(got, text, n_got);
        talk_stops_deinit(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_cuts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
