/* Where the messages of a conversation come from: a person at a terminal, or lines of a file or
 * pipe. */
#include "cli/cmd_chat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/editor.h"
#include "cli/lines.h"
#include "cli/out.h"

/* What has come whole. Exit status, or CLI_CHAT_QUIT. */
static int take(chat *c, cli_editor *e, const cli_lines *l)
{
    if (!l->n)
        return CLI_OK;
    if (e)
        cli_editor_remember(e, l->text);
    return cli_chat_take(c, l->text, l->n, l->quoted);
}

static int no_memory(void)
{
    cli_say("mote: out of memory for the message");
    return CLI_FAILED;
}

int cli_chat_terminal(chat *c)
{
    cli_lines lines = { 0 };
    cli_editor *e = cli_editor_create(c->a->json);
    int status = CLI_OK, breaks = 0;
    if (!e) {
        cli_say("mote: cannot set up the line editor");
        return CLI_FAILED;
    }
    if (c->interactive) {
        cli_say("%s, %s layers; /help lists the commands", c->info.family,
                cli_count(c->info.n_layers).s);
        if (json_array_size(c->messages))
            cli_say("(going on after %zu messages)", json_array_size(c->messages));
    }
    while (!status) {
        const char *typed_text;
        size_t n;
        cli_lines_state state = CLI_LINES_MORE;
        cli_typed typed = cli_editor_read(e, lines.open ? "... " : "> ", &typed_text, &n);
        int was_open = lines.open;
        switch (typed) {
        case CLI_TYPED_LINE: state = cli_lines_add(&lines, typed_text, n); break;
        case CLI_TYPED_END:
            /* what is open is a message; then the end is asked for again */
            state = cli_lines_end(&lines);
            fputs("\n", stderr);
            if (state == CLI_LINES_MORE)
                goto out;
            break;
        case CLI_TYPED_EMPTY_BREAK:
            if (was_open || !breaks++)
                cli_say(was_open ? "(dropped)"
                                 : "(Ctrl-D or /quit leaves, and so does Ctrl-C once more)");
            else
                status = CLI_INTERRUPTED;
            cli_lines_drop(&lines);
            break;
        case CLI_TYPED_NOTHING: cli_lines_drop(&lines); break;
        case CLI_TYPED_LEAVE:
            fputs("\n", stderr);
            status = CLI_INTERRUPTED;
            break;
        case CLI_TYPED_NO_MEMORY: state = CLI_LINES_NO_MEMORY;
        }
        if (typed != CLI_TYPED_EMPTY_BREAK)
            breaks = 0;
        if (state == CLI_LINES_NO_MEMORY)
            status = no_memory();
        else if (state == CLI_LINES_MESSAGE)
            status = take(c, e, &lines);
    }
out:
    cli_lines_deinit(&lines);
    cli_editor_destroy(e);
    return status == CLI_CHAT_QUIT ? CLI_OK : status;
}

int cli_chat_pipe(chat *c)
{
    cli_lines lines = { 0 };
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    int status = CLI_OK, why = 0;
    for (;;) {
        errno = 0;
        n = getline(&line, &capacity, stdin);
        if (n < 0) {
            why = errno;
            break;
        }
        size_t length = (size_t)n;
        if (line[length - 1] == '\n' && --length && line[length - 1] == '\r')
            /* a \r is a part of the line end there, and text elsewhere */
            length--;
        cli_lines_state state = cli_lines_add(&lines, line, length);
        if (state == CLI_LINES_NO_MEMORY)
            status = no_memory();
        else if (state == CLI_LINES_MESSAGE) {
            if (c->interactive)
                cli_interrupt_clear(); /* what stopped a reply is over */
            status = take(c, NULL, &lines);
        }
        if (status)
            break;
    }
    if (!status && cli_interrupted())
        status = CLI_INTERRUPTED;
    else if (!status && ferror(stdin)) {
        cli_say("mote: standard input: cannot read: %s", strerror(why));
        status = CLI_FAILED;
    } else if (!status) {
        if (lines.in_block)
            cli_say("mote: note: the input ends inside a block of three quotation marks; what is "
                    "there is the message");
        if (cli_lines_end(&lines) == CLI_LINES_MESSAGE)
            status = take(c, NULL, &lines);
    }
    free(line);
    cli_lines_deinit(&lines);
    return status == CLI_CHAT_QUIT ? CLI_OK : status;
}
