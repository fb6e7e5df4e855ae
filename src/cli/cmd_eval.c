/* mote eval: what a cache format costs on a text. The measuring is done by lab/; this reads options
 * and prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_string.h"
#include "cli/cli.h"
#include "cli/cmd_eval.h"
#include "cli/running.h"
#include "cli/opts.h"
#include "cli/out.h"
#include "cli/store_opts.h"
#include "lab/blame.h"
#include "lab/cuts.h"
#include "lab/format_rows.h"
#include "lab/needle.h"
#include "lab/needle_text.h"
#include "lab/profile.h"
#include "lab/report.h"
#include "lab/corpus.h"

enum {
    O_TEXT = 1200,
    O_CTX,
    O_WINDOWS,
    O_NO_KL,
    O_PLAIN,
    O_BASE,
    O_NO_LOSS,
    O_NEEDLE,
    O_DEPTHS,
    O_SAMPLES,
    O_SEED,
    O_CUT,
    O_KV_ERROR,
    O_BLAME,
    O_BLAME_TOPK
};
enum { DECODE_TOKENS = 32 };

static const cli_usage usage = {
    .command = "eval",
    .many_kv = 1,
    .operands = "MODEL",
    .about =
        "Measure the model on a text, format by format. Windows are BOS + consecutive ctx - 1\n"
        "tokens from the start of the text; every token after BOS is predicted from all\n"
        "before it (a full pass), and means are per predicted token.",
    .opts =
        (const cli_opt[]){
            CLI_ROW_HELP,
            { O_TEXT, "text", "FILE",
              "the text; - is standard input (required). Special tokens written in it are\n"
              "recognised" },
            { O_CTX, "ctx", "LIST",
              "window lengths in tokens, e.g. 1K,4K (K = 1024); default 4096" },
            { O_WINDOWS, "windows", "N",
              "how many windows of each length; default 1, 0 = as many whole ones as the text\n"
              "has" },
            { CLI_O_KV, "kv", "LIST",
              "cache formats to compare, one row each: words of the main format separated by "
              "commas\n"
              "(fp4,fp8,bf16), or full specs separated by semicolons\n"
              "('main=fp4,index=fp8;main=fp8'); may be given several times. Default fp4; for\n"
              "Llama-style models bf16 ('key=fp8,value=fp4;fp8').\n" CLI_KV_FORMATS },
            CLI_ROW_PROFILE,
            { O_BASE, "base", "SPEC",
              "formats that KL and top-1 agreement are taken against; default bf16 (the main\n"
              "part). With main=f32,index=f32,window=f32 nothing of the cache is rounded" },
            { O_NO_KL, "no-kl", NULL, "do not compare with the base" },
            { O_PLAIN, "plain", NULL, "text that looks like a special token is ordinary text" },
            { O_NO_LOSS, "no-loss", NULL,
              "leave the table of losses out: only what the next options ask for" },
            { O_NEEDLE, "needle", NULL,
              "hide facts (numbers and names) in the text at several depths and ask for them at\n"
              "the end" },
            { O_DEPTHS, "depths", "LIST",
              "where, in percent of the text, ascending; default\n"
              "0,10,20,30,40,50,60,70,80,90,100 (at most 32)" },
            { O_SAMPLES, "samples", "N",
              "contexts of each length, each with other needles; default 2" },
            { O_SEED, "seed", "N",
              "what the needles are drawn from; default 1. The same seed gives the same contexts" },
            { O_CUT, "cut", "LIST",
              "what bounded prefill and a hit in a store cost: losses behind these positions of\n"
              "each window" },
            { O_KV_ERROR, "kv-error", NULL,
              "relative error of the stored KV itself, by layer and part, against f32 (first\n"
              "window)" },
            { O_BLAME, "blame", NULL,
              "switch one cause at a time (main, index, window format, top-k, candidates,\n"
              "prefill, replay) and say which explains the loss; of the first format of --kv,\n"
              "and of the needles too with --needle" },
            { O_BLAME_TOPK, "blame-topk", "N",
              "entries a query attends to in the exact baseline; default 4 times the model's\n"
              "top-k, 0 = all" },
            CLI_ROWS_STORE,
            { CLI_O_PREFILL, "prefill", "MODE",
              "for the two speeds and the needles' contexts: bounded (default), exact, full;\n"
              "see 'mote run --help'" },
            CLI_ROW_MATH,
            CLI_ROW_WEIGHTS,
            CLI_ROW_THREADS,
            CLI_ROWS_PICTURES,
            CLI_ROW_JSON,
            CLI_ROW_END,
        },
    .notes =
        "loss = mean of -ln p(token); perplexity = e^loss; kl = mean over positions of sum p\n"
        "ln(p / q), p with the base's cache, q with the row's; top1_agreement = share of\n"
        "positions whose likeliest token is the same. A row that is the base is its own\n"
        "yardstick: 0 and 1. _se: standard error of a mean, over tokens or blocks of 32, the\n"
        "larger. Speeds come from an ordinary session on the first window, with --prefill:\n"
        "its text but the last 32 tokens is read (prefill_tokens_per_s), those are decoded\n"
        "one by one (decode_tokens_per_s). peak_bytes = the session's share of memory and\n"
        "scratch at its largest during the full pass.\n"
        "\n"
        "With --store a window is looked up in DIR and written to it like a prompt of 'mote\n"
        "run' (all but its last two tokens are looked up). Tokens that were found are not run\n"
        "and not scored: tokens, loss, perplexity and KL are of what was computed after the\n"
        "hit. cold_loss is the loss of the same tokens without the store (run only where\n"
        "something was reused), loss_minus_cold the paired difference: what the hit costs.\n"
        "The base is always run cold. Windows of several lengths begin alike, so --ctx 1K,4K\n"
        "hits in its second row.\n"
        "\n"
        "--needle: a context holds one needle per depth, ' The secret number of Susan Hale is\n"
        "4817.'; a question repeats its words up to the answer. recall = share of answers\n"
        "whose every token is the likeliest one; choice = share that is likelier than each\n"
        "answer of the other needles of its kind, in the same context; greedy =\n"
        "share whose generated text begins with the answer; logp = ln p(answer); margin =\n"
        "logp less the mean of those others: graded where recall is 0 or 1. The base (--base)\n"
        "is asked too.\n"
        "--cut: cold = the prefix read whole; minus_cold = loss of the same tokens less\n"
        "cold's; beyond_noise = more than 3 errors.\n"
        "--kv-error: |stored - f32| / |f32| over all values: rounding = of f32's own values\n"
        "rounded once, error = of what is stored, the errors of all layers before included.\n"
        "--blame: exact = f32 everywhere, --blame-topk entries attended to, every one scored,\n"
        "full prefill; full = the first --kv, the model's top-k and candidates, bounded\n"
        "prefill, and the prefix (half of the window) coming back after a hit by bounded\n"
        "replay. alone = exact but for one cause, less exact; last = full, less full but for\n"
        "the cause. Judged real beyond 3 standard errors, both ways: it costs. KL is told\n"
        "over that of a control (all parts bf16): any rounding moves a trained model\n"
        "somewhat, however small.\n"
        "\n"
        "JSON: rows[] {kv, ctx, windows, tokens, loss, loss_se, perplexity, kl, kl_se,\n"
        "kl_vs_bf16 (kl, where the base is bf16), top1_agreement, kv_bytes_per_token,\n"
        "prefill_tokens_per_s, decode_tokens_per_s, full_pass_tokens_per_s, peak_bytes};\n"
        "with --store also {reused_tokens + computed_tokens = windows x ctx, replayed_tokens\n"
        "(reused ones that ran again), exact, cold_loss, cold_perplexity, loss_minus_cold,\n"
        "loss_minus_cold_se}; null where not measured. needle {seed, samples, depths[],\n"
        "rows[] {kv, ctx, asked, recall, choice, greedy, logp, margin, margin_se,\n"
        "logp_minus_base, ...}, cells[] (the same by depth)}; cuts[] {kv, ctx, cut, tokens,\n"
        "cold_loss, ways[]}; kv_error[] {kv, ctx, rows[] {layer, part, format, vectors,\n"
        "rounding, error}}; blame[] {ctx, kv, cut, loss and needle {exact, full, total,\n"
        "total_se, causes[] {cause, alone, alone_se, last, last_se, judgement}, rest,\n"
        "verdict[]}, kl[], kl_verdict}. base, text, math, prefill, threads, cpu.\n"
        "\n"
        "examples:\n"
        "  mote eval models/nano --text models/nano/heldout.txt --kv fp4,fp8,bf16\n"
        "  mote eval models/nano --text book.txt --ctx 1K,8K --windows 0 --no-kl --json\n"
        "  mote eval models/nano --text book.txt --ctx 1K,4K --store /tmp/store --replay bounded\n"
        "  mote eval models/nano --text book.txt --no-loss --needle --ctx 1K,4K,16K --kv fp4,bf16\n"
        "  mote eval models/nano --text book.txt --ctx 4K --windows 4 --blame",
};

typedef struct request {
    const char *text, *base;
    const char **specs; /* owned, split */
    size_t n_specs;
    uint64_t *ctxs;
    size_t n_ctxs, n_windows;
    int no_kl, no_loss, needle, kv_error, blame, flags;
    double depths[LAB_MAX_NEEDLES];
    size_t n_depths, n_samples;
    uint64_t seed, *cuts;
    size_t n_cuts, blame_topk;
    cli_store store;
} request;

