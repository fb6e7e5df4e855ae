/* A tokenizer for Python source and a parser for assignments of string literals; see the header. */
#include "text/py_constants.h"

#include <ctype.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

typedef enum kind { T_NAME, T_STRING, T_NUMBER, T_OP, T_LINE, T_END } kind;

typedef struct token {
    kind kind;
    const char *s; /* a string: its prefix, quotes and all */
    size_t n, line;
} token;

typedef struct reader {
    const char *at, *end;
    size_t line;
    int depth; /* open brackets; line ends inside brackets are ignored */
    token t;   /* the current token */
    mote__py_constant *c;
    size_t n_c;
    const char *what;
    mote_err *err;
} reader;

#define BAD(r, ...) mote__fail((r)->err, MOTE_EFORMAT, __VA_ARGS__)

static int bad_constant(const reader *r, const mote__py_constant *c, const char *why)
{
    return BAD(r, "%s: line %zu: '%s' %s", r->what, r->t.line, c->name, why);
}

/* ---- tokens ---- */

static int is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* Skip white space and comments between tokens; with `lines` line ends too. */
static int skip_blank(reader *r, int lines)
{
    for (; r->at < r->end; r->at++) {
        char c = *r->at;
        if (c == '#') {
            while (r->at < r->end && *r->at != '\n')
                r->at++;
            if (r->at == r->end)
                break;
            c = '\n';
        }
        if (c == '\\') {
            if (r->end - r->at < 2 || r->at[1] != '\n')
                return BAD(r, "%s: line %zu: a backslash that ends no line", r->what, r->line);
            r->at++;
            r->line++;
        } else if (c == '\n' && lines)
            r->line++;
        else if (c != ' ' && c != '\t' && c != '\f')
            break;
    }
    return MOTE_OK;
}

/* Read the string literal whose opening quote is at `quote`. */
static int take_string(reader *r, const char *quote)
{
    char q = *quote;
    int triple = r->end - quote > 2 && quote[1] == q && quote[2] == q;
    const char *p = quote + (triple ? 3 : 1);
    for (;; p++) {
        if (p == r->end || (*p == '\n' && !triple))
            return BAD(r, "%s: line %zu: a string that is not closed", r->what, r->t.line);
        if (*p == q && (!triple || (r->end - p > 2 && p[1] == q && p[2] == q)))
            break;
        if (*p == '\\' && r->end - p > 1)
            p++;
        r->line += *p == '\n';
    }
    r->at = p + (triple ? 3 : 1);
    r->t.kind = T_STRING;
    return MOTE_OK;
}

static int next(reader *r)
{
    int rc = skip_blank(r, r->depth > 0);
    if (rc)
        return rc;
    token *t = &r->t;
    *t = (token){ T_END, r->at, 0, r->line };
    if (r->at == r->end)
        return r->depth ? BAD(r, "%s: line %zu: a bracket that is not closed", r->what, r->line)
                        : MOTE_OK;
    char c = *r->at;
    if (c == '\n') {
        t->kind = T_LINE;
        r->line++;
        r->at++;
    } else if (c == '"' || c == '\'') {
        rc = take_string(r, r->at);
    } else if (is_name(c)) {
        t->kind = isdigit((unsigned char)c) ? T_NUMBER : T_NAME;
        while (r->at < r->end && (is_name(*r->at) || (t->kind == T_NUMBER && *r->at == '.')))
            r->at++;
        if (t->kind == T_NAME && r->at < r->end && (*r->at == '"' || *r->at == '\'') &&
            r->at - t->s <= 2 && strspn(t->s, "rRuUbBfFtT") >= (size_t)(r->at - t->s))
            rc = take_string(r, r->at);
    } else {
        t->kind = T_OP;
        r->depth += strchr("([{", c) ? 1 : strchr(")]}", c) ? -1 : 0;
        if (r->depth < 0)
            return BAD(r, "%s: line %zu: a bracket that was not opened", r->what, r->line);
        r->at += 1 + (r->end - r->at > 1 && r->at[1] == '=' && strchr("=!<>:+-*/%@&|^", c));
    }
    t->n = (size_t)(r->at - t->s);
    return rc;
}

