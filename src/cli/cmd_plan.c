/* mote plan: the sums before loading, for people. Every number comes from mote_plan_json; --disk
 * alone adds seconds to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/cmd_eval.h"
#include "cli/running.h"
#include "cli/opts.h"
#include "cli/out.h"
#include "lab/report.h"

enum { O_CTX = 1200, O_RAM, O_DISK };
enum { MAX_CONTEXT = 1 << 30, MAX_CONTEXTS = 4096 }; /* as mote_plan_json has them */

static const cli_usage usage = {
    .command = "plan",
    .operands = "MODEL|CONFIG.JSON",
    .about =
        "What a model will need before anything is loaded: cache bytes per token by part,\n"
        "bytes at each context length, weights by class, what a token reads and computes,\n"
        "what fits in memory, and what other cache formats or a classical cache would need. A\n"
        "bare config.json is enough; also for Llama-, Qwen- and Mistral-style models and\n"
        "DeepSeek V1 to V4.",
    .opts =
        (const cli_opt[]){
            CLI_ROW_HELP,
            { O_CTX, "ctx", "LIST",
              "context lengths in tokens, e.g. 4K,64K,1M (K = 1024); default: a few up to the\n"
              "model's" },
            { O_RAM, "ram", "SIZE",
              "memory to fit into, in bytes, e.g. 64G (G = 2^30); default: all of this\n"
              "machine's, or of the control group (container) that this runs in" },
            { O_DISK, "disk", "RATE",
              "bytes a second that your disk gives, e.g. 6.6G: how long reading what is not in\n"
              "memory takes" },
            CLI_ROW_KV,
            CLI_ROW_PROFILE,
            CLI_ROWS_PICTURES,
            CLI_ROW_JSON,
            CLI_ROW_END,
        },
    .notes =
        "Formula: bytes per token = sum over KV sources of (main entry + index entry) /\n"
        "ratio, with entry = values x bits / 8 + values / group for the scales. Published\n"
        "model: (288 + 68) x (3 x 1/2 + 1) = 890.\n"
        "Windows cost the same at every length; in models whose layers slide (Mistral) they\n"
        "grow until they are full.\n"
        "The classical cache keeps K and V of every layer and attention head in BF16.\n"
        "Llama-style models keep keys and values of every layer; each part has its format\n"
        "(--kv key=fp8,value=fp4).\n"
        "Where memory is short, weights are mapped and the system pages them: what it then\n"
        "reads is an estimate (docs/plan.md), with all experts equally likely. mote has no\n"
        "cache of experts of its own yet.\n"
        "JSON: bytes_per_token, main_bytes_per_token and index_bytes_per_token (or key_ and\n"
        "value_, see part_names), window_bytes_per_sequence, runs (this mote can run the\n"
        "model) and runs_note (why not), contexts[] {ctx, global_bytes, total_bytes,\n"
        "answer_flops}, parameters and weights {dense, routed_experts, engram, draft, vision,\n"
        "other, total}, token {prompt, answer}, ram {bytes, source, resident, mapped}, and\n"
        "more.\n"
        "\n"
        "examples:\n"
        "  mote plan models/nano\n"
        "  mote plan config.json --ctx 4K,1M --ram 64G --disk 6.6G",
};

/* `path`'s plan with format `kv` (NULL: default), parsed. */
static int ask(json_t **root, const char *path, const char *kv, const uint64_t *ctxs, size_t n_ctxs,
               uint64_t ram, mote_err *err)
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

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}
static cli_text bytes_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? cli_bytes(json_number_value(v)) : (cli_text){ "-" };
}

/* "890", "5,242,880" or "17.25" */
static cli_text exact(double v)
{
    cli_text t;
    lab_count_text(t.s, v);
    return t;
}

