/* What signals do; see cli.h. Handlers only set flags, wake the prompt, or put the terminal in
 * order and let the process die. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/cli.h"

/* Ctrl-C */
static volatile sig_atomic_t interrupted;
/* SIGTERM or SIGHUP came: its number */
static volatile sig_atomic_t ending;
/* somebody looks at the two */
static volatile sig_atomic_t catching;
static volatile sig_atomic_t at_prompt;
/* events at the prompt */
static volatile sig_atomic_t key, stopped, continued, resized;
/* what puts the terminal in order, or NULL */
static const char *volatile undo;
static int wake[2] = { -1, -1 };
/* as it was before the line editor changed it */
static struct termios prompt_terminal;

static void tell(int fd, const char *text)
{
    ssize_t n = write(fd, text, strlen(text));
    (void)n; /* nobody is left to be told */
}

/* As if nobody had caught the signal, on a terminal in order. */
static void die(int signo)
{
    if (at_prompt) {
        tcsetattr(STDIN_FILENO, TCSANOW, &prompt_terminal);
        tell(STDIN_FILENO, "\033[?2004l\n"); /* no bracketed paste */
    }
    const char *last = undo;
    if (last)
        tell(STDERR_FILENO, last);
    signal(signo, SIG_DFL);
    sigset_t this;
    sigemptyset(&this);
    sigaddset(&this, signo);
    sigprocmask(SIG_UNBLOCK, &this, NULL);
    raise(signo);
}

static void on_signal(int signo, siginfo_t *info, void *context)
{
    (void)context;
    int saved = errno;
    switch (signo) {
    case SIGTSTP: stopped = 1; break;
    case SIGCONT: continued = 1; break;
    case SIGWINCH: resized = 1; break;
    case SIGINT:
        /* the key that a person pressed at the prompt, or somebody who wants us to end? */
        if (at_prompt && info->si_code > 0) {
            key = 1;
            break;
        }
        if (interrupted || !(catching || at_prompt)) /* the second time: no more patience */
            die(signo);
        interrupted = 1;
        break;
    default: /* SIGTERM, SIGHUP, SIGQUIT */
        if (signo == SIGQUIT || ending || !(catching || at_prompt))
            die(signo);
        ending = signo;
    }
    if (at_prompt)
        tell(wake[1], "!");
    errno = saved;
}

static void set(int signo, struct sigaction *old)
{
    /* no SA_RESTART: a read of stdin ends too */
    struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
    sigemptyset(&action.sa_mask);
    /* a shell that starts us with a signal ignored (in the background, under nohup) means it */
    struct sigaction now;
    if (!sigaction(signo, NULL, &now) && now.sa_handler == SIG_IGN) {
        if (old)
            *old = now;
        return;
    }
    sigaction(signo, &action, old);
}

void cli_signals_init(void)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigaction(SIGPIPE, &ignore, NULL);
    set(SIGINT, NULL);
    set(SIGTERM, NULL);
    set(SIGHUP, NULL);
    set(SIGQUIT, NULL);
}

void cli_signals_catch(void) { catching = 1; }
int cli_interrupted(void) { return interrupted || ending; }
void cli_interrupt_clear(void) { interrupted = 0; }
void cli_signals_undo(const char *text) { undo = text; }

void cli_signals_finish(void)
{
    if (ending)
        die(ending);
}

int cli_signals_at_prompt(int on)
{
    static const int signals[] = { SIGTSTP, SIGCONT, SIGWINCH };
    static struct sigaction old[3];
    if (!on) {
        if (!at_prompt)
            return -1;
        at_prompt = 0;
        /* pressed behind the line that was taken: it is for the answer */
        if (key)
            interrupted = 1;
        key = 0;
        for (int i = 0; i < 3; i++)
            sigaction(signals[i], &old[i], NULL);
        return -1;
    }
    if (wake[0] < 0 && pipe2(wake, O_CLOEXEC | O_NONBLOCK))
        return -1;
    if (tcgetattr(STDIN_FILENO, &prompt_terminal))
        return -1;
    interrupted = key = stopped = continued = resized = 0; /* what stopped a reply is over */
    at_prompt = 1;
    for (int i = 0; i < 3; i++)
        set(signals[i], &old[i]);
    if (ending)
        tell(wake[1], "!");
    return wake[0];
}

unsigned cli_signals_events(void)
{
    char drop[64];
    while (read(wake[0], drop, sizeof drop) > 0)
        ;
    unsigned events = 0;
    if (cli_interrupted())
        events |= CLI_EVENT_LEAVE;
    if (key)
        events |= CLI_EVENT_KEY;
    if (stopped)
        events |= CLI_EVENT_STOP;
    if (continued)
        events |= CLI_EVENT_CONTINUE;
    if (resized)
        events |= CLI_EVENT_RESIZE;
    key = stopped = continued = resized = 0;
    return events;
}

void cli_signals_stop(void)
{
    struct sigaction ours, normal = { .sa_handler = SIG_DFL };
    sigaction(SIGTSTP, &normal, &ours);
    raise(SIGTSTP); /* goes on here after SIGCONT */
    sigaction(SIGTSTP, &ours, NULL);
    continued = 0;
}
