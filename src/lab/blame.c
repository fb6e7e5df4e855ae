/* The arithmetic of blame, and its words. */
#include "lab/blame.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lab/format_rows.h"

static void each_sum(lab_blame_sums *s, void (*f)(lab_sum *))
{
    f(&s->exact), f(&s->full), f(&s->total), f(&s->rest);
    for (size_t c = 0; c < s->n_causes; c++)
        f(&s->alone[c]), f(&s->last[c]);
}

void lab_blame_gap(lab_blame_sums *s) { each_sum(s, lab_sum_gap); }

void lab_blame_add(lab_blame_sums *s, const double *v)
{
    size_t n = s->n_causes;
    double exact = v[0], full = v[lab_blame_full(n)], rest = full - exact;
    lab_sum_add(&s->exact, exact);
    lab_sum_add(&s->full, full);
    lab_sum_add(&s->total, full - exact);
    for (size_t c = 0; c < n; c++) {
        lab_sum_add(&s->alone[c], v[lab_blame_alone(c)] - exact);
        lab_sum_add(&s->last[c], full - v[lab_blame_without(n, c)]);
        rest -= v[lab_blame_alone(c)] - exact;
    }
    lab_sum_add(&s->rest, rest);
}

static int real(const lab_sum *s, int errors)
{
    return lab_is_real(lab_sum_mean(s), lab_sum_error(s), errors);
}

lab_guilt lab_blame_judge(const lab_blame_sums *s, size_t c)
{
    double alone = lab_sum_mean(&s->alone[c]), last = lab_sum_mean(&s->last[c]);
    int a = real(&s->alone[c], LAB_SEVERAL), l = real(&s->last[c], LAB_SEVERAL);
    if (a && l && (alone > 0) == (last > 0))
        return alone > 0 ? LAB_GUILTY : LAB_HELPS;
    return a ? LAB_ALONE_ONLY : l ? LAB_LAST_ONLY : LAB_NOISE;
}

static const char *const judgements[] = {
    [LAB_NOISE] = "within the noise",
    [LAB_ALONE_ONLY] = "only by itself",
    [LAB_LAST_ONLY] = "only with the others",
    [LAB_GUILTY] = "costs",
    [LAB_HELPS] = "helps",
};