/* Commas separate words, semicolons separate specs; a list with '=' and no semicolon is one spec.
 */
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
    *q = (request){ .n_windows = 1, .base = "bf16", .n_samples = 2, .seed = 1, .n_depths = 11 };
    for (size_t i = 0; i < q->n_depths; i++)
        q->depths[i] = 0.1 * (double)i;
    const char *needs_needle = NULL, *needs_blame = NULL;
    int id;
    while ((id = cli_next(a)) != CLI_END) {
        if (cli_store_option(&q->store, a, id))
            continue;
        switch (id) {
        case O_TEXT: q->text = a->value; break;
        case O_CTX:
            free(q->ctxs);
            q->ctxs = cli_sizes(a, &q->n_ctxs);
            for (size_t i = 0; i < q->n_ctxs; i++)
                if (q->ctxs[i] < 2)
                    cli_usage_error(a, "--ctx: a window needs at least 2 tokens");
            break;
        case O_WINDOWS: q->n_windows = cli_uint(a, 0, UINT32_MAX); break;
        case CLI_O_KV: split_specs(a, q, a->value); break;
        case O_BASE: q->base = a->value; break;
        case O_NO_KL: q->no_kl = 1; break;
        case O_PLAIN: q->flags = MOTE_ENCODE_PLAIN; break;
        case O_NO_LOSS: q->no_loss = 1; break;
        case O_NEEDLE: q->needle = 1; break;
        case O_DEPTHS:
            q->n_depths = cli_percents(a, q->depths, LAB_MAX_NEEDLES);
            needs_needle = "--depths";
            break;
        case O_SAMPLES:
            q->n_samples = cli_uint(a, 1, 100000);
            needs_needle = "--samples";
            break;
        case O_SEED:
            q->seed = cli_uint(a, 0, INT64_MAX);
            needs_needle = "--seed";
            break;
        case O_CUT:
            free(q->cuts);
            q->cuts = cli_sizes(a, &q->n_cuts);
            break;
        case O_KV_ERROR: q->kv_error = 1; break;
        case O_BLAME: q->blame = 1; break;
        case O_BLAME_TOPK:
            q->blame_topk = cli_uint(a, 0, UINT32_MAX);
            q->blame_topk = q->blame_topk ? q->blame_topk : SIZE_MAX;
            needs_blame = "--blame-topk";
            break;
        }
    }
    if (needs_blame && !q->blame)
        cli_usage_error(a, "%s needs --blame", needs_blame);
    if (needs_needle && !q->needle)
        cli_usage_error(a, "%s needs --needle", needs_needle);
    if (q->no_loss && !q->needle && !q->n_cuts && !q->kv_error && !q->blame)
        cli_usage_error(a, "--no-loss leaves nothing to do");
    for (size_t i = 0; i < q->n_cuts; i++)
        for (size_t c = 0; c < q->n_ctxs; c++)
            if (q->cuts[i] + 2 > q->ctxs[c])
                cli_usage_error(a, "--cut: %zu leaves nothing of a window of %zu tokens",
                                (size_t)q->cuts[i], (size_t)q->ctxs[c]);
    cli_operand(a, 0, "MODEL");
    cli_no_more_operands(a, 1);
    if (!q->text)
        cli_usage_error(a, "--text is missing");
    if (!q->ctxs) {
        q->ctxs = malloc(sizeof *q->ctxs);
        if (q->ctxs)
            q->ctxs[q->n_ctxs++] = 4096;
    }
    cli_store_check(&q->store, a);
}

