/* Messages from lines, the same from a terminal and from a pipe: a line is a message, unless
 *   - it ends with one backslash (an odd number of them): the backslash goes, and the message goes
 * on in the next line;
 *   - it begins with three quotation marks: the message is all text up to a line that ends with
 * three quotation marks, as it is. The end of the input ends what is open. */
#ifndef MOTE_CLI_LINES_H
#define MOTE_CLI_LINES_H

#include <stddef.h>

typedef struct cli_lines {
    char *text; /* owned, 0-terminated once not NULL; zero bytes may be inside */
    size_t n, capacity, n_lines;
    int in_block, open; /* open: a message has begun and goes on */
    int quoted;         /* the message was a block: it is no command whatever it says */
} cli_lines;

typedef enum cli_lines_state {
    CLI_LINES_MORE,
    CLI_LINES_MESSAGE,
    CLI_LINES_NO_MEMORY
} cli_lines_state;

/* A line without its line end (a pasted one may hold line ends). After CLI_LINES_MESSAGE:
 * text[0..n) and quoted, until the next call. Zero-initialised is empty. */
cli_lines_state cli_lines_add(cli_lines *l, const char *line, size_t n);
/* The input ends: CLI_LINES_MESSAGE if a message was open. */
cli_lines_state cli_lines_end(cli_lines *l);
void cli_lines_drop(cli_lines *l); /* forget what is open */
void cli_lines_deinit(cli_lines *l);

#endif
