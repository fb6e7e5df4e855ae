/* Pictures of awkward values: what is drawn has numbers for places, and lies inside the picture. */
#include "lab/svg.h"
#include "test.h"

#include <float.h>
#include <math.h>

/* Every x, y, x1, ... and point of `text`: finite, within the width and height, with a little for
 * the pen. */
static void inside(const char *text, int height, const char *what)
{
    if (strstr(text, "nan") || strstr(text, "=\"inf") || strstr(text, "=\"-inf"))
        fail_msg("%s: %.100s", what,
                 strstr(text, "nan")      ? strstr(text, "nan") - 40
                 : strstr(text, "=\"inf") ? strstr(text, "=\"inf") - 40
                                          : text);
    static const struct {
        const char *key;
        int is_x;
    } keys[] = {
        { " x=\"", 1 },  { " y=\"", 0 },  { " x1=\"", 1 }, { " x2=\"", 1 },
        { " y1=\"", 0 }, { " y2=\"", 0 }, { " cx=\"", 1 }, { " cy=\"", 0 },
    };
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (const char *at = text; (at = strstr(at, keys[k].key)) != NULL; at++) {
            double v = strtod(at + strlen(keys[k].key), NULL);
            if (!(v >= -1 && v <= (keys[k].is_x ? LAB_WIDTH : height) + 1))
                fail_msg("%s: %.80s", what, at);
        }
    for (const char *at = text; (at = strstr(at, "<rect")) != NULL; at++) {
        double x, y, w, h;
        assert_int_equal(sscanf(at, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &x,
                                &y, &w, &h),
                         4);
        if (!(w >= 0 && h >= 0 && x + w <= LAB_WIDTH + 1 && y + h <= height + 1))
            fail_msg("%s: %.100s", what, at);
    }
    for (const char *at = strstr(text, "points=\""); at; at = strstr(at + 1, "points=\"")) {
        const char *p = at + 8;
        while (*p != '"') {
            double x = strtod(p, (char **)&p), y = strtod(p + 1, (char **)&p);
            if (!(x >= -1 && x <= LAB_WIDTH + 1 && y >= -1 && y <= height + 1))
                fail_msg("%s: point %g %g", what, x, y);
            p += *p == ' ';
        }
    }
    /* text: by the width the drawing counts with */
    for (const char *at = text; (at = strstr(at, "<text")) != NULL; at++) {
        double x = strtod(at + 9, NULL), w = 0;
        const char *s = strchr(at, '>') + 1, *anchor = strstr(at, "anchor=\"") + 8;
        for (; *s != '<'; s++) {
            w += 6.9 * ((*s & 0xC0) != 0x80);
            s += *s == '&' ? strcspn(s, ";") : 0;
        }
        x -= *anchor == 'm' ? w / 2 : *anchor == 'e' ? w : 0;
        if (x < -12 || x + w > LAB_WIDTH + 12)
            fail_msg("%s: text from %g to %g: %.120s", what, x, x + w, at);
    }
}

static const double odd[] = { 0,       -1,     -INFINITY, INFINITY, NAN, DBL_MAX,
                              DBL_MIN, 5e-324, 1e-300,    1e300,    1,   0.5,
                              1023,    1024,   1e9,       1e15,     1e22 };
enum { N_ODD = sizeof odd / sizeof *odd };

typedef struct drawing {
    char *text;
    size_t n;
    FILE *f;
} drawing;
static void start(drawing *d)
{
    d->f = open_memstream(&d->text, &d->n);
    assert_non_null(d->f);
}
static void finish(drawing *d, int height, const char *what)
{
    assert_int_equal(fclose(d->f), 0);
    assert_true(height > 0 && height < 20000);
    inside(d->text, height, what);
    free(d->text);
}

static const char *const names[] = {
    "a", "<&\">", "\xC3\xA4\xC3\xB6", "",
    "a name that is much longer than there is room for in a picture of this width, however it is "
    "turned, "
    "and then goes on for another line and a half of what nobody wants to read at all"
};

static void test_bars(void **state)
{
    (void)state;
    rnd r = { 9 };
    for (int round = 0; round < 400; round++) {
        double values[40];
        const char *labels[40];
        size_t n = (size_t)round % 41;
        for (size_t i = 0; i < n; i++) {
            values[i] = round < N_ODD ? odd[round] : odd[rnd_below(&r, N_ODD)];
            labels[i] = names[rnd_below(&r, 5)];
        }
        drawing d;
        start(&d);
        int height = lab_svg_bars(d.f,
                                  &(lab_bars){ names[round % 5], "unit", labels, values, n, 0 });
        finish(&d, height, "bars");
    }
}

