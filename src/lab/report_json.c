/* Reports from the JSON of eval, tune and ladder: the same numbers as tables and as figures. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/report_rows.h"

enum { MAX_ROWS = 512, CELL = LAB_CELL };
typedef lab_column column;

static double number(const json_t *o, const char *key) { return lab_rows_number(o, key); }
static const char *string(const json_t *o, const char *key) { return lab_rows_string(o, key); }
static void table(lab_report *r, const json_t *rows, const column *columns, size_t n)
{
    lab_rows_table(r, rows, columns, n);
}
#define TABLE(r, rows, ...)                         \
    table(r, rows, (const column[]){ __VA_ARGS__ }, \
          sizeof((const column[]){ __VA_ARGS__ }) / sizeof(column))

static void paragraphs(lab_report *r, const json_t *lines)
{
    const json_t *line;
    size_t i;
    json_array_foreach(lines, i, line) lab_report_text(r, json_string_value(line));
}

/* ---- marks from rows ---- */

static int by_x(const void *a, const void *b)
{
    double x = ((const lab_mark *)a)->x, y = ((const lab_mark *)b)->x;
    return (x > y) - (x < y);
}

/* Marks with labels, a series per value of `group` (a number, as in "ctx 4096"), on an axis of
 * doublings: formats differ by factors. Not joined by lines: neighbours differ in more than bytes.
 */
static void chart_of(lab_report *r, const char *title, const json_t *rows, const char *group,
                     const char *x, const char *x_label, const char *y, const char *error,
                     const char *y_label, const char *label)
{
    enum { MAX_SERIES = 16 };
    double groups[MAX_SERIES];
    size_t n_groups = 0, count = json_array_size(rows), i, used = 0;
    lab_mark *marks = calloc(count + 1, sizeof *marks);
    lab_series series[MAX_SERIES];
    char names[MAX_SERIES][40];
    const json_t *o;
    if (!marks)
        return;
    json_array_foreach(rows, i, o)
    {
        double g = group ? number(o, group) : 0;
        size_t k = 0;
        while (k < n_groups && groups[k] != g)
            k++;
        if (k == n_groups && n_groups < MAX_SERIES)
            groups[n_groups++] = g;
    }
    for (size_t k = 0; k < n_groups; k++) {
        lab_mark *first = marks + used;
        json_array_foreach(rows, i, o) if ((group ? number(o, group) : 0) == groups[k] &&
                                           isfinite(number(o, y)))
            marks[used++] = (lab_mark){ number(o, x), number(o, y), error ? number(o, error) : 0,
                                        label ? string(o, label) : NULL };
        size_t n = (size_t)(marks + used - first);
        qsort(first, n, sizeof *first, by_x);
        snprintf(names[k], sizeof names[k], "%s %.10g", group ? group : "", groups[k]);
        series[k] = (lab_series){ names[k], first, n, 0 };
    }
    if (used)
        lab_report_chart(r, &(lab_chart){ title, x_label, y_label, series, n_groups, 1 });
    free(marks);
}

/* ---- needles ---- */

