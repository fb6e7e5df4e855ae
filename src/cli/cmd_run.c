/* mote run: complete a prompt, streaming. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_string.h"
#include "cli/cli.h"
#include "cli/running.h"
#include "cli/opts.h"
#include "cli/out.h"
#include "cli/store_opts.h"
#include "talk/generator.h"
#include "base/clock.h"

enum {
    O_STOP = 1200,
    O_IGNORE_EOS,
    O_IDS,
    O_LOGPROBS,
    O_CTX,
    O_NO_BOS,
    O_PLAIN,
    O_STATS,
    O_CHAT,
    O_EXPERTS_TRACE,
    O_SNAPSHOT
};

static const cli_usage usage = {
    .command = "run",
    .operands = "MODEL [-]",
    .about = "Complete a prompt and print the continuation as it comes. MODEL is a checkpoint\n"
             "folder: config.json, safetensors shards, tokenizer.json. The prompt comes from -p,\n"
             "from a file (-f), or from standard input (-).",
    .opts =
        (const cli_opt[]){
            CLI_ROW_HELP,
            { 'p', "prompt", "TEXT", "the prompt" },
            { 'f', "file", "FILE",
              "read the prompt from FILE, byte for byte; - is standard input" },
            { O_IDS, "ids", "LIST",
              "the prompt as token ids, e.g. 0,35,3346; nothing is put in front" },
            { 'n', "tokens", "N",
              "generate at most N tokens; default 256, 0 only reads the prompt" },
            CLI_ROWS_SAMPLING,
            { O_STOP, "stop", "STRING",
              "end before STRING appears; may be given several times. No part of it is printed" },
            { O_IGNORE_EOS, "ignore-eos", NULL, "go on after the model's end-of-sequence token" },
            { O_LOGPROBS, "logprobs", "K",
              "with --json: for each token its natural log probability at temperature 1, and\n"
              "the K (0-20) most likely tokens with theirs" },
            { O_CTX, "ctx", "N",
              "context limit in tokens (4K = 4096); default: the model's. Nothing is allocated\n"
              "for it" },
            { O_NO_BOS, "no-bos", NULL,
              "do not put the beginning-of-sequence token in front of the prompt" },
            { O_PLAIN, "plain", NULL, "text that looks like a special token is ordinary text" },
            { O_CHAT, "chat", NULL, "format the prompt as one user turn, without thinking" },
            { O_STATS, "stats", NULL,
              "print speeds, cache bytes per token and memory by class on stderr at the end" },
            { O_EXPERTS_TRACE, "experts-trace", "FILE",
              "record there which experts each token is routed to, for 'mote experts'" },
            CLI_ROWS_STORE,
            { O_SNAPSHOT, "snapshot", NULL,
              "save the session's state in the store, one token before the prompt's end and at\n"
              "the end: the same prompt, or one that goes on from this text (its ids), then\n"
              "continues without replay" },
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
        "JSON: text, tokens[] (an ending end-of-sequence token left out), prompt_tokens,\n"
        "finish_reason (length, eos, stop, context), prefill_tokens_per_s = computed prompt\n"
        "tokens / time until the first logits (null where all came from a store),\n"
        "decode_tokens_per_s = decode steps / their time (null when there was none), memory\n"
        "{bytes by class}, kv_bytes_per_token {by part}, weights (copy, map, mixed), placed\n"
        "{group of weights: bytes, placed}, seed.\n"
        "With a store: prompt_tokens = reused_tokens + computed_tokens; reused_remote_tokens\n"
        "= those of the reused ones that came from a server; replayed_tokens = reused ones\n"
        "that ran again for their windows; from_snapshot; exact = the result has the bits of\n"
        "the same command without a store; time_to_first_token_s = until the first logits,\n"
        "looking into the store included.\n"
        "\n"
        "examples:\n"
        "  mote run models/nano -p 'Emma was not' -n 64 --temp 0\n"
        "  mote run models/nano -f chapter.txt --kv bf16 --json | python3 -m json.tool\n"
        "  mote run models/nano -f chapter.txt --store ~/.cache/mote --replay exact --stats\n"
        "  mote run models/nano -f chapter.txt --store ~/.cache/mote,redis://cache.example:6379",
};

typedef struct request {
    const char *prompt, *file, *experts_trace;
    int32_t *ids;
    size_t n_ids;
    int has_ids, no_bos, plain, chat, stats, snapshot;
    size_t max_context;
    cli_sampling sampling;
    talk_params gen;
    const char **stops;
    cli_store store;
} request;

static void parse(cli_args *a, request *q)
{
    *q = (request){ .sampling = CLI_SAMPLING_INIT, .gen = { .max_tokens = 256 } };
    int id;
    while ((id = cli_next(a)) != CLI_END) {
        if (cli_sampling_option(&q->sampling, a, id) || cli_store_option(&q->store, a, id))
            continue;
        switch (id) {
        case 'p': q->prompt = a->value; break;
        case 'f': q->file = a->value; break;
        case 'n': q->gen.max_tokens = cli_uint(a, 0, UINT32_MAX); break;
        case O_IDS:
            free(q->ids);
            q->ids = cli_ids(a, &q->n_ids);
            q->has_ids = 1;
            break;
        case O_STOP:
            if (!*a->value)
                cli_usage_error(a, "--stop: an empty string would stop at once");
            cli_append(&q->stops, &q->gen.n_stops, a->value);
            break;
        case O_IGNORE_EOS: q->gen.ignore_eos = 1; break;
        case O_LOGPROBS:
            q->gen.want_logprobs = 1;
            q->gen.n_logprobs = cli_uint(a, 0, 20);
            break;
        case O_CTX: q->max_context = cli_size(a); break;
        case O_NO_BOS: q->no_bos = 1; break;
        case O_PLAIN: q->plain = 1; break;
        case O_CHAT: q->chat = 1; break;
        case O_EXPERTS_TRACE: q->experts_trace = a->value; break;
        case O_STATS: q->stats = 1; break;
        case O_SNAPSHOT:
            q->snapshot = 1;
            q->store.needs_store = "--snapshot";
            break;
        }
    }
    q->gen.stops = q->stops;
    cli_operand(a, 0, "MODEL");
    int dash = a->n_operands > 1 && !strcmp(a->operands[1], "-");
    cli_no_more_operands(a, dash ? 2 : 1);
    int n_prompts = !!q->prompt + !!q->file + q->has_ids + dash;
    if (n_prompts == 0)
        cli_usage_error(a, "a prompt is missing: give -p TEXT, -f FILE, --ids LIST or -");
    if (n_prompts > 1)
        cli_usage_error(a, "more than one prompt: give one of -p, -f, --ids and -");
    if (dash)
        q->file = "-";
    if (q->gen.want_logprobs && !a->json)
        cli_usage_error(a, "--logprobs needs --json");
    if (q->has_ids && q->chat)
        cli_usage_error(a, "--chat formats text, not --ids");
    cli_store_check(&q->store, a);
}

/* Text (from -p, a file or stdin) to ids, as a user turn if asked. */
static int prompt_ids(request *q, const mote_model *model, const mote_model_info *info,
                      const char *path, mote_err *err)
{
    if (q->has_ids)
        return q->n_ids ? MOTE_OK : mote__fail(err, MOTE_EINVAL, "--ids: the prompt has no tokens");
    if (!info->has_tokenizer)
        return mote__fail(err, MOTE_EINVAL,
                          "%s: there is no tokenizer.json; give the prompt with --ids", path);
    char *text = NULL;
    size_t n = 0;
    int rc = MOTE_OK;
    if (q->file)
        rc = cli_read_file(q->file, &text, &n, err);
    const char *use = q->file ? text : q->prompt;
    if (!q->file)
        n = strlen(q->prompt);
    int flags = (q->no_bos ? 0 : MOTE_ENCODE_BOS) | (q->plain ? MOTE_ENCODE_PLAIN : 0);
    if (!rc && q->chat) {
        json_t *messages = json_pack("[{s:s, s:o}]", "role", "user", "content",
                                     mote__json_bytes(use, n));
        char *dump = messages ? json_dumps(messages, 0) : NULL;
        json_decref(messages);
        if (dump) /* text that looks like a special token stays text */
            rc = mote_chat_encode(model, dump, NULL, 0, SIZE_MAX, &q->ids, &q->n_ids, err);
        else
            rc = mote__fail(err, MOTE_ENOMEM, "out of memory for the prompt");
        free(dump);
    } else if (!rc)
        rc = mote_encode(model, use, n, flags, &q->ids, &q->n_ids, err);
    if (!rc && !q->n_ids)
        rc = mote__fail(err, MOTE_EINVAL, "the prompt has no tokens");
    free(text);
    return rc;
}

