/* libedit does the editing; it gets its characters from here. Between the terminal and libedit sits
 * a small reader that
 *   - turns bytes into characters, U+FFFD for what is no UTF-8 (libedit would take it for the end
 * of the input);
 *   - takes whole escape sequences: those of the table become libedit's own control characters, all
 * others do nothing (libedit would leave their tails as letters);
 *   - takes a paste, which the terminal puts between ESC [200~ and ESC [201~, as one text: line
 * ends and tabs in it are no keys;
 *   - waits for signals as well as for keys. */
#include "cli/editor.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/utf8.h"
#include "cli/cli.h"

/* Control characters that libedit is told to bind to us, or that stand for a key without one. */
enum { KEY_BREAK = 'C' & 31, KEY_PASTE = '^' & 31, KEY_DELETE = '_' & 31, KEY_NEWLINE = ']' & 31 };
enum { TIMED_OUT = -1, ENDED = -2, BROKEN = -3 };
enum { SEQUENCE_MS = 50, MAX_SEQUENCE = 32 };

typedef struct wide {
    wchar_t *text;
    size_t n, capacity;
} wide;

struct cli_editor {
    EditLine *el;
    HistoryW *past;
    FILE *screen;
    int events;   /* descriptor, while a line is read */
    int brackets; /* the terminal is asked to mark pastes */
    const char *prompt;
    cli_typed outcome;
    unsigned char in[4096]; /* read, not yet taken */
    size_t n_in, at;
    wchar_t queue[8]; /* characters that stand for a key */
    size_t n_queue, queue_at;
    wide paste;
    char *line; /* as UTF-8 */
};

static const struct {
    const char *sequence;
    const char *keys;
} known[] = {
    /* up, down: Ctrl-P, Ctrl-N */
    { "[A", "\020" },
    { "OA", "\020" },
    { "[B", "\016" },
    { "OB", "\016" },
    /* right, left */
    { "[C", "\006" },
    { "OC", "\006" },
    { "[D", "\002" },
    { "OD", "\002" },
    /* home */
    { "[H", "\001" },
    { "OH", "\001" },
    { "[1~", "\001" },
    { "[7~", "\001" },
    /* end */
    { "[F", "\005" },
    { "OF", "\005" },
    { "[4~", "\005" },
    { "[8~", "\005" },
    /* delete */
    { "[3~", "\037" },
    /* by words */
    { "[1;5C", "\033f" },
    { "[1;3C", "\033f" },
    { "[1;5D", "\033b" },
    { "[1;3D", "\033b" },
};

/* ---- bytes ---- */
static void mark_pastes(cli_editor *e, int on)
{
    if (!e->brackets)
        return;
    fputs(on ? "\033[?2004h" : "\033[?2004l", e->screen);
    fflush(e->screen);
}

/* ENDED or BROKEN where the line is over, else 0. */
static int handle_events(cli_editor *e)
{
    unsigned events = cli_signals_events();
    if (events & CLI_EVENT_LEAVE) {
        e->outcome = CLI_TYPED_LEAVE;
        return ENDED;
    }
    if (events & CLI_EVENT_KEY)
        return BROKEN;
    if (events & CLI_EVENT_STOP) {
        mark_pastes(e, 0);
        el_set(e->el, EL_PREP_TERM, 0);
        cli_signals_stop();
    }
    if (events & (CLI_EVENT_STOP | CLI_EVENT_CONTINUE)) {
        /* libedit must not believe that nothing has changed */
        el_set(e->el, EL_PREP_TERM, 0);
        el_set(e->el, EL_PREP_TERM, 1);
        mark_pastes(e, 1);
    }
    if (events & CLI_EVENT_RESIZE)
        el_resize(e->el);
    if (events)
        el_set(e->el, EL_REFRESH);
    return 0;
}