/* "1.85 GiB" or "-" */
static void add_bytes(cli_table *t, const json_t *o, const char *key)
{
    cli_table_add(t, bytes_of(o, key).s);
}
static void add_exact(cli_table *t, const json_t *o, const char *key)
{
    cli_table_add(t, json_is_number(json_object_get(o, key)) ? exact(number(o, key)).s : "-");
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

/* Fields are called by the family's parts, "main" and "index" or "key" and "value": the i-th part's
 * field that ends in `rest`. */
static cli_text part_key(const json_t *plan, int i, const char *rest)
{
    cli_text key;
    const char *name = json_string_value(
        json_array_get(json_object_get(plan, "part_names"), (size_t)i));
    snprintf(key.s, sizeof key.s, "%s_%s", name ? name : "?", rest);
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

/* "748.5 B" */
static cli_text parameters(double v)
{
    cli_text t;
    lab_parameters_text(t.s, v);
    return t;
}

/* "15.8 GFLOP" */
static void add_flops(cli_table *t, const json_t *o, const char *key)
{
    char text[24] = "-";
    if (json_is_number(json_object_get(o, key)))
        lab_thousands_text(text, number(o, key), "FLOP");
    cli_table_add(t, text);
}

static void print_cache(const json_t *plan)
{
    static const char *const headings[] = { "part", ">bytes", ">codes", ">scales" };
    const json_t *parts = json_object_get(plan, "parts");
    const char *kv = json_string_value(json_object_get(plan, "kv"));
    double classical = number(plan, "classical_bytes_per_token"),
           each = number(plan, "bytes_per_token");
    double filling = number(plan, "window_bytes_per_token"),
           whole = number(plan, "window_bytes_per_sequence");
    printf("\nCache, bytes per token%s%s%s\n", kv ? " (" : "", kv ? kv : "", kv ? ")" : "");
    cli_table *t = cli_table_create(4, headings);
    for (int i = 0; i < 2; i++) {
        cli_table_add(t, part_title(plan, i));
        add_exact(t, plan, part_key(plan, i, "bytes_per_token").s);
        add_exact(t, parts, part_key(plan, i, "codes").s);
        add_exact(t, parts, part_key(plan, i, "scales").s);
    }
    cli_table_add(t, "together");
    add_exact(t, plan, "bytes_per_token");
    cli_table_print(t, stdout, 2);
    if (filling > 0)
        printf("  up to %s tokens; then the windows are full (%s), and %s\n",
               exact(number(plan, "window_tokens")).s, cli_bytes(whole).s,
               number(plan, "global_bytes_per_token") > 0
                   ? exact(number(plan, "global_bytes_per_token")).s
                   : "nothing more");
    if (classical > 0 && each > 0)
        printf("  classical: %s, %.1f times as much (K and V of all heads in BF16)\n",
               exact(classical).s, classical / each);
    if (whole > 0 && !(filling > 0))
        printf("  windows: %s a sequence, whatever its length\n", cli_bytes(whole).s);
}

static void print_sources(const json_t *plan)
{
    const char *const headings[] = { ">layer",        ">layers",
                                     ">tokens/entry", has_keys(plan) ? "key" : "main",
                                     ">B/entry",      has_keys(plan) ? "value" : "index",
                                     ">B/entry",      ">B/token",
                                     ">window" };
    const json_t *rows = json_object_get(plan, "sources"), *row;
    if (!json_array_size(rows))
        return;
    printf("\nWhat is stored\n");
    cli_table *t = cli_table_create(number(plan, "window_bytes_per_token") > 0 ? 9 : 8, headings);
    size_t i;
    json_array_foreach(rows, i, row)
    {
        add_exact(t, row, "layer");
        add_exact(t, row, "layers");
        add_exact(t, row, "ratio");
        for (int k = 0; k < 2; k++) {
            add_text(t, row, part_key(plan, k, "format").s);
            add_exact(t, row, part_key(plan, k, "bytes_per_entry").s);
        }
        add_exact(t, row, "bytes_per_token");
        if (number(plan, "window_bytes_per_token") > 0)
            add_exact(t, row, "window");
    }
    cli_table_print(t, stdout, 2);
}

static void print_contexts(const json_t *plan)
{
    static const char *const headings[] = { ">context", ">growing", ">windows", ">together",
                                            ">classical" };
    const json_t *rows = json_object_get(plan, "contexts"), *row;
    if (!json_array_size(rows))
        return;
    printf("\nCache of one sequence at a context of\n");
    cli_table *t = cli_table_create(5, headings);
    size_t i;
    json_array_foreach(rows, i, row)
    {
        add_exact(t, row, "ctx");
        add_bytes(t, row, "global_bytes");
        add_bytes(t, row, "window_bytes");
        add_bytes(t, row, "total_bytes");
        add_bytes(t, row, "classical_bytes");
    }
    cli_table_print(t, stdout, 2);
}

static void print_note(const json_t *plan)
{
    const char *note = json_string_value(json_object_get(plan, "weights_note"));
    for (size_t n; note && *note; note += n + 2 * (note[n] == ';')) {
        n = strcspn(note, ";");
        printf("  %.*s\n", (int)n, note);
    }
}

static void print_weights(const json_t *plan)
{
    static const char *const headings[] = { "class", ">parameters", ">bytes", ">size" };
    static const char *const shown[] = { "dense",  "routed_experts", "engram", "draft",
                                         "vision", "other",          "total" };
    const json_t *weights = json_object_get(plan, "weights"),
                 *parameters = json_object_get(plan, "parameters");
    if (json_is_object(weights) || json_is_object(parameters)) {
        printf("\nWeights\n");
        cli_table *t = cli_table_create(4, headings);
        for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
            if (number(weights, shown[i]) + number(parameters, shown[i]) <= 0)
                continue;
            char class[40];
            snprintf(class, sizeof class, "%s%s", shown[i], i >= 3 && i < 6 ? " (not loaded)" : "");
            cli_table_add(t, class);
            add_exact(t, parameters, shown[i]);
            add_exact(t, weights, shown[i]);
            add_bytes(t, weights, shown[i]);
        }
        cli_table_print(t, stdout, 2);
        if (json_is_integer(json_object_get(plan, "header_bytes")))
            printf("  headers of the files: %s bytes more\n",
                   exact(number(plan, "header_bytes")).s);
    } else if (json_is_string(json_object_get(plan, "weights_note"))) {
        printf("\nWeights\n");
    }
    print_note(plan);
}

static void print_token(const json_t *plan)
{
    static const char *const headings[] = { "a token of", ">parameters", ">weights read",
                                            ">experts", ">for them" };
    static const char *const work[] = { ">context", ">a prompt token", ">an answer token",
                                        ">cache it reads" };
    static const char *const names[] = { "prompt", "answer" };
    const json_t *token = json_object_get(plan, "token"), *rows = json_object_get(plan, "contexts"),
                 *row;
    if (!json_is_object(token))
        return;
    printf("\nWhat a token takes\n");
    cli_table *t = cli_table_create(5, headings);
    for (int i = 0; i < 2; i++) {
        const json_t *one = json_object_get(token, names[i]);
        cli_table_add(t, i ? "the answer" : "a prompt");
        add_exact(t, one, "active_parameters");
        add_bytes(t, one, "weight_bytes");
        add_bytes(t, one, "expert_bytes");
        add_flops(t, one, "weight_flops");
    }
    cli_table_print(t, stdout, 2);
    printf("  tokens of a prompt that are computed together read the weights they share once\n");
    printf("\nOperations with attention at a context of\n");
    t = cli_table_create(4, work);
    size_t i;
    json_array_foreach(rows, i, row)
    {
        add_exact(t, row, "ctx");
        add_flops(t, row, "prompt_flops");
        add_flops(t, row, "answer_flops");
        add_bytes(t, row, "answer_cache_read_bytes");
    }
    cli_table_print(t, stdout, 2);
}

static void print_formats(const json_t *plan)
{
    const char *const headings[] = { "--kv",
                                     has_keys(plan) ? ">keys" : ">main KV",
                                     has_keys(plan) ? ">values" : ">index",
                                     ">together",
                                     ">windows",
                                     ">classical is" };
    const json_t *rows = json_object_get(plan, "formats"), *row;
    printf("\nWith other formats, bytes per token\n");
    cli_table *t = cli_table_create(6, headings);
    size_t i;
    json_array_foreach(rows, i, row)
    {
        add_text(t, row, "option");
        add_exact(t, row, part_key(plan, 0, "bytes_per_token").s);
        add_exact(t, row, part_key(plan, 1, "bytes_per_token").s);
        add_exact(t, row, "bytes_per_token");
        add_bytes(t, row, "window_bytes_per_sequence");
        add_times(t, number(row, "classical_times"), 1);
    }
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
    json_array_foreach(rows, i, row)
    {
        add_text(t, row, "name");
        add_exact(t, row, "global_bytes_per_token");
        add_times(t, number(row, "times"), 1);
    }
    cli_table_print(t, stdout, 2);
}

/* Beside the weights, what a sequence may hold; or why there is nothing to say. */
static void print_resident(const json_t *plan, const json_t *ram)
{
    const json_t *way = json_object_get(ram, "resident");
    if (!json_is_object(way)) {
        printf("  caches alone: context %s of %s\n",
               exact(number(json_object_get(ram, "mapped"), "fits_ctx")).s,
               exact(number(plan, "max_context")).s);
        return;
    }
    printf("  all weights in memory: %s, ", bytes_of(way, "resident_weight_bytes").s);
    if (!strcmp(json_string_value(json_object_get(way, "limited_by")), "weights")) {
        printf("they do not fit\n");
        return;
    }
    printf("%s left for caches:\n  context %s%s, or %s sequences of %s tokens\n",
           bytes_of(way, "left_bytes").s, exact(number(way, "fits_ctx")).s,
           number(way, "fits_ctx") < number(plan, "max_context") ? "" : " (the model's)",
           exact(number(way, "sequences_at_max_context")).s, exact(number(plan, "max_context")).s);
}

/* What AUTO would do, group by group. */
static void print_placed(const json_t *ram)
{
    static const char *const modes[] = { "copy", "stream", "map" }, *const words[] = { "copied",
                                                                                       "streamed",
                                                                                       "mapped" };
    json_t *groups = json_object_get(ram, "placed"), *group;
    const char *name;
    if (!json_is_object(groups))
        return;
    printf("  when it is opened: ");
    for (int m = 0, any = 0; m < 3; m++) {
        int here = 0;
        json_object_foreach(groups, name, group)
        {
            if (number(group, "bytes") <= 0 ||
                strcmp(json_string_value(json_object_get(group, "auto")), modes[m]))
                continue;
            printf("%s%s", here ? ", " : any ? "; " : "", name);
            here = any = 1;
        }
        if (here)
            printf(" %s", words[m]);
    }
    printf("\n");
}

static void print_ram(const json_t *plan)
{
    static const char *const headings[] = { ">context", ">pages",      ">experts", ">disk/token",
                                            ">s",       ">disk/chunk", ">s" };
    static const char *const plain[] = { ">context", ">pages", ">experts", ">disk/token",
                                         ">disk/chunk" };
    const json_t *ram = json_object_get(plan, "ram"),
                 *rows = json_object_get(json_object_get(ram, "mapped"), "contexts"), *row;
    if (!json_is_object(ram))
        return;
    const char *source = json_string_value(json_object_get(ram, "source"));
    int given = !strcmp(source, "given"),
        timed = json_is_number(json_object_get(ram, "disk_bytes_per_second")), short_of = 0;
    printf("\nWhat fits in %s%s", bytes_of(ram, "bytes").s,
           given                        ? ""
           : !strcmp(source, "machine") ? " of this machine"
                                        : " of this control group");
    if (!given)
        printf(" (%s free now)", bytes_of(ram, "available_bytes").s);
    printf("\n");
    print_resident(plan, ram);
    print_placed(ram);
    size_t i;
    json_array_foreach(rows, i, row) short_of |= json_is_null(json_object_get(row, "page_bytes")) ||
                                                 number(row, "answer_disk_bytes") > 0;
    if (!short_of || !json_is_object(json_object_get(ram, "resident")))
        return;
    printf("  weights mapped, paged by the system; an estimate: every expert equally likely,\n"
           "  a token of the answer, and a chunk of a prompt at most%s\n",
           timed ? "" : " (--disk RATE: seconds)");
    cli_table *t = timed ? cli_table_create(7, headings) : cli_table_create(5, plain);
    json_array_foreach(rows, i, row)
    {
        add_exact(t, row, "ctx");
        add_bytes(t, row, "page_bytes");
        add_bytes(t, row, "experts_in_memory_bytes");
        add_bytes(t, row, "answer_disk_bytes");
        if (timed)
            cli_table_add(t, cli_fixed(cli_number(row, "answer_disk_seconds"), 2).s);
        add_bytes(t, row, "prompt_chunk_disk_bytes");
        if (timed)
            cli_table_add(t, cli_fixed(cli_number(row, "prompt_chunk_disk_seconds"), 1).s);
    }
    cli_table_print(t, stdout, 2);
    if (timed)
        printf("  at %s a second, as given; page faults rarely get a disk's full rate\n",
               bytes_of(ram, "disk_bytes_per_second").s);
}

static void print_parameters(const json_t *plan)
{
    const json_t *p = json_object_get(plan, "parameters");
    if (!json_is_object(p))
        return;
    printf("  %s parameters", parameters(number(plan, "n_parameters")).s);
    if (number(p, "engram") > 0)
        printf(": %s backbone + %s Engram",
               parameters(number(p, "dense") + number(p, "routed_experts")).s,
               parameters(number(p, "engram")).s);
    printf("\n");
    double draft = number(p, "draft"), vision = number(p, "vision");
    if (draft + vision > 0)
        printf("  and, not run:%s%s%s%s%s\n", draft > 0 ? " draft layers " : "",
               draft > 0 ? parameters(draft).s : "", draft > 0 && vision > 0 ? "," : "",
               vision > 0 ? " vision " : "", vision > 0 ? parameters(vision).s : "");
}

static void print_plan(const char *path, const json_t *plan)
{
    const char *family = json_string_value(json_object_get(plan, "family"));
    printf("%s\n  %s, %s layers, context %s\n", path, family ? family : "?",
           exact(number(plan, "layers")).s, exact(number(plan, "max_context")).s);
    print_parameters(plan);
    const char *note = json_string_value(json_object_get(plan, "runs_note")),
               *config = json_string_value(json_object_get(plan, "path"));
    size_t n = note && config && !strncmp(note, config, strlen(config)) &&
                       !strncmp(note + strlen(config), ": ", 2)
                   ? strlen(config) + 2
                   : 0;
    if (note)
        printf("  sums only, mote does not run it:\n  %s\n", note + n);
    print_cache(plan);
    print_sources(plan);
    print_contexts(plan);
    print_weights(plan);
    print_token(plan);
    print_ram(plan);
    print_formats(plan);
    print_references(plan);
}

/* Seconds for what a disk of that rate has to give. */
static void add_disk(const json_t *plan, double rate)
{
    static const char *const keys[][2] = { { "answer_disk_bytes", "answer_disk_seconds" },
                                           { "prompt_chunk_disk_bytes",
                                             "prompt_chunk_disk_seconds" } };
    json_t *ram = json_object_get(plan, "ram"), *row;
    if (!json_is_object(ram))
        return;
    json_object_set_new(ram, "disk_bytes_per_second", json_real(rate));
    size_t i;
    json_array_foreach(json_object_get(json_object_get(ram, "mapped"), "contexts"), i,
                       row) for (size_t k = 0; k < 2; k++)
    {
        const json_t *v = json_object_get(row, keys[k][0]);
        json_object_set_new(row, keys[k][1],
                            json_is_integer(v) ? json_real(json_number_value(v) / rate)
                                               : json_null());
    }
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
    uint64_t *ctxs = NULL, ram = 0, disk = 0;
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
                    cli_usage_error(&a, "--ctx: %s is over the limit of %s tokens",
                                    cli_count(ctxs[i]).s, cli_count(MAX_CONTEXT).s);
            break;
        case O_RAM: ram = cli_size(&a); break;
        case O_DISK: disk = cli_size(&a); break;
        }
    const char *path = cli_operand(&a, 0, "MODEL or CONFIG.JSON");
    cli_no_more_operands(&a, 1);

    mote_err err = { 0 };
    json_t *plan = NULL;
    int status = CLI_FAILED, bare = access(path, F_OK) == 0 && !is_folder(path);
    if (a.profile && bare)
        cli_say("mote: note: %s is a configuration alone: whether the profile was made for its "
                "model cannot be checked",
                path);
    int rc = cli_profile_load(&a, bare ? NULL : path, &err);
    if (!rc && (rc = ask(&plan, path, a.kv, ctxs, n_ctxs, ram, &err)) && a.kv)
        cli_kv_error("--kv", &a, &status, &err);
    if (!rc && disk)
        add_disk(plan, (double)disk);
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