/* Where the text goes (stdout at once, or a buffer for the JSON), and the logprobs. */
typedef struct sink {
    const mote_model *model;
    const mote_model_info *info;
    FILE *f;
    char last;
    int status;
    json_t *logprobs; /* owned; NULL: not asked for */
    int no_memory;
} sink;

static int on_text(void *ctx, mote_reply_part part, const char *text, size_t n)
{
    (void)part;
    sink *s = ctx;
    fwrite(text, 1, n, s->f);
    s->last = text[n - 1];
    if (s->f == stdout)
        s->status = cli_flush();
    return s->status;
}

/* A token's text, or null where it has none or its bytes are not whole characters. */
static json_t *token_json(const sink *s, talk_logprob token)
{
    size_t n = 0;
    const char *bytes = s->info->has_tokenizer ? mote_token_bytes(s->model, token.id, &n) : NULL;
    json_t *text = bytes ? json_stringn(bytes, n) : NULL;
    return json_pack("{s:I, s:o, s:o}", "id", (json_int_t)token.id, "token",
                     text ? text : json_null(), "logprob", cli_json_real((double)token.logprob));
}

static int on_token(void *ctx, const talk_generator *g)
{
    sink *s = ctx;
    const talk_logprob *top;
    size_t n;
    if (!s->logprobs)
        return 0;
    json_t *one = token_json(s, talk_generator_logprob(g, &top, &n)), *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, token_json(s, top[i]));
    json_object_set_new(one, "top", list);
    return s->no_memory = json_array_append_new(s->logprobs, one) != 0;
}