/* Every format is tried before the first is measured: a typing error should not cost an hour. */
static int check_formats(mote_model *model, const cli_args *a, const request *q, int *status,
                         mote_err *err)
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
    if (!rc && (rc = mote_session_create(&session, model, &params, err)))
        cli_kv_error("--base", &(cli_args){ .kv = NULL }, status, err);
    mote_session_destroy(session);
    return rc;
}

/* ---- the store, as lab/ wants it ---- */
static void store_open(void *ctx) { cli_store_open(ctx); }
static void store_close(void *ctx) { cli_store_close(ctx); }
static int store_fill(void *ctx, mote_session *session, const int32_t *ids, size_t n_ids,
                      mote_restored *found, int *exact, mote_err *err)
{
    cli_store *s = ctx;
    cli_store_attach(s, session);
    int rc = cli_store_restore(s, session, ids, n_ids, found, err);
    *exact = found->exact;
    return rc;
}

/* ---- the parts of the report ---- */
static int measure_needles(json_t *report, mote_model *model, const cli_args *a, const request *q,
                           const lab_text *text, const lab_progress *progress, mote_err *err)
{
    mote_session_params *cases = calloc(q->n_specs + 1, sizeof *cases);
    if (!cases)
        return mote__fail(err, MOTE_ENOMEM, "out of memory");
    size_t n = 0;
    cases[n++] = (mote_session_params){ .kv = q->base, .prefill = a->prefill };
    for (size_t k = 0; k < q->n_specs; k++)
        if (strcmp(q->specs[k], q->base))
            cases[n++] = (mote_session_params){ .kv = q->specs[k], .prefill = a->prefill };
    lab_needles needles = { .cases = cases,
                            .n_cases = n,
                            .ctx = q->ctxs,
                            .n_ctx = q->n_ctxs,
                            .depths = q->depths,
                            .n_depths = q->n_depths,
                            .n_samples = q->n_samples,
                            .seed = q->seed };
    json_t *result = NULL;
    int rc = lab_needle_run(&result, model, text, &needles, progress, err);
    if (!rc)
        json_object_set_new(report, "needle", result);
    free(cases);
    return rc;
}

