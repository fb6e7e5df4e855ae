/* mote chat: a conversation in the terminal, with the session kept between turns.
 *
 * The conversation is a list of messages; mote_chat_format makes the prompt text of it. What the session already holds is
 * kept as text too (`held`), so that a turn feeds only what is new:
 *   1. the held text is a beginning of the prompt: feed the rest. The ordinary next turn in chat mode.
 *   2. they part after the mark: truncate to the mark (exact), feed from there. This is /regen, and the next turn in thinking
 *      mode, where the format drops the reasoning of earlier turns.
 *   3. they part before it (a new system text, /reset): start a new session.
 * The mark is set before the last piece of the prompt, the <think> or </think> that opens the reply, so 2 always has
 * something to feed and ends with fresh logits. */
#include <errno.h>
#include <histedit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/gen.h"
#include "cli/opts.h"
#include "cli/out.h"

enum { O_THINK = 1200, O_EFFORT, O_SYSTEM, O_CTX };

static const cli_usage usage = {
    .command = "chat",
    .operands = "MODEL",
    .about = "Talk to a model. Each line is one message; the session is kept, so a turn computes only what is new. With standard\n"
             "input from a file or pipe, each line is answered in turn. Ctrl-C stops a reply, at the prompt it leaves.",
    .opts = (const cli_opt[]){
        CLI_ROW_HELP,
        { O_SYSTEM, "system", "TEXT", "the system message; default none" },
        { O_THINK, "think", NULL, "thinking mode: the model reasons before it answers (shown dimmed)" },
        { O_EFFORT, "effort", "N", "reasoning effort in thinking mode, 1-100: low 50, high 75 (default), max 100" },
        { 'n', "tokens", "N", "at most N tokens a reply; default 2048" },
        CLI_ROWS_SAMPLING,
        { O_CTX, "ctx", "N", "context limit in tokens (4K = 4096); default: the model's. Nothing is allocated for it" },
        CLI_ROW_KV,
        CLI_ROW_PREFILL,
        CLI_ROW_MATH,
        CLI_ROW_THREADS,
        CLI_ROW_JSON,
        CLI_ROW_END,
    },
    .notes = "In the conversation: /help /system TEXT /regen /reset /stats /save FILE /quit; a line that starts with // is said\n"
             "with one slash.\n"
             "JSON: one object a line for each reply: content, reasoning (null without), finish_reason, new_tokens = prompt tokens\n"
             "that had to be computed, reply_tokens, context_tokens, prefill_tokens_per_s, decode_tokens_per_s, seed.\n"
             "\n"
             "examples:\n"
             "  mote chat models/nano --system 'You are a novelist.'\n"
             "  echo 'How do you do?' | mote chat models/nano --temp 0",
};

typedef struct text { char *data; size_t n, capacity; } text;       /* bytes, 0-terminated once not empty */

typedef struct chat {
    cli_args *a;
    mote_model *model;
    mote_model_info info;
    mote_session *session;
    size_t max_context;            /* as asked, 0: the model's               */
    json_t *messages;              /* {role, content, reasoning_content}     */
    char *system;                  /* owned, or NULL                         */
    mote_chat_params format;
    cli_sampling sampling;
    mote_sample_params sample;
    size_t n_max, n_turns;
    text held;                     /* of the session's tokens                */
    size_t mark_bytes, mark_tokens;
    int status;                    /* for cli_session_create                 */
    int interactive, dim;          /* dim: stdout understands escapes        */
    size_t scratch_peak;
} chat;

static int text_add(text *t, const char *bytes, size_t n, mote_err *err)
{
    if (t->capacity - t->n < n + 1) {
        size_t capacity = 2 * (t->n + n) + 256;
        char *data = realloc(t->data, capacity);
        if (!data)
            return mote__fail(err, MOTE_ENOMEM, "out of memory for the conversation");
        t->data = data;
        t->capacity = capacity;
    }
    memcpy(t->data + t->n, bytes, n);
    t->n += n;
    t->data[t->n] = 0;
    return MOTE_OK;
}

/* ---- the session ---- */
static int fresh_session(chat *c, mote_err *err)
{
    mote_session_destroy(c->session);
    c->session = NULL;
    c->held.n = c->mark_bytes = c->mark_tokens = 0;
    return cli_session_create(&c->session, c->model, c->a, c->max_context, &c->status, err);
}