/* A row per kv and context of `rows`, a column per depth. */
static void needle_map(lab_report *r, const json_t *rows, const json_t *cells, const json_t *depths,
                       const char *key, const char *title, double low, double high, int digits)
{
    size_t n = json_array_size(rows), d = json_array_size(depths), i, k, at;
    char(*names)[CELL] = calloc(n + 1, CELL), columns[64][16];
    const char *row_names[MAX_ROWS], *column_names[64];
    double *values = calloc(n * d + 1, sizeof *values);
    const json_t *row, *cell, *depth;
    if (!names || !values || !n || !d || n > MAX_ROWS || d > 64) {
        free(names);
        free(values);
        return;
    }
    json_array_foreach(depths, k, depth)
    {
        snprintf(columns[k], sizeof columns[k], "%.0f", 100 * json_number_value(depth));
        column_names[k] = columns[k];
    }
    double least = INFINITY, most = -INFINITY;
    json_array_foreach(rows, i, row)
    {
        const char *kv = string(row, "kv");
        const char *name = strstr(kv, "main=f32,index=f32,window=f32") || !strcmp(kv, "f32")
                               ? "unrounded"
                               : kv;
        snprintf(names[i], CELL, "%.26s%s, %.0f", name, strlen(name) > 26 ? "..." : "",
                 number(row, "ctx"));
        row_names[i] = names[i];
        for (k = 0; k < d; k++)
            values[i * d + k] = (double)NAN;
        json_array_foreach(cells, at, cell)
            json_array_foreach(depths, k,
                               depth) if (!strcmp(string(cell, "kv"), kv) &&
                                          number(cell, "ctx") == number(row, "ctx") &&
                                          number(cell, "depth") == json_number_value(depth))
        {
            double v = values[i * d + k] = number(cell, key);
            if (isfinite(v)) {
                least = fmin(least, v);
                most = fmax(most, v);
            }
        }
    }
    if (low == high) { /* not given */
        low = least;
        high = most > least ? most : least + 1;
    }
    lab_report_map(r, &(lab_map){ title, "depth of the fact in the text, %", row_names,
                                  column_names, n, d, values, low, high, digits });
    free(names);
    free(values);
}

static void needles(lab_report *r, const json_t *needle)
{
    const json_t *rows = json_object_get(needle, "rows"), *cells = json_object_get(needle, "cells"),
                 *depths = json_object_get(needle, "depths");
    if (!json_array_size(rows))
        return;
    lab_report_heading(r, "Facts hidden in the text, asked for at its end");
    needle_map(r, rows, cells, depths, "choice",
               "Share of answers likelier than those of the other facts, by format and context", 0,
               1, 2);
    needle_map(r, rows, cells, depths, "margin",
               "ln p(answer) less the mean of the others' answers", 0, 0, 1);
    TABLE(r, rows, { "kv", "kv", LAB_WORD, 0, 0 }, { "ctx", ">context", LAB_COUNT, 0, 0 },
          { "asked", ">asked", LAB_COUNT, 0, 0 }, { "recall", ">recall %", LAB_PERCENT, 1, 0 },
          { "choice", ">choice %", LAB_PERCENT, 1, 0 },
          { "greedy", ">greedy %", LAB_PERCENT, 1, 0 }, { "logp", ">ln p", LAB_FIXED, 3, 0 },
          { "margin", ">margin", LAB_FIXED, 3, 0 }, { "margin_se", ">+-", LAB_FIXED, 3, 0 },
          { "logp_minus_base", ">ln p to base", LAB_SIGNED, 4, 0 },
          { "logp_minus_base_se", ">+-", LAB_FIXED, 4, 0 });
}

/* ---- blame ---- */

static void effects(lab_report *r, const json_t *b)
{
    TABLE(r, json_object_get(b, "causes"), { "cause", "cause", LAB_WORD, 0, 0 },
          { "exact_is", "exact", LAB_WORD, 0, 0 }, { "full_is", "full", LAB_WORD, 0, 0 },
          { "alone", ">alone", LAB_SIGNED, 5, 0 }, { "alone_se", ">+-", LAB_FIXED, 5, 0 },
          { "last", ">with the others", LAB_SIGNED, 5, 0 }, { "last_se", ">+-", LAB_FIXED, 5, 0 },
          { "judgement", "judged", LAB_WORD, 0, 0 });
    paragraphs(r, json_object_get(b, "verdict"));
}

