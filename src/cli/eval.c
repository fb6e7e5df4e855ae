/* mote eval: what a cache format costs on a text. The measuring is done by lab/; this reads options and prints. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/gen.h"
#include "cli/opts.h"
#include "cli/out.h"
#include "cli/store.h"
#include "lab/formats.h"
#include "lab/text.h"

enum { O_TEXT = 1200, O_CTX, O_WINDOWS, O_NO_KL, O_PLAIN, O_BASE };
enum { DECODE_TOKENS = 32 };

static const cli_usage usage = {
    .command = "eval",
    .operands = "MODEL",
    .about = "Measure the model on a text, format by format. Windows are BOS + consecutive ctx - 1 tokens from the start of the\n"
             "text; every token after BOS is predicted from all before it (a full pass), and means are per predicted token.",
    .opts = (const cli_opt[]){
        CLI_ROW_HELP,
        { O_TEXT, "text", "FILE", "the text; - is standard input (required). Special tokens written in it are recognised" },
        { O_CTX, "ctx", "LIST", "window lengths in tokens, e.g. 1K,4K (K = 1024); default 4096" },
        { O_WINDOWS, "windows", "N", "how many windows of each length; default 1, 0 = as many whole ones as the text has" },
        { CLI_O_KV, "kv", "LIST", "cache formats to compare, one row each: words of the main format separated by commas\n"
                                  "(fp4,fp8,bf16), or full specs separated by semicolons\n"
                                  "('main=fp4,index=fp8;main=fp8'); may be given several times. Default fp4.\n" CLI_KV_FORMATS },
        { O_BASE, "base", "SPEC", "formats that KL and top-1 agreement are taken against; default bf16 (the main part). With\n"
                                  "main=f32,index=f32,window=f32 nothing of the cache is rounded" },
        { O_NO_KL, "no-kl", NULL, "do not compare with the base" },
        { O_PLAIN, "plain", NULL, "text that looks like a special token is ordinary text" },
        CLI_ROWS_STORE,
        { CLI_O_PREFILL, "prefill", "MODE", "for the two speeds only: bounded (default), exact, full; see 'mote run --help'" },
        CLI_ROW_MATH,
        CLI_ROW_THREADS,
        CLI_ROW_JSON,
        CLI_ROW_END,
    },
    .notes = "loss = mean of -ln p(token); perplexity = e^loss; kl = mean over positions of sum p ln(p / q), p with the base's cache,\n"
             "q with the row's; top1_agreement = share of positions whose likeliest token is the same. A row that is the base is its\n"
             "own yardstick: 0 and 1. _se: standard error of a mean, over tokens or blocks of 32, the larger. Speeds come from an\n"
             "ordinary session on the first window, with --prefill: its text but the last 32 tokens is read (prefill_tokens_per_s),\n"
             "those are decoded one by one (decode_tokens_per_s). peak_bytes = the session's share of memory and scratch at its\n"
             "largest during the full pass.\n"
             "\n"
             "With --store a window is looked up in DIR and written to it like a prompt of 'mote run' (all but its last two tokens\n"
             "are looked up). Tokens that were found are not run and not scored: tokens, loss, perplexity and KL are of what was\n"
             "computed after the hit. cold_loss is the loss of the same tokens without the store (run only where something was\n"
             "reused), loss_minus_cold the paired difference: what the hit costs. The base is always run cold. Windows of several\n"
             "lengths begin alike, so --ctx 1K,4K hits in its second row.\n"
             "\n"
             "JSON: rows[] {kv, ctx, windows, tokens, loss, loss_se, perplexity, kl, kl_se, kl_vs_bf16 (kl, where the base is bf16),\n"
             "top1_agreement, kv_bytes_per_token, prefill_tokens_per_s, decode_tokens_per_s, full_pass_tokens_per_s, peak_bytes}; with\n"
             "--store also {reused_tokens + computed_tokens = windows x ctx, replayed_tokens (reused ones that ran again), exact,\n"
             "cold_loss, cold_perplexity, loss_minus_cold, loss_minus_cold_se}; null where not measured. base, math, prefill, threads, cpu.\n"
             "\n"
             "examples:\n"
             "  mote eval models/nano --text models/nano/heldout.txt --kv fp4,fp8,bf16\n"
             "  mote eval models/nano --text book.txt --ctx 1K,8K --windows 0 --no-kl --json\n"
             "  mote eval models/nano --text book.txt --ctx 1K,4K --store /tmp/store --replay bounded",
};

typedef struct request {
    const char *text, *base;
    const char **specs;           /* owned, split */
    size_t n_specs;
    uint64_t *ctxs;
    size_t n_ctxs, n_windows;
    int no_kl, flags;
    cli_store store;
} request;