/* The next byte, or one of the negative codes; ms -1 waits for ever. */
static int next_byte(cli_editor *e, int ms)
{
    while (e->at == e->n_in) {
        struct pollfd p[2] = { { .fd = STDIN_FILENO, .events = POLLIN },
                               { .fd = e->events, .events = POLLIN } };
        int ready = poll(p, 2, ms);
        if (ready == 0)
            return TIMED_OUT;
        if (ready < 0 && errno != EINTR)
            return ENDED;
        if (ready < 0 || p[1].revents) {
            int over = handle_events(e);
            if (over)
                return over;
            continue;
        }
        ssize_t n = read(STDIN_FILENO, e->in, sizeof e->in);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return ENDED;
        e->n_in = (size_t)n;
        e->at = 0;
    }
    return e->in[e->at++];
}

/* The character that begins with `first`; a byte that does not belong to it stays for later. */
static wchar_t character(cli_editor *e, int first)
{
    uint8_t bytes[4] = { (uint8_t)first };
    uint32_t cp = 0;
    size_t n = 1;
    int step;
    while ((step = mote__utf8_step(bytes, n, &cp)) == 0) {
        int b = next_byte(e, SEQUENCE_MS);
        if (b < 0)
            return 0xFFFD;
        bytes[n++] = (uint8_t)b;
    }
    if (step < 0 && n > 1)
        /* it broke the character and may begin another */
        e->at--;
    return step > 0 ? (wchar_t)cp : 0xFFFD;
}

/* ---- pastes ---- */
static int wide_add(wide *w, wchar_t c)
{
    if (w->n + 1 >= w->capacity) {
        size_t capacity = 2 * w->capacity + 256;
        wchar_t *text = realloc(w->text, capacity * sizeof *text);
        if (!text)
            return -1;
        w->text = text;
        w->capacity = capacity;
    }
    w->text[w->n++] = c;
    w->text[w->n] = 0;
    return 0;
}

/* All up to the end mark; line ends become \n (terminals send \r). 0 or a negative code. */
static int take_paste(cli_editor *e)
{
    static const char mark[] = "\033[201~";
    static const wchar_t wide_mark[] = L"\033[201~";
    enum { N = sizeof mark - 1 };
    wide *w = &e->paste;
    w->n = 0;
    for (int was_return = 0;;) {
        int b = next_byte(e, -1);
        if (b < 0)
            return b;
        if (b == '\n' && was_return) {
            was_return = 0;
            continue;
        }
        was_return = b == '\r';
        if (b == 0)
            continue;
        if (wide_add(w, b == '\r' ? L'\n' : b < 0x80 ? (wchar_t)b : character(e, b)))
            return ENDED;
        if (b == '~' && w->n >= N && !wmemcmp(w->text + w->n - N, wide_mark, N)) {
            w->n -= N;
            w->text[w->n] = 0;
            return 0;
        }
    }
}

/* ---- keys ---- */
static void put(cli_editor *e, const char *keys)
{
    e->n_queue = e->queue_at = 0;
    for (; *keys; keys++)
        e->queue[e->n_queue++] = (unsigned char)*keys;
}