static int measure_cuts(json_t *report, mote_model *model, const request *q, const lab_text *text,
                        const lab_progress *progress, mote_err *err)
{
    json_t *all = json_array(), *some = NULL;
    int rc = MOTE_OK;
    for (size_t c = 0; !rc && c < q->n_ctxs; c++)
        for (size_t k = 0; !rc && k < q->n_specs; k++) {
            rc = lab_cuts_run(&some, model, text, q->specs[k], (size_t)q->ctxs[c], q->n_windows,
                              q->cuts, q->n_cuts, progress, err);
            if (!rc)
                json_array_extend(all, some);
            json_decref(some);
        }
    json_object_set_new(report, "cuts", all);
    return rc;
}

static int measure_blame(json_t *report, mote_model *model, const request *q, const lab_text *text,
                         const lab_progress *progress, mote_err *err)
{
    json_t *all = json_array(), *one = NULL;
    int rc = MOTE_OK;
    for (size_t c = 0; !rc && c < q->n_ctxs; c++) {
        mote_model_info info;
        mote_model_get_info(model, &info);
        lab_blame b = { .kv = q->specs[0],
                        .topk = q->blame_topk ? q->blame_topk : 4 * info.topk,
                        .ctx = (size_t)q->ctxs[c],
                        .n_windows = q->n_windows,
                        .depths = q->depths,
                        .n_depths = q->needle ? q->n_depths : 0,
                        .n_samples = q->n_samples,
                        .seed = q->seed };
        rc = lab_blame_run(&one, model, text, &b, progress, err);
        if (!rc)
            json_array_append_new(all, one);
    }
    json_object_set_new(report, "blame", all);
    return rc;
}

