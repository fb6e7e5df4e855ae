/* mote kv: look at a persistent store and maintain it. */
#include <ctype.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/opts.h"
#include "cli/out.h"
#include "cli/store_opts.h"

enum {
    O_REBUILD = 1300,
    O_SEGMENT,
    O_BUDGET,
    O_SNAP_BUDGET,
    O_TTL,
    O_SNAP_TTL,
    O_ALL,
    O_MODEL,
    O_KV,
    O_NAMESPACE,
    O_CONTEXT,
    O_TIMEOUT
};
enum { MAX_IDS = 64 };
/* Which options a verb knows. */
enum {
    HAS_REBUILD = 1,
    HAS_BUDGET = 2,
    HAS_TTL = 4,
    HAS_ALL = 8,
    HAS_CHOICE = 16,
    HAS_TIMEOUT = 32
};

static const cli_usage usage = {
    .command = "kv",
    .operands = "ls|stat|verify|gc|rm|export|import|check DIR [FILE|ID...]",
    .about =
        "The store in DIR: cache blocks of 256 tokens and snapshots that outlive the process.\n"
        "\n"
        "  ls      totals by context (model, formats, namespace); every block and snapshot: "
        "identity,\n"
        "          parent, tokens, provenance, last use\n"
        "  stat    sums: blocks, bytes, bytes per token\n"
        "  verify  read everything and drop what is damaged; status 1 if anything was\n"
        "  gc      remove what has expired, is over budget or out of reach, and give its room "
        "back\n"
        "  rm      remove blocks (with their descendants) or snapshots by identity, or "
        "--all, or\n"
        "          what --model, --kv, --namespace and --context choose\n"
        "  export  write all of it, or what they choose, into FILE; '-' is standard output\n"
        "  import  take what FILE ('-': standard input) holds; each record is checked as if it "
        "came\n"
        "          from disk\n"
        "  check   DIR,redis://host... or redis://host...: reach every server, log in, write a "
        "value, read\n"
        "          and remove it; status 1 if any fails",
    .opts =
        (const cli_opt[]){
            CLI_ROW_HELP,
            { O_MODEL, "model", "MODEL",
              "ls, rm, gc, export: of this model alone: a checkpoint folder, or 4 digits or\n"
              "more of its fingerprint" },
            { O_KV, "kv", "SPEC",
              "ls, rm, gc, export: where the cache has these formats; one word is main (or key\n"
              "and value), index=bf16 that part" },
            { O_NAMESPACE, "namespace", "NAME",
              "ls, rm, gc, export: of this namespace alone; '' is the one without a name" },
            { O_CONTEXT, "context", "HASH",
              "ls, rm, gc, export: of this context alone, as ls shows it; 4 digits or more" },
            { O_REBUILD, "rebuild", NULL,
              "verify: then make the index anew from the segments alone, times of use kept, and\n"
              "set aside what is called like a segment and is none; nobody else may use the\n"
              "store" },
            { O_SEGMENT, "segment", "N",
              "verify: read this segment alone, and make the index agree with it" },
            { O_BUDGET, "budget", "SIZE",
              "gc, import: bytes that segments may take on the disk; default of gc 64G. With a\n"
              "choice: bytes of slots that what is chosen may take" },
            { O_SNAP_BUDGET, "snapshot-budget", "SIZE",
              "gc, import: bytes that snapshots may take; default of gc 4G" },
            { O_TTL, "ttl", "HOURS", "gc: blocks unused for so long go; default 72; 'never'" },
            { O_SNAP_TTL, "snapshot-ttl", "HOURS",
              "gc: snapshots unused for so long go; default 72; 'never'" },
            { O_ALL, "all", NULL, "rm: everything" },
            { O_TIMEOUT, "redis-timeout", "MS",
              "check: how long to wait for an answer; default 1000" },
            CLI_ROW_JSON,
            CLI_ROW_END,
        },
    .notes =
        "bytes_per_token = disk_bytes / (256 x blocks); disk_bytes counts segments, index and\n"
        "lock, not snapshots.\n"
        "ID is an identity in hexadecimal as ls shows it, or the first 6 digits or more where\n"
        "they are unique.\n"
        "A store may be looked at and maintained while others use it. Import only files that you\n"
        "trust: a checksum tells damage, not forgery; models, formats and namespaces are what\n"
        "the files say.\n"
        "\n"
        "examples:\n"
        "  mote kv ls ~/.cache/mote --model models/nano\n"
        "  mote kv verify ~/.cache/mote --rebuild\n"
        "  mote kv gc ~/.cache/mote --budget 20G --ttl 24\n"
        "  mote kv export ~/.cache/mote - --namespace work | ssh there mote kv import .cache/mote "
        "-\n"
        "  mote kv check ~/.cache/mote,redis://cache.example:6379",
};