/* After ESC: a whole sequence. 0, or a negative code. */
static int take_sequence(cli_editor *e)
{
    char s[MAX_SEQUENCE + 1] = "";
    size_t n = 0;
    int b = next_byte(e, SEQUENCE_MS);
    if (b == TIMED_OUT)
        return 0; /* the Esc key alone */
    if (b < 0)
        return b;
    if (b == 'P' || b == ']' || b == '_' || b == '^' || b == 'X') {
        /* a string that a terminal answered: up to BEL or ESC \ */
        for (int before = 0;
             (b = next_byte(e, SEQUENCE_MS)) >= 0 && b != 7 && !(before == 033 && b == '\\');
             before = b)
            ;
        return b == TIMED_OUT || b >= 0 ? 0 : b;
    }
    if (b != '[' && b != 'O') {
        /* Alt and a key */
        put(e, b == '\r' || b == '\n' ? (char[]){ KEY_NEWLINE, 0 } : (char[]){ 033, (char)b, 0 });
        return 0;
    }
    s[n++] = (char)b;
    int single = b == 'O';
    for (;;) {
        b = next_byte(e, SEQUENCE_MS);
        if (b == TIMED_OUT)
            return 0;
        if (b < 0)
            return b;
        if (n < MAX_SEQUENCE)
            s[n++] = (char)b;
        if (n == 2 && b == '[') /* ESC [ [ A: function keys of the console */
            continue;
        /* no sequence: what follows is taken for itself */
        if (b < 0x20 || b > 0x7e) {
            e->at--;
            return 0;
        }
        if (b >= 0x40 || (single && (b < '0' || b > '9')))
            break;
    }
    s[n] = 0;
    if (!strcmp(s, "[200~")) {
        int rc = take_paste(e);
        if (!rc)
            put(e, (char[]){ KEY_PASTE, 0 });
        return rc;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].sequence, s))
            put(e, known[i].keys);
    return 0;
}

/* libedit asks for a character: 1, or -1 at the end. */
static int get_character(EditLine *el, wchar_t *c)
{
    cli_editor *e;
    el_wget(el, EL_CLIENTDATA, &e);
    for (;;) {
        if (e->queue_at < e->n_queue) {
            *c = e->queue[e->queue_at++];
            return 1;
        }
        int b = next_byte(e, -1);
        if (b == 033) {
            b = take_sequence(e);
            if (!b)
                continue;
        }
        if (b == BROKEN) {
            *c = KEY_BREAK;
            return 1;
        }
        if (b < 0)
            return -1;
        if (b == KEY_BREAK || b == KEY_PASTE || b == KEY_DELETE || b == KEY_NEWLINE)
            continue; /* typed, they mean nothing */
        *c = b < 0x80 ? (wchar_t)b : character(e, b);
        return 1;
    }
}

/* ---- libedit's side ---- */
static unsigned char on_paste(EditLine *el, int c)
{
    cli_editor *e;
    (void)c;
    el_wget(el, EL_CLIENTDATA, &e);
    return e->paste.n && el_winsertstr(el, e->paste.text) ? CC_ERROR : CC_REFRESH;
}

static unsigned char on_newline(EditLine *el, int c)
{
    (void)c;
    return el_winsertstr(el, L"\n") ? CC_ERROR : CC_REFRESH;
}

/* The line ends as if it had been entered, so that what was typed stays to be seen; the caller
 * throws it away. */
static unsigned char on_break(EditLine *el, int c)
{
    cli_editor *e;
    (void)c;
    el_wget(el, EL_CLIENTDATA, &e);
    const LineInfoW *line = el_wline(el);
    e->outcome = line->lastchar > line->buffer ? CLI_TYPED_NOTHING : CLI_TYPED_EMPTY_BREAK;
    el_cursor(el, (int)(line->lastchar - line->cursor));
    el_winsertstr(el, L"^C");
    put(e, "\n");
    return CC_REFRESH;
}

static wchar_t *prompt_text(EditLine *el)
{
    static wchar_t text[16];
    cli_editor *e;
    el_wget(el, EL_CLIENTDATA, &e);
    size_t n = 0;
    for (; e->prompt[n] && n < 15; n++)
        text[n] = (unsigned char)e->prompt[n];
    text[n] = 0;
    return text;
}