static void blame(lab_report *r, const json_t *b)
{
    char head[200];
    if (!json_is_object(b))
        return;
    snprintf(head, sizeof head, "Blame: %.100s, context %.0f", string(b, "kv"), number(b, "ctx"));
    lab_report_heading(r, head);
    const json_t *causes = json_object_get(json_object_get(b, "loss"), "causes"), *c;
    size_t n = json_array_size(causes), i;
    lab_mark *alone = calloc(n + 1, sizeof *alone), *last = calloc(n + 1, sizeof *last);
    if (alone && last) {
        json_array_foreach(causes, i, c)
        {
            alone[i] = (lab_mark){ (double)i + 0.9, number(c, "alone"), number(c, "alone_se"),
                                   string(c, "cause") };
            last[i] = (lab_mark){ (double)i + 1.1, number(c, "last"), number(c, "last_se"), NULL };
        }
        const lab_series series[2] = { { "alone, from exact", alone, n, 0 },
                                       { "with the others, from full", last, n, 0 } };
        lab_report_chart(r, &(lab_chart){
                                "What each cause does to the loss (bars: one standard error)",
                                "cause, in the order of the table", "nat a token", series, 2, 0 });
    }
    free(alone);
    free(last);
    effects(r, json_object_get(b, "loss"));
    TABLE(r, json_object_get(b, "kl"), { "cause", "cause, alone", LAB_WORD, 0, 0 },
          { "kl", ">KL", LAB_FIXED, 5, 0 },
          { "over_control", ">over the control", LAB_SIGNED, 5, 0 },
          { "over_control_se", ">+-", LAB_FIXED, 5, 0 },
          { "beyond_noise", "", LAB_YES, 0, "beyond the noise" });
    lab_report_text(r, string(b, "kl_verdict"));
    if (json_is_object(json_object_get(b, "needle")))
        effects(r, json_object_get(b, "needle"));
}

/* ---- eval ---- */

static void cuts(lab_report *r, const json_t *list)
{
    const json_t *cut;
    size_t i;
    json_array_foreach(list, i, cut)
    {
        char head[200];
        snprintf(head, sizeof head,
                 "Loss behind a cut at %.0f, context %.0f, %.80s: %.5f after a cold reading (%.0f "
                 "tokens)",
                 number(cut, "cut"), number(cut, "ctx"), string(cut, "kv"),
                 number(cut, "cold_loss"), number(cut, "tokens"));
        lab_report_heading(r, head);
        TABLE(r, json_object_get(cut, "ways"), { "way", "prefix", LAB_WORD, 0, 0 },
              { "minus_cold", ">difference", LAB_SIGNED, 5, 0 },
              { "minus_cold_se", ">+-", LAB_FIXED, 5, 0 },
              { "beyond_noise", "", LAB_YES, 0, "beyond the noise" });
    }
}

static void kv_errors(lab_report *r, const json_t *list)
{
    const json_t *e;
    size_t i;
    json_array_foreach(list, i, e)
    {
        char head[200];
        snprintf(head, sizeof head, "Stored KV against f32: %.120s, context %.0f", string(e, "kv"),
                 number(e, "ctx"));
        lab_report_heading(r, head);
        TABLE(r, json_object_get(e, "rows"), { "layer", ">layer", LAB_COUNT, 0, 0 },
              { "part", "part", LAB_WORD, 0, 0 }, { "format", "format", LAB_WORD, 0, 0 },
              { "vectors", ">vectors", LAB_COUNT, 0, 0 },
              { "rounding", ">rounded once %", LAB_PERCENT, 3, 0 },
              { "error", ">as stored %", LAB_PERCENT, 3, 0 });
    }
}

