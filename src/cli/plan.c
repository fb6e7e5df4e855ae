/* mote plan: the sums before loading, for people. The numbers come from mote_plan_json; the comparison with other formats asks it
 * once per format. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/eval.h"
#include "cli/gen.h"
#include "cli/opts.h"
#include "cli/out.h"
#include "lab/report.h"

enum { O_CTX = 1200, O_RAM };
enum { MAX_CONTEXT = 1 << 30, MAX_CONTEXTS = 4096 };      /* as mote_plan_json has them */

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
        CLI_ROW_PROFILE,
        CLI_ROWS_PICTURES,
        CLI_ROW_JSON,
        CLI_ROW_END,
    },
    .notes = "Formula: bytes per token = sum over KV sources of (main entry + index entry) / ratio, with\n"
             "entry = values x bits / 8 + values / group for the scales. Published model: (288 + 68) x (3 x 1/2 + 1) = 890.\n"
             "Windows cost the same at every length. The classical cache keeps K and V of every layer and attention\n"
             "head in BF16.\n"
             "Llama-style models keep keys and values of every layer; each part has its format (--kv key=fp8,value=fp4).\n"
             "JSON: global_bytes_per_token, main_bytes_per_token and index_bytes_per_token (or key_ and value_, see\n"
             "part_names), window_bytes_per_sequence, runs (this mote can run the model) and runs_note (why not),\n"
             "contexts[] {ctx, global_bytes, total_bytes}, weights {dense, routed_experts, engram, other}, family,\n"
             "classical_bytes_per_token, and more.\n"
             "\n"
             "examples:\n"
             "  mote plan models/nano\n"
             "  mote plan config.json --ctx 4K,1M --ram 512G --kv fp8",
};

/* `path`'s plan with format `kv` (NULL: default), parsed. */
static int ask(json_t **root, const char *path, const char *kv, const uint64_t *ctxs, size_t n_ctxs, uint64_t ram,
               mote_err *err)
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
    snprintf(s, sizeof buffers[0], "%.7g", v);
    return s;
}

/* "1.85 GiB" or "-" */
static void add_bytes(cli_table *t, const json_t *o, const char *key) { cli_table_add(t, bytes_of(o, key)); }
static void add_exact(cli_table *t, const json_t *o, const char *key)
{
    cli_table_add(t, json_is_number(json_object_get(o, key)) ? exact(number(o, key)) : "-");
}
static void add_text(cli_table *t, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    cli_table_add(t, text ? text : "-");
}
static void add_times(cli_table *t, double a, double b)
{
    char text[32] = "-";
    if (a > 0 && b > 0)
        snprintf(text, sizeof text, a >= b ? "%.1f x" : "%.3f x", a / b);
    cli_table_add(t, text);
}

/* Fields are called by the family's parts, "main" and "index" or "key" and "value": the i-th part's field that ends in `rest`.
 * Valid until the fourth next call. */
static const char *part_key(const json_t *plan, int i, const char *rest)
{
    static char keys[4][64];
    static int turn;
    char *key = keys[turn++ & 3];
    const char *name = json_string_value(json_array_get(json_object_get(plan, "part_names"), (size_t)i));
    snprintf(key, sizeof keys[0], "%s_%s", name ? name : "?", rest);
    return key;
}

static int has_keys(const json_t *plan)
{
    const char *name = json_string_value(json_array_get(json_object_get(plan, "part_names"), 0));
    return name && !strcmp(name, "key");
}

/* What people call the parts. */
static const char *part_title(const json_t *plan, int i)
{
    static const char *const titles[2][2] = { { "main KV", "indexer keys" }, { "keys", "values" } };
    return titles[has_keys(plan)][i];
}