cli_editor *cli_editor_create(int quiet)
{
    cli_editor *e = calloc(1, sizeof *e);
    HistEventW event;
    if (!e)
        return NULL;
    e->screen = isatty(STDOUT_FILENO) && !quiet ? stdout : stderr;
    e->el = el_init("mote", stdin, e->screen, stderr);
    e->past = history_winit();
    if (!e->el || !e->past) {
        cli_editor_destroy(e);
        return NULL;
    }
    const char *term = getenv("TERM");
    e->brackets = term && *term && strcmp(term, "dumb");
    history_w(e->past, &event, H_SETSIZE, 1000);
    el_wset(e->el, EL_CLIENTDATA, e);
    el_wset(e->el, EL_PROMPT, prompt_text);
    el_wset(e->el, EL_EDITOR, L"emacs");
    el_wset(e->el, EL_HIST, history_w, e->past);
    el_wset(e->el, EL_SIGNAL, 0);
    el_wset(e->el, EL_GETCFN, get_character);
    el_wset(e->el, EL_ADDFN, L"mote-paste", L"insert what was pasted", on_paste);
    el_wset(e->el, EL_ADDFN, L"mote-newline", L"go on in a new line", on_newline);
    el_wset(e->el, EL_ADDFN, L"mote-break", L"throw the line away", on_break);
    /* line ends of a paste come as they are */
    el_set(e->el, EL_SETTY, "-d", "-icrnl", "-inlcr", NULL);
    el_wset(e->el, EL_BIND, L"^^", L"mote-paste", NULL);
    el_wset(e->el, EL_BIND, L"^]", L"mote-newline", NULL);
    el_wset(e->el, EL_BIND, L"^C", L"mote-break", NULL);
    el_wset(e->el, EL_BIND, L"^_", L"ed-delete-next-char", NULL);
    el_wset(e->el, EL_BIND, L"^I", L"ed-insert", NULL);
    return e;
}

void cli_editor_destroy(cli_editor *e)
{
    if (!e)
        return;
    if (e->past)
        history_wend(e->past);
    if (e->el)
        el_end(e->el);
    free(e->paste.text);
    free(e->line);
    free(e);
}

/* UTF-8 of what was typed, without the line end(s) behind it. */
static cli_typed take_line(cli_editor *e, const wchar_t *typed, size_t n_typed, const char **text,
                           size_t *n)
{
    while (n_typed && typed[n_typed - 1] == L'\n')
        n_typed--;
    free(e->line);
    e->line = malloc(4 * n_typed + 1);
    if (!e->line)
        return CLI_TYPED_NO_MEMORY;
    size_t used = 0;
    for (size_t i = 0; i < n_typed; i++) {
        uint32_t cp = (uint32_t)typed[i];
        used += (size_t)mote__utf8_write((uint8_t *)e->line + used,
                                         cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000) ? 0xFFFD
                                                                                        : cp);
    }
    e->line[used] = 0;
    *text = e->line;
    *n = used;
    return CLI_TYPED_LINE;
}

cli_typed cli_editor_read(cli_editor *e, const char *prompt, const char **text, size_t *n)
{
    int n_typed = 0;
    e->prompt = prompt;
    e->outcome = CLI_TYPED_LINE;
    e->n_queue = e->queue_at = 0;
    e->events = cli_signals_at_prompt(1);
    if (e->events < 0)
        return CLI_TYPED_END;
    /* before the prompt is seen: what is typed at once must not be cooked */
    el_set(e->el, EL_PREP_TERM, 1);
    mark_pastes(e, 1);
    const wchar_t *typed = el_wgets(e->el, &n_typed);
    mark_pastes(e, 0);
    cli_signals_at_prompt(0);
    if (e->outcome != CLI_TYPED_LINE)
        return e->outcome;
    return typed && n_typed > 0 ? take_line(e, typed, (size_t)n_typed, text, n) : CLI_TYPED_END;
}

void cli_editor_remember(cli_editor *e, const char *text)
{
    HistEventW event;
    size_t n = mbstowcs(NULL, text, 0);
    wchar_t *w = n == (size_t)-1 ? NULL : malloc((n + 1) * sizeof *w);
    if (w && mbstowcs(w, text, n + 1) == n)
        history_w(e->past, &event, H_ENTER, w);
    free(w);
}