void lab_report_eval(lab_report *r, const json_t *report)
{
    const json_t *rows = json_object_get(report, "rows"), *b;
    size_t i;
    if (json_array_size(rows)) {
        char against[120];
        lab_report_heading(r, "What a format costs");
        snprintf(against, sizeof against, "KL to %.60s, nat a token", string(report, "base"));
        chart_of(r, "Divergence against bytes per token", rows, "ctx", "kv_bytes_per_token",
                 "bytes of global KV per token", "kl", "kl_se", against, "kv");
        chart_of(r, "Perplexity against bytes per token", rows, "ctx", "kv_bytes_per_token",
                 "bytes of global KV per token", "perplexity", NULL, "perplexity", "kv");
        TABLE(r, rows, { "kv", "kv", LAB_WORD, 0, 0 }, { "ctx", ">context", LAB_COUNT, 0, 0 },
              { "tokens", ">tokens", LAB_COUNT, 0, 0 },
              { "kv_bytes_per_token", ">B/token", LAB_COUNT, 0, 0 },
              { "loss", ">loss", LAB_FIXED, 5, 0 },
              { "perplexity", ">perplexity", LAB_FIXED, 3, 0 }, { "kl", ">KL", LAB_FIXED, 5, 0 },
              { "kl_se", ">+-", LAB_FIXED, 5, 0 },
              { "top1_agreement", ">same top-1 %", LAB_PERCENT, 2, 0 },
              { "prefill_tokens_per_s", ">prefill tok/s", LAB_FIXED, 0, 0 },
              { "decode_tokens_per_s", ">decode tok/s", LAB_FIXED, 0, 0 },
              { "peak_bytes", ">peak", LAB_BYTES, 0, 0 });
    }
    if (json_object_get(json_array_get(rows, 0), "reused_tokens")) {
        lab_report_heading(r, "After hits in the store");
        TABLE(r, rows, { "kv", "kv", LAB_WORD, 0, 0 }, { "ctx", ">context", LAB_COUNT, 0, 0 },
              { "reused_tokens", ">reused", LAB_COUNT, 0, 0 },
              { "replayed_tokens", ">replayed", LAB_COUNT, 0, 0 },
              { "computed_tokens", ">computed", LAB_COUNT, 0, 0 },
              { "loss", ">loss", LAB_FIXED, 5, 0 }, { "cold_loss", ">cold loss", LAB_FIXED, 5, 0 },
              { "loss_minus_cold", ">difference", LAB_SIGNED, 5, 0 },
              { "loss_minus_cold_se", ">+-", LAB_FIXED, 5, 0 },
              { "exact", "", LAB_YES, 0, "exact" });
    }
    needles(r, json_object_get(report, "needle"));
    cuts(r, json_object_get(report, "cuts"));
    kv_errors(r, json_object_get(report, "kv_error"));
    json_array_foreach(json_object_get(report, "blame"), i, b) blame(r, b);
}

/* ---- tune ---- */