static void test_stacks(void **state)
{
    (void)state;
    rnd r = { 10 };
    for (int round = 0; round < 400; round++) {
        double values[64 * 8];
        const char *columns[64], *parts[8];
        size_t n = (size_t)round % 65, n_parts = rnd_below(&r, 9);
        for (size_t i = 0; i < 64 * 8; i++)
            values[i] = round < N_ODD ? odd[round] : odd[rnd_below(&r, N_ODD)];
        for (size_t i = 0; i < 64; i++)
            columns[i] = names[rnd_below(&r, 5)];
        for (size_t i = 0; i < 8; i++)
            parts[i] = names[rnd_below(&r, 5)];
        drawing d;
        start(&d);
        int height = lab_svg_stacks(d.f, &(lab_stacks){ names[round % 5], "x", columns, parts, n,
                                                        n_parts, values });
        finish(&d, height, "stacks");
    }
}

static void test_chart_and_map(void **state)
{
    (void)state;
    rnd r = { 11 };
    for (int round = 0; round < 400; round++) {
        lab_mark marks[2][30];
        lab_series series[2];
        for (size_t s = 0; s < 2; s++) {
            series[s] = (lab_series){ names[rnd_below(&r, 5)], marks[s], rnd_below(&r, 31),
                                      (int)rnd_below(&r, 2) };
            for (size_t i = 0; i < 30; i++) {
                const double near = 1e16 + 2 * (double)rnd_below(
                                                   &r, 3); /* apart by less than a step can add */
                marks[s][i] = (lab_mark){ round % 5 ? odd[rnd_below(&r, N_ODD)] : near,
                                          round % 5 ? odd[rnd_below(&r, N_ODD)] : near,
                                          odd[rnd_below(&r, N_ODD)], names[rnd_below(&r, 4)] };
            }
        }
        drawing d;
        start(&d);
        int height = lab_svg_chart(d.f, &(lab_chart){ "t", "x", "y", series, 1 + (size_t)round % 2,
                                                      round % 3 == 0 });
        finish(&d, height, "chart");
        double values[12];
        for (size_t i = 0; i < 12; i++)
            values[i] = odd[rnd_below(&r, N_ODD)];
        const char *rows[4] = { names[4], names[0], names[1], names[2] },
                   *columns[3] = { names[4], names[1], names[3] };
        start(&d);
        height = lab_svg_map(d.f,
                             &(lab_map){ names[round % 5], "x", rows, columns, (size_t)round % 5,
                                         (size_t)round % 4, values, 0, round % 2, 2 });
        finish(&d, height, "map");
    }
}

static void test_text(void **state)
{
    (void)state;
    char s[40];
    static const struct {
        double v;
        const char *bytes, *count, *flops;
    } rows[] = {
        { 0, "0 B", "0", "0 F" },
        { 999, "999 B", "999", "999 F" },
        { 1536, "1.50 KiB", "1,536", "1.5 KF" },
        { 3514.25, "3.43 KiB", "3514.25", "3.5 KF" },
        { 999960, "976.5 KiB", "999,960", "1.0 MF" },
        { 5242880, "5.00 MiB", "5,242,880", "5.2 MF" },
        { 510286023000, "475.2 GiB", "510,286,023,000", "510.3 GF" },
        { 1e18, "888.2 PiB", "1e+18", "1.0 EF" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lab_bytes_text(s, rows[i].v);
        assert_string_equal(s, rows[i].bytes);
        lab_count_text(s, rows[i].v);
        assert_string_equal(s, rows[i].count);
        lab_thousands_text(s, rows[i].v, "F");
        assert_string_equal(s, rows[i].flops);
    }
    lab_parameters_text(s, 551566165104);
    assert_string_equal(s, "551.6 B");
    for (size_t i = 0; i < N_ODD; i++) { /* no more than there is room for */
        lab_bytes_text(s, odd[i]);
        lab_count_text(s, odd[i]);
        lab_thousands_text(s, odd[i], "FLOP");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bars), cmocka_unit_test(test_stacks),
                                        cmocka_unit_test(test_chart_and_map),
                                        cmocka_unit_test(test_text) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