static void print_cache(const json_t *plan)
{
    static const char *const headings[] = { "part", ">bytes", ">codes", ">scales" };
    const json_t *parts = json_object_get(plan, "parts");
    const char *kv = json_string_value(json_object_get(plan, "kv"));
    double classical = number(plan, "classical_bytes_per_token"), global = number(plan, "global_bytes_per_token");
    printf("\nCache, bytes per token%s%s%s\n", kv ? " (" : "", kv ? kv : "", kv ? ")" : "");
    cli_table *t = cli_table_create(4, headings);
    for (int i = 0; i < 2; i++) {
        cli_table_add(t, part_title(plan, i));
        add_exact(t, plan, part_key(plan, i, "bytes_per_token"));
        add_exact(t, parts, part_key(plan, i, "codes"));
        add_exact(t, parts, part_key(plan, i, "scales"));
    }
    cli_table_add(t, "together");
    add_exact(t, plan, "global_bytes_per_token");
    cli_table_print(t, stdout, 2);
    if (classical > 0 && global > 0)
        printf("  classical, for comparison: %s, %.1f times as much (K and V of every layer and head in BF16)\n",
               exact(classical), classical / global);
    if (number(plan, "window_bytes_per_sequence") > 0)
        printf("  windows: %s a sequence, whatever its length\n", bytes_of(plan, "window_bytes_per_sequence"));
}

static void print_sources(const json_t *plan)
{
    const char *const headings[] = { ">layer",   ">layers", ">tokens/entry", has_keys(plan) ? "key" : "main",
                                     ">B/entry", has_keys(plan) ? "value" : "index", ">B/entry", ">B/token" };
    const json_t *rows = json_object_get(plan, "sources"), *row;
    if (!json_array_size(rows))
        return;
    printf("\nWhat is stored\n");
    cli_table *t = cli_table_create(8, headings);
    size_t i;
    json_array_foreach(rows, i, row) {
        add_exact(t, row, "layer");
        add_exact(t, row, "layers");
        add_exact(t, row, "ratio");
        for (int k = 0; k < 2; k++) {
            add_text(t, row, part_key(plan, k, "format"));
            add_exact(t, row, part_key(plan, k, "bytes_per_entry"));
        }
        add_exact(t, row, "bytes_per_token");
    }
    cli_table_print(t, stdout, 2);
}

static void print_contexts(const json_t *plan)
{
    static const char *const headings[] = { ">context", ">global KV", ">with windows", ">classical" };
    const json_t *rows = json_object_get(plan, "contexts"), *row;
    if (!json_array_size(rows))
        return;
    printf("\nOne sequence at a context of\n");
    cli_table *t = cli_table_create(4, headings);
    size_t i;
    json_array_foreach(rows, i, row) {
        add_exact(t, row, "ctx");
        add_bytes(t, row, "global_bytes");
        add_bytes(t, row, "total_bytes");
        add_bytes(t, row, "classical_bytes");
    }
    cli_table_print(t, stdout, 2);
}

static void print_weights(const json_t *plan)
{
    static const char *const headings[] = { "class", ">bytes", ">" };
    const json_t *weights = json_object_get(plan, "weights");
    const char *note = json_string_value(json_object_get(plan, "weights_note")), *key;
    json_t *v;
    if (!json_is_object(weights))
        return;
    printf("\nWeights\n");
    cli_table *t = cli_table_create(3, headings);
    json_object_foreach((json_t *)weights, key, v) {
        cli_table_add(t, key);
        add_exact(t, weights, key);
        add_bytes(t, weights, key);
    }
    cli_table_print(t, stdout, 2);
    if (note)
        printf("  %s\n", note);
}

static void print_formats(const char *path, const json_t *plan)
{
    static const char *const words[] = { "fp4", "mxfp4", "fp4-32", "fp4-64", "fp4-128", "fp8", "bf16", "f32" };
    const char *const headings[] = {
        "--kv", has_keys(plan) ? ">keys" : ">main KV", has_keys(plan) ? ">values" : ">indexer keys", ">together", ">less than classical",
        ">windows"
    };
    double classical = number(plan, "classical_bytes_per_token");
    cli_table *t = NULL;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        json_t *other = NULL;
        mote_err ignored;
        /* a family that does not know the format is simply not in the table */
        if (ask(&other, path, words[i], NULL, 0, 0, &ignored))
            continue;
        t = t ? t : cli_table_create(6, headings);
        cli_table_add(t, words[i]);
        add_exact(t, other, part_key(other, 0, "bytes_per_token"));
        add_exact(t, other, part_key(other, 1, "bytes_per_token"));
        add_exact(t, other, "global_bytes_per_token");
        add_times(t, classical, number(other, "global_bytes_per_token"));
        add_bytes(t, other, "window_bytes_per_sequence");
        json_decref(other);
    }
    if (t)
        printf("\nWith another %sformat, bytes per token\n", has_keys(plan) ? "" : "main ");
    cli_table_print(t, stdout, 2);
}