static int is_op(const token *t, const char *op)
{
    return t->kind == T_OP && t->n == strlen(op) && !memcmp(t->s, op, t->n);
}
static int ends(const reader *r)
{
    return r->t.kind == T_LINE || r->t.kind == T_END || (!r->depth && is_op(&r->t, ";"));
}

static mote__py_constant *wanted(const reader *r)
{
    for (size_t i = 0; i < r->n_c && r->t.kind == T_NAME; i++)
        if (strlen(r->c[i].name) == r->t.n && !memcmp(r->c[i].name, r->t.s, r->t.n))
            return &r->c[i];
    return NULL;
}

/* ---- values ---- */

static int hex_value(const char *p, int n, const char *end, uint32_t *v)
{
    *v = 0;
    for (int i = 0; i < n; i++, p++) {
        if (p == end || !isxdigit((unsigned char)*p))
            return 0;
        *v = *v << 4 | (uint32_t)(isdigit((unsigned char)*p) ? *p - '0' : (*p | 32) - 'a' + 10);
    }
    return 1;
}

/* Append the character of the escape at *p (a backslash) and set *p to its end. */
static int take_escape(const reader *r, mote__py_constant *c, const char **p, const char *end)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *s = *p + 1, *plain = memchr(from, *s, sizeof from - 1);
    uint32_t v = 0;
    int n = *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
    *p = s + 1;
    if (*s == '\n')
        return MOTE_OK;
    if (*s == 'N')
        return bad_constant(r, c, "holds \\N{...}, which is not read");
    if (plain)
        v = (uint32_t)(uint8_t)to[plain - from];
    else if (*s >= '0' && *s <= '7')
        for (*p = s; *p < end && *p < s + 3 && **p >= '0' && **p <= '7'; ++*p)
            v = v * 8 + (uint32_t)(**p - '0');
    else if (n) {
        if (!hex_value(s + 1, n, end, &v))
            return bad_constant(r, c, "holds a \\x, \\u or \\U without its digits");
        if (v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
            return bad_constant(r, c, "holds an escape that is no character");
        *p = s + 1 + n;
    } else { /* Python keeps an unknown escape as it is */
        *p = s;
        v = '\\';
    }
    uint8_t utf8[4];
    return mote__buf_append(&c->value, utf8, (size_t)mote__utf8_write(utf8, v));
}

/* Append the value of the current token, a string literal. */
static int add_string(const reader *r, mote__py_constant *c)
{
    const char *p = r->t.s, *end = r->t.s + r->t.n;
    int raw = 0, rc = MOTE_OK;
    for (; *p != '"' && *p != '\''; p++) {
        if (strchr("bBfFtT", *p))
            return bad_constant(r, c,
                                strchr("bB", *p) ? "is a bytes literal, not a string"
                                                 : "is a formatted string, not a constant");
        raw |= (*p | 32) == 'r';
    }
    int quotes = end - p >= 6 && p[1] == *p && p[2] == *p ? 3 : 1;
    p += quotes;
    end -= quotes;
    while (p < end && !rc) {
        const char *stop = raw ? end : memchr(p, '\\', (size_t)(end - p));
        stop = stop ? stop : end;
        rc = mote__buf_append(&c->value, p, (size_t)(stop - p));
        p = stop;
        if (!rc && p < end)
            rc = take_escape(r, c, &p, end);
    }
    return rc;
}

/* Read the value of c; the current token is the one after '='. */
static int take_value(reader *r, mote__py_constant *c)
{
    int rc = next(r), n_open = 0, n_strings = 0;
    while (!rc && r->t.kind == T_NAME) { /* NAME = OTHER = "..." */
        if ((rc = wanted(r) ? bad_constant(r, c, "is assigned together with another constant")
                            : next(r)))
            return rc;
        if (!is_op(&r->t, "="))
            return bad_constant(r, c, "is not a plain string");
        rc = next(r);
    }
    for (; !rc && is_op(&r->t, "("); n_open++)
        rc = next(r);
    c->value.size = 0;
    for (; !rc && r->t.kind == T_STRING; n_strings++)
        if (!(rc = add_string(r, c)))
            rc = next(r);
    for (; !rc && n_open && is_op(&r->t, ")"); n_open--)
        rc = next(r);
    if (!rc && (!n_strings || !ends(r)))
        return bad_constant(r, c, "is not a plain string");
    c->found |= !rc;
    return rc;
}