void lab_report_tune(lab_report *r, const json_t *result)
{
    const json_t *items = json_object_get(result, "items"), *item, *o;
    size_t i, k, n = json_array_size(items);
    char line[600];
    snprintf(line, sizeof line, "Chosen for %s under %.6g bytes a token: %s (%.6g bytes).",
             string(result, "task"), number(result, "budget"), string(result, "kv"),
             number(result, "bytes_per_token"));
    lab_report_heading(r, "The choice");
    lab_report_text(r, line);
    lab_report_text(r, string(result, "judgement"));
    const json_t *frontier = json_object_get(result, "frontier");
    lab_mark *marks = calloc(json_array_size(frontier) + 1, sizeof *marks),
             chosen = { number(result, "bytes_per_token"), number(result, "predicted"), 0,
                        "chosen" };
    lab_mark measured = { chosen.x, number(result, "measured"), number(result, "measured_se"),
                          "measured" };
    json_array_foreach(frontier, i, o)
        marks[i] = (lab_mark){ number(o, "bytes_per_token"), number(o, "predicted"), 0, NULL };
    const lab_series series[3] = {
        { "best choice for a budget, predicted", marks, json_array_size(frontier), 1 },
        { "this budget", &chosen, 1, 0 },
        { "measured as a whole, windows f32", &measured, isfinite(measured.y), 0 }
    };
    if (marks)
        lab_report_chart(r, &(lab_chart){ "Loss against bytes per token, best choices",
                                          "bytes of global KV per token", string(result, "cost"),
                                          series, isfinite(measured.y) ? 3 : 2, 0 });
    free(marks);
    const char *columns[16], *rows[128];
    char names[128][40];
    double values[128 * 16];
    size_t n_columns = 0;
    json_array_foreach(items, i, item) json_array_foreach(json_object_get(item, "options"), k, o)
    {
        size_t c = 0;
        while (c < n_columns && strcmp(columns[c], string(o, "format")))
            c++;
        if (c == n_columns && n_columns < 16)
            columns[n_columns++] = string(o, "format");
    }
    double most = 0;
    for (i = 0; i < 128 * 16; i++)
        values[i] = (double)NAN;
    json_array_foreach(items, i, item)
    {
        if (i == 128)
            break;
        snprintf(names[i], sizeof names[i], "layer %.0f, %s", number(item, "layer"),
                 string(item, "part"));
        rows[i] = names[i];
        json_array_foreach(json_object_get(item, "options"), k,
                           o) for (size_t c = 0; c < n_columns;
                                   c++) if (!strcmp(columns[c], string(o, "format")))
        {
            values[i * n_columns + c] = 1000 * number(o, "cost");
            most = fmax(most, 1000 * number(o, "cost"));
        }
    }
    if (n && n_columns)
        lab_report_map(r, &(lab_map){ "What one format in one part costs, in thousandths", "format",
                                      rows, columns, n < 128 ? n : 128, n_columns, values, 0, most,
                                      2 });
    static const struct {
        const char *key, *heading;
    } checks[] = { { "verified", "Measured on the same windows" },
                   { "heldout", "On text that had no part in the choice" } };
    for (size_t c = 0; c < 2; c++) {
        if (!json_array_size(json_object_get(result, checks[c].key)))
            continue;
        lab_report_heading(r, checks[c].heading);
        TABLE(r, json_object_get(result, checks[c].key), { "name", "", LAB_WORD, 0, 0 },
              { "bytes_per_token", ">B/token", LAB_COUNT, 0, 0 },
              { "tokens", ">tokens", LAB_COUNT, 0, 0 },
              { "perplexity", ">perplexity", LAB_FIXED, 3, 0 },
              { "loss_minus_exact", ">loss to exact", LAB_SIGNED, 5, 0 },
              { "loss_minus_exact_se", ">+-", LAB_FIXED, 5, 0 },
              { "kl", ">KL to exact", LAB_FIXED, 6, 0 }, { "kl_se", ">+-", LAB_FIXED, 6, 0 });
    }
    needles(r, json_object_get(result, "needle"));
}

/* ---- memory ---- */