static int cancelled(void *ctx)
{
    (void)ctx;
    return cli_interrupted();
}

/* What came of it. */
typedef struct outcome {
    const int32_t *ids; /* borrowed from the generator */
    size_t n_ids;
    talk_finish finish;
    talk_loop loop;
    json_t *logprobs; /* borrowed, or NULL */
} outcome;

static json_t *result_json(const request *q, const cli_args *a, const mote_model *model,
                           const mote_model_info *info, const mote_session *session,
                           const outcome *r, const mote_restored *from, const char *text,
                           size_t n_text, double prefill_s, const mote_memory *m,
                           size_t scratch_peak)
{
    json_t *tokens = json_array();
    for (size_t i = 0; i < r->n_ids; i++)
        json_array_append_new(tokens, json_integer(r->ids[i]));
    json_t *o = json_pack("{s:o, s:o, s:I, s:I, s:s}", "text",
                          info->has_tokenizer ? mote__json_bytes(text, n_text) : json_null(),
                          "tokens", tokens, "prompt_tokens", (json_int_t)q->n_ids,
                          "generated_tokens", (json_int_t)r->n_ids, "finish_reason",
                          talk_finish_name(r->finish));
    if (!o)
        return NULL;
    size_t computed = q->n_ids - from->reused_tokens;
    json_object_set_new(o, "prefill_tokens_per_s",
                        computed ? cli_json_real((double)computed / prefill_s) : json_null());
    json_object_set_new(o, "decode_tokens_per_s",
                        r->loop.n_steps ? cli_json_real((double)r->loop.n_steps / r->loop.seconds)
                                        : json_null());
    json_object_set_new(o, "time_to_first_token_s", cli_json_real(prefill_s));
    json_object_set_new(o, "reused_tokens", json_integer((json_int_t)from->reused_tokens));
    json_object_set_new(o, "reused_remote_tokens", json_integer((json_int_t)from->remote_tokens));
    json_object_set_new(o, "replayed_tokens", json_integer((json_int_t)from->replay_tokens));
    json_object_set_new(o, "computed_tokens", json_integer((json_int_t)computed));
    json_object_set_new(o, "from_snapshot", json_boolean(from->from_snapshot));
    json_object_set_new(o, "exact", json_boolean(from->exact));
    json_object_set_new(o, "prefill", json_string(cli_prefill_names[a->prefill]));
    json_object_set_new(o, "math", json_string(cli_math_names[a->math]));
    json_object_set_new(o, "weights", json_string(cli_weights_word(info)));
    json_object_set_new(o, "placed", cli_placed_json(info));
    json_object_set_new(o, "experts", cli_streamed_json(model));
    json_object_set_new(o, "kv", mote__json_string(a->kv ? a->kv : info->kv));
    json_object_set_new(o, "kv_bytes_per_token", cli_kv_json(session));
    json_object_set_new(o, "kv_window_bytes_per_sequence",
                        json_integer((json_int_t)mote_session_window_bytes(session)));
    json_object_set_new(o, "threads", json_integer(info->n_threads));
    json_object_set_new(o, "cpu", json_string(info->cpu));
    json_object_set_new(o, "seed", json_integer((json_int_t)q->gen.sample.seed));
    json_object_set_new(o, "memory", cli_memory_json(m, scratch_peak));
    if (r->logprobs)
        json_object_set(o, "logprobs", r->logprobs);
    return o;
}

