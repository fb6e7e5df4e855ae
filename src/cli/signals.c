/* Ctrl-C and requests to end, told to the rest of the program as flags; see cli.h. */
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include "cli/cli.h"

static volatile sig_atomic_t interrupted, ended_by, at_prompt;
static struct termios prompt_terminal;      /* as it was before the line editor changed it */

static void on_interrupt(int signo)
{
    if (at_prompt) {
        tcsetattr(STDIN_FILENO, TCSANOW, &prompt_terminal);
        if (write(STDERR_FILENO, "\n", 1) < 0)
            _exit(CLI_FAILED);
        _exit(128 + signo);
    }
    if (signo == SIGINT ? interrupted : ended_by) {      /* the second time: no more patience */
        signal(signo, SIG_DFL);
        raise(signo);
    }
    if (signo == SIGINT)
        interrupted = 1;
    else
        ended_by = signo;
}

void cli_signals_end_cleanly(void)
{
    static const int ends[] = { SIGTERM, SIGHUP };
    struct sigaction action = { .sa_handler = on_interrupt }, old;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!sigaction(ends[i], NULL, &old) && old.sa_handler != SIG_IGN)       /* nohup means it */
            sigaction(ends[i], &action, NULL);
}

int cli_ended(void) { return ended_by; }

void cli_signals_init(void)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigaction(SIGPIPE, &ignore, NULL);
    struct sigaction action = { .sa_handler = on_interrupt };      /* no SA_RESTART: a read of stdin ends too */
    sigemptyset(&action.sa_mask);
    /* a shell that starts us in the background with SIGINT ignored means it */
    struct sigaction old;
    if (!sigaction(SIGINT, NULL, &old) && old.sa_handler == SIG_IGN)
        return;
    sigaction(SIGINT, &action, NULL);
}

int cli_interrupted(void) { return interrupted || ended_by; }
void cli_interrupt_clear(void) { interrupted = 0; }

void cli_signals_at_prompt(int on)
{
    if (on && tcgetattr(STDIN_FILENO, &prompt_terminal))
        on = 0;
    at_prompt = on;
}