static void print_references(const json_t *plan)
{
    static const char *const headings[] = { "model", ">bytes/token", ">of this" };
    const json_t *rows = json_object_get(plan, "references"), *row;
    if (!json_array_size(rows))
        return;
    printf("\nOther models\n");
    cli_table *t = cli_table_create(3, headings);
    size_t i;
    json_array_foreach(rows, i, row) {
        add_text(t, row, "name");
        add_exact(t, row, "global_bytes_per_token");
        add_times(t, number(row, "global_bytes_per_token"), number(plan, "global_bytes_per_token"));
    }
    cli_table_print(t, stdout, 2);
}

static void print_ram(const json_t *plan)
{
    static const char *const headings[] = { "weights",        ">in memory", ">left for caches", ">context that fits",
                                            ">full contexts", "limited by" };
    static const char *const ways[] = { "resident", "streamed", "mapped" };
    static const char *const shown[] = { "all resident", "experts streamed", "mapped, none counted" };
    const json_t *ram = json_object_get(plan, "ram");
    if (!json_is_object(ram))
        return;
    printf("\nWhat fits in %s (weights: %s)\n", bytes_of(ram, "bytes"), bytes_of(ram, "weights_bytes"));
    cli_table *t = cli_table_create(6, headings);
    for (size_t i = 0; i < 3; i++) {
        const json_t *way = json_object_get(ram, ways[i]);
        if (!json_is_object(way))
            continue;
        cli_table_add(t, shown[i]);
        add_bytes(t, way, "resident_weight_bytes");
        add_bytes(t, way, "left_bytes");
        add_exact(t, way, "fits_ctx");
        add_exact(t, way, "sequences_at_max_context");
        add_text(t, way, "limited_by");
    }
    cli_table_print(t, stdout, 2);
}

static void print_plan(const char *path, const json_t *plan)
{
    const char *family = json_string_value(json_object_get(plan, "family"));
    const json_t *parameters = json_object_get(plan, "n_parameters");
    printf("%s: %s, %s layers, context %s", path, family ? family : "?", exact(number(plan, "layers")),
           exact(number(plan, "max_context")));
    if (json_is_integer(parameters))
        printf(", %s parameters", cli_count((uint64_t)json_integer_value(parameters)));
    printf("\n");
    if (json_is_string(json_object_get(plan, "runs_note")))
        printf("  sums only, mote does not run it: %s\n", json_string_value(json_object_get(plan, "runs_note")));
    print_cache(plan);
    print_sources(plan);
    print_contexts(plan);
    print_weights(plan);
    print_ram(plan);
    print_formats(path, plan);
    print_references(plan);
}

static int is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
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
            if (n_ctxs > MAX_CONTEXTS)
                cli_usage_error(&a, "--ctx: %zu lengths, at most %d", n_ctxs, MAX_CONTEXTS);
            for (size_t i = 0; i < n_ctxs; i++)
                if (ctxs[i] > MAX_CONTEXT)
                    cli_usage_error(&a, "--ctx: %s is over the limit of %s tokens", cli_count(ctxs[i]), cli_count(MAX_CONTEXT));
            break;
        case O_RAM: ram = cli_size(&a); break;
        }
    const char *path = cli_operand(&a, 0, "MODEL or CONFIG.JSON");
    cli_no_more_operands(&a, 1);

    mote_err err = { 0 };
    json_t *plan = NULL;
    int status = CLI_FAILED, bare = access(path, F_OK) == 0 && !is_folder(path);
    if (a.profile && bare)
        cli_say("mote: note: %s is a configuration alone: whether the profile was made for its model cannot be checked", path);
    int rc = bare ? MOTE_OK : cli_check_profile(&a, path, &err);
    if (!rc && (rc = ask(&plan, path, a.kv, ctxs, n_ctxs, ram, &err)) && a.kv)
        cli_kv_error("--kv", &a, &status, &err);
    if (!rc)
        rc = cli_write_pictures(&a, lab_report_plan, plan, &err);
    if (rc) {
        int reported = cli_report(&err);
        status = status == CLI_USAGE ? status : reported;
    } else if (a.json)
        status = cli_print_json(json_incref(plan), JSON_INDENT(2));
    else {
        print_plan(path, plan);
        status = cli_flush();
    }
    json_decref(plan);
    free(ctxs);
    return status;
}
