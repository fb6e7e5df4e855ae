/* A conversation that comes whole, as JSON (--messages, --tools, --response-format), and its prompt
 * shown instead of answered: for people who compare engines. */
#include "cli/cmd_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/out.h"

static int read_text(char **out, const char *file, const char *option, mote_err *err)
{
    size_t n;
    if (!file)
        return MOTE_OK;
    int rc = cli_read_file(file, out, &n, err);
    if (!rc && n && memchr(*out, 0, n))
        rc = mote__fail(err, MOTE_EFORMAT, "%s: %s: holds a zero byte, so this is no JSON", option,
                        file);
    return rc;
}

int cli_chat_read_given(chat *c, const char *messages, const char *tools,
                        const char *response_format, mote_err *err)
{
    int rc = read_text(&c->given, messages, "--messages", err);
    if (!rc)
        rc = read_text(&c->tools, tools, "--tools", err);
    if (!rc)
        rc = read_text(&c->response_format, response_format, "--response-format", err);
    c->given_files[0] = messages;
    c->given_files[1] = tools;
    c->given_files[2] = response_format;
    c->format.tools_json = c->tools;
    c->format.response_format_json = c->response_format;
    return rc;
}

int cli_chat_given_fault(const chat *c, int rc, mote_err *err)
{
    static const char *const begins[] = { "messages", "tools", "response format" };
    char message[sizeof err->message];
    memcpy(message, err->message, sizeof message);
    for (int i = 0; i < 3 && rc; i++)
        if (c->given_files[i] && !strncmp(message, begins[i], strlen(begins[i])))
            return mote__fail(err, rc, "%s: %s",
                              strcmp(c->given_files[i], "-") ? c->given_files[i] : "standard input",
                              message);
    return rc;
}

int cli_chat_check(const chat *c, mote_err *err)
{
    char *prompt = NULL;
    size_t n;
    int rc = mote_chat_prompt(c->model, c->given ? c->given : "[]", &c->format, &prompt, &n, err);
    mote_free(prompt);
    return cli_chat_given_fault(c, rc, err);
}

static int print_prompt(const chat *c, const char *prompt, size_t n, const int32_t *ids,
                        size_t n_ids)
{
    if (c->a->json) {
        json_t *list = ids ? json_array() : NULL;
        for (size_t i = 0; i < n_ids; i++)
            json_array_append_new(list, json_integer(ids[i]));
        json_t *o = json_pack("{s:o}", "prompt", json_stringn(prompt, n));
        if (o && list)
            json_object_set(o, "ids", list);
        json_decref(list);
        return cli_print_json(o, JSON_COMPACT);
    }
    for (size_t i = 0; i < n_ids; i++)
        printf("%s%d", i ? "," : "", (int)ids[i]);
    if (ids)
        printf("\n");
    else
        fwrite(prompt, 1, n, stdout);
    return cli_flush();
}

int cli_chat_show_prompt(chat *c, const char *path, int ids)
{
    mote_err err = { 0 };
    mote_model_params params = { .tokenizer_only = 1, .no_tokenizer = !ids, .n_threads = 1 };
    char *prompt = NULL;
    int32_t *tokens = NULL;
    size_t n = 0, n_tokens = 0;
    int rc = mote_model_open(&c->model, path, &params, &err);
    if (!rc)
        rc = cli_chat_given_fault(
            c, mote_chat_prompt(c->model, c->given, &c->format, &prompt, &n, &err), &err);
    if (!rc && ids)
        rc = mote_chat_encode(c->model, c->given, &c->format, 0, SIZE_MAX, &tokens, &n_tokens,
                              &err);
    int status = rc ? cli_report(&err) : print_prompt(c, prompt, n, tokens, n_tokens);
    mote_free(prompt);
    mote_free(tokens);
    return status;
}
