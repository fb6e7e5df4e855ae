/* mote logits: the logits that were computed, as a safetensors file, to compare with a reference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_string.h"
#include "base/replace.h"
#include "cli/cli.h"
#include "cli/running.h"
#include "cli/opts.h"
#include "cli/out.h"

enum { O_IDS = 1200, O_REPLAY, O_CUT, O_ROWS, O_DECODE, O_CHUNK };

static const cli_usage usage = {
    .command = "logits",
    .operands = "MODEL",
    .about =
        "Run given token ids and write the logits to a safetensors file: one tensor `logits`,\n"
        "F32 [rows, vocabulary].\n"
        "First the rows of the prompt that were computed, in order of position, then one row\n"
        "per decoded id.",
    .opts =
        (const cli_opt[]){
            CLI_ROW_HELP,
            { O_IDS, "ids", "LIST",
              "the prompt's token ids, e.g. 0,35,3346; nothing is put in front (required)" },
            { 'o', "out", "FILE",
              "the file to write; an existing one is replaced at the end, in one step (required)" },
            { O_ROWS, "rows", "WHICH",
              "all (default): every row the decoder ran over: each position with --prefill\n"
              "full, the last W (window) with bounded and exact; last: only the last position" },
            { O_DECODE, "decode", "LIST", "then feed these ids one at a time, a row each" },
            { O_CHUNK, "chunk", "N",
              "feed the prompt N tokens at a time; default: all at once. With --prefill full\n"
              "the rows are the same, bit for bit; bounded starts its windows anew over a chunk\n"
              "of W and more" },
            { O_CUT, "cut", "P",
              "feed P tokens, forget their window KV as if the prefix had come from a store,\n"
              "replay, feed the rest. P must be a multiple of the model's compression ratios" },
            { O_REPLAY, "replay", "MODE",
              "how --cut rebuilds the windows: bounded (default): the last W prefix tokens\n"
              "through the encoder, as the model's authors do; exact: as many as make it\n"
              "identical" },
            CLI_ROW_KV,
            CLI_ROW_PROFILE,
            CLI_ROW_PREFILL,
            CLI_ROW_MATH,
            CLI_ROW_WEIGHTS,
            CLI_ROW_THREADS,
            CLI_ROW_JSON,
            CLI_ROW_END,
        },
    .notes =
        "Prints (JSON: the same names) out, rows, first = the position of row 0, vocabulary.\n"
        "\n"
        "examples:\n"
        "  mote logits models/nano --ids 0,35,3346,2603 --prefill full --out logits.safetensors\n"
        "  mote logits models/nano --ids 0,35,3346,2603,283 --cut 4 --decode 1011,2508 --out "
        "cut.safetensors",
};

typedef struct request {
    int32_t *ids, *decode;
    size_t n_ids, n_decode, cut, chunk;
    const char *out;
    mote_replay replay;
    int has_cut, has_replay;
    mote_logits_rows rows;
} request;

static void parse(cli_args *a, request *q)
{
    static const char *const rows[] = { "all", "last", NULL };
    *q = (request){ .rows = MOTE_LOGITS_ALL };
    int id;
    while ((id = cli_next(a)) != CLI_END)
        switch (id) {
        case O_IDS:
            free(q->ids);
            q->ids = cli_ids(a, &q->n_ids);
            break;
        case O_DECODE:
            free(q->decode);
            q->decode = cli_ids(a, &q->n_decode);
            break;
        case O_CUT:
            q->cut = cli_uint(a, 1, UINT32_MAX);
            q->has_cut = 1;
            break;
        case O_CHUNK: q->chunk = cli_uint(a, 1, UINT32_MAX); break;
        case O_REPLAY:
            q->replay = (mote_replay)cli_choice(a, cli_replay_names);
            q->has_replay = 1;
            break;
        case O_ROWS: q->rows = cli_choice(a, rows) ? MOTE_LOGITS_LAST : MOTE_LOGITS_ALL; break;
        case 'o': q->out = a->value; break;
        }
    cli_operand(a, 0, "MODEL");
    cli_no_more_operands(a, 1);
    if (!q->n_ids)
        cli_usage_error(a, "--ids is missing or empty");
    if (!q->out || !*q->out)
        cli_usage_error(a, "--out is missing or empty");
    if (a->json && mote__replace_is_stdout(q->out))
        cli_usage_error(a, "--out: standard output carries the JSON");
    if (q->has_cut && q->cut >= q->n_ids)
        cli_usage_error(a, "--cut: %zu leaves nothing of the %zu ids to feed after it", q->cut,
                        q->n_ids);
    if (q->has_replay && !q->has_cut)
        cli_usage_error(a, "--replay needs --cut");
}

typedef struct rows {
    float *data;
    size_t n, vocab, first;
} rows;

/* Append what the last step computed. */
static int collect(rows *r, const mote_session *session, mote_err *err)
{
    size_t n = 0, first = 0, bytes;
    const float *logits = mote_session_logits(session, &n, &first);
    if (!n)
        return MOTE_OK;
    if (__builtin_mul_overflow(r->n + n, r->vocab * sizeof(float), &bytes))
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu rows of logits", r->n + n);
    float *data = realloc(r->data, bytes);
    if (!data)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu rows of logits (%s)", r->n + n,
                          cli_bytes((double)bytes).s);
    if (!r->n)
        r->first = first;
    memcpy(data + r->n * r->vocab, logits, n * r->vocab * sizeof(float));
    r->data = data;
    r->n += n;
    return MOTE_OK;
}