static void complain(void *ctx, const char *line)
{
    (void)ctx;
    cli_say("mote kv: %s", line);
}

typedef struct request {
    cli_args *a;
    int rebuild, all, has_segment, timeout_ms;
    uint32_t segment;
    const char *place, *file, *model;
    const char *ids[MAX_IDS];
    size_t n_ids;
} request;

static int do_ls(mote_store *s, const request *r, char **json, mote_err *err)
{
    (void)r;
    return mote_store_ls_json(s, json, err);
}
static int do_stat(mote_store *s, const request *r, char **json, mote_err *err)
{
    (void)r;
    return mote_store_stat_json(s, json, err);
}
static int do_verify(mote_store *s, const request *r, char **json, mote_err *err)
{
    return r->has_segment ? mote_store_repair_json(s, r->segment, json, err)
                          : mote_store_verify_json(s, r->rebuild, json, err);
}
static int do_gc(mote_store *s, const request *r, char **json, mote_err *err)
{
    (void)r;
    return mote_store_gc_json(s, json, err);
}
static int do_rm(mote_store *s, const request *r, char **json, mote_err *err)
{
    return mote_store_rm_json(s, r->n_ids ? r->ids : NULL, r->n_ids, json, err);
}
static int do_export(mote_store *s, const request *r, char **json, mote_err *err)
{
    return mote_store_export_json(s, r->file, json, err);
}
static int do_import(mote_store *s, const request *r, char **json, mote_err *err)
{
    return mote_store_import_json(s, r->file, json, err);
}
static int do_check(mote_store *s, const request *r, char **json, mote_err *err)
{
    (void)s;
    return mote_store_check_json(r->place, r->timeout_ms, json, err);
}

static const struct verb {
    const char *name;
    int (*run)(mote_store *s, const request *r, char **json, mote_err *err);
    int reads_only, must_exist, takes_file, takes_ids, options;
} verbs[] = {
    { "ls", do_ls, 1, 1, 0, 0, HAS_CHOICE },
    { "stat", do_stat, 1, 1, 0, 0, 0 },
    { "verify", do_verify, 0, 1, 0, 0, HAS_REBUILD },
    { "gc", do_gc, 0, 1, 0, 0, HAS_BUDGET | HAS_TTL | HAS_CHOICE },
    { "rm", do_rm, 0, 1, 0, 1, HAS_ALL | HAS_CHOICE },
    { "export", do_export, 1, 1, 1, 0, HAS_CHOICE },
    { "import", do_import, 0, 0, 1, 0, HAS_BUDGET },
    { "check", do_check, 1, 0, 0, 0, HAS_TIMEOUT },
};

static const struct verb *find_verb(const cli_args *a, const char *name)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    cli_usage_error(a,
                    "unknown word '%s'; there are ls, stat, verify, gc, rm, export, import, check",
                    name);
}

/* An option that the verb does not know is no option that was obeyed. */
static void check_options(const cli_args *a, const struct verb *verb, int given)
{
    static const struct {
        int bit;
        const char *name;
    } rows[] = {
        { HAS_REBUILD, "--rebuild and --segment belong" },
        { HAS_BUDGET, "--budget and --snapshot-budget belong" },
        { HAS_TTL, "--ttl and --snapshot-ttl belong" },
        { HAS_ALL, "--all belongs" },
        { HAS_CHOICE, "--model, --kv, --namespace and --context belong" },
        { HAS_TIMEOUT, "--redis-timeout belongs" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char names[80] = "";
        if (!(given & rows[i].bit) || verb->options & rows[i].bit)
            continue;
        for (size_t k = 0; k < sizeof verbs / sizeof *verbs; k++)
            if (verbs[k].options & rows[i].bit)
                snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                         *names ? ", " : "", verbs[k].name);
        cli_usage_error(a, "%s to %s, not to %s", rows[i].name, names, verb->name);
    }
}

