/* mote eval: perplexity, agreement with the bf16 cache, memory and speed, one row per context length and cache format. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/gen.h"
#include "cli/opts.h"
#include "cli/out.h"

enum { O_TEXT = 1200, O_CTX, O_WINDOWS, O_NO_KL, O_PLAIN };
enum { DECODE_TOKENS = 32 };
static const char base_kv[] = "bf16";

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
        { O_NO_KL, "no-kl", NULL, "do not compare with the bf16 cache (halves the time)" },
        { O_PLAIN, "plain", NULL, "text that looks like a special token is ordinary text" },
        { CLI_O_PREFILL, "prefill", "MODE", "for the two speeds only: bounded (default), exact, full; see 'mote run --help'" },
        CLI_ROW_MATH,
        CLI_ROW_WEIGHTS,
        CLI_ROW_THREADS,
        CLI_ROW_JSON,
        CLI_ROW_END,
    },
    .notes = "loss = mean of -ln p(token); perplexity = e^loss; kl_vs_bf16 = mean over positions of sum p ln(p / q), p with the\n"
             "bf16 main cache, q with the row's; top1_agreement = share of positions whose likeliest token is the same. The bf16\n"
             "row is its own yardstick: 0 and 1. Speeds come from an ordinary session on the first window, with --prefill: its\n"
             "text but the last 32 tokens is read (prefill_tokens_per_s), those are decoded one by one (decode_tokens_per_s).\n"
             "peak_bytes = the session's share of memory and scratch at its largest during the full pass.\n"
             "\n"
             "JSON: rows[] {kv, ctx, windows, tokens, loss, perplexity, kl_vs_bf16, top1_agreement, kv_bytes_per_token,\n"
             "prefill_tokens_per_s, decode_tokens_per_s, full_pass_tokens_per_s, peak_bytes}; null where not measured.\n"
             "\n"
             "examples:\n"
             "  mote eval models/nano --text models/nano/heldout.txt --kv fp4,fp8,bf16\n"
             "  mote eval models/nano --text book.txt --ctx 1K,8K --windows 0 --no-kl --json",
};

typedef struct request {
    const char *text;
    char **specs;                 /* owned, split */
    size_t n_specs;
    uint64_t *ctxs;
    size_t n_ctxs;
    size_t n_windows;
    int no_kl, flags;
} request;

typedef struct row {
    const char *kv;
    size_t ctx, n_windows, n_tokens;
    double loss, kl, agreement, kv_bytes, prefill, decode, full_pass;
    size_t peak;
} row;

/* Commas separate words, semicolons separate specs; a list with '=' and no semicolon is one spec. */
static void split_specs(const cli_args *a, request *q, const char *list)
{
    const char *separators = strchr(list, ';') ? ";" : strchr(list, '=') ? "" : ",";
    for (const char *p = list;; p++) {
        size_t n = *separators ? strcspn(p, separators) : strlen(p);
        if (!n)
            cli_usage_error(a, "--kv: an empty format in '%s'", list);
        char *spec = strndup(p, n);
        const char **specs = (const char **)q->specs;
        cli_append(&specs, &q->n_specs, spec);
        q->specs = (char **)specs;
        p += n;
        if (!*p)
            return;
    }
}

static void parse(cli_args *a, request *q)
{
    *q = (request){ .n_windows = 1 };
    int id;
    while ((id = cli_next(a)) != CLI_END)
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
        case O_NO_KL:   q->no_kl = 1; break;
        case O_PLAIN:   q->flags = MOTE_ENCODE_PLAIN; break;
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
}

/* Speeds and cache bytes of an ordinary session over the first window. */
static int measure_speed(mote_model *model, const cli_args *a, const int32_t *window, row *r, int *status, mote_err *err)
{
    cli_args with = *a;
    with.kv = r->kv;
    mote_session *session = NULL;
    int rc = cli_session_create(&session, model, &with, 0, status, err);
    size_t n_decode = r->ctx / 2 < DECODE_TOKENS ? r->ctx / 2 : DECODE_TOKENS, n_read = r->ctx - n_decode;
    double read_s = 0, decode_s = 0;
    if (!rc) {
        double parts[4];
        r->kv_bytes = mote_session_kv_bytes_per_token(session, parts);
        rc = cli_feed(model, session, window, n_read, MOTE_LOGITS_LAST, "speed: reading", &read_s, NULL, err);
    }
    for (size_t i = 0; !rc && i < n_decode; i++)
        rc = cli_feed(model, session, window + n_read + i, 1, MOTE_LOGITS_LAST, "speed: decoding", &decode_s, NULL, err);
    if (!rc) {
        r->prefill = (double)n_read / read_s;
        r->decode = (double)n_decode / decode_s;
    }
    mote_session_destroy(session);
    return rc;
}

