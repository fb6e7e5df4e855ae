#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd_eval.h"
#include "cli/opts.h"
#include "cli/out.h"
#include "lab/report.h"

double cli_number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void print_rows(const json_t *rows)
{
    static const char *const headings[] = {
        "kv",          ">ctx",          ">tokens",     ">loss",          ">perplexity",
        ">KL to base", ">same top-1 %", ">KV B/token", ">prefill tok/s", ">decode tok/s",
        ">peak"
    };
    cli_table *t = cli_table_create(sizeof headings / sizeof headings[0], headings);
    size_t i;
    const json_t *r;
    json_array_foreach(rows, i, r)
    {
        char bytes[32];
        snprintf(bytes, sizeof bytes, "%.6g", cli_number(r, "kv_bytes_per_token"));
        const char *const cells[] = {
            json_string_value(json_object_get(r, "kv")),
            cli_count((uint64_t)cli_number(r, "ctx")).s,
            cli_count((uint64_t)cli_number(r, "tokens")).s,
            cli_fixed(cli_number(r, "loss"), 5).s,
            cli_fixed(cli_number(r, "perplexity"), 3).s,
            cli_fixed(cli_number(r, "kl"), 5).s,
            cli_fixed(100 * cli_number(r, "top1_agreement"), 2).s,
            bytes,
            cli_fixed(cli_number(r, "prefill_tokens_per_s"), 1).s,
            cli_fixed(cli_number(r, "decode_tokens_per_s"), 1).s,
            cli_bytes(cli_number(r, "peak_bytes")).s,
        };
        for (size_t k = 0; k < sizeof cells / sizeof cells[0]; k++)
            cli_table_add(t, cells[k]);
    }
    cli_table_print(t, stdout, 0);
}

static void print_store(const json_t *rows)
{
    static const char *const headings[] = { "kv",          ">ctx",    ">reused", ">replayed",
                                            ">computed",   ">scored", ">loss",   ">cold loss",
                                            ">difference", ">+-",     "" };
    cli_table *t = cli_table_create(sizeof headings / sizeof headings[0], headings);
    size_t i;
    const json_t *r;
    json_array_foreach(rows, i, r)
    {
        const char *const cells[] = {
            json_string_value(json_object_get(r, "kv")),
            cli_count((uint64_t)cli_number(r, "ctx")).s,
            cli_count((uint64_t)cli_number(r, "reused_tokens")).s,
            cli_count((uint64_t)cli_number(r, "replayed_tokens")).s,
            cli_count((uint64_t)cli_number(r, "computed_tokens")).s,
            cli_count((uint64_t)cli_number(r, "tokens")).s,
            cli_fixed(cli_number(r, "loss"), 5).s,
            cli_fixed(cli_number(r, "cold_loss"), 5).s,
            cli_fixed(cli_number(r, "loss_minus_cold"), 5).s,
            cli_fixed(cli_number(r, "loss_minus_cold_se"), 5).s,
            json_is_true(json_object_get(r, "exact")) ? "" : "approximate",
        };
        for (size_t k = 0; k < sizeof cells / sizeof cells[0]; k++)
            cli_table_add(t, cells[k]);
    }
    printf("\nAfter hits in the store, against the same tokens without it\n");
    cli_table_print(t, stdout, 2);
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "-";
}