/* 4 hexadecimal digits or more, in lower case in place. */
static char *hex_digits(const cli_args *a, char *text, size_t most, const char *what)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)tolower((unsigned char)text[i]);
    if (n < 4 || n > most || strspn(text, "0123456789abcdef") != n)
        cli_usage_error(a, "%s: '%s' is no %s", a->name, text, what);
    return text;
}

/* A folder's fingerprint, or the digits that were given. */
static int find_model(request *r, char hex[65], mote_err *err)
{
    struct stat st;
    if (!r->model)
        return MOTE_OK;
    if (!stat(r->model, &st) && S_ISDIR(st.st_mode))
        return mote_fingerprint(r->model, hex, err);
    snprintf(r->a->name, sizeof r->a->name, "--model");
    snprintf(hex, 65, "%s", r->model);
    hex_digits(r->a, hex, 64, "checkpoint folder, nor 4 to 64 digits of a fingerprint");
    return MOTE_OK;
}

static cli_text when(json_int_t seconds)
{
    cli_text text;
    time_t t = (time_t)seconds;
    struct tm tm;
    if (!localtime_r(&t, &tm) || !strftime(text.s, sizeof text.s, "%Y-%m-%d %H:%M", &tm))
        snprintf(text.s, sizeof text.s, "%lld", (long long)seconds);
    return text;
}

static void add_text(cli_table *t, const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    cli_table_add(t, text ? text : "-");
}

static void add_row(cli_table *t, const json_t *row, const char *on, const char *bytes)
{
    add_text(t, row, "id");
    add_text(t, row, on);
    cli_table_add(t, cli_count((uint64_t)json_integer_value(json_object_get(row, "tokens"))).s);
    add_text(t, row, "provenance");
    cli_table_add(t, cli_count((uint64_t)json_integer_value(json_object_get(row, bytes))).s);
    cli_table_add(t, when(json_integer_value(json_object_get(row, "used"))).s);
    add_text(t, row, "context");
}

static void add_context(cli_table *t, const json_t *row)
{
    static const char *const counts[] = { "blocks", "tokens", "slot_bytes", "snapshots",
                                          "snapshot_bytes" };
    add_text(t, row, "context");
    add_text(t, row, "model");
    add_text(t, row, "kv");
    add_text(t, row, "math");
    const char *ns = json_string_value(json_object_get(row, "namespace"));
    cli_table_add(t, ns && *ns ? ns : "-");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        cli_table_add(t,
                      cli_count((uint64_t)json_integer_value(json_object_get(row, counts[i]))).s);
    cli_table_add(t, when(json_integer_value(json_object_get(row, "used"))).s);
}

static void show_ls(const json_t *root)
{
    static const char *const of_contexts[] = { "context",    "model",   "kv",      "math",
                                               "namespace",  ">blocks", ">tokens", ">bytes",
                                               ">snapshots", ">bytes",  "used" };
    static const char *const of_blocks[] = { "block",  "on",   ">tokens", "provenance",
                                             ">bytes", "used", "context" };
    static const char *const of_snapshots[] = { "snapshot", "on",   ">tokens", "provenance",
                                                ">bytes",   "used", "context" };
    const json_t *contexts = json_object_get(root, "contexts"), *row;
    const json_t *blocks = json_object_get(root, "blocks"),
                 *snapshots = json_object_get(root, "snapshots");
    size_t i;
    if (!json_array_size(contexts) && !json_array_size(blocks) && !json_array_size(snapshots)) {
        printf("nothing is stored\n");
        return;
    }
    cli_table *t = cli_table_create(11, of_contexts);
    json_array_foreach(contexts, i, row) add_context(t, row);
    cli_table_print(t, stdout, 0);
    t = cli_table_create(7, of_blocks);
    json_array_foreach(blocks, i, row) add_row(t, row, "parent", "payload_bytes");
    printf("\n");
    cli_table_print(t, stdout, 0);
    if (!json_array_size(snapshots))
        return;
    t = cli_table_create(7, of_snapshots);
    json_array_foreach(snapshots, i, row) add_row(t, row, "on", "bytes");
    printf("\n");
    cli_table_print(t, stdout, 0);
}

