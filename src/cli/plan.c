/* mote plan: the sums before loading, for people. The numbers come from mote_plan_json; the comparison with other formats asks it
 * once per format. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/opts.h"
#include "cli/out.h"

enum { O_CTX = 1200, O_RAM };

static const cli_usage usage = {
    .command = "plan",
    .operands = "MODEL|CONFIG.JSON",
    .about = "What a model will need before anything is loaded: cache bytes per token by part, bytes at each context length,\n"
             "weights by class, what fits in memory, and what other cache formats or a classical cache would need. A bare\n"
             "config.json is enough; also for Llama-, Qwen- and Mistral-style models and DeepSeek V1 to V4.",
    .opts = (const cli_opt[]){
        CLI_ROW_HELP,
        { O_CTX, "ctx", "LIST", "context lengths in tokens, e.g. 4K,64K,1M (K = 1024); default: a few up to the model's" },
        { O_RAM, "ram", "SIZE", "memory to fit into, in bytes, e.g. 64G (G = 2^30): what context fits" },
        CLI_ROW_KV,
        CLI_ROW_JSON,
        CLI_ROW_END,
    },
    .notes = "Formula: bytes per token = sum over KV sources of (main entry + index entry) / ratio, with\n"
             "entry = values x bits / 8 + values / group for the scales. Published model: (288 + 68) x (3 x 1/2 + 1) = 890.\n"
             "Windows cost the same at every length. The classical cache keeps K and V of every layer and KV head in BF16.\n"
             "JSON: global_bytes_per_token, main_bytes_per_token, index_bytes_per_token, window_bytes_per_sequence,\n"
             "contexts[] {ctx, global_bytes, total_bytes}, weights {dense, routed_experts, engram, other}, family,\n"
             "classical_bytes_per_token, and more.\n"
             "\n"
             "examples:\n"
             "  mote plan models/nano\n"
             "  mote plan config.json --ctx 4K,1M --ram 512G --kv fp8",
};

/* `path`'s plan with format `kv` (NULL: default), parsed. */
static int ask(json_t **root, const char *path, const char *kv, const uint64_t *ctxs, size_t n_ctxs, uint64_t ram, mote_err *err)
{
    char *text = NULL;
    *root = NULL;
    int rc = mote_plan_json(&text, path, kv, ctxs, n_ctxs, ram, err);
    if (rc)
        return rc;
    *root = json_loads(text, 0, NULL);
    mote_free(text);
    return *root ? MOTE_OK : mote__fail(err, MOTE_ENOMEM, "out of memory");
}

static double number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }
static const char *bytes_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? cli_bytes(json_number_value(v)) : "-";
}

/* 890 or 17.25, never 17.250000 */
static const char *exact(double v)
{
    static char buffers[8][32];
    static unsigned next;
    char *s = buffers[next++ % 8];
    if (v >= 1000 && v == (double)(uint64_t)v)
        return cli_count((uint64_t)v);
    snprintf(s, sizeof buffers[0], "%.6g", v);
    return s;
}

static void print_formats(const char *path, const char *kv, const json_t *plan)
{
    static const char *const words[] = { "fp4", "mxfp4", "fp4-32", "fp4-64", "fp4-128", "fp8", "bf16", "f32" };
    static const char *const headings[] = { "main format", ">main", ">index", ">bytes/token", ">of classical", ">windows" };
    double classical = number(plan, "classical_bytes_per_token");
    cli_table *t = NULL;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        json_t *other = NULL;
        mote_err ignored;
        /* a family that does not know the format is simply not in the table */
        if (ask(&other, path, words[i], NULL, 0, 0, &ignored))
            continue;
        double global = number(other, "global_bytes_per_token");
        t = t ? t : cli_table_create(6, headings);
        cli_table_add(t, words[i]);
        cli_table_add(t, exact(number(other, "main_bytes_per_token")));
        cli_table_add(t, exact(number(other, "index_bytes_per_token")));
        cli_table_add(t, exact(global));
        char ratio[32] = "-";
        if (classical > 0 && global > 0)
            snprintf(ratio, sizeof ratio, "1/%.1f", classical / global);
        cli_table_add(t, ratio);
        cli_table_add(t, bytes_of(other, "window_bytes_per_sequence"));
        json_decref(other);
    }
    if (!t)
        return;
    printf("\nOther formats of the main cache (%s)\n", kv ? "the rest at its default" : "now: fp4");
    cli_table_print(t, stdout, 2);
}