static cli_text percent(double share) { return cli_fixed(100 * share, 1); /* "-" for none */ }
static cli_text count_of(const json_t *o, const char *key)
{
    return cli_count((uint64_t)cli_number(o, key));
}
/* Effects are small and have a sign. */
static cli_text effect(const json_t *o, const char *key)
{
    cli_text t;
    double v = cli_number(o, key);
    snprintf(t.s, sizeof t.s, isfinite(v) ? "%+.5f" : "-", v);
    return t;
}
static void add_cells(cli_table *t, const char *const *cells, size_t n)
{
    for (size_t k = 0; k < n; k++)
        cli_table_add(t, cells[k]);
}
#define ADD(t, ...)                                    \
    add_cells(t, (const char *const[]){ __VA_ARGS__ }, \
              sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

void cli_print_needle(const json_t *needle)
{
    static const char *const headings[] = { "kv",        ">ctx",          ">asked", ">recall %",
                                            ">choice %", ">greedy %",     ">ln p",  ">margin",
                                            ">+-",       ">ln p to base", ">+-" };
    cli_table *t = cli_table_create(sizeof headings / sizeof headings[0], headings);
    const json_t *rows = json_object_get(needle, "rows"), *cells = json_object_get(needle, "cells"),
                 *depths = json_object_get(needle, "depths"), *r, *c;
    size_t i, k;
    json_array_foreach(rows, i, r)
        ADD(t, text_of(r, "kv"), count_of(r, "ctx").s, count_of(r, "asked").s,
            percent(cli_number(r, "recall")).s, percent(cli_number(r, "choice")).s,
            percent(cli_number(r, "greedy")).s, cli_fixed(cli_number(r, "logp"), 3).s,
            cli_fixed(cli_number(r, "margin"), 3).s, cli_fixed(cli_number(r, "margin_se"), 3).s,
            effect(r, "logp_minus_base").s, cli_fixed(cli_number(r, "logp_minus_base_se"), 5).s);
    printf("\nNeedles: facts hidden in the text, asked for at its end\n");
    cli_table_print(t, stdout, 2);
    const char *by[3 + 32] = { "kv", ">ctx" };
    char names[32][16];
    size_t n = 2;
    json_array_foreach(depths, i, r) if (n < 34)
    {
        snprintf(names[i], sizeof names[i], ">%.0f %%", 100 * json_number_value(r));
        by[n++] = names[i];
    }
    t = cli_table_create(n, by);
    json_array_foreach(rows, i, r)
    {
        cli_table_add(t, text_of(r, "kv"));
        cli_table_add(t, count_of(r, "ctx").s);
        json_array_foreach(cells, k, c) if (!strcmp(text_of(c, "kv"), text_of(r, "kv")) &&
                                            cli_number(c, "ctx") == cli_number(r, "ctx"))
            cli_table_add(t, cli_fixed(cli_number(c, "margin"), 2).s);
    }
    printf("\nMargin by depth (0 %%: the start of the text)\n");
    cli_table_print(t, stdout, 2);
}

static void print_cuts(const json_t *cuts)
{
    static const char *const headings[] = { "kv",          ">ctx",       ">cut",
                                            ">tokens",     ">cold loss", "prefix",
                                            ">difference", ">+-",        "" };
    cli_table *t = cli_table_create(sizeof headings / sizeof headings[0], headings);
    const json_t *r, *w;
    size_t i, k;
    json_array_foreach(cuts, i, r) json_array_foreach(json_object_get(r, "ways"), k, w)
        ADD(t, k ? "" : text_of(r, "kv"), k ? "" : count_of(r, "ctx").s,
            k ? "" : count_of(r, "cut").s, k ? "" : count_of(r, "tokens").s,
            k ? "" : cli_fixed(cli_number(r, "cold_loss"), 5).s, text_of(w, "way"),
            effect(w, "minus_cold").s, cli_fixed(cli_number(w, "minus_cold_se"), 5).s,
            json_is_true(json_object_get(w, "beyond_noise")) ? "beyond the noise" : "");
    printf("\nLoss behind a cut, by how the prefix before it came\n");
    cli_table_print(t, stdout, 2);
}

static void print_kv_error(const json_t *errors)
{
    static const char *const headings[] = { "kv",     ">ctx",     ">layer",      "part",
                                            "format", ">vectors", ">rounding %", ">error %" };
    cli_table *t = cli_table_create(sizeof headings / sizeof headings[0], headings);
    const json_t *e, *r;
    size_t i, k;
    json_array_foreach(errors, i, e) json_array_foreach(json_object_get(e, "rows"), k, r)
        ADD(t, k ? "" : text_of(e, "kv"), k ? "" : count_of(e, "ctx").s, count_of(r, "layer").s,
            text_of(r, "part"), text_of(r, "format"), count_of(r, "vectors").s,
            cli_fixed(100 * cli_number(r, "rounding"), 3).s,
            cli_fixed(100 * cli_number(r, "error"), 3).s);
    printf("\nStored KV against f32: rounded once, and as it is stored\n");
    cli_table_print(t, stdout, 2);
}

static void print_effects(const json_t *b)
{
    static const char *const headings[] = { "cause",  "exact", "full",
                                            ">alone", ">+-",   ">with the others",
                                            ">+-",    "judged" };
    cli_table *t = cli_table_create(sizeof headings / sizeof headings[0], headings);
    const json_t *c, *line;
    size_t i;
    json_array_foreach(json_object_get(b, "causes"), i, c)
        ADD(t, text_of(c, "cause"), text_of(c, "exact_is"), text_of(c, "full_is"),
            effect(c, "alone").s, cli_fixed(cli_number(c, "alone_se"), 5).s, effect(c, "last").s,
            cli_fixed(cli_number(c, "last_se"), 5).s, text_of(c, "judgement"));
    printf("  %s: exact %.5f, full %.5f\n", text_of(b, "what"), cli_number(b, "exact"),
           cli_number(b, "full"));
    cli_table_print(t, stdout, 2);
    json_array_foreach(json_object_get(b, "verdict"), i, line)
        printf("  - %s\n", json_string_value(line));
}

void cli_print_blame(const json_t *b)
{
    static const char *const headings[] = { "cause, alone", ">KL", ">over the control", ">+-", "" };
    printf("\nBlame: %s, context %s\n", text_of(b, "kv"), count_of(b, "ctx").s);
    print_effects(json_object_get(b, "loss"));
    cli_table *t = cli_table_create(sizeof headings / sizeof headings[0], headings);
    const json_t *r;
    size_t i;
    json_array_foreach(json_object_get(b, "kl"), i, r)
        ADD(t, text_of(r, "cause"), cli_fixed(cli_number(r, "kl"), 5).s,
            effect(r, "over_control").s, cli_fixed(cli_number(r, "over_control_se"), 5).s,
            json_is_true(json_object_get(r, "beyond_noise")) ? "beyond the noise" : "");
    printf("\n  KL to the exact baseline; control: all parts bf16\n");
    cli_table_print(t, stdout, 2);
    printf("  - %s\n", text_of(b, "kl_verdict"));
    if (json_is_object(json_object_get(b, "needle"))) {
        printf("\n");
        print_effects(json_object_get(b, "needle"));
    }
}

void cli_print_eval(const json_t *report)
{
    const json_t *rows = json_object_get(report, "rows"), *b;
    size_t i;
    if (json_array_size(rows)) {
        print_rows(rows);
        if (json_object_get(json_array_get(rows, 0), "reused_tokens"))
            print_store(rows);
    }
    if (json_object_get(report, "needle"))
        cli_print_needle(json_object_get(report, "needle"));
    if (json_object_get(report, "cuts"))
        print_cuts(json_object_get(report, "cuts"));
    if (json_object_get(report, "kv_error"))
        print_kv_error(json_object_get(report, "kv_error"));
    json_array_foreach(json_object_get(report, "blame"), i, b) cli_print_blame(b);
}

int cli_write_pictures(const cli_args *a, void (*add)(lab_report *, const json_t *),
                       const json_t *what, mote_err *err)
{
    if (!a->svg && !a->html)
        return MOTE_OK;
    char title[300], how[300];
    const char *name = a->operands[0];
    snprintf(title, sizeof title, "mote %s: %s", a->usage->command, name);
    const char *text = json_string_value(json_object_get(what, "text"));
    snprintf(how, sizeof how, "mote %s%s%s", mote_version(), text ? ", text: " : "",
             text ? text : "");
    lab_report *r = lab_report_create(title, how);
    if (r)
        add(r, what);
    int rc = lab_report_write(r, a->svg, a->html, err);
    lab_report_destroy(r);
    return rc;
}