/* Feed the tokens of a text; *n_new counts them. Special tokens in it are meant. */
static int feed_text(chat *c, const char *bytes, size_t n, mote_logits_rows rows, size_t *n_new, double *seconds, mote_err *err)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int rc = n ? mote_encode(c->model, bytes, n, 0, &ids, &n_ids, err) : MOTE_OK;
    if (!rc && n_ids)
        rc = cli_feed(c->model, c->session, ids, n_ids, rows, "reading", seconds, &c->scratch_peak, err);
    mote_free(ids);
    if (rc)
        return rc;
    *n_new += n_ids;
    return text_add(&c->held, bytes, n, err);
}

static size_t common_prefix(const text *held, const char *prompt)
{
    size_t n = 0;
    while (n < held->n && prompt[n] && held->data[n] == prompt[n])
        n++;
    return n;
}

/* How long the piece is that opens the reply. */
static size_t opener_bytes(const char *prompt, size_t n)
{
    static const char *const openers[] = { "</think>", "<think>" };
    for (size_t i = 0; i < 2; i++) {
        size_t len = strlen(openers[i]);
        if (n > len && !memcmp(prompt + n - len, openers[i], len))
            return len;
    }
    return 0;
}

/* Bring the session to hold exactly `prompt`, with the logits of its last token. */
static int sync_session(chat *c, const char *prompt, size_t *n_new, double *seconds, mote_err *err)
{
    size_t n = strlen(prompt), same = common_prefix(&c->held, prompt);
    int rc = MOTE_OK;
    if (!c->session)
        rc = fresh_session(c, err);
    else if (same == c->held.n && same < n)
        ;                                                       /* case 1 */
    else if (c->mark_tokens && c->mark_bytes <= same && c->mark_bytes < n) {
        mote_truncated cut;                                     /* case 2 */
        rc = mote_session_truncate(c->session, c->mark_tokens, MOTE_REPLAY_EXACT, &cut, err);
        if (!rc && cut.length == c->mark_tokens)
            c->held.n = c->mark_bytes;
        else if (!rc)
            rc = fresh_session(c, err);
    } else
        rc = fresh_session(c, err);                             /* case 3 */
    if (rc)
        return rc;

    size_t opener = opener_bytes(prompt, n), head = n - opener;
    if (head > c->held.n) {
        rc = feed_text(c, prompt + c->held.n, head - c->held.n, opener ? MOTE_LOGITS_NONE : MOTE_LOGITS_LAST, n_new, seconds, err);
        if (!rc && opener) {
            rc = mote_session_mark(c->session, err);
            c->mark_tokens = rc ? 0 : mote_session_length(c->session);
            c->mark_bytes = c->held.n;
        }
    }
    if (!rc && n > c->held.n)
        rc = feed_text(c, prompt + c->held.n, n - c->held.n, MOTE_LOGITS_LAST, n_new, seconds, err);
    return rc;
}

static int format_prompt(chat *c, char **prompt, mote_err *err)
{
    json_t *all = json_array();
    if (c->system)
        json_array_append_new(all, json_pack("{s:s, s:s}", "role", "system", "content", c->system));
    json_array_extend(all, c->messages);
    char *dump = json_dumps(all, 0);
    json_decref(all);
    int rc = dump ? mote_chat_format(prompt, dump, &c->format, err) : mote__fail(err, MOTE_ENOMEM, "out of memory");
    free(dump);
    return rc;
}

/* ---- a reply ---- */
typedef struct reply {
    chat *c;
    FILE *f;                       /* stdout, or NULL with --json                          */
    text raw;                      /* all of it: reasoning, </think>, content              */
    int thinking;                  /* still inside the reasoning                           */
    size_t shown;                  /* bytes of raw already printed                         */
    int status;
    mote_err *err;
} reply;

static void show(reply *r, size_t end)
{
    if (r->f && end > r->shown)
        fwrite(r->raw.data + r->shown, 1, end - r->shown, r->f);
    r->shown = end > r->shown ? end : r->shown;
}

static int on_text(void *ctx, const char *bytes)
{
    static const char closer[] = "</think>";
    reply *r = ctx;
    if (text_add(&r->raw, bytes, strlen(bytes), r->err))
        return 1;
    size_t end = r->raw.n;
    if (r->thinking) {
        char *at = strstr(r->raw.data, closer);
        if (at) {
            show(r, (size_t)(at - r->raw.data));
            if (r->f)
                fputs(r->c->dim ? "\033[0m\n\n" : "\n\n", r->f);
            r->shown = (size_t)(at - r->raw.data) + strlen(closer);
            r->thinking = 0;
        } else if (end >= strlen(closer))
            end -= strlen(closer) - 1;      /* the closer may come in pieces */
        else
            end = 0;
    }
    show(r, end);
    return r->status = r->f ? cli_flush() : CLI_OK;
}

