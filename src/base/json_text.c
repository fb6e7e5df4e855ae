/* One pass over JSON text that finds numbers and keys jansson cannot hold and replaces them. */
#include "base/json_text.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct edit {
    size_t at;   /* end of the replacement in the new text */
    long longer; /* bytes by which the text grew; negative: shrank */
} edit;

typedef struct scan {
    mote__json_text *t;
    const char *text;
    size_t n, done; /* text[0..done) has been copied to t->out */
    mote__buf *kept;
} scan;

/* Copy the text up to `from`, then `by` in place of text[from..to). 0 or MOTE_ENOMEM. */
static int replace(scan *s, size_t from, size_t to, const char *by)
{
    mote__buf *out = &s->t->out;
    size_t n = strlen(by);
    if (mote__buf_append(out, s->text + s->done, from - s->done) || mote__buf_append(out, by, n))
        return MOTE_ENOMEM;
    s->done = to;
    edit e = { out->size, (long)n - (long)(to - from) };
    return mote__buf_append(&s->t->edits, &e, sizeof e);
}

static int is_digit(const scan *s, size_t at)
{
    return at < s->n && s->text[at] >= '0' && s->text[at] <= '9';
}

/* The end of the run of digits that begins at `at`. */
static size_t digits(const scan *s, size_t at)
{
    while (is_digit(s, at))
        at++;
    return at;
}

static int fits_int64(const char *digits, size_t n, int negative)
{
    return n < 19 ||
           (n == 19 &&
            memcmp(digits, negative ? "9223372036854775808" : "9223372036854775807", 19) <= 0);
}

/* *infinite: number[0..n) overflows a double. 0 or MOTE_ENOMEM. */
static int is_infinite(const char *number, size_t n, int *infinite)
{
    char *copy = malloc(n + 1);
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (copy && c) {
        memcpy(copy, number, n);
        copy[n] = 0;
        *infinite = __builtin_isinf(strtod_l(copy, NULL, c)) != 0;
    }
    int rc = copy && c ? MOTE_OK : MOTE_ENOMEM;
    if (c)
        freelocale(c);
    free(copy);
    return rc;
}

/* Append `printed` to *kept and replace text[from..to) by the integer that refers to it. */
static int keep(scan *s, size_t from, size_t to, const char *printed, size_t n)
{
    char place[40];
    snprintf(place, sizeof place, "%lld", MOTE_JSON_KEPT - (long long)s->kept->size);
    if (mote__buf_append(s->kept, printed, n) || mote__buf_append(s->kept, "", 1))
        return MOTE_ENOMEM;
    return replace(s, from, to, place);
}

/* Handle the number that begins at *at and set *at to its end. Malformed numbers stay as they are,
 * for jansson to report. */
static int number(scan *s, size_t *at)
{
    size_t from = *at, whole = from + (s->text[from] == '-'), end = digits(s, whole),
           n_whole = end - whole;
    int real = 0, negative = whole > from, infinite = 0, rc = MOTE_OK;
    if (end < s->n && s->text[end] == '.' && is_digit(s, end + 1)) {
        end = digits(s, end + 1);
        real = 1;
    }
    if (end < s->n && (s->text[end] | 32) == 'e') {
        size_t exponent = end + 1;
        exponent += exponent < s->n && (s->text[exponent] == '+' || s->text[exponent] == '-');
        if (is_digit(s, exponent)) {
            end = digits(s, exponent);
            real = 2;
        }
    }
    *at = end > from + 1 ? end : from + 1;
    if (!n_whole || (n_whole > 1 && s->text[whole] == '0') ||
        (end < s->n && s->text[end] && strchr(".eE+-", s->text[end])))
        return MOTE_OK;
    if ((real == 2 || n_whole > 300) && (rc = is_infinite(s->text + from, end - from, &infinite)))
        return rc;
    if (s->kept && !real && n_whole >= 19)
        return keep(s, from, end, s->text + from, end - from);
    if (s->kept && real && infinite)
        return keep(s, from, end, negative ? "-Infinity" : "Infinity", negative ? 9 : 8);
    if (infinite)
        return replace(s, from, end,
                       negative ? "-1.7976931348623157e308" : "1.7976931348623157e308");
    return real || fits_int64(s->text + whole, n_whole, negative) ? MOTE_OK
                                                                  : replace(s, end, end, ".0");
}

/* Handle the string that begins at *at and set *at to its end. */
static int string(scan *s, size_t *at)
{
    size_t i = *at + 1;
    int low = 0, rc = MOTE_OK; /* contains an escape of U+0000 or U+0001 */
    for (; i < s->n && s->text[i] != '"'; i += 1 + (s->text[i] == '\\'))
        low |= s->text[i] == '\\' && s->n - i > 5 && !memcmp(s->text + i + 1, "u000", 4) &&
               (s->text[i + 5] | 1) == '1';
    size_t end = i < s->n ? i + 1 : s->n, colon = end;
    while (colon < s->n && s->text[colon] && strchr(" \t\r\n", s->text[colon]))
        colon++;
    if (low && s->kept && colon < s->n && s->text[colon] == ':')
        for (i = *at + 1; i < end && !rc; i += 1 + (s->text[i] == '\\'))
            if (s->text[i] == '\\' && end - i > 5 && !memcmp(s->text + i + 1, "u000", 4) &&
                (s->text[i + 5] | 1) == '1')
                rc = replace(s, i, i + 6, s->text[i + 5] == '0' ? "\\u00010" : "\\u00011");
    *at = end;
    return rc;
}

int mote__json_text_init(mote__json_text *t, const char *text, size_t n, mote__buf *kept)
{
    *t = (mote__json_text){ .text = n ? text : "", .n = n };
    mote__buf_init(&t->out, NULL, MOTE_MEM_OTHER);
    mote__buf_init(&t->edits, NULL, MOTE_MEM_OTHER);
    scan s = { .t = t, .text = t->text, .n = n, .kept = kept };
    int rc = MOTE_OK;
    for (size_t at = 0; at < n && !rc;) {
        if (text[at] == '"')
            rc = string(&s, &at);
        else if (text[at] == '-' || is_digit(&s, at))
            rc = number(&s, &at);
        else
            at++;
    }
    if (!rc && s.done)
        rc = mote__buf_append(&t->out, text + s.done, n - s.done);
    if (!rc && s.done) {
        t->text = t->out.data;
        t->n = t->out.size;
    }
    return rc;
}

void mote__json_text_deinit(mote__json_text *t)
{
    mote__buf_deinit(&t->out);
    mote__buf_deinit(&t->edits);
}

int mote__json_text_column(const mote__json_text *t, size_t position, int column)
{
    size_t end = position < t->n ? position : t->n, line = end;
    while (line && t->text[line - 1] != '\n')
        line--;
    const edit *e = t->edits.data;
    for (size_t i = 0; i < t->edits.size / sizeof *e; i++)
        if (e[i].at > line && e[i].at <= end)
            column -= (int)e[i].longer;
    return column > 0 ? column : 1;
}
