/* mote ladder: longer and longer contexts until something fails, and why. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/cmd_eval.h"
#include "cli/running.h"
#include "cli/opts.h"
#include "cli/out.h"
#include "lab/ladder.h"
#include "lab/report.h"

enum {
    O_TEXT = 1200,
    O_CTX,
    O_RAM,
    O_SCORED,
    O_MAX_LOSS,
    O_MAX_NEEDLE,
    O_NO_BASE,
    O_NO_NEEDLE,
    O_SAMPLES,
    O_SEED,
    O_PLAIN
};

static const cli_usage usage = {
    .command = "ladder",
    .operands = "MODEL",
    .about = "The careful rollout: contexts of 4K, 8K, 16K ... tokens, each with its memory told\n"
             "before it is allocated, memory by part, speed, perplexity and recall against an\n"
             "unrounded cache, until one fails; then the reason, and for quality its blame.",
    .opts =
        (const cli_opt[]){
            CLI_ROW_HELP,
            { O_TEXT, "text", "FILE",
              "the text to read; - is standard input (required). It must be as long as the\n"
              "longest context" },
            { O_CTX, "ctx", "LIST",
              "the steps in tokens; default 4K, 8K, ... up to the model's limit" },
            { O_RAM, "ram", "SIZE",
              "bytes that weights, caches and scratch may take; default: the weights and what\n"
              "the machine has free" },
            { O_SCORED, "scored", "N",
              "tokens at the end of each context whose loss counts; default 2048, at most half\n"
              "of the context" },
            { O_MAX_LOSS, "max-loss", "X",
              "a step fails when its loss is more than X nat a token above the baseline's,\n"
              "beyond three standard errors; default 0.02" },
            { O_MAX_NEEDLE, "max-needle", "X",
              "or when ln p of the needles' answers is more than X nat below it; default 0.5" },
            { O_SAMPLES, "samples", "N", "needle contexts at each step; default 1" },
            { O_SEED, "seed", "N", "what the needles are drawn from; default 1" },
            { O_NO_NEEDLE, "no-needle", NULL, "no needles" },
            { O_NO_BASE, "no-base", NULL,
              "no baseline: less time and memory, and quality is not judged" },
            { O_PLAIN, "plain", NULL, "text that looks like a special token is ordinary text" },
            CLI_ROW_KV,
            CLI_ROW_PROFILE,
            CLI_ROW_PREFILL,
            CLI_ROW_MATH,
            CLI_ROW_THREADS,
            CLI_ROWS_PICTURES,
            CLI_ROW_JSON,
            CLI_ROW_END,
        },
    .notes =
        "need = weights + KV of the step (and the baseline's, in f32) + windows + logits of a\n"
        "chunk + the scratch seen so far; a step that needs more than is there is not begun.\n"
        "The exit status is 0 however far it went: look at `stopped`.\n"
        "\n"
        "JSON: kv, base, kv_bytes_per_token, steps[] {ctx, ok, need {weights, kv, windows,\n"
        "baseline, logits, scratch, total, available}, memory {by class},\n"
        "prefill_tokens_per_s, decode_tokens_per_s, peak_rss, tokens, loss, perplexity,\n"
        "base_perplexity, loss_minus_base, loss_minus_base_se, kl, kl_se, needle {recall,\n"
        "choice, greedy, margin, base_..., logp_minus_base, ...}}, stopped {ctx, reason:\n"
        "memory, quality, text or model, diagnosis} or null, blame (see 'mote eval --help').\n"
        "\n"
        "examples:\n"
        "  mote ladder models/nano --text models/nano/heldout.txt\n"
        "  mote ladder models/nano --text book.txt --ctx 4K,16K,64K --kv fp4-128 --max-loss 0.01 "
        "--json",
};

typedef struct request {
    const char *text;
    uint64_t *ctx;
    lab_ladder ladder;
    int flags, json;
} request;

static void parse(cli_args *a, request *q)
{
    static const double depths[] = { 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1 };
    *q = (request){ .ladder = { .n_scored = 2048,
                                .max_loss = 0.02,
                                .max_needle = 0.5,
                                .depths = depths,
                                .n_depths = sizeof depths / sizeof *depths,
                                .n_samples = 1,
                                .seed = 1 } };
    lab_ladder *l = &q->ladder;
    int id;
    while ((id = cli_next(a)) != CLI_END)
        switch (id) {
        case O_TEXT: q->text = a->value; break;
        case O_CTX:
            free(q->ctx);
            q->ctx = cli_sizes(a, &l->n_ctx);
            for (size_t i = 0; i < l->n_ctx; i++)
                if (q->ctx[i] < 64)
                    cli_usage_error(a, "--ctx: a step needs at least 64 tokens");
            break;
        case O_RAM: l->ram = cli_size(a); break;
        case O_SCORED: l->n_scored = cli_uint(a, 16, UINT32_MAX); break;
        case O_MAX_LOSS: l->max_loss = cli_real(a, -100, 100); break;
        case O_MAX_NEEDLE: l->max_needle = cli_real(a, -1000, 1000); break;
        case O_SAMPLES: l->n_samples = cli_uint(a, 1, 100000); break;
        case O_SEED: l->seed = cli_uint(a, 0, INT64_MAX); break;
        case O_NO_NEEDLE: l->n_depths = 0; break;
        case O_NO_BASE: l->no_base = 1; break;
        case O_PLAIN: q->flags = MOTE_ENCODE_PLAIN; break;
        }
    cli_operand(a, 0, "MODEL");
    cli_no_more_operands(a, 1);
    if (!q->text)
        cli_usage_error(a, "--text is missing");
    l->params = (mote_session_params){ .kv = a->kv, .prefill = a->prefill };
}

/* 4K, 8K, ... up to the model's limit, which is the last step. */
static int default_steps(request *q, size_t max_context, mote_err *err)
{
    size_t n = 0;
    if (!(q->ctx = calloc(64, sizeof *q->ctx)))
        return mote__fail(err, MOTE_ENOMEM, "out of memory");
    for (size_t ctx = 4096; ctx < max_context && n < 63; ctx *= 2)
        q->ctx[n++] = ctx;
    q->ctx[n++] = max_context;
    q->ladder.n_ctx = n;
    return MOTE_OK;
}

