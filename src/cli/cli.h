/* What every command of `mote` shares: the command table, exit codes, and the door from library errors to stderr. */
#ifndef MOTE_CLI_CLI_H
#define MOTE_CLI_CLI_H

#include <mote/mote.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,          /* anything that went wrong while doing what was asked */
    CLI_USAGE = 2,           /* the command line itself is wrong                    */
    CLI_INTERRUPTED = 130,   /* Ctrl-C: 128 + SIGINT, as shells report it           */
    CLI_PIPE_CLOSED = 141    /* the reader went away: 128 + SIGPIPE                 */
};

/* argv[0] is the command's name. Returns the exit status. */
typedef struct cli_command {
    const char *name, *summary;
    int (*main)(int argc, char **argv);
} cli_command;

int cli_run(int argc, char **argv);
int cli_chat(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_eval(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_ladder(int argc, char **argv);
int cli_tune(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_tokenize(int argc, char **argv);
int cli_logits(int argc, char **argv);
int cli_kv(int argc, char **argv);
int cli_doctor(int argc, char **argv);

/* Print "mote: <message>" on stderr (one line) and give the exit status: CLI_INTERRUPTED for a cancellation that Ctrl-C
 * caused, CLI_FAILED otherwise. */
int cli_report(const mote_err *err);

/* Ctrl-C: the first sets a flag that generation and long steps look at, the second ends the process the hard way. A closed
 * pipe is seen as a write error instead of killing us. */
void cli_signals_init(void);
/* From here on SIGTERM and SIGHUP do the same, so that a store is closed and what it was given is written. */
void cli_signals_end_cleanly(void);
int cli_ended(void);                     /* the number of such a signal, or 0 */
int cli_interrupted(void);
void cli_interrupt_clear(void);
/* While a person edits a line, Ctrl-C restores the terminal and leaves at once. */
void cli_signals_at_prompt(int on);

#endif
