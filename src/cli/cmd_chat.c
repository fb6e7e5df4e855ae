/* mote chat: a conversation in the terminal. Options and the commands that start with a slash;
 * where messages come from is chat_input.c's, turns are chat_turn.c's. */
#include "cli/cmd_chat.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json_string.h"
#include "base/replace.h"
#include "cli/cli.h"
#include "cli/out.h"

enum {
    O_THINK = 1200,
    O_EFFORT,
    O_SYSTEM,
    O_CTX,
    O_HISTORY,
    O_NO_SNAPSHOT,
    O_MESSAGES,
    O_TOOLS,
    O_FORMAT,
    O_SHOW,
    O_IDS
};

static const cli_usage usage = {
    .command = "chat",
    .operands = "MODEL",
    .about =
        "Talk to a model. The session is kept, so a turn computes only what is new. Each line\n"
        "is one message, from a terminal and from a file or pipe alike; one that ends with a\n"
        "backslash goes on in the next, and one that begins with \"\"\" goes on to a line\n"
        "that ends with \"\"\". In a terminal a paste is text of one message, whatever lines\n"
        "it has, and Alt-Enter begins a line. Ctrl-C stops a reply or throws away what was\n"
        "typed, twice at an empty prompt it leaves.",
    .opts =
        (const cli_opt[]){
            CLI_ROW_HELP,
            { O_SYSTEM, "system", "TEXT", "the system message; default none" },
            { O_THINK, "think", NULL,
              "thinking mode: the model reasons before it answers (shown dimmed)" },
            { O_EFFORT, "effort", "N",
              "reasoning effort in thinking mode: 1-100, or low (50), high (75, default), max\n"
              "(100)" },
            { O_MESSAGES, "messages", "FILE",
              "answer the conversation in FILE (a JSON array of messages; - is stdin), and end" },
            { O_TOOLS, "tools", "FILE",
              "tools that the model may call: a JSON array of OpenAI-style definitions" },
            { O_FORMAT, "response-format", "FILE", "what the reply must look like, as JSON" },
            { O_SHOW, "show-prompt", NULL,
              "with --messages: print the exact text of the prompt, nothing else; loads no\n"
              "weights" },
            { O_IDS, "ids", NULL,
              "with --show-prompt: print its token ids instead, in one line, separated by commas" },
            { 'n', "tokens", "N", "at most N tokens a reply; default 2048" },
            CLI_ROWS_SAMPLING,
            { O_CTX, "ctx", "N",
              "context limit in tokens (4K = 4096); default: the model's. Nothing is allocated\n"
              "for it" },
            CLI_ROWS_STORE,
            { O_NO_SNAPSHOT, "no-snapshot", NULL,
              "do not save the session's state in the store after each turn. With it (the\n"
              "default) a conversation from --history goes on exactly, without replay" },
            { O_HISTORY, "history", "FILE",
              "go on with the conversation in FILE if it exists, and write it there after each\n"
              "turn" },
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
        "In the conversation: /help /system TEXT /regen /reset /stats /save FILE /quit.\n"
        "Nothing else that starts with a slash is a command; a message that starts with // is\n"
        "said with one slash.\n"
        "JSON: one object a line for each reply: content, reasoning (null without),\n"
        "finish_reason, new_tokens = prompt tokens that had to be computed, reply_tokens,\n"
        "context_tokens, prefill_tokens_per_s, decode_tokens_per_s, seed;\n"
        "reused_tokens = tokens that this turn took from the store, reused_remote_tokens =\n"
        "those of them that came from a server, replayed_tokens = those that ran again,\n"
        "from_snapshot, exact = the bits of the same conversation in one process without a\n"
        "store.\n"
        "tool_calls (null without) as in messages. With --show-prompt: prompt, and with --ids\n"
        "ids[].\n"
        "\n"
        "examples:\n"
        "  mote chat models/nano --system 'You are a novelist.'\n"
        "  echo 'How do you do?' | mote chat models/nano --temp 0\n"
        "  mote chat models/nano --store ~/.cache/mote --history letters.json\n"
        "  mote chat models/nano --messages talk.json --tools tools.json --think --show-prompt",
};

/* ---- commands ---- */
typedef struct chat_command {
    const char *name, *arg, *help;
    int (*run)(chat *c, const char *arg, size_t n);
} chat_command;

static int command_help(chat *c, const char *arg, size_t n);
static int command_quit(chat *c, const char *arg, size_t n)
{
    (void)c, (void)arg, (void)n;
    return CLI_CHAT_QUIT;
}

static int command_reset(chat *c, const char *arg, size_t n)
{
    mote_err err = { 0 };
    (void)arg, (void)n;
    json_array_clear(c->messages);
    if (talk_conversation_begin(&c->talk, &err)) {
        int reported = cli_report(&err);
        return c->interactive ? CLI_OK : reported;
    }
    cli_say("(a new conversation)");
    return CLI_OK;
}

static int command_system(chat *c, const char *arg, size_t n)
{
    json_decref(c->system);
    c->system = n ? mote__json_bytes(arg, n) : NULL;
    if (n && !c->system) {
        cli_say("mote: out of memory for the system text");
        return CLI_FAILED;
    }
    cli_say(n ? "(system text set; the conversation is computed anew with it)"
              : "(no system text)");
    return CLI_OK;
}

static int command_regen(chat *c, const char *arg, size_t n)
{
    (void)arg;
    n = json_array_size(c->messages);
    if (!n) {
        cli_say("mote: /regen: nothing was said yet");
        return CLI_OK;
    }
    const char *role = json_string_value(
        json_object_get(json_array_get(c->messages, n - 1), "role"));
    if (!strcmp(role, "assistant"))
        json_array_remove(c->messages, n - 1);
    return cli_chat_answer(c);
}

static int command_stats(chat *c, const char *arg, size_t n)
{
    (void)arg, (void)n;
    mote_memory m;
    mote_model_get_memory(c->model, &m);
    if (c->talk.session) {
        fprintf(stderr, "context     %s of %s tokens\n",
                cli_count(mote_session_length(c->talk.session)).s,
                cli_count(cli_chat_context_limit(c)).s);
        cli_print_cache(stderr, c->talk.session, c->a->kv ? c->a->kv : c->info.kv);
    }
    cli_print_memory(stderr, &m, c->scratch_peak);
    return CLI_OK;
}

static int command_save(chat *c, const char *arg, size_t n)
{
    if (!*arg) {
        cli_say("mote: /save: give a file name");
        return CLI_OK;
    }
    (void)n;
    mote_err err = { 0 };
    json_t *all = json_array();
    int whole = !c->system || !json_array_append_new(all, json_pack("{s:s, s:O}", "role", "system",
                                                                    "content", c->system));
    whole = whole && !json_array_extend(all, c->messages);
    char *data = whole ? json_dumps(all, JSON_INDENT(2)) : NULL;
    size_t n_messages = json_array_size(all);
    json_decref(all);
    mote__replace out;
    int rc = data ? mote__replace_begin(&out, arg, 0666, &err)
                  : mote__fail(&err, MOTE_ENOMEM, "%s: out of memory", arg);
    if (!rc) {
        fputs(data, out.file);
        fputc('\n', out.file);
        rc = mote__replace_commit(&out, &err);
    }
    free(data);
    if (rc) {
        int reported = cli_report(&err);
        return c->interactive ? CLI_OK : reported;
    }
    cli_say("(%zu messages in %s)", n_messages, arg);
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

static int command_help(chat *c, const char *arg, size_t n)
{
    (void)c, (void)arg, (void)n;
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(stderr, "  %-8s %-5s %s\n", commands[i].name, commands[i].arg, commands[i].help);
    return CLI_OK;
}

/* "/frob": a word that looks like a command, and nothing else. "/etc/passwd" and "/frob is not a
 * command" are text. */
static int like_a_command(const char *said, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (!(said[i] >= 'a' && said[i] <= 'z') && !(said[i] >= 'A' && said[i] <= 'Z') &&
            said[i] != '-' && said[i] != '_')
            return 0;
    return n > 1;
}

static int refuse(const chat *c) { return c->interactive ? CLI_OK : CLI_FAILED; }

/* The command that a message is, or NULL: it is text. Only the names of the table are commands, at
 * the very beginning and, where they take no text, alone in their line. */
static const chat_command *find_command(const char *said, size_t n, const char **arg)
{
    size_t word = 0;
    while (word < n && said[word] != ' ' && said[word] != '\t' && said[word] != '\n')
        word++;
    *arg = said + word + strspn(said + word, " \t");
    int one_line = !memchr(said, '\n', n) && !memchr(said, 0, n);
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strlen(commands[i].name) == word && !memcmp(commands[i].name, said, word))
            return one_line || commands[i].run == command_system ? &commands[i] : NULL;
    return NULL;
}

int cli_chat_take(chat *c, const char *said, size_t n, int quoted)
{
    const char *arg = "";
    if (!quoted && said[0] == '/' && !(n > 1 && said[1] == '/')) {
        const chat_command *command = find_command(said, n, &arg);
        if (command && !command->arg[0] && *arg) {
            cli_say("mote: %s takes no text (/%s says it to the model)", command->name,
                    command->name);
            return refuse(c);
        }
        if (command)
            return command->run(c, arg, n - (size_t)(arg - said));
        if (like_a_command(said, n)) {
            cli_say("mote: unknown command '%.*s' (/help lists them; /%.*s says it to the model)",
                    (int)n, said, (int)n, said);
            return refuse(c);
        }
    } else if (!quoted && said[0] == '/') {
        said++;
        n--;
    }
    json_t *message = json_pack("{s:s, s:o}", "role", "user", "content", mote__json_bytes(said, n));
    if (json_array_append_new(c->messages, message)) {
        cli_say("mote: out of memory for the message");
        return CLI_FAILED;
    }
    return cli_chat_answer(c);
}

/* --effort: a number, or a word of the published format. */
static int effort(const cli_args *a)
{
    static const struct {
        const char *name;
        int n;
    } words[] = {
        { "low", 50 },
        { "high", 75 },
        { "max", 100 },
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(a->value, words[i].name))
            return words[i].n;
    if (!isdigit((unsigned char)*a->value))
        cli_usage_error(a, "--effort: '%s' is none of: low, high, max, or a number from 1 to 100",
                        a->value);
    return (int)cli_uint(a, 1, 100);
}

int cli_chat(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    chat c = { .a = &a, .sampling = CLI_SAMPLING_INIT, .n_max = 2048, .status = CLI_FAILED };
    const char *messages = NULL, *tools = NULL, *response_format = NULL;
    int id, has_effort = 0, show = 0, ids = 0;
    while ((id = cli_next(&a)) != CLI_END) {
        if (cli_sampling_option(&c.sampling, &a, id) || cli_store_option(&c.store, &a, id))
            continue;
        switch (id) {
        case 'n': c.n_max = cli_uint(&a, 1, UINT32_MAX); break;
        case O_THINK: c.format.thinking = 1; break;
        case O_EFFORT:
            c.format.reasoning_effort = effort(&a);
            has_effort = 1;
            break;
        case O_SYSTEM:
            json_decref(c.system);
            c.system = *a.value ? mote__json_string(a.value) : NULL;
            break;
        case O_HISTORY:
            if (!*a.value)
                cli_usage_error(&a, "--history: an empty file name");
            free(c.history);
            c.history = strdup(a.value);
            break;
        case O_NO_SNAPSHOT:
            c.no_snapshot = 1;
            c.store.needs_store = "--no-snapshot";
            break;
        case O_CTX: c.max_context = cli_size(&a); break;
        case O_MESSAGES: messages = a.value; break;
        case O_TOOLS: tools = a.value; break;
        case O_FORMAT: response_format = a.value; break;
        case O_SHOW: show = 1; break;
        case O_IDS: ids = 1; break;
        }
    }
    const char *path = cli_operand(&a, 0, "MODEL");
    cli_no_more_operands(&a, 1);
    if (has_effort && !c.format.thinking)
        cli_usage_error(&a, "--effort needs --think");
    if ((show && !messages) || (ids && !show))
        cli_usage_error(&a, show ? "--show-prompt needs --messages" : "--ids needs --show-prompt");
    if (messages && (c.system || c.history))
        cli_usage_error(&a, "--messages holds the whole conversation: %s does not go with it",
                        c.history ? "--history" : "--system");
    const char *files[] = { messages, tools, response_format };
    int n_stdin = 0;
    for (int i = 0; i < 3; i++)
        n_stdin += files[i] && !strcmp(files[i], "-");
    if (n_stdin > 1 || (n_stdin && !messages))
        cli_usage_error(&a, "standard input %s",
                        n_stdin > 1 ? "can be only one of --messages, --tools and --response-format"
                                    : "is the conversation: give the file another name than -");
    cli_store_check(&c.store, &a);

    mote_err err = { 0 };
    c.messages = json_array();
    int status;
    int rc = cli_chat_read_given(&c, messages, tools, response_format, &err);
    if (!rc && show) {
        status = cli_chat_show_prompt(&c, path, ids);
        goto out;
    }
    rc = rc ? rc : cli_model_open(&c.model, &c.info, path, &a, 0, &err);
    if (!rc && !c.info.has_tokenizer)
        rc = mote__fail(&err, MOTE_EINVAL, "%s: there is no tokenizer.json", path);
    if (!rc && !c.info.has_chat)
        rc = mote__fail(
            &err, MOTE_EUNSUPPORTED,
            "%s: the chat format of a '%s' model is not known; 'mote run' completes prompts", path,
            c.info.family);
    if (!rc) /* tools, format, wording: good before anything is computed */
        rc = cli_chat_check(&c, &err);
    if (!rc && c.max_context > c.info.max_context)
        rc = mote__fail(&err, MOTE_EINVAL, "--ctx: %s is more than the model's %s tokens",
                        cli_count(c.max_context).s, cli_count(c.info.max_context).s);
    if (!rc)
        rc = cli_sampling_finish(&c.sampling, &c.info, &c.sample, &err);
    if (!rc)
        cli_chat_init_talk(&c);
    if (!rc && c.history)
        rc = cli_chat_load_history(&c, &err);
    if (!rc) {
        cli_store_open(&c.store);
        rc = talk_conversation_begin(&c.talk, &err);
    }
    if (rc) {
        int reported = cli_report(&err);
        status = c.status == CLI_USAGE ? CLI_USAGE : reported;
    } else {
        c.interactive = isatty(STDIN_FILENO) && !a.json && !c.given;
        c.dim = isatty(STDOUT_FILENO) && !a.json && !getenv("NO_COLOR");
        if (c.given)
            status = cli_chat_answer(&c);
        else
            status = isatty(STDIN_FILENO) && isatty(STDERR_FILENO) ? cli_chat_terminal(&c)
                                                                   : cli_chat_pipe(&c);
    }
out:
    talk_conversation_deinit(&c.talk);
    cli_store_close(&c.store);
    mote_model_close(c.model);
    json_decref(c.messages);
    json_decref(c.system);
    free(c.history);
    free(c.given);
    free(c.tools);
    free(c.response_format);
    return status;
}