/* Commas separate words, semicolons separate specs; a list with '=' and no semicolon is one spec. */
static void split_specs(const cli_args *a, request *q, const char *list)
{
    const char *separators = strchr(list, ';') ? ";" : strchr(list, '=') ? "" : ",";
    for (const char *p = list;; p++) {
        size_t n = *separators ? strcspn(p, separators) : strlen(p);
        if (!n)
            cli_usage_error(a, "--kv: an empty format in '%s'", list);
        cli_append(&q->specs, &q->n_specs, strndup(p, n));
        p += n;
        if (!*p)
            return;
    }
}

static void parse(cli_args *a, request *q)
{
    *q = (request){ .n_windows = 1, .base = "bf16" };
    int id;
    while ((id = cli_next(a)) != CLI_END) {
        if (cli_store_option(&q->store, a, id))
            continue;
        switch (id) {
        case O_TEXT:    q->text = a->value; break;
        case O_CTX:
            free(q->ctxs);
            q->ctxs = cli_sizes(a, &q->n_ctxs);
            for (size_t i = 0; i < q->n_ctxs; i++)
                if (q->ctxs[i] < 2)
                    cli_usage_error(a, "--ctx: a window needs at least 2 tokens");
            break;
        case O_WINDOWS: q->n_windows = cli_uint(a, 0, UINT32_MAX); break;
        case CLI_O_KV:  split_specs(a, q, a->value); break;
        case O_BASE:    q->base = a->value; break;
        case O_NO_KL:   q->no_kl = 1; break;
        case O_PLAIN:   q->flags = MOTE_ENCODE_PLAIN; break;
        }
    }
    cli_operand(a, 0, "MODEL");
    cli_no_more_operands(a, 1);
    if (!q->text)
        cli_usage_error(a, "--text is missing");
    if (!q->n_specs)
        split_specs(a, q, "fp4");
    if (!q->ctxs) {
        q->ctxs = malloc(sizeof *q->ctxs);
        if (q->ctxs)
            q->ctxs[q->n_ctxs++] = 4096;
    }
    cli_store_check(&q->store, a);
}

/* Every format is tried before the first is measured: a typing error should not cost an hour. */
static int check_formats(mote_model *model, const cli_args *a, const request *q, int *status, mote_err *err)
{
    int rc = MOTE_OK;
    for (size_t k = 0; !rc && k < q->n_specs; k++) {
        cli_args with = *a;
        with.kv = q->specs[k];
        mote_session *session = NULL;
        rc = cli_session_create(&session, model, &with, 0, status, err);
        mote_session_destroy(session);
    }
    mote_session_params params = { .kv = q->base };
    mote_session *session = NULL;
    mote_err why = { 0 };
    if (!rc && (rc = mote_session_create(&session, model, &params, &why))) {
        mote__fail(err, rc, "--base: %s", why.message);
        *status = CLI_USAGE;
    }
    mote_session_destroy(session);
    return rc;
}

/* ---- the store, as lab/ wants it ---- */
static void store_open(void *ctx) { cli_store_open(ctx); }
static void store_close(void *ctx) { cli_store_close(ctx); }
static int store_fill(void *ctx, mote_session *session, const int32_t *ids, size_t n_ids, mote_restored *found, int *exact, mote_err *err)
{
    cli_store *s = ctx;
    cli_store_attach(s, session);
    int rc = cli_store_restore(s, session, ids, n_ids, found, err);
    *exact = !cli_store_approximate(s, found);
    return rc;
}

static int on_progress(void *ctx, const char *what, double fraction)
{
    cli_step_ctx step = { what, NULL, 0 };
    (void)ctx;
    return cli_progress_step(&step, (size_t)(1000 * fraction), 1000);
}

/* ---- tables ---- */
static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void print_rows(const json_t *rows)
{
    static const char *const headings[] = {
        "kv",          ">ctx",           ">tokens",       ">loss", ">perplexity", ">KL to base", ">same top-1 %",
        ">KV B/token", ">prefill tok/s", ">decode tok/s", ">peak"
    };
    cli_table *t = cli_table_create(sizeof headings / sizeof headings[0], headings);
    size_t i;
    const json_t *r;
    json_array_foreach(rows, i, r) {
        char bytes[32];
        snprintf(bytes, sizeof bytes, "%.6g", number(r, "kv_bytes_per_token"));
        const char *const cells[] = {
            json_string_value(json_object_get(r, "kv")), cli_count((uint64_t)number(r, "ctx")), cli_count((uint64_t)number(r, "tokens")),
            cli_fixed(number(r, "loss"), 5), cli_fixed(number(r, "perplexity"), 3), cli_fixed(number(r, "kl"), 5),
            cli_fixed(100 * number(r, "top1_agreement"), 2), bytes, cli_fixed(number(r, "prefill_tokens_per_s"), 1),
            cli_fixed(number(r, "decode_tokens_per_s"), 1), cli_bytes(number(r, "peak_bytes")),
        };
        for (size_t k = 0; k < sizeof cells / sizeof cells[0]; k++)
            cli_table_add(t, cells[k]);
    }
    cli_table_print(t, stdout, 0);
}

