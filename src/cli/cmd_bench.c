/* mote bench: how fast mote is on this machine, as ratios to what the machine can do. The work is
 * mote_bench_json's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "bench/run.h"
#include "cli/cli.h"
#include "cli/opts.h"
#include "cli/out.h"

enum { O_GEOMETRY = 256, O_ONLY, O_QUICK, O_RUNS, O_TEXT, O_LIST };

static const cli_usage usage = {
    .command = "bench",
    .operands = "[MODEL]",
    .about = "How fast mote is on this machine. Each answer is checked first; then the machine's\n"
             "limits are measured in the same run with the same threads, and every row is a ratio\n"
             "to one of them. MODEL is a small checkpoint for the end-to-end rows of the parts\n"
             "nano, load and tokenizer, which are left out without it.",
    .opts =
        (const cli_opt[]){
            { O_GEOMETRY, "geometry", "NAME",
              "published: kernels and a whole model of the published shapes, with random\n"
              "weights and caches;\n"
              "nano: MODEL, end to end; default: both" },
            { O_ONLY, "only", "LIST", "parts to run, e.g. weights,topk (--list shows them)" },
            { O_LIST, "list", NULL, "list the parts and exit" },
            { O_RUNS, "runs", "N", "timed runs of each row, 1-99, default 7: the median counts" },
            { O_TEXT, "text", "FILE",
              "text for the tokenizer row, at least 4 MB for its target; may be given several\n"
              "times;\n"
              "default: MODEL/heldout.txt" },
            { O_QUICK, "quick", NULL,
              "tiny shapes, a few seconds: shows that the bench works; its figures mean nothing" },
            CLI_ROW_THREADS,
            CLI_ROW_WEIGHTS,
            CLI_ROW_JSON,
            CLI_ROW_HELP,
            CLI_ROW_END },
    .notes = "ratio is what the target is about: value / limit, or what the note says. spread is\n"
             "half the distance of the quartiles over the median. The default run takes minutes\n"
             "and under 6 GB of memory; run it on a quiet machine.\n"
             "\n"
             "examples:\n"
             "  mote bench models/nano\n"
             "  mote bench --only indexer,topk --threads 1\n"
             "  mote bench models/nano --json > bench.json",
};

static int list_parts(void)
{
    const char *summary;
    for (size_t i = 0; mote_bench_part(i, &summary); i++)
        printf("  %-10s %s\n", mote_bench_part(i, NULL), summary);
    return cli_flush();
}

static void check_parts(const cli_args *a, const char *list)
{
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t n = strcspn(at, ","), i = 0;
        const char *name;
        while ((name = mote_bench_part(i, NULL)) && (strlen(name) != n || strncmp(name, at, n)))
            i++;
        if (!name)
            cli_usage_error(a, "--only: there is no part '%.*s'; 'mote bench --list' names them",
                            (int)n, at);
    }
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* three or four digits, whatever the size */
static cli_text figure(double v)
{
    double size = fabs(v);
    return cli_fixed(v, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

static void print_limits(const char *what, const json_t *l)
{
    if (!l)
        return;
    printf("%s  read %s GB/s   FP32 FMA %s GFLOP/s   BF16 dot %s GFLOP/s   int8 VNNI %s GOP/s",
           what, figure(number(l, "read_gb_s")).s, figure(number(l, "fp32_fma_gflop_s")).s,
           figure(number(l, "bf16_dot_gflop_s")).s, figure(number(l, "int8_vnni_gop_s")).s);
    if (!isnan(number(l, "empty_loop_us")))
        printf("   empty loop %s us", figure(number(l, "empty_loop_us")).s);
    printf("\n");
}

static void print_rows(const json_t *rows)
{
    static const char *const headings[] = { "row",    "shape",   ">value", "unit",   ">limit",
                                            ">ratio", ">target", "",       ">spread" };
    cli_table *t = cli_table_create(sizeof headings / sizeof *headings, headings);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        const json_t *met = json_object_get(row, "met");
        double target = number(row, "target"), spread = number(row, "spread");
        char goal[40] = "-", noise[40] = "-";
        if (!isnan(target))
            snprintf(goal, sizeof goal, "%s%.4g",
                     json_is_true(json_object_get(row, "lower_is_better")) ? "<= " : ">= ", target);
        if (!isnan(spread))
            snprintf(noise, sizeof noise, "%.1f%%", spread * 100);
        cli_table_add(t, text_of(row, "name"));
        cli_table_add(t, text_of(row, "shape"));
        cli_table_add(t, figure(number(row, "value")).s);
        cli_table_add(t, text_of(row, "unit"));
        cli_table_add(t, figure(number(row, "limit")).s);
        cli_table_add(t, figure(number(row, "ratio")).s);
        cli_table_add(t, goal);
        cli_table_add(t, json_is_true(met) ? "met" : json_is_false(met) ? "missed" : "");
        cli_table_add(t, noise);
    }
    cli_table_print(t, stdout, 0);
}

static void print_bench(const json_t *o)
{
    print_limits("limits        ", json_object_get(o, "limits"));
    print_limits("  one thread  ", json_object_get(o, "limits_one_thread"));
    print_limits("  at the end  ", json_object_get(o, "limits_at_end"));
    printf("%.0f threads, %s kernels, load average %s before and %s after%s\n\n",
           number(o, "threads"), text_of(o, "kernels"), figure(number(o, "load_average_before")).s,
           figure(number(o, "load_average_after")).s,
           json_is_true(json_object_get(o, "quick")) ? ", QUICK: the figures mean nothing" : "");
    print_rows(json_object_get(o, "rows"));
    printf("\n%.0f s, at most %s of memory\n", number(o, "total_seconds"),
           cli_bytes(number(o, "peak_rss_bytes")).s);
}

int cli_bench(int argc, char **argv)
{
    static const char *const geometries[] = { "published", "nano", NULL };
    cli_args a;
    mote_bench_params p = { .progress = cli_progress_open };
    const char **texts = NULL;
    int id;
    cli_args_init(&a, &usage, argc, argv);
    while ((id = cli_next(&a)) != CLI_END)
        switch (id) {
        case O_GEOMETRY:
            p.geometry = cli_choice(&a, geometries) ? MOTE_BENCH_NANO : MOTE_BENCH_PUBLISHED;
            break;
        case O_ONLY: check_parts(&a, p.only = a.value); break;
        case O_RUNS: p.runs = (int)cli_uint(&a, 1, 99); break;
        case O_TEXT: cli_append(&texts, &p.n_texts, a.value); break;
        case O_QUICK: p.quick = 1; break;
        case O_LIST: free(texts); return list_parts();
        }
    p.model = a.n_operands ? cli_operand(&a, 0, "MODEL") : NULL;
    cli_no_more_operands(&a, 1);
    p.texts = texts;
    p.n_threads = a.n_threads;
    p.weights = a.weights;
    p.expert_ram = a.expert_ram;
    memcpy(p.place, a.place, sizeof p.place);

    mote_err err = { 0 };
    char *text = NULL;
    int rc = mote_bench_json(&text, &p, &err);
    cli_progress_clear();
    free(texts);
    json_t *root = rc ? NULL : json_loads(text, 0, NULL);
    mote_free(text);
    if (!rc && !root)
        rc = mote__fail(&err, MOTE_ENOMEM, "out of memory");
    if (rc)
        return cli_report(&err);
    if (a.json)
        return cli_print_json(root, JSON_INDENT(2));
    print_bench(root);
    json_decref(root);
    return cli_flush();
}
