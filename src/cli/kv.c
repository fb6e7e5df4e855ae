/* mote kv: look at a persistent store and tend it. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/opts.h"
#include "cli/out.h"

enum { O_REBUILD = 1300, O_BUDGET, O_SNAP_BUDGET, O_TTL, O_SNAP_TTL, O_ALL };
enum { MAX_IDS = 64 };

static const cli_usage usage = {
    .command = "kv",
    .operands = "ls|stat|verify|gc|rm|export|import DIR [FILE|ID...]",
    .about = "The store in DIR: cache blocks of 256 tokens and snapshots that outlive the process.\n"
             "\n"
             "  ls      every block and snapshot: identity, what it stands on, tokens, provenance, last use\n"
             "  stat    sums: blocks, bytes, bytes per token\n"
             "  verify  read everything and drop what is damaged; status 1 if anything was\n"
             "  gc      remove what has expired, is over budget or out of reach, and give its room back\n"
             "  rm      remove blocks (with all that stands on them) or snapshots by identity, or --all\n"
             "  export  write all of it into FILE\n"
             "  import  take what FILE holds; each record is checked as if it came from disk",
    .opts = (const cli_opt[]){
        CLI_ROW_HELP,
        { O_REBUILD, "rebuild", NULL, "verify: then make the index anew from the segments alone; nobody else may use the store; set\n"
          "aside what is called like a segment and is none" },
        { O_BUDGET, "budget", "SIZE", "gc: bytes that blocks may take on the disk; default 64G" },
        { O_SNAP_BUDGET, "snapshot-budget", "SIZE", "gc: bytes that snapshots may take; default 4G" },
        { O_TTL, "ttl", "HOURS", "gc: blocks unused for so long go; default 72" },
        { O_SNAP_TTL, "snapshot-ttl", "HOURS", "gc: snapshots unused for so long go; default 72" },
        { O_ALL, "all", NULL, "rm: everything" },
        CLI_ROW_JSON,
        CLI_ROW_END,
    },
    .notes = "bytes_per_token = disk_bytes / (256 x blocks); disk_bytes counts segments, index and lock, not snapshots.\n"
             "ID is an identity in hexadecimal as ls shows it, or the first 6 digits or more where they are unique.\n"
             "A store may be looked at and tended while others use it. Import only files that you trust: a checksum tells\n"
             "damage, not forgery.\n"
             "\n"
             "examples:\n"
             "  mote kv stat ~/.cache/mote --json\n"
             "  mote kv verify ~/.cache/mote --rebuild\n"
             "  mote kv gc ~/.cache/mote --budget 20G --ttl 24",
};

static void complain(void *ctx, const char *line)
{
    (void)ctx;
    cli_say("mote kv: %s", line);
}

typedef struct request {
    cli_args *a;
    int rebuild, all;
    const char *file;
    const char *ids[MAX_IDS];
    size_t n_ids;
} request;

static int do_ls(mote_store *s, const request *r, char **json, mote_err *err) { (void)r; return mote_store_ls_json(s, json, err); }
static int do_stat(mote_store *s, const request *r, char **json, mote_err *err) { (void)r; return mote_store_stat_json(s, json, err); }
static int do_verify(mote_store *s, const request *r, char **json, mote_err *err) { return mote_store_verify_json(s, r->rebuild, json, err); }
static int do_gc(mote_store *s, const request *r, char **json, mote_err *err) { (void)r; return mote_store_gc_json(s, json, err); }
static int do_rm(mote_store *s, const request *r, char **json, mote_err *err)
{
    return mote_store_rm_json(s, r->all ? NULL : r->ids, r->n_ids, json, err);
}
static int do_export(mote_store *s, const request *r, char **json, mote_err *err) { return mote_store_export_json(s, r->file, json, err); }
static int do_import(mote_store *s, const request *r, char **json, mote_err *err) { return mote_store_import_json(s, r->file, json, err); }

static const struct verb {
    const char *name;
    int (*run)(mote_store *s, const request *r, char **json, mote_err *err);
    int reads_only, must_exist, takes_file, takes_ids;
} verbs[] = {
    { "ls", do_ls, 1, 1, 0, 0 },     { "stat", do_stat, 1, 1, 0, 0 },       { "verify", do_verify, 0, 1, 0, 0 }, { "gc", do_gc, 0, 1, 0, 0 },
    { "rm", do_rm, 0, 1, 0, 1 },     { "export", do_export, 1, 1, 1, 0 },   { "import", do_import, 0, 0, 1, 0 },
};

static const struct verb *find_verb(const cli_args *a, const char *name)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    cli_usage_error(a, "unknown word '%s'; there are ls, stat, verify, gc, rm, export, import", name);
}

static const char *when(json_int_t seconds)
{
    static char text[2][32];
    static int turn;
    char *p = text[turn++ & 1];
    time_t t = (time_t)seconds;
    struct tm tm;
    if (!localtime_r(&t, &tm) || !strftime(p, 32, "%Y-%m-%d %H:%M", &tm))
        snprintf(p, 32, "%lld", (long long)seconds);
    return p;
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
    cli_table_add(t, cli_count((uint64_t)json_integer_value(json_object_get(row, "tokens"))));
    add_text(t, row, "provenance");
    cli_table_add(t, cli_count((uint64_t)json_integer_value(json_object_get(row, bytes))));
    cli_table_add(t, when(json_integer_value(json_object_get(row, "used"))));
}

static void show_ls(const json_t *root)
{
    static const char *const headings[] = { "block", "on", ">tokens", "provenance", ">bytes", "used" };
    static const char *const snap_headings[] = { "snapshot", "on", ">tokens", "provenance", ">bytes", "used" };
    const json_t *blocks = json_object_get(root, "blocks"), *snapshots = json_object_get(root, "snapshots"), *row;
    size_t i;
    cli_table *t = cli_table_create(6, headings);
    json_array_foreach(blocks, i, row)
        add_row(t, row, "parent", "payload_bytes");
    cli_table_print(t, stdout, 0);
    if (!json_array_size(snapshots))
        return;
    t = cli_table_create(6, snap_headings);
    json_array_foreach(snapshots, i, row)
        add_row(t, row, "on", "bytes");
    printf("\n");
    cli_table_print(t, stdout, 0);
}

int cli_kv(int argc, char **argv)
{
    cli_args a;
    request r = { .a = &a };
    mote_store_params params = { .log = complain };
    int id;
    cli_args_init(&a, &usage, argc, argv);
    while ((id = cli_next(&a)) != CLI_END) {
        switch (id) {
        case O_REBUILD: r.rebuild = 1; break;
        case O_ALL: r.all = 1; break;
        case O_BUDGET: params.budget_bytes = cli_size(&a); break;
        case O_SNAP_BUDGET: params.snapshot_budget_bytes = cli_size(&a); break;
        case O_TTL: params.ttl_s = cli_real(&a, 0, 1e9) * 3600; break;
        case O_SNAP_TTL: params.snapshot_ttl_s = cli_real(&a, 0, 1e9) * 3600; break;
        default: break;
        }
    }
    const struct verb *verb = find_verb(&a, cli_operand(&a, 0, "ls|stat|verify|gc|rm|export|import"));
    const char *dir = cli_operand(&a, 1, "DIR");
    if (strstr(dir, "://"))                               /* not shown: there may be a password in it */
        cli_usage_error(&a, "give the directory alone: servers behind it are neither listed nor tended");
    if (verb->takes_file) {
        r.file = cli_operand(&a, 2, "FILE");
        cli_no_more_operands(&a, 3);
    } else if (verb->takes_ids) {
        for (int i = 2; i < a.n_operands && r.n_ids < MAX_IDS; i++)
            r.ids[r.n_ids++] = a.operands[i];
        if (r.all && r.n_ids)
            cli_usage_error(&a, "--all and identities exclude each other");
        if (!r.all && !r.n_ids)
            cli_usage_error(&a, "say what to remove: identities, or --all");
    } else {
        cli_no_more_operands(&a, 2);
    }
    if (r.rebuild && verb->run != do_verify)
        cli_usage_error(&a, "--rebuild belongs to verify");
    if (r.all && !verb->takes_ids)
        cli_usage_error(&a, "--all belongs to rm");

    mote_err err = { 0 };
    mote_store *store = NULL;
    char *text = NULL;
    params.read_only = verb->reads_only;
    params.must_exist = verb->must_exist;
    if (verb->run != do_gc) {                                /* looking at a store lets nothing expire */
        params.ttl_s = params.snapshot_ttl_s = -1;
        params.budget_bytes = params.snapshot_budget_bytes = UINT64_MAX / 2;
    } else if (params.ttl_s == 0) {
        params.ttl_s = 72 * 3600;
    }
    int rc = mote_store_open(&store, dir, &params, &err);
    if (!rc)
        rc = verb->run(store, &r, &text, &err);
    mote_store_close(store);
    json_t *root = rc ? NULL : json_loads(text, 0, NULL);
    mote_free(text);
    if (!rc && !root)
        rc = mote__fail(&err, MOTE_ENOMEM, "out of memory");
    if (rc)
        return cli_report(&err);
    int status = verb->run == do_verify && json_integer_value(json_object_get(root, "damaged")) ? CLI_FAILED : CLI_OK;
    if (status)
        cli_say("mote kv: %s: %lld damaged", dir, (long long)json_integer_value(json_object_get(root, "damaged")));
    if (a.json) {
        int printed = cli_print_json(root, JSON_INDENT(2));
        return printed ? printed : status;
    }
    static const char *const skip[] = { "since_open", NULL };
    if (verb->run == do_ls)
        show_ls(root);
    else
        cli_view_json(stdout, root, 0, skip);
    json_decref(root);
    int flushed = cli_flush();
    return flushed ? flushed : status;
}