/* ---- statements ---- */

/* Read a simple statement at the top level; its first token is the current one. */
static int statement(reader *r)
{
    mote__py_constant *c = wanted(r), *last = NULL;
    int rc = MOTE_OK;
    if (c) {
        if ((rc = next(r)))
            return rc;
        if (is_op(&r->t, ":")) { /* an annotation */
            while (!rc && !ends(r) && (r->depth || !is_op(&r->t, "=")))
                rc = next(r);
            if (rc || ends(r))
                return rc;
        }
        if (is_op(&r->t, "="))
            return take_value(r, c);
        last = c;
    }
    for (; !rc && !ends(r); rc = rc ? rc : next(r)) {
        int sets = r->t.kind == T_OP && !r->depth && r->t.s[r->t.n - 1] == '=' &&
                   (r->t.n == 1 || !strchr("=!<>", r->t.s[0]));
        if (sets && (c || last))
            return bad_constant(r, c ? c : last,
                                "is assigned in a way that is not read: a plain string is");
        last = wanted(r);
    }
    return rc;
}

static int is_compound(const token *t)
{
    static const char *const words[] = { "if",     "elif",    "else", "for", "while", "try",
                                         "except", "finally", "with", "def", "class", "async" };
    for (size_t i = 0; t->kind == T_NAME && i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == t->n && !memcmp(words[i], t->s, t->n))
            return 1;
    return 0;
}

static int logical_line(reader *r)
{
    int indented = 0;
    for (const char *p = r->at; p < r->end && strchr(" \t\f", *p); p++)
        indented = *p != '\f'; /* a form feed resets the indentation */
    int rc = next(r);
    if (!rc && (indented || is_compound(&r->t)))
        while (!rc && r->t.kind != T_LINE && r->t.kind != T_END)
            rc = next(r);
    while (!rc && r->t.kind != T_LINE && r->t.kind != T_END) {
        rc = statement(r);
        if (!rc && is_op(&r->t, ";"))
            rc = next(r);
    }
    return rc;
}

int mote__py_constants(mote__py_constant *c, size_t n_c, const char *text, size_t n,
                       const char *what, mote_err *err)
{
    reader r = { .line = 1, .c = c, .n_c = n_c, .what = what, .err = err };
    mote__buf source; /* the text with line ends converted to \n */
    mote__buf_init(&source, NULL, MOTE_MEM_OTHER);
    for (size_t i = 0; i < n_c; i++) {
        mote__buf_init(&c[i].value, NULL, MOTE_MEM_OTHER);
        c[i].found = 0;
    }
    int rc = MOTE_OK;
    if (n > 2 && !memcmp(text, "\xEF\xBB\xBF", 3)) {
        text += 3;
        n -= 3;
    }
    if (mote__utf8_valid((const uint8_t *)text, n) < n)
        rc = BAD(&r, "%s: not valid UTF-8", what);
    else if (n && memchr(text, 0, n))
        rc = BAD(&r, "%s: holds a zero byte", what);
    else
        rc = mote__buf_reserve(&source, n + 1);
    for (size_t i = 0; i < n && !rc; i++)
        if (text[i] != '\n' || !i || text[i - 1] != '\r')
            rc = mote__buf_append(&source, text[i] == '\r' ? "\n" : text + i, 1);
    r.at = source.data;
    r.end = r.at + source.size;
    r.t.kind = T_LINE;
    while (!rc && r.t.kind != T_END)
        rc = logical_line(&r);
    mote__buf_deinit(&source);
    return rc == MOTE_ENOMEM ? mote__fail(err, rc, "%s: out of memory", what) : rc;
}

void mote__py_constants_deinit(mote__py_constant *c, size_t n_c)
{
    for (size_t i = 0; i < n_c; i++)
        mote__buf_deinit(&c[i].value);
}