static void print_reply_json(const chat *c, const reply *r, const cli_gen_result *g, size_t n_new, double seconds)
{
    const char *closer = c->format.thinking ? strstr(r->raw.data ? r->raw.data : "", "</think>") : NULL;
    const char *content = closer ? closer + strlen("</think>") : c->format.thinking ? "" : r->raw.data ? r->raw.data : "";
    json_t *reasoning = !c->format.thinking ? json_null() : closer ? json_stringn(r->raw.data, (size_t)(closer - r->raw.data))
                                                                  : json_string(r->raw.data ? r->raw.data : "");
    json_t *o = json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:o, s:o, s:I}", "content", content, "reasoning", reasoning,
                          "finish_reason", cli_finish_names[g->finish], "new_tokens", (json_int_t)n_new, "reply_tokens",
                          (json_int_t)g->n_ids, "context_tokens", (json_int_t)mote_session_length(c->session),
                          "prefill_tokens_per_s", cli_json_real(seconds > 0 ? (double)n_new / seconds : 0), "decode_tokens_per_s",
                          g->n_steps ? cli_json_real((double)g->n_steps / g->seconds) : json_null(), "seed",
                          (json_int_t)c->sample.seed);
    cli_print_json(o, JSON_COMPACT);
}

/* What the session holds now includes the reply's fed tokens, as bytes: the format will write the same text. */
static int hold_reply(chat *c, const cli_gen_result *g, mote_err *err)
{
    int rc = MOTE_OK;
    for (size_t i = 0; !rc && i < g->n_fed; i++) {
        size_t n = 0;
        const char *bytes = mote_token_bytes(c->model, g->ids[i], &n);
        rc = bytes ? text_add(&c->held, bytes, n, err) : mote__fail(err, MOTE_EINVAL, "token %d has no text", (int)g->ids[i]);
    }
    return rc;
}

static void remember(chat *c, const reply *r)
{
    const char *raw = r->raw.data ? r->raw.data : "";
    const char *closer = c->format.thinking ? strstr(raw, "</think>") : NULL;
    json_t *m = json_pack("{s:s, s:s}", "role", "assistant", "content", closer ? closer + strlen("</think>")
                                                                      : c->format.thinking ? "" : raw);
    if (c->format.thinking)
        json_object_set_new(m, "reasoning_content", closer ? json_stringn(raw, (size_t)(closer - raw)) : json_string(raw));
    json_array_append_new(c->messages, m);
}

static size_t context_limit(const chat *c) { return c->max_context ? c->max_context : c->info.max_context; }

/* Answer the last user message. Exit status; CLI_OK also where the person may go on. */
static int answer(chat *c)
{
    mote_err err = { 0 };
    char *prompt = NULL;
    size_t n_new = 0;
    double seconds = 0;
    reply r = { .c = c, .f = c->a->json ? NULL : stdout, .thinking = c->format.thinking, .err = &err };
    cli_gen_result g = { 0 };
    int status = CLI_OK;
    cli_interrupt_clear();
    int rc = format_prompt(c, &prompt, &err);
    if (!rc)
        rc = sync_session(c, prompt, &n_new, &seconds, &err);
    if (!rc) {
        cli_gen_params p = { .sample = c->sample, .n_max = c->n_max, .on_text = on_text, .ctx = &r };
        p.sample.seed = c->sample.seed + c->n_turns++;       /* /regen should say something else */
        if (c->dim && r.thinking)
            fputs("\033[2m", stdout);
        rc = cli_generate(c->model, c->session, &c->info, &p, &g, &err);
        show(&r, r.raw.n);
        if (c->dim && r.thinking)
            fputs("\033[0m", stdout);
        if (r.f)
            fputs("\n", r.f);
    }
    if (!rc)
        rc = hold_reply(c, &g, &err);
    if (!rc) {
        remember(c, &r);
        status = r.status ? r.status : cli_flush();
        if (c->a->json && g.finish != CLI_FINISH_INTERRUPTED)
            print_reply_json(c, &r, &g, n_new, seconds);
        if (g.finish == CLI_FINISH_CONTEXT)
            cli_say("mote: the context of %s tokens is full: /reset starts a new conversation", cli_count(context_limit(c)));
        else if (c->interactive && g.finish == CLI_FINISH_INTERRUPTED)
            cli_say("(stopped)");
        if (c->interactive)
            cli_say("[context %s of %s tokens; %s new, %s said%s%s%s]", cli_count(mote_session_length(c->session)),
                    cli_count(context_limit(c)), cli_count(n_new), cli_count(g.n_ids), g.n_steps ? ", " : "",
                    g.n_steps ? cli_fixed((double)g.n_steps / g.seconds, 1) : "", g.n_steps ? " tokens/s" : "");
        if (!c->interactive && g.finish == CLI_FINISH_INTERRUPTED)
            status = CLI_INTERRUPTED;
    } else {
        /* The unanswered message goes. A full context changed nothing; after anything else the session is rebuilt from the
         * text when it is needed again. */
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
        int reported = CLI_FAILED;
        if (rc == MOTE_EFULL)
            cli_say("mote: %s: the message was dropped; /reset starts a new conversation", err.message);
        else {
            reported = cli_report(&err);
            mote_session_destroy(c->session);
            c->session = NULL;
        }
        status = c->interactive ? CLI_OK : reported;
    }
    mote_free(prompt);
    free(r.raw.data);
    cli_gen_result_deinit(&g);
    return status;
}

