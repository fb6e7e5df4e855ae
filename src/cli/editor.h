/* A line that a person types, with libedit: what comes from the keyboard, how a paste and unknown
 * keys are taken, and the state of the terminal, which is put back whatever happens. */
#ifndef MOTE_CLI_EDITOR_H
#define MOTE_CLI_EDITOR_H

#include <stddef.h>

typedef struct cli_editor cli_editor;

typedef enum cli_typed {
    CLI_TYPED_LINE,
    CLI_TYPED_NOTHING,     /* Ctrl-C with text: it is gone */
    CLI_TYPED_EMPTY_BREAK, /* Ctrl-C on an empty line */
    CLI_TYPED_END,         /* Ctrl-D on an empty line, or no terminal more */
    CLI_TYPED_LEAVE,       /* a signal wants us to end */
    CLI_TYPED_NO_MEMORY
} cli_typed;

/* The terminal shows stdout's text if stdout is one and `quiet` is 0, else the editor draws on
 * stderr. NULL: it cannot be set up. */
cli_editor *cli_editor_create(int quiet);
void cli_editor_destroy(cli_editor *e);
/* One line after `prompt`. *text: n bytes of UTF-8 without the line end (a paste may hold line
 * ends), valid until the next call. */
cli_typed cli_editor_read(cli_editor *e, const char *prompt, const char **text, size_t *n);
/* A message for the arrow keys to bring back. */
void cli_editor_remember(cli_editor *e, const char *text);

#endif