/* One row: `window` is room for ctx ids, its first being BOS; text ids follow each other window by window. */
static int measure(mote_model *model, const cli_args *a, const request *q, const int32_t *ids, int32_t *window, row *r,
                   int *status, mote_err *err)
{
    int is_base = !strcmp(r->kv, base_kv) || !strcmp(r->kv, "main=bf16");
    const char *base = q->no_kl || is_base ? NULL : base_kv;
    double loss = 0, kl = 0, agree = 0, seconds = 0;
    char what[128];
    for (size_t w = 0; w < r->n_windows; w++) {
        memcpy(window + 1, ids + w * (r->ctx - 1), (r->ctx - 1) * sizeof *ids);
        snprintf(what, sizeof what, "%.40s, ctx %zu, window %zu of %zu", r->kv, r->ctx, w + 1, r->n_windows);
        cli_step_ctx step = { what, NULL, 0 };
        mote_eval_result e;
        int rc = mote_eval_window(model, window, r->ctx, r->kv, base, cli_progress_step, &step, &e, err);
        cli_progress_clear();
        if (rc)
            return rc;
        double n = (double)e.n_predicted;
        r->n_tokens += e.n_predicted;
        loss += e.mean_loss * n;
        kl += e.kl * n;
        agree += e.top1_agreement * n;
        seconds += (double)r->ctx / e.prefill_tokens_per_s;
        r->peak = e.peak_bytes > r->peak ? e.peak_bytes : r->peak;
    }
    double n = (double)r->n_tokens;
    r->loss = loss / n;
    r->kl = is_base ? 0 : base ? kl / n : NAN;
    r->agreement = is_base ? 1 : base ? agree / n : NAN;
    if (q->no_kl)
        r->kl = r->agreement = NAN;
    r->full_pass = (double)(r->n_windows * r->ctx) / seconds;
    memcpy(window + 1, ids, (r->ctx - 1) * sizeof *ids);
    return measure_speed(model, a, window, r, status, err);
}

static json_t *row_json(const row *r)
{
    json_t *o = json_pack("{s:s, s:I, s:I, s:I}", "kv", r->kv, "ctx", (json_int_t)r->ctx, "windows",
                          (json_int_t)r->n_windows, "tokens", (json_int_t)r->n_tokens);
    const struct { const char *name; double value; } reals[] = {
        { "loss", r->loss }, { "perplexity", exp(r->loss) }, { "kl_vs_bf16", r->kl }, { "top1_agreement", r->agreement },
        { "kv_bytes_per_token", r->kv_bytes }, { "prefill_tokens_per_s", r->prefill }, { "decode_tokens_per_s", r->decode },
        { "full_pass_tokens_per_s", r->full_pass },
    };
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        json_object_set_new(o, reals[i].name, cli_json_real(reals[i].value));
    json_object_set_new(o, "peak_bytes", json_integer((json_int_t)r->peak));
    return o;
}

static void add_table_row(cli_table *t, const row *r)
{
    cli_table_add(t, r->kv);
    cli_table_add(t, cli_count(r->ctx));
    cli_table_add(t, cli_count(r->n_tokens));
    cli_table_add(t, cli_fixed(r->loss, 5));
    cli_table_add(t, cli_fixed(exp(r->loss), 3));
    cli_table_add(t, cli_fixed(r->kl, 5));
    cli_table_add(t, isfinite(r->agreement) ? cli_fixed(100 * r->agreement, 2) : "-");
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%.6g", r->kv_bytes);
    cli_table_add(t, bytes);
    cli_table_add(t, cli_fixed(r->prefill, 1));
    cli_table_add(t, cli_fixed(r->decode, 1));
    cli_table_add(t, cli_bytes((double)r->peak));
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
    return rc;
}

