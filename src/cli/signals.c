/* Ctrl-C, told to the rest of the program as a flag; see cli.h. */
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include "cli/cli.h"

static volatile sig_atomic_t interrupted, at_prompt;
static struct termios prompt_terminal;      /* as it was before the line editor changed it */

static void on_interrupt(int signo)
{
    if (at_prompt) {
        tcsetattr(STDIN_FILENO, TCSANOW, &prompt_terminal);
        if (write(STDERR_FILENO, "\n", 1) < 0)
            _exit(CLI_FAILED);
        _exit(CLI_INTERRUPTED);
    }
    if (interrupted) {                       /* the second time: no more patience */
        signal(signo, SIG_DFL);
        raise(signo);
    }
    interrupted = 1;
}

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

int cli_interrupted(void) { return interrupted; }
void cli_interrupt_clear(void) { interrupted = 0; }

void cli_signals_at_prompt(int on)
{
    if (on && tcgetattr(STDIN_FILENO, &prompt_terminal))
        on = 0;
    at_prompt = on;
}