/* Feed ids [begin, end), in chunks; collect rows unless they are not wanted. */
static int feed(const request *q, mote_model *model, mote_session *session, size_t begin,
                size_t end, int keep, rows *r, mote_err *err)
{
    size_t step = q->chunk ? q->chunk : end - begin;
    for (size_t at = begin; at < end; at += step) {
        size_t n = end - at < step ? end - at : step;
        int last = at + n == end;
        mote_logits_rows want = !keep                                  ? MOTE_LOGITS_NONE
                                : q->rows == MOTE_LOGITS_LAST && !last ? MOTE_LOGITS_NONE
                                                                       : q->rows;
        int rc = cli_feed(model, session, q->ids + at, n, want, "reading", NULL, NULL, err);
        if (!rc && want != MOTE_LOGITS_NONE)
            rc = collect(r, session, err);
        if (rc)
            return rc;
    }
    return MOTE_OK;
}

static int compute(const request *q, mote_model *model, mote_session *session, rows *r,
                   mote_err *err)
{
    int rc = MOTE_OK;
    if (q->has_cut) {
        rc = feed(q, model, session, 0, q->cut, 0, r, err);
        if (!rc)
            rc = mote_session_forget_windows(session, q->replay, err);
    }
    if (!rc)
        rc = feed(q, model, session, q->has_cut ? q->cut : 0, q->n_ids, 1, r, err);
    for (size_t i = 0; !rc && i < q->n_decode; i++) {
        rc = cli_feed(model, session, q->decode + i, 1, MOTE_LOGITS_LAST, "decoding", NULL, NULL,
                      err);
        if (!rc)
            rc = collect(r, session, err);
    }
    return rc;
}

int cli_logits(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    request q;
    parse(&a, &q);

    mote_err err = { 0 };
    mote_model *model = NULL;
    mote_model_info info;
    mote_session *session = NULL;
    rows r = { 0 };
    int status = CLI_FAILED;
    int rc = cli_model_open(&model, &info, a.operands[0], &a, 1, &err);
    if (!rc)
        rc = cli_session_create(&session, model, &a, 0, &status, &err);
    if (!rc) {
        r.vocab = info.vocab;
        rc = compute(&q, model, session, &r, &err);
    }
    if (!rc)
        rc = mote_logits_write(q.out, r.data, r.n, r.vocab, &err);
    if (rc) {
        int reported = cli_report(&err);
        status = status == CLI_USAGE ? status : reported;
    } else if (a.json)
        status = cli_print_json(json_pack("{s:o, s:I, s:I, s:I}", "out", mote__json_string(q.out),
                                          "rows", (json_int_t)r.n, "first", (json_int_t)r.first,
                                          "vocabulary", (json_int_t)r.vocab),
                                JSON_INDENT(2));
    else if (mote__replace_is_stdout(q.out)) { /* nothing but the file goes there */
        cli_say("logits F32 [%zu, %zu], row 0 is position %zu", r.n, r.vocab, r.first);
        status = CLI_OK;
    } else {
        printf("%s: logits F32 [%zu, %zu], row 0 is position %zu\n", q.out, r.n, r.vocab, r.first);
        status = cli_flush();
    }
    free(r.data);
    mote_session_destroy(session);
    mote_model_close(model);
    free(q.ids);
    free(q.decode);
    return status;
}