void lab_report_ladder(lab_report *r, const json_t *result)
{
    static const char *const keys[] = { "kv_main_codes",   "kv_main_scales",  "kv_index_codes",
                                        "kv_index_scales", "kv_key_codes",    "kv_key_scales",
                                        "kv_value_codes",  "kv_value_scales", "kv_window",
                                        "kv_slack" };
    static const char *const shown_as[] = { "main codes",   "main scales",  "index codes",
                                            "index scales", "key codes",    "key scales",
                                            "value codes",  "value scales", "windows",
                                            "slack" };
    enum { PARTS = sizeof keys / sizeof keys[0], STEPS = 64 };
    const json_t *steps = json_object_get(result, "steps"), *s,
                 *stopped = json_object_get(result, "stopped");
    const char *parts[PARTS], *part_names[PARTS], *columns[STEPS];
    char names[STEPS][16];
    double values[STEPS * PARTS], weights = 0, scratch = 0;
    size_t n = 0, n_parts = 0, i;
    int used[PARTS] = { 0 };
    json_array_foreach(steps, i, s) for (size_t p = 0; p < PARTS; p++)
        used[p] |= number(json_object_get(s, "memory"), keys[p]) > 0;
    for (size_t p = 0; p < PARTS; p++)
        if (used[p]) {
            parts[n_parts] = keys[p];
            part_names[n_parts++] = shown_as[p];
        }
    json_t *cells = json_array(), *rows = json_array();
    json_array_foreach(steps, i, s)
    {
        const json_t *memory = json_object_get(s, "memory"), *needle = json_object_get(s, "needle");
        if (!memory || n == STEPS)
            continue;
        for (size_t p = 0; p < n_parts; p++)
            values[n * n_parts + p] = number(memory, parts[p]);
        weights = number(memory, "weights");
        scratch = fmax(scratch, number(memory, "scratch"));
        lab_rows_context(names[n], number(s, "ctx"));
        columns[n] = names[n];
        n++;
        if (!needle)
            continue;
        json_array_extend(cells, json_object_get(needle, "cells"));
        const json_t *cell;
        size_t k;
        /* the formats of this step, once each */
        json_array_foreach(
            json_object_get(needle, "cells"), k,
            cell) if (k == 0 ||
                      strcmp(string(cell, "kv"),
                             string(json_array_get(json_object_get(needle, "cells"), k - 1), "kv")))
            json_array_append_new(rows, json_pack("{s:s, s:f}", "kv", string(cell, "kv"), "ctx",
                                                  number(s, "ctx")));
    }
    lab_report_heading(r, "How far it went");
    lab_report_text(r, json_is_object(stopped) ? string(stopped, "diagnosis") : "Every step held.");
    char title[120], size[24], more[24];
    lab_bytes_text(size, weights);
    lab_bytes_text(more, scratch);
    snprintf(title, sizeof title,
             "Memory of one session by part (beside it: weights %s, scratch %s)", size, more);
    if (n)
        lab_report_stacks(r, &(lab_stacks){ title, "context, tokens", columns, part_names, n,
                                            n_parts, values });
    lab_mark use[STEPS], base[STEPS];
    size_t marks = 0;
    json_array_foreach(steps, i, s) if (isfinite(number(s, "perplexity")) && marks < STEPS)
    {
        use[marks] = (lab_mark){ number(s, "ctx"), number(s, "perplexity"), 0, NULL };
        base[marks++] = (lab_mark){ number(s, "ctx"), number(s, "base_perplexity"), 0, NULL };
    }
    const lab_series series[2] = { { "this configuration", use, marks, 1 },
                                   { "unrounded cache", base, marks, 1 } };
    if (marks)
        lab_report_chart(r, &(lab_chart){ "Perplexity of each context's end", "context, tokens",
                                          "perplexity", series, isfinite(base[0].y) ? 2 : 1, 1 });
    TABLE(r, steps, { "ctx", ">context", LAB_COUNT, 0, 0 },
          { "prefill_tokens_per_s", ">prefill tok/s", LAB_FIXED, 0, 0 },
          { "decode_tokens_per_s", ">decode tok/s", LAB_FIXED, 0, 0 },
          { "tokens", ">tokens", LAB_COUNT, 0, 0 },
          { "perplexity", ">perplexity", LAB_FIXED, 3, 0 },
          { "base_perplexity", ">unrounded", LAB_FIXED, 3, 0 },
          { "loss_minus_base", ">loss to it", LAB_SIGNED, 5, 0 },
          { "loss_minus_base_se", ">+-", LAB_FIXED, 5, 0 }, { "kl", ">KL", LAB_FIXED, 5, 0 },
          { "peak_rss", ">peak RSS", LAB_BYTES, 0, 0 }, { "ok", "", LAB_YES, 0, "held" });
    if (json_array_size(rows)) {
        json_t *depths = json_array();
        const json_t *cell;
        double first_ctx = number(json_array_get(cells, 0), "ctx");
        json_array_foreach(cells, i, cell) if (number(cell, "ctx") == first_ctx &&
                                               !strcmp(string(cell, "kv"),
                                                       string(json_array_get(cells, 0), "kv")))
            json_array_append(depths, json_object_get(cell, "depth"));
        lab_report_heading(r, "Facts hidden in the text");
        needle_map(r, rows, cells, depths, "margin",
                   "ln p(answer) less the mean of the others' answers", 0, 0, 1);
        json_decref(depths);
    }
    json_decref(cells);
    json_decref(rows);
    blame(r, json_object_get(result, "blame"));
}
