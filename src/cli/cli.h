/* What every command of `mote` shares: the command table, exit codes, and the door from library
 * errors to stderr. */
#ifndef MOTE_CLI_CLI_H
#define MOTE_CLI_CLI_H

#include <mote/mote.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,        /* anything that went wrong while doing what was asked */
    CLI_USAGE = 2,         /* the command line itself is wrong */
    CLI_INTERRUPTED = 130, /* Ctrl-C: 128 + SIGINT, as shells report it */
    CLI_PIPE_CLOSED = 141  /* the reader went away: 128 + SIGPIPE */
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
int cli_experts(int argc, char **argv);
int cli_tune(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_tokenize(int argc, char **argv);
int cli_logits(int argc, char **argv);
int cli_kv(int argc, char **argv);
int cli_doctor(int argc, char **argv);

/* Print "mote: <message>" on stderr (one line) and give the exit status: CLI_INTERRUPTED for a
 * cancellation that Ctrl-C caused, CLI_FAILED otherwise. */
int cli_report(const mote_err *err);

/* SIGINT (Ctrl-C), SIGTERM and SIGHUP end the process at once, until a command says with
 * cli_signals_catch that it looks at cli_interrupted in all that takes long: then the first sets
 * this flag, so that what was reached can be kept, and the second ends the process. Whatever ends
 * it, the terminal is left in order. A closed pipe is seen as a write error instead of killing us.
 */
void cli_signals_init(void);
void cli_signals_catch(void);
int cli_interrupted(void);
void cli_interrupt_clear(void); /* Ctrl-C only; who was told to end ends */
/* At the very end: dies of the SIGTERM or SIGHUP that was caught, so that the parent sees it. */
void cli_signals_finish(void);
/* What is written to stderr, a terminal, if a signal ends the process now: a constant text, or NULL
 * for nothing. */
void cli_signals_undo(const char *text);

/* While a person edits a line, signals become events: returns a descriptor that is readable when
 * there are some, or -1 (no terminal). CLI_EVENT_KEY: Ctrl-C was pressed; LEAVE: we are to end;
 * STOP: put the terminal in order and call cli_signals_stop, which returns when the process goes
 * on. */
enum {
    CLI_EVENT_KEY = 1,
    CLI_EVENT_LEAVE = 2,
    CLI_EVENT_STOP = 4,
    CLI_EVENT_CONTINUE = 8,
    CLI_EVENT_RESIZE = 16
};
int cli_signals_at_prompt(int on);
unsigned cli_signals_events(void); /* and forget them */
void cli_signals_stop(void);

#endif
