/* mote chat: a conversation in the terminal. Options, input (a line editor or plain lines) and the commands that start with a
 * slash; turns are chat_turn.c's. */
#include "cli/chat.h"

#include <errno.h>
#include <histedit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/out.h"

enum { O_THINK = 1200, O_EFFORT, O_SYSTEM, O_CTX, O_HISTORY, O_NO_SNAPSHOT };

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
        CLI_ROWS_STORE,
        { O_NO_SNAPSHOT, "no-snapshot", NULL, "do not save the session's state in the store after each turn. With it (the default) a\n"
                                              "conversation from --history goes on exactly, without replay" },
        { O_HISTORY, "history", "FILE", "go on with the conversation in FILE if it exists, and write it there after each turn" },
        CLI_ROW_KV,
        CLI_ROW_PROFILE,
        CLI_ROW_PREFILL,
        CLI_ROW_MATH,
        CLI_ROW_WEIGHTS,
        CLI_ROW_THREADS,
        CLI_ROW_JSON,
        CLI_ROW_END,
    },
    .notes = "In the conversation: /help /system TEXT /regen /reset /stats /save FILE /quit; a line that starts with // is said\n"
             "with one slash.\n"
             "JSON: one object a line for each reply: content, reasoning (null without), finish_reason, new_tokens = prompt tokens\n"
             "that had to be computed, reply_tokens, context_tokens, prefill_tokens_per_s, decode_tokens_per_s, seed;\n"
             "reused_tokens = tokens that this turn took from the store, reused_remote_tokens = those of them that came from a\n"
             "server, replayed_tokens = those that ran again, from_snapshot; exact = no bounded replay\n"
             "lies behind what the session holds.\n"
             "\n"
             "examples:\n"
             "  mote chat models/nano --system 'You are a novelist.'\n"
             "  echo 'How do you do?' | mote chat models/nano --temp 0\n"
             "  mote chat models/nano --store ~/.cache/mote --history letters.json",
};

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
    return cli_chat_answer(c);
}

static int command_stats(chat *c, const char *arg)
{
    (void)arg;
    mote_memory m;
    mote_model_get_memory(c->model, &m);
    if (c->session) {
        fprintf(stderr, "context     %s of %s tokens\n", cli_count(mote_session_length(c->session)),
                cli_count(cli_chat_context_limit(c)));
        cli_print_cache(stderr, c->session, c->a->kv ? c->a->kv : c->info.kv);
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
    return cli_chat_answer(c);
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
    if (json_array_size(c->messages))
        cli_say("(going on after %zu messages)", json_array_size(c->messages));
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
        if (cli_sampling_option(&c.sampling, &a, id) || cli_store_option(&c.store, &a, id))
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
        case O_HISTORY:
            if (!*a.value)
                cli_usage_error(&a, "--history: an empty file name");
            c.history = a.value;
            break;
        case O_NO_SNAPSHOT:
            c.no_snapshot = 1;
            c.store.needs_store = "--no-snapshot";
            break;
        case O_CTX:    c.max_context = cli_size(&a); break;
        }
    }
    const char *path = cli_operand(&a, 0, "MODEL");
    cli_no_more_operands(&a, 1);
    if (has_effort && !c.format.thinking)
        cli_usage_error(&a, "--effort needs --think");
    cli_store_check(&c.store, &a);

    mote_err err = { 0 };
    c.messages = json_array();
    int status;
    int rc = cli_model_open(&c.model, &c.info, path, &a, &err);
    if (!rc && !c.info.has_tokenizer)
        rc = mote__fail(&err, MOTE_EINVAL, "%s: there is no tokenizer.json", path);
    if (!rc && !c.info.has_chat)
        rc = mote__fail(&err, MOTE_EUNSUPPORTED, "%s: the chat format of a '%s' model is not known; 'mote run' completes prompts", path,
                        c.info.family);
    if (!rc && c.max_context > c.info.max_context)
        rc = mote__fail(&err, MOTE_EINVAL, "--ctx: %s is more than the model's %s tokens", cli_count(c.max_context),
                        cli_count(c.info.max_context));
    if (!rc && c.history)
        rc = cli_chat_load_history(&c, &err);
    if (!rc) {
        cli_store_open(&c.store);
        rc = cli_chat_fresh_session(&c, &err);
    }
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
    cli_store_close(&c.store);
    mote_model_close(c.model);
    json_decref(c.messages);
    free(c.system);
    free(c.held.data);
    free(c.saved_ids);
    return status;
}
