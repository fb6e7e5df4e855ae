#include "cli/out.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "lab/svg.h"
#include "base/clock.h"

void cli_say(const char *fmt, ...)
{
    char line[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    for (char *p = line; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    cli_progress_clear();
    fprintf(stderr, "%s\n", line);
}

int cli_report(const mote_err *err)
{
    if (err->code == MOTE_ECANCELED && cli_interrupted()) {
        cli_say("mote: interrupted");
        return CLI_INTERRUPTED;
    }
    cli_say("mote: %s", err->message[0] ? err->message : mote_error_sentence(err->code));
    return CLI_FAILED;
}

int cli_flush(void)
{
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout))
        return CLI_OK;
    static int why, said; /* the first reason stays: after it, stdio forgets */
    struct pollfd p = { .fd = STDOUT_FILENO };
    if (!why)
        why = poll(&p, 1, 0) > 0 && p.revents & POLLERR ? EPIPE : errno ? errno : EIO;
    if (why == EPIPE)
        return CLI_PIPE_CLOSED;
    if (!said++)
        cli_say("mote: cannot write to standard output: %s", strerror(why));
    return CLI_FAILED;
}

int cli_print_json(json_t *root, size_t flags)
{
    if (!root) {
        cli_say("mote: out of memory");
        return CLI_FAILED;
    }
    cli_progress_clear();
    json_dumpf(root, stdout, flags | JSON_REAL_PRECISION(12) | JSON_ENCODE_ANY);
    json_decref(root);
    putchar('\n');
    return cli_flush();
}

json_t *cli_json_real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

cli_text cli_bytes(double bytes)
{
    cli_text t;
    lab_bytes_text(t.s, bytes);
    return t;
}

cli_text cli_count(uint64_t n)
{
    char digits[24];
    cli_text t;
    char *o = t.s;
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            *o++ = ',';
        *o++ = digits[i];
    }
    *o = 0;
    return t;
}

cli_text cli_fixed(double v, int digits)
{
    cli_text t = { "-" };
    if (isfinite(v))
        snprintf(t.s, sizeof t.s, "%.*f", digits, v);
    return t;
}

/* ---- progress ---- */
enum { PROGRESS_AFTER_MS = 400 }; /* what is done sooner needs no bar */
static struct {
    double started_at, shown_at;
    int visible, is_terminal, asked, columns;
} progress;

static int terminal_columns(void)
{
    struct winsize size;
    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col ? size.ws_col : 80;
}

/* To the line's beginning, and nothing on it. A terminal that has become narrower since the line
 * was drawn may have broken it. */
static void progress_wipe(int columns)
{
    int rows = progress.visible && columns > 0 ? (progress.columns - 1) / columns : 0;
    if (rows > 0)
        fprintf(stderr, "\033[%dA\r\033[J", rows);
    else
        fputs("\r\033[K", stderr);
}

/* "what [######    ]  60 %" in less than `columns`: the bar goes first, then the end of the words.
 */
int cli_progress_text(char *line, size_t size, const char *what, double fraction, int columns)
{
    enum { BAR = 30, LEAST_BAR = 5, PERCENT = 6 };
    /* the last column stays free: writing there may wrap */
    int room = columns - 1 - PERCENT, n = (int)strlen(what);
    fraction = fmin(fmax(fraction, 0), 1);
    if (room < 0)
        n = 0;
    char *words = strndup(what, (size_t)n);
    while (words && n && (int)cli_columns(words) > room) {
        do
            n--;
        while (n && ((unsigned char)words[n] & 0xc0) == 0x80);
        words[n] = 0;
    }
    int bar = words ? room - (int)cli_columns(words) - 3 : 0;
    bar = bar > BAR ? BAR : bar;
    int filled = (int)(bar * fraction);
    if (bar >= LEAST_BAR)
        n = snprintf(line, size, "%s [%.*s%*s] %3.0f %%", words, filled,
                     "##############################", bar - filled, "", 100 * fraction);
    else
        n = snprintf(line, size, "%s%*.0f %%", words ? words : "", room < 0 ? 0 : 4,
                     100 * fraction);
    free(words);
    return (int)cli_columns(line) < columns ? n : (line[0] = 0);
}

static void progress_line(const char *what, double fraction)
{
    if (!progress.asked) {
        const char *term = getenv("TERM");
        progress.asked = 1;
        progress.is_terminal = isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb");
    }
    double now = progress.is_terminal ? mote__clock_s() : 0;
    if (!progress.is_terminal)
        return;
    if (!progress.started_at)
        progress.started_at = now;
    if (now - progress.started_at < PROGRESS_AFTER_MS * 1e-3 || now - progress.shown_at < 0.1)
        return;
    progress.shown_at = now;
    char line[512];
    int columns = terminal_columns();
    cli_progress_text(line, sizeof line, what, fraction, columns);
    progress_wipe(columns);
    fputs(line, stderr);
    fflush(stderr);
    progress.columns = (int)cli_columns(line);
    progress.visible = 1;
    cli_signals_undo("\r\033[K");
}

int cli_progress_open(void *ctx, const char *what, double fraction)
{
    (void)ctx;
    progress_line(what ? what : "loading", fraction);
    return cli_interrupted();
}

int cli_progress_step(void *ctx, size_t done_tokens, size_t all_tokens)
{
    cli_step_ctx *step = ctx;
    if (step->model) {
        mote_memory m;
        mote_model_get_memory(step->model, &m);
        if (m.bytes[MOTE_MEM_SCRATCH] > step->scratch_peak)
            step->scratch_peak = m.bytes[MOTE_MEM_SCRATCH];
    }
    progress_line(step->what, all_tokens ? (double)done_tokens / (double)all_tokens : 1);
    return cli_interrupted();
}

int cli_progress_lab(void *ctx, const char *what, double fraction)
{
    (void)ctx;
    progress_line(what, fraction);
    return cli_interrupted();
}

void cli_progress_clear(void)
{
    progress.started_at = 0;
    if (!progress.visible)
        return;
    progress_wipe(terminal_columns());
    fflush(stderr);
    progress.visible = 0;
    cli_signals_undo(NULL);
}

int cli_read_file(const char *path, char **text, size_t *n, mote_err *err)
{
    int is_stdin = !strcmp(path, "-");
    const char *shown = is_stdin ? "standard input" : path;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    if (!f)
        return mote__fail(err, MOTE_EIO, "%s: cannot open: %s", shown, strerror(errno));
    char *data = NULL;
    size_t size = 0, capacity = 0;
    int rc = MOTE_OK;
    for (;;) {
        if (capacity - size < 2) {
            size_t wanted = capacity ? 2 * capacity : 1 << 16;
            char *grown = wanted > capacity ? realloc(data, wanted) : NULL;
            if (!grown) {
                rc = mote__fail(err, MOTE_ENOMEM, "%s: out of memory after %zu bytes", shown, size);
                break;
            }
            data = grown;
            capacity = wanted;
        }
        errno = 0;
        size_t got = fread(data + size, 1, capacity - size - 1, f);
        size += got;
        if (got)
            continue;
        if (cli_interrupted())
            rc = mote__fail(err, MOTE_ECANCELED, "%s: interrupted", shown);
        else if (ferror(f))
            rc = mote__fail(err, MOTE_EIO, "%s: cannot read: %s", shown, strerror(errno));
        break;
    }
    if (!is_stdin)
        fclose(f);
    if (rc) {
        free(data);
        return rc;
    }
    data[size] = 0;
    *text = data;
    *n = size;
    return MOTE_OK;
}