static int measure(json_t *report, mote_model *model, const cli_args *a, request *q,
                   const lab_text *text, mote_err *err)
{
    lab_store store = { &q->store, store_open, store_close, store_fill };
    lab_progress progress = { cli_progress_lab, NULL };
    lab_formats f = { .kv = q->specs,
                      .n_kv = q->n_specs,
                      .ctx = q->ctxs,
                      .n_ctx = q->n_ctxs,
                      .n_windows = q->n_windows,
                      .base = q->no_kl ? NULL : q->base,
                      .prefill = a->prefill,
                      .n_decode = DECODE_TOKENS,
                      .store = q->store.dir ? &store : NULL };
    json_t *rows = json_array();
    json_object_set_new(report, "rows", rows);
    int rc = q->no_loss ? MOTE_OK : lab_formats_run(rows, model, text, &f, &progress, err);
    if (!rc && q->needle)
        rc = measure_needles(report, model, a, q, text, &progress, err);
    if (!rc && q->n_cuts)
        rc = measure_cuts(report, model, q, text, &progress, err);
    json_t *errors = json_array();
    for (size_t c = 0; !rc && q->kv_error && c < q->n_ctxs; c++)
        rc = lab_kv_error_run(errors, model, text, q->specs, q->n_specs, (size_t)q->ctxs[c],
                              &progress, err);
    if (json_array_size(errors))
        json_object_set(report, "kv_error", errors);
    json_decref(errors);
    if (!rc && q->blame)
        rc = measure_blame(report, model, q, text, &progress, err);
    cli_progress_clear();
    return rc;
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
    json_t *report = json_object();
    int rc = cli_model_open(&model, &info, a.operands[0], &a, 0, &err);
    if (!rc && a.profile)
        cli_append(&q.specs, &q.n_specs, strdup(a.profile_kv));
    /* "main=fp4,..." or "key=bf16,...": the first part's word */
    if (!rc && !q.n_specs) {
        const char *word = strchr(info.kv, '=') + 1;
        char format[32];
        snprintf(format, sizeof format, "%.*s", (int)strcspn(word, ","), word);
        split_specs(&a, &q, format);
    }
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
            cli_say("mote: note: %s has only %zu whole windows of %zu tokens", q.text, n,
                    (size_t)q.ctxs[c]);
    }
    if (!rc)
        rc = measure(report, model, &a, &q, &text, &err);
    if (!rc) {
        json_t *more = json_pack("{s:o, s:o, s:s, s:s, s:i, s:s}", "base",
                                 mote__json_string(q.no_kl ? NULL : q.base), "text",
                                 mote__json_string(q.text), "math", cli_math_names[a.math],
                                 "prefill", cli_prefill_names[a.prefill], "threads", info.n_threads,
                                 "cpu", info.cpu);
        if (json_object_update(report, more))
            rc = mote__fail(&err, MOTE_ENOMEM, "out of memory for the report");
        json_decref(more);
    }
    if (!rc)
        rc = cli_write_pictures(&a, lab_report_eval, report, &err);
    if (rc) {
        int reported = cli_report(&err);
        status = status == CLI_USAGE ? status : reported;
    } else if (a.json) {
        status = cli_print_json(json_incref(report), JSON_INDENT(2));
    } else {
        cli_print_eval(report);
        status = cli_flush();
    }
    json_decref(report);
    free(q.cuts);
    for (size_t k = 0; k < q.n_specs; k++)
        free((char *)q.specs[k]);
    free(q.specs);
    free(q.ctxs);
    lab_text_deinit(&text);
    free(bytes);
    mote_model_close(model);
    return status;
}
