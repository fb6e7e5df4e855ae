/* mote tune: the best cache formats under a budget of bytes per token, measured and written down as
 * a profile. */
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
#include "lab/needle_text.h"
#include "lab/profile.h"
#include "lab/report.h"
#include "lab/tune.h"

enum { O_TEXT = 1200, O_BUDGET, O_TASK, O_CTX, O_WINDOWS, O_FORMATS, O_PLAIN, O_SAMPLES, O_SEED };

static const cli_usage usage = {
    .command = "tune",
    .operands = "MODEL",
    .about = "Measure what each format costs in each part (main, index) of each KV source of the\n"
             "model, choose one for each under a budget of bytes per token, measure the choice,\n"
             "and write it as a profile that --profile loads in other commands.",
    .opts =
        (const cli_opt[]){
            CLI_ROW_HELP,
            { O_TEXT, "text", "FILE", "the text to measure on; - is standard input (required)" },
            { O_BUDGET, "budget", "BYTES",
              "bytes of global KV per token at most; default: what the default formats take" },
            { O_TASK, "task", "NAME",
              "what a format is charged for: generation (default): the KL it causes on the\n"
              "text;\n"
              "retrieval: how far it moves ln p of the answers of hidden needles" },
            { 'o', "out", "FILE",
              "write the profile there; an existing file is replaced in one step" },
            { O_CTX, "ctx", "N", "tokens of a window and of a needle context; default 2048" },
            { O_WINDOWS, "windows", "N",
              "windows to measure on; default 1. As many more, if the text has them, check the\n"
              "choice" },
            { O_FORMATS, "formats", "LIST",
              "formats to choose from; default fp4-128,fp4-64,fp4-32,mxfp4,fp4,fp8,bf16. A part\n"
              "takes those whose groups divide its vectors" },
            { O_SAMPLES, "samples", "N", "needle contexts (retrieval); default 2" },
            { O_SEED, "seed", "N", "what the needles are drawn from; default 1" },
            { O_PLAIN, "plain", NULL, "text that looks like a special token is ordinary text" },
            CLI_ROW_MATH,
            CLI_ROW_THREADS,
            CLI_ROWS_PICTURES,
            CLI_ROW_JSON,
            CLI_ROW_END,
        },
    .notes =
        "How: with the whole cache in f32, windows too, one part of one source at a time is\n"
        "rounded to one format; its cost is the mean KL(f32 || this) over the predicted\n"
        "tokens (generation), or the mean square change of ln p(answer) over the needles\n"
        "(retrieval, where indexer keys weigh more). Both are squares of small disturbances,\n"
        "so independent ones add up: the sum over parts is minimised exactly under the\n"
        "budget, then the whole choice is measured, on the same windows (with f32 windows:\n"
        "predicted against measured) and on windows that had no part in the choice. Window\n"
        "formats cost nothing per token: the default stays.\n"
        "\n"
        "JSON: task, cost (its unit), budget, kv, bytes_per_token, predicted, measured,\n"
        "measured_se (generation), judgement, items[] {layer, part, options[] {format,\n"
        "bytes_per_token, cost, cost_se, chosen}}, frontier[] {bytes_per_token, predicted}:\n"
        "the best choice for every budget, verified[] and heldout[] (exact, chosen, default,\n"
        "and chosen with f32 windows: kv, bytes_per_token, tokens, loss, perplexity,\n"
        "loss_minus_exact, loss_minus_exact_se, kl, kl_se, peak_bytes), needle (retrieval;\n"
        "see 'mote eval --help'), profile: what the file holds (docs/profile.md).\n"
        "\n"
        "examples:\n"
        "  mote tune models/nano --text models/nano/heldout.txt --budget 212 --out nano.profile\n"
        "  mote tune models/nano --text book.txt --budget 160 --task retrieval --ctx 4K --json\n"
        "  mote run models/nano -p 'It was' --profile nano.profile",
};

typedef struct request {
    const char *text, *out;
    const char **formats; /* owned */
    lab_tune tune;
    int flags;
} request;

static void split_formats(const cli_args *a, request *q, const char *list)
{
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        if (!n)
            cli_usage_error(a, "--formats: an empty format in '%s'", list);
        if (q->tune.n_formats == 16)
            cli_usage_error(a, "--formats: more than 16");
        cli_append(&q->formats, &q->tune.n_formats, strndup(p, n));
        p += n;
        if (!*p)
            return;
    }
}

static void parse(cli_args *a, request *q)
{
    static double depths[] = { 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1 };
    *q = (request){ .tune = { .ctx = 2048,
                              .n_windows = 1,
                              .depths = depths,
                              .n_depths = sizeof depths / sizeof *depths,
                              .n_samples = 2,
                              .seed = 1 } };
    int id;
    while ((id = cli_next(a)) != CLI_END)
        switch (id) {
        case O_TEXT: q->text = a->value; break;
        case 'o': q->out = a->value; break;
        case O_BUDGET: q->tune.budget = cli_real(a, 0.001, 1e9); break;
        case O_TASK: q->tune.task = (lab_task)cli_choice(a, lab_task_names); break;
        case O_CTX:
            q->tune.ctx = (size_t)cli_size(a);
            if (q->tune.ctx < 2)
                cli_usage_error(a, "--ctx: a window needs at least 2 tokens");
            break;
        case O_WINDOWS: q->tune.n_windows = cli_uint(a, 1, UINT32_MAX); break;
        case O_FORMATS: split_formats(a, q, a->value); break;
        case O_SAMPLES: q->tune.n_samples = cli_uint(a, 1, 100000); break;
        case O_SEED: q->tune.seed = cli_uint(a, 0, INT64_MAX - 1); break;
        case O_PLAIN: q->flags = MOTE_ENCODE_PLAIN; break;
        }
    q->tune.model_path = cli_operand(a, 0, "MODEL");
    cli_no_more_operands(a, 1);
    if (!q->text)
        cli_usage_error(a, "--text is missing");
    if (!q->formats)
        split_formats(a, q, "fp4-128,fp4-64,fp4-32,mxfp4,fp4,fp8,bf16");
    q->tune.formats = q->formats;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "-";
}