static void show_check(const json_t *root)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(root, "servers"), i, row)
    {
        const char *server = json_string_value(json_object_get(row, "server"));
        const char *failure = json_string_value(json_object_get(row, "failure"));
        const char *version = json_string_value(json_object_get(row, "version"));
        const json_t *ms = json_object_get(row, "round_trip_ms");
        json_int_t known = json_integer_value(json_object_get(row, "servers_known"));
        printf("%s: ", server ? server : "?");
        if (failure)
            printf("FAILED: %s", failure);
        else
            printf("written, read and removed; round trip %.2f ms", json_real_value(ms));
        if (version)
            printf("; version %s", version);
        if (known > 1)
            printf("; %lld servers in its cluster", (long long)known);
        printf("\n");
    }
}

/* An export that goes to standard output tells on standard error what it did. */
static void tell_export(const json_t *root)
{
    const char *names[] = { "blocks", "snapshots", "damaged", "bytes" };
    json_int_t v[4];
    for (size_t i = 0; i < 4; i++)
        v[i] = json_integer_value(json_object_get(root, names[i]));
    cli_say("mote kv: exported %s blocks and %s snapshots, %s bytes; %lld damaged",
            cli_count((uint64_t)v[0]).s, cli_count((uint64_t)v[1]).s, cli_count((uint64_t)v[3]).s,
            (long long)v[2]);
}

static int progress(void *ctx, const char *what, double fraction)
{
    return cli_progress_open(ctx, what, fraction < 0 ? 0 : fraction);
}

/* 1: whoever read our standard output has gone. */
static int nobody_reads(void)
{
    struct pollfd p = { STDOUT_FILENO, POLLOUT, 0 };
    return poll(&p, 1, 0) > 0 && p.revents & POLLERR;
}

static int given(int id)
{
    switch (id) {
    case O_REBUILD:
    case O_SEGMENT: return HAS_REBUILD;
    case O_BUDGET:
    case O_SNAP_BUDGET: return HAS_BUDGET;
    case O_TTL:
    case O_SNAP_TTL: return HAS_TTL;
    case O_ALL: return HAS_ALL;
    case O_MODEL:
    case O_KV:
    case O_NAMESPACE:
    case O_CONTEXT: return HAS_CHOICE;
    case O_TIMEOUT: return HAS_TIMEOUT;
    }
    return 0;
}

static void read_operands(cli_args *a, request *r, const struct verb *verb, int options)
{
    r->place = cli_operand(a, 1, "DIR");
    if (strstr(r->place, "://") &&
        verb->run != do_check) /* not shown: there may be a password in it */
        cli_usage_error(
            a, "give the directory alone: servers behind it are neither listed nor maintained");
    if (verb->takes_file) {
        r->file = cli_operand(a, 2, "FILE");
        cli_no_more_operands(a, 3);
        if (verb->run == do_export && !strcmp(r->file, "-") && isatty(STDOUT_FILENO))
            cli_usage_error(a, "an export is not for reading: '-' is for a pipe or a file");
    } else if (verb->takes_ids) {
        for (int i = 2; i < a->n_operands && r->n_ids < MAX_IDS; i++)
            r->ids[r->n_ids++] = a->operands[i];
        if ((r->all || options & HAS_CHOICE) && r->n_ids)
            cli_usage_error(a, "%s and identities exclude each other",
                            r->all ? "--all" : "--model, --kv, --namespace, --context");
        if (!r->all && !r->n_ids && !(options & HAS_CHOICE))
            cli_usage_error(
                a,
                "say what to remove: identities, --model, --kv, --namespace, --context, or --all");
    } else {
        cli_no_more_operands(a, 2);
    }
    if (r->rebuild && r->has_segment)
        cli_usage_error(a, "--rebuild and --segment exclude each other");
}