static void say(json_t *list, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(json_t *list, const char *fmt, ...)
{
    char line[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    json_array_append_new(list, json_string(line));
}

/* "main, window and top-k": those judged so; the count of them. */
static size_t list_of(char *out, size_t room, const lab_blame_sums *s,
                      const char *const (*names)[3], lab_guilt guilt)
{
    size_t n = 0, used = 0, left = 0;
    for (size_t c = 0; c < s->n_causes; c++)
        left += lab_blame_judge(s, c) == guilt;
    out[0] = 0;
    for (size_t c = 0; c < s->n_causes && used < room; c++)
        if (lab_blame_judge(s, c) == guilt) {
            n++;
            used += (size_t)snprintf(out + used, room - used, "%s%s",
                                     n == 1      ? ""
                                     : n == left ? " and "
                                                 : ", ",
                                     names[c][0]);
        }
    return n;
}

static json_t *verdict(const lab_blame_sums *s, const char *const (*names)[3], const char *unit,
                       const char *observation)
{
    json_t *v = json_array();
    double total = lab_sum_mean(&s->total), error = lab_sum_error(&s->total),
           n = (double)s->total.n;
    int sure = lab_is_real(total, error, LAB_ONE);
    if (sure)
        say(v, "The full configuration %s %.4f +- %.4f %s against the exact one, over %zu %ss.",
            total > 0 ? "loses" : "gains", fabs(total), error, unit, s->total.n, observation);
    else
        say(v,
            "What the full configuration loses is within the noise: %+.4f +- %.4f %s, over %zu "
            "%ss. To see %.3f, about %.0f would be needed.",
            total, error, unit, s->total.n, observation, 0.001,
            ceil(n * pow(2 * error / 0.001, 2)));
    for (size_t c = 0; c < s->n_causes; c++) {
        lab_guilt g = lab_blame_judge(s, c);
        double alone = lab_sum_mean(&s->alone[c]), last = lab_sum_mean(&s->last[c]);
        if (g == LAB_GUILTY && sure && total > 0)
            say(v,
                "%s (%s instead of %s) explains about %.0f %% of it: by itself it costs %.4f +- "
                "%.4f, and without it the full configuration loses %.4f +- %.4f less.",
                names[c][0], names[c][2], names[c][1], 100 * fmin((alone + last) / 2 / total, 1),
                alone, lab_sum_error(&s->alone[c]), last, lab_sum_error(&s->last[c]));
        else if (g == LAB_GUILTY || g == LAB_HELPS)
            say(v,
                "%s (%s instead of %s) %s: %+.4f +- %.4f by itself, %+.4f +- %.4f with the others.",
                names[c][0], names[c][2], names[c][1], g == LAB_GUILTY ? "costs" : "helps", alone,
                lab_sum_error(&s->alone[c]), last, lab_sum_error(&s->last[c]));
        else if (g == LAB_ALONE_ONLY)
            say(v, "%s shows by itself (%+.4f +- %.4f), but not among the others (%+.4f +- %.4f).",
                names[c][0], alone, lab_sum_error(&s->alone[c]), last, lab_sum_error(&s->last[c]));
        else if (g == LAB_LAST_ONLY)
            say(v,
                "%s shows only together with the others (%+.4f +- %.4f; by itself %+.4f +- %.4f).",
                names[c][0], last, lab_sum_error(&s->last[c]), alone, lab_sum_error(&s->alone[c]));
    }
    char quiet[300];
    if (list_of(quiet, sizeof quiet, s, names, LAB_NOISE))
        say(v, "Within the noise (three standard errors): %s.", quiet);
    if (real(&s->rest, LAB_SEVERAL))
        say(v,
            "The causes one by one add up to %+.4f; %+.4f +- %.4f of the total comes from their "
            "working together.",
            total - lab_sum_mean(&s->rest), lab_sum_mean(&s->rest), lab_sum_error(&s->rest));
    return v;
}

json_t *lab_blame_json(const lab_blame_sums *s, const char *const (*names)[3], const char *what,
                       const char *unit, const char *observation)
{
    json_t *causes = json_array();
    for (size_t c = 0; c < s->n_causes; c++) {
        json_t *o = json_pack("{s:s, s:s, s:s, s:s}", "cause", names[c][0], "exact_is", names[c][1],
                              "full_is", names[c][2], "judgement",
                              judgements[lab_blame_judge(s, c)]);
        json_object_set_new(o, "alone", lab_real(lab_sum_mean(&s->alone[c])));
        json_object_set_new(o, "alone_se", lab_real(lab_sum_error(&s->alone[c])));
        json_object_set_new(o, "last", lab_real(lab_sum_mean(&s->last[c])));
        json_object_set_new(o, "last_se", lab_real(lab_sum_error(&s->last[c])));
        json_array_append_new(causes, o);
    }
    json_t *o = json_pack("{s:s, s:s, s:I}", "what", what, "unit", unit, "observations",
                          (json_int_t)s->total.n);
    const struct {
        const char *name;
        double value;
    } reals[] = {
        { "exact", lab_sum_mean(&s->exact) }, { "full", lab_sum_mean(&s->full) },
        { "total", lab_sum_mean(&s->total) }, { "total_se", lab_sum_error(&s->total) },
        { "rest", lab_sum_mean(&s->rest) },   { "rest_se", lab_sum_error(&s->rest) },
    };
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        json_object_set_new(o, reals[i].name, lab_real(reals[i].value));
    json_object_set_new(o, "causes", causes);
    json_object_set_new(o, "verdict", verdict(s, names, unit, observation));
    return o;
}