static cli_text bytes_text(double v)
{
    cli_text t;
    snprintf(t.s, sizeof t.s, "%.6g", v);
    return t;
}

static void print_items(const json_t *items)
{
    static const char *const headings[] = { ">layer", "part", "format", ">B/token",
                                            ">cost",  ">+-",  "" };
    cli_table *t = cli_table_create(7, headings);
    const json_t *item, *o;
    size_t i, k;
    json_array_foreach(items, i, item) json_array_foreach(json_object_get(item, "options"), k, o)
    {
        cli_table_add(t, k ? "" : cli_count((uint64_t)cli_number(item, "layer")).s);
        cli_table_add(t, k ? "" : text_of(item, "part"));
        cli_table_add(t, text_of(o, "format"));
        cli_table_add(t, bytes_text(cli_number(o, "bytes_per_token")).s);
        cli_table_add(t, cli_fixed(cli_number(o, "cost"), 6).s);
        cli_table_add(t, cli_fixed(cli_number(o, "cost_se"), 6).s);
        cli_table_add(t, json_is_true(json_object_get(o, "chosen")) ? "<" : "");
    }
    cli_table_print(t, stdout, 2);
}

static void print_checked(const char *title, const json_t *rows)
{
    static const char *const headings[] = {
        "", ">B/token", ">tokens", ">perplexity", ">loss to exact", ">+-", ">KL to exact", ">+-"
    };
    if (!json_array_size(rows))
        return;
    cli_table *t = cli_table_create(8, headings);
    const json_t *r;
    size_t i;
    json_array_foreach(rows, i, r)
    {
        char signed_loss[32];
        snprintf(signed_loss, sizeof signed_loss, "%+.5f", cli_number(r, "loss_minus_exact"));
        cli_table_add(t, text_of(r, "name"));
        cli_table_add(t, bytes_text(cli_number(r, "bytes_per_token")).s);
        cli_table_add(t, cli_count((uint64_t)cli_number(r, "tokens")).s);
        cli_table_add(t, cli_fixed(cli_number(r, "perplexity"), 3).s);
        cli_table_add(t, signed_loss);
        cli_table_add(t, cli_fixed(cli_number(r, "loss_minus_exact_se"), 5).s);
        cli_table_add(t, cli_fixed(cli_number(r, "kl"), 6).s);
        cli_table_add(t, cli_fixed(cli_number(r, "kl_se"), 6).s);
    }
    printf("\n%s\n", title);
    cli_table_print(t, stdout, 2);
}

static void print_result(const json_t *r, const char *out)
{
    printf("What each format costs alone (%s)\n", text_of(r, "cost"));
    print_items(json_object_get(r, "items"));
    print_checked("The choice, measured on the same windows", json_object_get(r, "verified"));
    print_checked("And on text that had no part in it", json_object_get(r, "heldout"));
    if (json_is_object(json_object_get(r, "needle")))
        cli_print_needle(json_object_get(r, "needle"));
    printf("\n%s bytes a token of a budget of %s: --kv %s\n%s\n",
           bytes_text(cli_number(r, "bytes_per_token")).s, bytes_text(cli_number(r, "budget")).s,
           text_of(r, "kv"), text_of(r, "judgement"));
    if (out)
        printf("written to %s: use it with --profile %s\n", out, out);
}

int cli_tune(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    request q;
    parse(&a, &q);
    mote_err err = { 0 };
    mote_model *model = NULL;
    mote_model_info info;
    lab_text text = { 0 };
    lab_progress progress = { cli_progress_lab, NULL };
    char *bytes = NULL;
    size_t n_bytes = 0;
    json_t *result = NULL;
    int status = CLI_FAILED;
    int rc = cli_model_open(&model, &info, a.operands[0], &a, 0, &err);
    for (size_t f = 0; !rc && f < q.tune.n_formats; f++) {
        mote_session_params params = { .kv = q.formats[f] };
        mote_session *session = NULL;
        rc = mote_session_create(&session, model, &params, &err);
        mote_session_destroy(session);
        /* its groups do not fit the main part: lab/ leaves it out */
        if (rc == MOTE_EUNSUPPORTED)
            rc = MOTE_OK;
        else if (rc)
            cli_kv_error("--formats", &a, &status, &err);
    }
    if (!rc)
        rc = cli_read_file(q.text, &bytes, &n_bytes, &err);
    if (!rc)
        rc = lab_text_init(&text, model, q.text, bytes, n_bytes, q.flags, &err);
    if (!rc)
        rc = lab_tune_run(&result, model, &text, &q.tune, &progress, &err);
    cli_progress_clear();
    if (!rc && q.out)
        rc = lab_profile_write(q.out, json_object_get(result, "profile"), &err);
    if (!rc)
        rc = cli_write_pictures(&a, lab_report_tune, result, &err);
    if (rc) {
        int reported = cli_report(&err);
        status = status == CLI_USAGE ? status : reported;
    } else if (a.json) {
        status = cli_print_json(json_incref(result), JSON_INDENT(2));
    } else {
        print_result(result, q.out);
        status = cli_flush();
    }
    json_decref(result);
    lab_text_deinit(&text);
    free(bytes);
    mote_model_close(model);
    for (size_t f = 0; f < q.tune.n_formats; f++)
        free((char *)q.formats[f]);
    free(q.formats);
    return status;
}