/* ---- commands ---- */
typedef struct chat_command { const char *name, *arg, *help; int (*run)(chat *c, const char *arg); } chat_command;
enum { CHAT_QUIT = -1 };

static int command_help(chat *c, const char *arg);
static int command_quit(chat *c, const char *arg) { (void)c, (void)arg; return CHAT_QUIT; }

static int command_reset(chat *c, const char *arg)
{
    (void)arg;
    json_array_clear(c->messages);       /* the session follows at the next message */
    cli_say("(a new conversation)");
    return CLI_OK;
}

static int command_system(chat *c, const char *arg)
{
    free(c->system);
    c->system = *arg ? strdup(arg) : NULL;
    cli_say(*arg ? "(system text set; the conversation is computed anew with it)" : "(no system text)");
    return CLI_OK;
}

static int command_regen(chat *c, const char *arg)
{
    (void)arg;
    size_t n = json_array_size(c->messages);
    if (!n) {
        cli_say("mote: /regen: nothing was said yet");
        return CLI_OK;
    }
    const char *role = json_string_value(json_object_get(json_array_get(c->messages, n - 1), "role"));
    if (!strcmp(role, "assistant"))
        json_array_remove(c->messages, n - 1);
    return answer(c);
}

static int command_stats(chat *c, const char *arg)
{
    (void)arg;
    mote_memory m;
    mote_model_get_memory(c->model, &m);
    if (c->session) {
        fprintf(stderr, "context     %s of %s tokens\n", cli_count(mote_session_length(c->session)), cli_count(context_limit(c)));
        cli_print_cache(stderr, c->session, c->a->kv);
    }
    cli_print_memory(stderr, &m, c->scratch_peak);
    return CLI_OK;
}

static int command_save(chat *c, const char *arg)
{
    if (!*arg) {
        cli_say("mote: /save: give a file name");
        return CLI_OK;
    }
    json_t *all = json_array();
    if (c->system)
        json_array_append_new(all, json_pack("{s:s, s:s}", "role", "system", "content", c->system));
    json_array_extend(all, c->messages);
    if (json_dump_file(all, arg, JSON_INDENT(2)))
        cli_say("mote: %s: cannot write: %s", arg, strerror(errno));
    else
        cli_say("(%zu messages in %s)", json_array_size(all), arg);
    json_decref(all);
    return CLI_OK;
}