/* ---- what is seen ---- */
static cli_text step_memory(const json_t *step, const char *prefix)
{
    const char *key;
    json_t *v;
    double sum = 0;
    json_object_foreach(json_object_get(step, "memory"), key,
                        v) if (!strncmp(key, prefix, strlen(prefix))) sum += json_number_value(v);
    return cli_bytes(sum);
}

/* A line as soon as a step is done: a ladder takes long. */
static void on_step(void *ctx, const json_t *s)
{
    const request *q = ctx;
    if (q->json)
        return;
    cli_progress_clear();
    const json_t *needle = json_object_get(s, "needle");
    if (!json_object_get(s, "memory"))
        return;
    printf("%9s  %11s  %11s  %10s  %9s  %9s  %9s", cli_count((uint64_t)cli_number(s, "ctx")).s,
           step_memory(s, "kv_main").s, step_memory(s, "kv_index").s, step_memory(s, "scratch").s,
           cli_fixed(cli_number(s, "prefill_tokens_per_s"), 0).s,
           cli_fixed(cli_number(s, "decode_tokens_per_s"), 0).s,
           cli_fixed(cli_number(s, "perplexity"), 3).s);
    if (!q->ladder.no_base)
        printf("  %+9.4f  %7s", cli_number(s, "loss_minus_base"),
               cli_fixed(cli_number(s, "loss_minus_base_se"), 4).s);
    if (needle)
        printf("  %8s  %8s", cli_fixed(100 * cli_number(needle, "recall"), 0).s,
               cli_fixed(cli_number(needle, "margin"), 2).s);
    printf("\n");
    cli_flush();
}

static void print_head(const request *q)
{
    printf("%9s  %11s  %11s  %10s  %9s  %9s  %9s", "ctx", "main KV", "index KV", "scratch",
           "prefill/s", "decode/s", "ppl");
    if (!q->ladder.no_base)
        printf("  %9s  %7s", "to base", "+-");
    if (q->ladder.n_depths)
        printf("  %8s  %8s", "recall %", "margin");
    printf("\n");
    cli_flush();
}

static void print_end(const json_t *result)
{
    const json_t *stopped = json_object_get(result, "stopped"),
                 *blame = json_object_get(result, "blame");
    const char *diagnosis = json_string_value(json_object_get(stopped, "diagnosis"));
    if (diagnosis)
        printf("\nstopped at %s tokens (%s): %s\n",
               cli_count((uint64_t)cli_number(stopped, "ctx")).s,
               json_string_value(json_object_get(stopped, "reason")), diagnosis);
    else
        printf("\nevery step held\n");
    if (blame)
        cli_print_blame(blame);
}

int cli_ladder(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    request q;
    parse(&a, &q);
    q.json = a.json;
    mote_err err = { 0 };
    mote_model *model = NULL;
    mote_model_info info;
    mote_session *session = NULL;
    lab_text text = { 0 };
    lab_progress progress = { cli_progress_lab, NULL };
    char *bytes = NULL;
    size_t n_bytes = 0;
    json_t *result = NULL;
    int status = CLI_FAILED;
    int rc = cli_model_open(&model, &info, a.operands[0], &a, 0, &err);
    if (!rc)
        /* are the formats good? */
        rc = cli_session_create(&session, model, &a, 0, &status, &err);
    mote_session_destroy(session);
    if (!rc && !q.ctx)
        rc = default_steps(&q, info.max_context, &err);
    if (!rc)
        rc = cli_read_file(q.text, &bytes, &n_bytes, &err);
    if (!rc)
        rc = lab_text_init(&text, model, q.text, bytes, n_bytes, q.flags, &err);
    q.ladder.ctx = q.ctx;
    q.ladder.on_step = on_step;
    q.ladder.on_step_ctx = &q;
    if (!rc && !a.json)
        print_head(&q);
    if (!rc)
        rc = lab_ladder_run(&result, model, &text, &q.ladder, &progress, &err);
    cli_progress_clear();
    if (!rc)
        rc = cli_write_pictures(&a, lab_report_ladder, result, &err);
    if (rc) {
        int reported = cli_report(&err);
        status = status == CLI_USAGE ? status : reported;
    } else if (a.json) {
        status = cli_print_json(json_incref(result), JSON_INDENT(2));
    } else {
        print_end(result);
        status = cli_flush();
    }
    json_decref(result);
    lab_text_deinit(&text);
    free(bytes);
    free(q.ctx);
    mote_model_close(model);
    return status;
}