static void print_stats(const request *q, const cli_args *a, const mote_model *model,
                        const mote_model_info *info, const mote_session *session, const outcome *r,
                        const mote_restored *from, double prefill_s, const mote_memory *m,
                        size_t scratch_peak)
{
    size_t computed = q->n_ids - from->reused_tokens;
    fprintf(stderr, "\nprompt      %s tokens, %s computed, %s tokens/s (%s prefill)\n",
            cli_count(q->n_ids).s, cli_count(computed).s,
            computed ? cli_fixed((double)computed / prefill_s, 1).s : "-",
            cli_prefill_names[a->prefill]);
    if (q->store.dir)
        fprintf(stderr,
                "store       %s tokens reused%s%s%s, %s replayed, %s computed; first token after "
                "%.3f s%s\n",
                cli_count(from->reused_tokens).s, from->from_snapshot ? " from a snapshot" : "",
                from->remote_tokens ? ", from a server " : "",
                from->remote_tokens ? cli_count(from->remote_tokens).s : "",
                cli_count(from->replay_tokens).s, cli_count(computed).s, prefill_s,
                from->exact ? "" : " (approximate)");
    fprintf(stderr, "generated   %s tokens, %s tokens/s, ended by: %s; seed %llu\n",
            cli_count(r->n_ids).s,
            r->loop.n_steps ? cli_fixed((double)r->loop.n_steps / r->loop.seconds, 1).s : "-",
            talk_finish_name(r->finish), (unsigned long long)q->gen.sample.seed);
    cli_print_cache(stderr, session, a->kv ? a->kv : info->kv);
    cli_print_placed(stderr, info);
    cli_print_streamed(stderr, model);
    cli_print_memory(stderr, m, scratch_peak);
}

/* The session holds the prompt: from the store as far as that goes, the rest computed. */
static int read_prompt(request *q, mote_model *model, const mote_model_info *info,
                       mote_session *session, mote_restored *from, double *seconds,
                       size_t *scratch_peak, mote_err *err)
{
    static const char what[] = "reading the prompt";
    size_t n = q->n_ids, limit = q->max_context ? q->max_context : info->max_context, done;
    cli_store_open(&q->store);
    cli_store_attach(&q->store, session);
    int split = q->snapshot && q->store.store && n > 1 && n <= limit;
    double t0 = mote__clock_s();
    int rc = MOTE_OK;
    if (split)
        rc = mote_session_follow(session, n > info->window ? n - info->window : 0, n, err);
    if (!rc)
        rc = cli_store_restore(&q->store, session, q->ids, n, from, err);
    *seconds = mote__clock_s() - t0;
    done = from->reused_tokens;
    /* a state for the same prompt again: its last token is left to give the logits */
    if (!rc && split && done < n - 1) {
        rc = cli_feed(model, session, q->ids + done, n - 1 - done, MOTE_LOGITS_NONE, what, seconds,
                      scratch_peak, err);
        done = n - 1;
        if (!rc)
            cli_store_snapshot(&q->store, session);
    }
    /* a prompt that is stored whole feeds nothing, and the replay gives the logits */
    if (!rc)
        rc = cli_feed(model, session, q->ids + done, n - done, MOTE_LOGITS_LAST, what, seconds,
                      scratch_peak, err);
    return rc;
}