static const chat_command commands[] = {
    { "/help", "", "this list", command_help },
    { "/system", "TEXT", "set the system text (none: remove it)", command_system },
    { "/regen", "", "answer the last message again", command_regen },
    { "/reset", "", "start a new conversation", command_reset },
    { "/stats", "", "context, cache bytes and memory", command_stats },
    { "/save", "FILE", "write the messages as JSON", command_save },
    { "/quit", "", "leave (also Ctrl-D)", command_quit },
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int command_help(chat *c, const char *arg)
{
    (void)c, (void)arg;
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(stderr, "  %-8s %-5s %s\n", commands[i].name, commands[i].arg, commands[i].help);
    return CLI_OK;
}

/* One line of input (no line end). */
static int take_line(chat *c, const char *line)
{
    if (!*line)
        return CLI_OK;
    if (line[0] == '/' && line[1] != '/') {
        size_t n = strcspn(line, " ");
        for (size_t i = 0; i < N_COMMANDS; i++)
            if (strlen(commands[i].name) == n && !memcmp(commands[i].name, line, n))
                return commands[i].run(c, line + n + strspn(line + n, " "));
        cli_say("mote: unknown command '%.*s' (/help lists them)", (int)n, line);
        return c->interactive ? CLI_OK : CLI_FAILED;
    }
    json_t *content = json_string(line + (line[0] == '/'));
    if (!content) {
        cli_say("mote: the line is not valid UTF-8");
        return c->interactive ? CLI_OK : CLI_FAILED;
    }
    json_array_append_new(c->messages, json_pack("{s:s, s:o}", "role", "user", "content", content));
    return answer(c);
}

/* ---- input ---- */
static char *prompt_text(EditLine *el) { (void)el; return (char *)"> "; }

static int terminal_loop(chat *c)
{
    EditLine *el = el_init("mote", stdin, stdout, stderr);
    History *past = history_init();
    HistEvent event;
    int status = CLI_OK;
    if (!el || !past) {
        cli_say("mote: cannot set up the line editor");
        status = CLI_FAILED;
        goto out;
    }
    history(past, &event, H_SETSIZE, 1000);
    el_set(el, EL_PROMPT, prompt_text);
    el_set(el, EL_EDITOR, "emacs");
    el_set(el, EL_HIST, history, past);
    cli_say("%s, %s layers; /help lists the commands", c->info.family, cli_count(c->info.n_layers));
    for (;;) {
        int n = 0;
        cli_signals_at_prompt(1);
        const char *got = el_gets(el, &n);
        cli_signals_at_prompt(0);
        if (!got || n <= 0)
            break;
        char *line = strndup(got, (size_t)n);
        if (!line)
            break;
        line[strcspn(line, "\n")] = 0;
        if (*line)
            history(past, &event, H_ENTER, line);
        status = take_line(c, line);
        free(line);
        if (status)
            break;
    }
    if (status == CHAT_QUIT)
        status = CLI_OK;
    else if (!status)
        fputs("\n", stderr);
out:
    if (past)
        history_end(past);
    if (el)
        el_end(el);
    return status;
}

static int pipe_loop(chat *c)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    int status = CLI_OK;
    while (!status && (n = getline(&line, &capacity, stdin)) >= 0) {
        if (memchr(line, 0, (size_t)n)) {
            cli_say("mote: standard input: a line holds a zero byte");
            status = CLI_FAILED;
            break;
        }
        line[strcspn(line, "\r\n")] = 0;
        status = take_line(c, line);
    }
    if (!status && cli_interrupted())
        status = CLI_INTERRUPTED;
    else if (!status && ferror(stdin)) {
        cli_say("mote: standard input: cannot read: %s", strerror(errno));
        status = CLI_FAILED;
    }
    free(line);
    return status == CHAT_QUIT ? CLI_OK : status;
}

int cli_chat(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    chat c = { .a = &a, .sampling = CLI_SAMPLING_INIT, .n_max = 2048, .status = CLI_FAILED };
    int id, has_effort = 0;
    while ((id = cli_next(&a)) != CLI_END) {
        if (cli_sampling_option(&c.sampling, &a, id))
            continue;
        switch (id) {
        case 'n':      c.n_max = cli_uint(&a, 1, UINT32_MAX); break;
        case O_THINK:  c.format.thinking = 1; break;
        case O_EFFORT:
            c.format.reasoning_effort = (int)cli_uint(&a, 1, 100);
            has_effort = 1;
            break;
        case O_SYSTEM:
            free(c.system);
            c.system = *a.value ? strdup(a.value) : NULL;
            break;
        case O_CTX:    c.max_context = cli_size(&a); break;
        }
    }
    const char *path = cli_operand(&a, 0, "MODEL");
    cli_no_more_operands(&a, 1);
    if (has_effort && !c.format.thinking)
        cli_usage_error(&a, "--effort needs --think");

    mote_err err = { 0 };
    c.messages = json_array();
    int status;
    int rc = cli_model_open(&c.model, &c.info, path, &a, &err);
    if (!rc && !c.info.has_tokenizer)
        rc = mote__fail(&err, MOTE_EINVAL, "%s: there is no tokenizer.json", path);
    if (!rc && c.max_context > c.info.max_context)
        rc = mote__fail(&err, MOTE_EINVAL, "--ctx: %s is more than the model's %s tokens", cli_count(c.max_context),
                        cli_count(c.info.max_context));
    if (!rc)
        rc = fresh_session(&c, &err);
    if (rc) {
        int reported = cli_report(&err);
        status = c.status == CLI_USAGE ? CLI_USAGE : reported;
    } else {
        c.sample = cli_sampling_finish(&c.sampling, &c.info);
        c.interactive = isatty(STDIN_FILENO) && !a.json;
        c.dim = isatty(STDOUT_FILENO) && !a.json && !getenv("NO_COLOR");
        status = c.interactive ? terminal_loop(&c) : pipe_loop(&c);
    }
    mote_session_destroy(c.session);
    mote_model_close(c.model);
    json_decref(c.messages);
    free(c.system);
    free(c.held.data);
    return status;
}