static void print_store(const json_t *rows)
{
    static const char *const headings[] = { "kv", ">ctx", ">reused", ">replayed", ">computed", ">scored", ">loss", ">cold loss", ">difference", ">+-", "" };
    cli_table *t = cli_table_create(sizeof headings / sizeof headings[0], headings);
    size_t i;
    const json_t *r;
    json_array_foreach(rows, i, r) {
        const char *const cells[] = {
            json_string_value(json_object_get(r, "kv")), cli_count((uint64_t)number(r, "ctx")), cli_count((uint64_t)number(r, "reused_tokens")),
            cli_count((uint64_t)number(r, "replayed_tokens")), cli_count((uint64_t)number(r, "computed_tokens")),
            cli_count((uint64_t)number(r, "tokens")), cli_fixed(number(r, "loss"), 5), cli_fixed(number(r, "cold_loss"), 5),
            cli_fixed(number(r, "loss_minus_cold"), 5), cli_fixed(number(r, "loss_minus_cold_se"), 5),
            json_is_true(json_object_get(r, "exact")) ? "" : "approximate",
        };
        for (size_t k = 0; k < sizeof cells / sizeof cells[0]; k++)
            cli_table_add(t, cells[k]);
    }
    printf("\nAfter hits in the store, against the same tokens without it\n");
    cli_table_print(t, stdout, 2);
}

int cli_eval(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    request q;
    parse(&a, &q);

    mote_err err = { 0 };
    mote_model *model = NULL;
    mote_model_info info;
    lab_text text = { 0 };
    char *bytes = NULL;
    size_t n_bytes = 0;
    int status = CLI_FAILED;
    json_t *rows = json_array();
    lab_store store = { &q.store, store_open, store_close, store_fill };
    lab_progress progress = { on_progress, NULL };
    int rc = cli_model_open(&model, &info, a.operands[0], &a, &err);
    if (!rc)
        rc = check_formats(model, &a, &q, &status, &err);
    if (!rc)
        rc = cli_read_file(q.text, &bytes, &n_bytes, &err);
    if (!rc)
        rc = lab_text_init(&text, model, q.text, bytes, n_bytes, q.flags, &err);
    for (size_t c = 0; !rc && c < q.n_ctxs; c++) {
        size_t n = 0;
        rc = lab_text_windows(&text, model, q.ctxs[c], q.n_windows, &n, &err);
        if (!rc && q.n_windows > n)
            cli_say("mote: note: %s has only %zu whole windows of %zu tokens", q.text, n, (size_t)q.ctxs[c]);
    }
    if (!rc) {
        lab_formats f = { .kv = q.specs, .n_kv = q.n_specs, .ctx = q.ctxs, .n_ctx = q.n_ctxs, .n_windows = q.n_windows,
                          .base = q.no_kl ? NULL : q.base, .prefill = a.prefill, .n_decode = DECODE_TOKENS,
                          .store = q.store.dir ? &store : NULL };
        rc = lab_formats_run(rows, model, &text, &f, &progress, &err);
        cli_progress_clear();
    }
    if (rc) {
        int reported = cli_report(&err);
        status = status == CLI_USAGE ? status : reported;
    } else if (a.json) {
        json_t *o = json_pack("{s:O, s:s?, s:s, s:s, s:i, s:s}", "rows", rows, "base", q.no_kl ? NULL : q.base, "math",
                              cli_math_names[a.math], "prefill", cli_prefill_names[a.prefill], "threads", info.n_threads, "cpu", info.cpu);
        status = cli_print_json(o, JSON_INDENT(2));
    } else {
        print_rows(rows);
        if (q.store.dir)
            print_store(rows);
        status = cli_flush();
    }
    json_decref(rows);
    for (size_t k = 0; k < q.n_specs; k++)
        free((char *)q.specs[k]);
    free(q.specs);
    free(q.ctxs);
    lab_text_deinit(&text);
    free(bytes);
    mote_model_close(model);
    return status;
}