/* Whole windows the text has at this length, capped by --windows. */
static int count_windows(const request *q, size_t ctx, size_t n_ids, const mote_model_info *info, size_t *n,
                         mote_err *err)
{
    if (ctx > info->max_context)
        return mote__fail(err, MOTE_EINVAL, "--ctx: %zu is more than the model's %zu tokens", ctx, info->max_context);
    size_t whole = n_ids / (ctx - 1);
    if (!whole)
        return mote__fail(err, MOTE_EINVAL, "%s: %zu tokens are too few for a window of %zu (BOS and %zu)",
                          q->text, n_ids, ctx, ctx - 1);
    *n = q->n_windows && q->n_windows < whole ? q->n_windows : whole;
    return MOTE_OK;
}

int cli_eval(int argc, char **argv)
{
    static const char *const headings[] = {
        "kv",          ">ctx",           ">tokens",       ">loss", ">perplexity", ">KL vs bf16", ">same top-1 %",
        ">KV B/token", ">prefill tok/s", ">decode tok/s", ">peak"
    };
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    request q;
    parse(&a, &q);

    mote_err err = { 0 };
    mote_model *model = NULL;
    mote_model_info info;
    char *text = NULL;
    int32_t *ids = NULL, *window = NULL;
    size_t n_text = 0, n_ids = 0, largest = 0;
    int status = CLI_FAILED;
    json_t *rows = json_array();
    cli_table *table = NULL;
    int rc = cli_model_open(&model, &info, a.operands[0], &a, &err);
    if (!rc && !info.has_tokenizer)
        rc = mote__fail(&err, MOTE_EINVAL, "%s: there is no tokenizer.json", a.operands[0]);
    if (!rc && info.bos < 0)
        rc = mote__fail(&err, MOTE_EINVAL, "%s: the model has no BOS token to start a window with", a.operands[0]);
    if (!rc)
        rc = check_formats(model, &a, &q, &status, &err);
    if (!rc)
        rc = cli_read_file(q.text, &text, &n_text, &err);
    if (!rc)
        rc = mote_encode(model, text, n_text, q.flags, &ids, &n_ids, &err);
    for (size_t c = 0; !rc && c < q.n_ctxs; c++) {
        size_t n = 0;
        rc = count_windows(&q, q.ctxs[c], n_ids, &info, &n, &err);
        if (!rc && q.n_windows > n)
            cli_say("mote: note: %s has only %zu whole windows of %zu tokens", q.text, n, (size_t)q.ctxs[c]);
        largest = q.ctxs[c] > largest ? q.ctxs[c] : largest;
    }
    if (!rc && !(window = malloc(largest * sizeof *window)))
        rc = mote__fail(&err, MOTE_ENOMEM, "out of memory for a window of %zu tokens", largest);
    if (!rc)
        window[0] = info.bos;
    for (size_t c = 0; !rc && c < q.n_ctxs; c++)
        for (size_t k = 0; !rc && k < q.n_specs; k++) {
            row r = { .kv = q.specs[k], .ctx = q.ctxs[c] };
            rc = count_windows(&q, r.ctx, n_ids, &info, &r.n_windows, &err);
            if (!rc)
                rc = measure(model, &a, &q, ids, window, &r, &status, &err);
            if (rc)
                break;
            json_array_append_new(rows, row_json(&r));
            table = table ? table : cli_table_create(sizeof headings / sizeof headings[0], headings);
            add_table_row(table, &r);
        }
    if (rc) {
        int reported = cli_report(&err);
        status = status == CLI_USAGE ? status : reported;
        cli_table_print(table, NULL, 0);
    } else if (a.json) {
        json_t *o = json_pack("{s:O, s:s, s:s, s:i, s:s}", "rows", rows, "math", cli_math_names[a.math], "prefill",
                              cli_prefill_names[a.prefill], "threads", info.n_threads, "cpu", info.cpu);
        cli_table_print(table, NULL, 0);
        status = cli_print_json(o, JSON_INDENT(2));
    } else {
        cli_table_print(table, stdout, 0);
        status = cli_flush();
    }
    json_decref(rows);
    for (size_t k = 0; k < q.n_specs; k++)
        free(q.specs[k]);
    free(q.specs);
    free(q.ctxs);
    free(text);
    mote_free(ids);
    free(window);
    mote_model_close(model);
    return status;
}