/* The text of a verb's result. */
static int run_verb(const request *r, const struct verb *verb, mote_store_params *params,
                    char **text, mote_err *err)
{
    mote_store *store = NULL;
    if (verb->run == do_check)
        return do_check(NULL, r, text, err);
    params->read_only = verb->reads_only;
    params->must_exist = verb->must_exist;
    params->progress = progress;
    if (verb->run != do_gc) { /* looking at a store lets nothing expire */
        params->ttl_s = params->snapshot_ttl_s = -1;
        params->budget_bytes = params->budget_bytes ? params->budget_bytes : UINT64_MAX / 2;
        params->snapshot_budget_bytes = params->snapshot_budget_bytes
                                            ? params->snapshot_budget_bytes
                                            : UINT64_MAX / 2;
    }
    int rc = mote_store_open(&store, r->place, params, err);
    if (!rc)
        rc = verb->run(store, r, text, err);
    mote_store_close(store);
    cli_progress_clear();
    return rc;
}

int cli_kv(int argc, char **argv)
{
    cli_args a;
    request r = { .a = &a };
    mote_store_params params = { .log = complain };
    char model[65];
    int id, options = 0;
    cli_args_init(&a, &usage, argc, argv);
    while ((id = cli_next(&a)) != CLI_END) {
        options |= given(id);
        switch (id) {
        case O_REBUILD: r.rebuild = 1; break;
        case O_SEGMENT:
            r.segment = (uint32_t)cli_uint(&a, 1, UINT32_MAX - 1);
            r.has_segment = 1;
            break;
        case O_ALL: r.all = 1; break;
        case O_MODEL: r.model = a.value; break;
        case O_KV: params.only_kv = a.value; break;
        case O_NAMESPACE: params.only_namespace = a.value; break;
        case O_CONTEXT:
            params.only_context = hex_digits(&a, (char *)(uintptr_t)a.value, 64,
                                             "context: 4 to 64 hexadecimal digits");
            break;
        case O_BUDGET: params.budget_bytes = cli_size(&a); break;
        case O_SNAP_BUDGET: params.snapshot_budget_bytes = cli_size(&a); break;
        case O_TTL: params.ttl_s = cli_hours(&a); break;
        case O_SNAP_TTL: params.snapshot_ttl_s = cli_hours(&a); break;
        case O_TIMEOUT: r.timeout_ms = (int)cli_uint(&a, 1, 600000); break;
        default: break;
        }
    }
    const struct verb *verb = find_verb(
        &a, cli_operand(&a, 0, "ls|stat|verify|gc|rm|export|import|check"));
    check_options(&a, verb, options);
    read_operands(&a, &r, verb, options);
    mote_err err = { 0 };
    char *text = NULL;
    int rc = find_model(&r, model, &err);
    params.only_model = r.model ? model : NULL;
    if (!rc)
        rc = run_verb(&r, verb, &params, &text, &err);
    json_t *root = rc ? NULL : json_loads(text, 0, NULL);
    mote_free(text);
    if (!rc && !root)
        rc = mote__fail(&err, MOTE_ENOMEM, "out of memory");
    int to_stdout = verb->run == do_export && !strcmp(r.file, "-");
    if (rc && to_stdout && nobody_reads())
        return CLI_PIPE_CLOSED;
    if (rc)
        return cli_report(&err);
    int status = CLI_OK;
    json_int_t damaged = verb->run == do_verify
                             ? json_integer_value(json_object_get(root, "damaged"))
                             : 0;
    if (damaged) {
        cli_say("mote kv: %s: %lld damaged", r.place, (long long)damaged);
        status = CLI_FAILED;
    }
    if (verb->run == do_check && json_integer_value(json_object_get(root, "failed")))
        status = CLI_FAILED;
    if (to_stdout) {
        tell_export(root);
        json_decref(root);
        return status;
    }
    if (a.json) {
        int printed = cli_print_json(root, JSON_INDENT(2));
        return printed ? printed : status;
    }
    static const char *const skip[] = { "since_open", "now", NULL };
    if (verb->run == do_ls)
        show_ls(root);
    else if (verb->run == do_check)
        show_check(root);
    else
        cli_view_json(stdout, root, 0, skip);
    json_decref(root);
    int flushed = cli_flush();
    return flushed ? flushed : status;
}