static void print_contexts(const json_t *plan)
{
    static const char *const headings[] = { ">context", ">global KV", ">in all" };
    const json_t *rows = json_object_get(plan, "contexts"), *row;
    if (!json_array_size(rows))
        return;
    printf("\nAt a context of\n");
    cli_table *t = cli_table_create(3, headings);
    size_t i;
    json_array_foreach(rows, i, row) {
        cli_table_add(t, cli_count((uint64_t)number(row, "ctx")));
        cli_table_add(t, bytes_of(row, "global_bytes"));
        cli_table_add(t, bytes_of(row, "total_bytes"));
    }
    cli_table_print(t, stdout, 2);
}

static void print_plan(const char *path, const char *kv, const json_t *plan)
{
    const char *family = json_string_value(json_object_get(plan, "family"));
    double classical = number(plan, "classical_bytes_per_token"), global = number(plan, "global_bytes_per_token");
    printf("%s: %s\n\nCache, bytes per token%s%s%s\n", path, family ? family : "?", kv ? " (" : "", kv ? kv : "", kv ? ")" : "");
    printf("  main KV       %10s\n", exact(number(plan, "main_bytes_per_token")));
    printf("  indexer keys  %10s\n", exact(number(plan, "index_bytes_per_token")));
    printf("  together      %10s\n", exact(global));
    if (classical > 0)
        printf("  classical     %10s   %.1f times as much (K and V of every layer, BF16)\n", exact(classical),
               global > 0 ? classical / global : 0);
    printf("  and windows of %s a sequence, whatever its length\n", bytes_of(plan, "window_bytes_per_sequence"));
    print_contexts(plan);
    const json_t *weights = json_object_get(plan, "weights");
    if (json_is_object(weights)) {
        printf("\nWeights\n");
        cli_view_json(stdout, weights, 2, NULL);
    }
    print_formats(path, kv, plan);

    /* whatever else the plan says: what fits, notes */
    static const char *const shown[] = {
        "global_bytes_per_token", "main_bytes_per_token", "index_bytes_per_token", "window_bytes_per_sequence", "contexts",
        "weights", "family", "classical_bytes_per_token", "path", "kv", NULL
    };
    const char *key;
    json_t *v, *rest = json_copy((json_t *)plan);
    for (size_t i = 0; rest && shown[i]; i++)
        json_object_del(rest, shown[i]);
    int any = 0;
    json_object_foreach(rest, key, v)
        any = 1;
    if (any) {
        printf("\nMore\n");
        cli_view_json(stdout, rest, 2, NULL);
    }
    json_decref(rest);
}

int cli_plan(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    uint64_t *ctxs = NULL, ram = 0;
    size_t n_ctxs = 0;
    int id;
    while ((id = cli_next(&a)) != CLI_END)
        switch (id) {
        case O_CTX:
            free(ctxs);
            ctxs = cli_sizes(&a, &n_ctxs);
            break;
        case O_RAM: ram = cli_size(&a); break;
        }
    const char *path = cli_operand(&a, 0, "MODEL or CONFIG.JSON");
    cli_no_more_operands(&a, 1);

    mote_err err = { 0 };
    json_t *plan = NULL;
    int status;
    if (ask(&plan, path, a.kv, ctxs, n_ctxs, ram, &err))
        status = cli_report(&err);
    else if (a.json)
        status = cli_print_json(json_incref(plan), JSON_INDENT(2));
    else {
        print_plan(path, a.kv, plan);
        status = cli_flush();
    }
    json_decref(plan);
    free(ctxs);
    return status;
}