int cli_run(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    request q;
    parse(&a, &q);
    const char *path = a.operands[0];

    mote_err err = { 0 };
    mote_model *model = NULL;
    mote_model_info info;
    mote_session *session = NULL;
    talk_generator *g = NULL;
    outcome r = { 0 };
    char *text = NULL;
    size_t text_size = 0, scratch_peak = 0;
    double prefill_s = 0;
    sink out = { 0 };
    mote_restored from = { 0 };
    int status = CLI_FAILED;
    int rc = cli_model_open(&model, &info, path, &a, q.has_ids, &err);
    if (!rc && q.max_context > info.max_context)
        rc = mote__fail(&err, MOTE_EINVAL, "--ctx: %s is more than the model's %s tokens",
                        cli_count(q.max_context).s, cli_count(info.max_context).s);
    if (!rc && info.tokenizer_error)
        cli_say("mote: note: ids instead of text: %s", info.tokenizer_error);
    if (!rc)
        rc = cli_sampling_finish(&q.sampling, &info, &q.gen.sample, &err);
    if (!rc)
        rc = prompt_ids(&q, model, &info, path, &err);
    if (!rc)
        rc = cli_session_create(&session, model, &a, q.max_context, &status, &err);
    if (!rc && q.experts_trace)
        rc = mote_model_trace_experts(model, q.experts_trace, &err);
    if (!rc)
        rc = read_prompt(&q, model, &info, session, &from, &prefill_s, &scratch_peak, &err);
    if (!rc) {
        out = (sink){ .model = model,
                      .info = &info,
                      .f = a.json ? open_memstream(&text, &text_size) : stdout,
                      .logprobs = q.gen.want_logprobs ? json_array() : NULL };
        r.loop = (talk_loop){
            .cancelled = cancelled, .on_token = on_token, .on_text = on_text, .ctx = &out
        };
        rc = out.f ? talk_generator_create(&g, model, &q.gen, &err)
                   : mote__fail(&err, MOTE_ENOMEM, "out of memory");
    }
    if (!rc)
        rc = talk_generate(model, session, g, &r.loop, &err);
    if (!rc && out.no_memory)
        rc = mote__fail(&err, MOTE_ENOMEM, "out of memory for logprobs");
    if (!rc) {
        r.ids = talk_generator_tokens(g, &r.n_ids);
        r.finish = talk_generator_finish(g);
        r.logprobs = out.logprobs;
    }
    if (out.f && a.json)
        fclose(out.f);
    else if (out.f && out.last && out.last != '\n' && !out.status)
        /* whatever happened, the text ends with a line end */
        putchar('\n');
    if (!a.json && !out.status)
        out.status = cli_flush();
    if (rc) {
        int reported = cli_report(&err);
        status = status == CLI_USAGE ? status : reported;
        goto done;
    }
    if (q.snapshot)
        cli_store_snapshot(&q.store, session);
    mote_memory m;
    mote_model_get_memory(model, &m);
    status = r.finish == TALK_CANCELLED ? CLI_INTERRUPTED : out.status;
    if (a.json && status == CLI_INTERRUPTED)
        cli_say("mote: interrupted");
    else if (a.json)
        status = cli_print_json(result_json(&q, &a, model, &info, session, &r, &from,
                                            text ? text : "", text_size, prefill_s, &m,
                                            scratch_peak),
                                JSON_INDENT(2));
    if (r.finish == TALK_CONTEXT && !out.status)
        cli_say("mote: note: the text ends here because the context of %s tokens is full",
                cli_count(q.max_context ? q.max_context : info.max_context).s);
    if (q.stats && !out.status)
        print_stats(&q, &a, model, &info, session, &r, &from, prefill_s, &m, scratch_peak);
done:
    if (model && mote_model_trace_experts(model, NULL, &err))
        cli_say("mote: note: %s", err.message);
    talk_generator_destroy(g);
    json_decref(out.logprobs);
    mote_session_destroy(session);
    cli_store_close(&q.store);
    mote_model_close(model);
    free(text);
    if (q.has_ids)
        free(q.ids);
    else
        mote_free(q.ids);
    free(q.stops);
    return status;
}
