/* Owns the translation of tokenizer patterns: reads the accepted syntax, collects its character
 * sets, finds the kinds of code points, and writes the patterns over kinds. text/pretok.c runs
 * them. */
#include "text/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "text/unicode16.h"
#include "base/utf8.h"

enum {
    CP_END = 0x110000,
    MAX_SETS = 256,
    MAX_PATTERN_BYTES = 16384,
    MAX_REPEAT = 1000,
    SET_ITEM = 256
};

typedef struct set {
    mote__buf ranges;  /* mote__cp_range, ascending, neither overlapping nor adjacent */
    uint8_t kinds[32]; /* bit per kind */
} set;

typedef struct translator {
    const uint8_t *text, *at, *end; /* the pattern being read */
    size_t pattern_no;
    const char *what;
    mote_err *err;
    set sets[MAX_SETS];
    size_t n_sets;
    /* uint32_t: a byte of pattern syntax, or SET_ITEM + set number */
    mote__buf items[MOTE_MAX_PATTERNS];
} translator;

static int refuse(const translator *t, const char *why)
{
    return mote__fail(t->err, MOTE_EUNSUPPORTED, "%s: pre_tokenizer pattern %zu, byte %zu: %s",
                      t->what, t->pattern_no, (size_t)(t->at - t->text), why);
}

static int no_memory(const translator *t)
{
    return mote__fail(t->err, MOTE_ENOMEM, "%s: out of memory", t->what);
}

static size_t n_ranges(const mote__buf *b) { return b->size / sizeof(mote__cp_range); }

static int add_range(translator *t, mote__buf *ranges, uint32_t first, uint32_t last)
{
    mote__cp_range r = { first, last };
    return mote__buf_append(ranges, &r, sizeof r) ? no_memory(t) : MOTE_OK;
}

static int by_first(const void *a, const void *b)
{
    uint32_t x = ((const mote__cp_range *)a)->first, y = ((const mote__cp_range *)b)->first;
    return x < y ? -1 : x > y;
}

/* Sort the ranges and join those that overlap or are adjacent. */
static void tidy(mote__buf *ranges)
{
    mote__cp_range *r = ranges->data;
    size_t n = n_ranges(ranges), kept = 0;
    if (n < 2)
        return;
    qsort(r, n, sizeof *r, by_first);
    for (size_t i = 1; i < n; i++) {
        if (r[i].first <= r[kept].last + 1)
            r[kept].last = r[i].last > r[kept].last ? r[i].last : r[kept].last;
        else
            r[++kept] = r[i];
    }
    ranges->size = (kept + 1) * sizeof *r;
}

/* Append the complement of r[0..n), sorted and joined, to `out`. */
static int add_complement(translator *t, mote__buf *out, const mote__cp_range *r, size_t n)
{
    uint32_t from = 0;
    for (size_t i = 0; i < n; i++) {
        if (r[i].first > from && add_range(t, out, from, r[i].first - 1))
            return MOTE_ENOMEM;
        from = r[i].last + 1;
    }
    return from < CP_END ? add_range(t, out, from, CP_END - 1) : MOTE_OK;
}

static int add_class(translator *t, mote__buf *ranges, char name, int negated)
{
    for (const mote__cp_class *c = mote__unicode16; c->name; c++) {
        if (c->name != name)
            continue;
        if (negated)
            return add_complement(t, ranges, c->ranges, c->n_ranges);
        return mote__buf_append(ranges, c->ranges, c->n_ranges * sizeof *c->ranges) ? no_memory(t)
                                                                                    : MOTE_OK;
    }
    return refuse(t, "only the classes L, M, N, P and S are supported in \\p{..}");
}

/* Read an escape at '\'. A class is added to `ranges` and *cp is CP_END; otherwise *cp is the
 * character. */
static int read_escape(translator *t, mote__buf *ranges, uint32_t *cp)
{
    if (t->end - t->at < 2)
        return refuse(t, "a backslash ends the pattern");
    uint8_t c = t->at[1];
    *cp = CP_END;
    if (c == 's' || c == 'S') {
        int rc = add_class(t, ranges, 's', c == 'S');
        t->at += 2;
        return rc;
    }
    if (c == 'p' || c == 'P') {
        if (t->end - t->at < 5 || t->at[2] != '{' || t->at[4] != '}' || t->at[3] == 's')
            return refuse(t, "only \\p{X} and \\P{X} with a one-letter class are supported");
        int rc = add_class(t, ranges, (char)t->at[3], c == 'P');
        t->at += 5;
        return rc;
    }
    switch (c) {
    case 'n': *cp = '\n'; break;
    case 'r': *cp = '\r'; break;
    case 't': *cp = '\t'; break;
    case 'f': *cp = '\f'; break;
    case 'v': *cp = '\v'; break;
    default:
        if (c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
            return refuse(t, "an escape that is not supported");
        *cp = c;
    }
    t->at += 2;
    return MOTE_OK;
}

static int read_char(translator *t, uint32_t *cp)
{
    int step = mote__utf8_step(t->at, (size_t)(t->end - t->at), cp);
    if (step <= 0)
        return refuse(t, "not UTF-8");
    t->at += step;
    return MOTE_OK;
}

/* Read one member of a bracket class: a class escape, or a character in *cp. */
static int read_member(translator *t, mote__buf *ranges, uint32_t *cp)
{
    if (t->at == t->end)
        return refuse(t, "a bracket class does not end");
    if (*t->at == '\\')
        return read_escape(t, ranges, cp);
    if (*t->at == '[')
        return refuse(t, "a class inside a class ('[' must be escaped)");
    if (*t->at == '&' && t->end - t->at > 1 && t->at[1] == '&')
        return refuse(t, "intersection of classes (&&)");
    return read_char(t, cp);
}

static int read_bracket(translator *t, mote__buf *ranges)
{
    mote__buf members;
    mote__buf_init(&members, NULL, MOTE_MEM_OTHER);
    int rc = MOTE_OK, negated = 0;
    t->at++;
    if (t->at < t->end && *t->at == '^') {
        negated = 1;
        t->at++;
    }
    if (t->at < t->end && *t->at == ']')
        rc = refuse(t, "an empty class (']' must be escaped)");
    while (!rc && (t->at == t->end || *t->at != ']')) {
        uint32_t first, last;
        const uint8_t *start = t->at;
        if ((rc = read_member(t, &members, &first)))
            break;
        int dash = t->end - t->at > 1 && t->at[0] == '-' && t->at[1] != ']';
        if (*start == '-' && start[-1] != '[' && start[-1] != '^' && t->at < t->end &&
            *t->at != ']')
            rc = refuse(t, "'-' between members must be escaped");
        else if (!dash)
            rc = first == CP_END ? MOTE_OK : add_range(t, &members, first, first);
        else {
            t->at++;
            if ((rc = read_member(t, &members, &last)))
                break;
            if (first == CP_END || last == CP_END || first > last)
                rc = refuse(t, "not a range");
            else
                rc = add_range(t, &members, first, last);
        }
    }
    if (!rc) {
        t->at++;
        tidy(&members);
        if (negated)
            rc = add_complement(t, ranges, members.data, n_ranges(&members));
        else if (mote__buf_append(ranges, members.data, members.size))
            rc = no_memory(t);
    }
    mote__buf_deinit(&members);
    return rc;
}

static int put_item(translator *t, uint32_t item)
{
    return mote__buf_append(&t->items[t->pattern_no], &item, sizeof item) ? no_memory(t) : MOTE_OK;
}

static int put_syntax(translator *t, const char *s)
{
    int rc = MOTE_OK;
    while (*s && !rc)
        rc = put_item(t, (uint8_t)*s++);
    return rc;
}

/* Find or make the set of `ranges` and write its item; takes ownership of `ranges`. */
static int put_set(translator *t, mote__buf *ranges)
{
    tidy(ranges);
    size_t i = 0;
    while (i < t->n_sets &&
           (t->sets[i].ranges.size != ranges->size ||
            (ranges->size && memcmp(t->sets[i].ranges.data, ranges->data, ranges->size))))
        i++;
    if (i < t->n_sets)
        mote__buf_deinit(ranges);
    else if (t->n_sets == MAX_SETS) {
        mote__buf_deinit(ranges);
        return refuse(t, "more than 256 different character sets");
    } else
        t->sets[t->n_sets++].ranges = *ranges;
    return put_item(t, (uint32_t)(SET_ITEM + i));
}

static int read_number(translator *t, unsigned *n)
{
    if (t->at == t->end || *t->at < '0' || *t->at > '9')
        return refuse(t, "not a repeat count ('{' must be escaped)");
    for (*n = 0; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
        if ((*n = *n * 10 + (*t->at - '0')) > MAX_REPEAT)
            return refuse(t, "a repeat count above 1000");
    return MOTE_OK;
}

/* Read '*', '+', '?', '{n}', '{n,}' or '{n,m}'. All but '{n}' may be followed by '?' (lazy), the
 * first three by '+' (possessive). What follows is checked too: the reference library allows a
 * second quantifier, and PCRE2 gives some pairs another meaning. */
static int read_quantifier(translator *t)
{
    const uint8_t *start = t->at;
    int brace = *t->at == '{', fixed = 0;
    if (brace) {
        unsigned low = 0, high = 0;
        int rc;
        t->at++;
        if ((rc = read_number(t, &low)))
            return rc;
        fixed = t->at < t->end && *t->at == '}';
        if (!fixed) {
            if (t->at == t->end || *t->at++ != ',')
                return refuse(t, "not a repeat count ('{' must be escaped)");
            if (t->at < t->end && *t->at != '}') {
                if ((rc = read_number(t, &high)))
                    return rc;
                if (high < low)
                    return refuse(t, "a repeat count that runs backwards");
            }
            if (t->at == t->end || *t->at != '}')
                return refuse(t, "not a repeat count ('{' must be escaped)");
        }
    }
    t->at++;
    if (t->at < t->end && ((*t->at == '?' && !fixed) || (*t->at == '+' && !brace)))
        t->at++;
    if (t->at < t->end && strchr("*+?{", *t->at))
        return refuse(t, "a quantifier after a quantifier");
    int rc = MOTE_OK;
    for (const uint8_t *p = start; p < t->at && !rc; p++)
        rc = put_item(t, *p);
    return rc;
}

static int read_group(translator *t)
{
    static const char *const kinds[] = { "(?:", "(?=", "(?!" };
    if (t->end - t->at > 1 && t->at[1] == '?') {
        for (size_t i = 0; i < 3; i++)
            if (t->end - t->at > 2 && !memcmp(t->at, kinds[i], 3)) {
                t->at += 3;
                return put_syntax(t, kinds[i]);
            }
        return refuse(t, "a group other than (..), (?:..), (?=..) and (?!..)");
    }
    t->at++;
    return put_syntax(t, "(?:");
}

static int read_pattern(translator *t)
{
    int rc = MOTE_OK;
    while (!rc && t->at < t->end) {
        uint8_t c = *t->at;
        if (c == '(')
            rc = read_group(t);
        else if (c == ')' || c == '|') {
            rc = put_item(t, c);
            t->at++;
        } else if (strchr("*+?{", c) && c)
            rc = read_quantifier(t);
        else if (c == '^' || c == '$' || c == ']')
            rc = refuse(t, "an anchor or an unescaped ']'");
        else {
            mote__buf ranges;
            uint32_t cp = CP_END;
            mote__buf_init(&ranges, NULL, MOTE_MEM_OTHER);
            if (c == '[')
                rc = read_bracket(t, &ranges);
            else if (c == '\\')
                rc = read_escape(t, &ranges, &cp);
            else if (c == '.') {
                mote__cp_range newline = { '\n', '\n' };
                rc = add_complement(t, &ranges, &newline, 1);
                t->at++;
            } else
                rc = read_char(t, &cp);
            if (!rc && cp != CP_END)
                rc = add_range(t, &ranges, cp, cp);
            if (rc)
                mote__buf_deinit(&ranges);
            else
                rc = put_set(t, &ranges);
        }
    }
    return rc;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Cut the code points where a set begins or ends; intervals that are in the same sets are one kind.
 * Fills flat[cp] and the kinds of the sets. */
static int find_kinds(translator *t, mote__patterns *p, uint8_t *flat)
{
    mote__buf cuts;
    mote__buf_init(&cuts, NULL, MOTE_MEM_OTHER);
    static const uint32_t ends[2] = { 0, CP_END };
    int rc = mote__buf_append(&cuts, ends, sizeof ends) ? no_memory(t) : MOTE_OK;
    for (size_t s = 0; s < t->n_sets && !rc; s++)
        for (size_t i = 0; i < n_ranges(&t->sets[s].ranges) && !rc; i++) {
            const mote__cp_range *r = (const mote__cp_range *)t->sets[s].ranges.data + i;
            uint32_t pair[2] = { r->first, r->last + 1 };
            rc = mote__buf_append(&cuts, pair, sizeof pair) ? no_memory(t) : MOTE_OK;
        }
    if (!rc)
        qsort(cuts.data, cuts.size / sizeof(uint32_t), sizeof(uint32_t), by_value);
    uint8_t members[256][MAX_SETS / 8]; /* by kind: the sets that contain it */
    /* by set: its first range that does not end before the interval */
    size_t next[MAX_SETS] = { 0 };
    for (size_t c = 0; !rc && c + 1 < cuts.size / sizeof(uint32_t); c++) {
        uint32_t from = ((const uint32_t *)cuts.data)[c], to = ((const uint32_t *)cuts.data)[c + 1];
        if (from == to)
            continue;
        uint8_t in[MAX_SETS / 8] = { 0 };
        for (size_t s = 0; s < t->n_sets; s++) {
            const mote__cp_range *r = t->sets[s].ranges.data;
            size_t n = n_ranges(&t->sets[s].ranges);
            while (next[s] < n && r[next[s]].last < from)
                next[s]++;
            if (next[s] < n && r[next[s]].first <= from)
                in[s / 8] |= (uint8_t)(1 << s % 8);
        }
        size_t k = 0;
        while (k < p->n_kinds && memcmp(members[k], in, sizeof in))
            k++;
        if (k == 256) {
            t->at = t->text;
            rc = refuse(t, "the patterns tell more than 256 kinds of characters apart");
            break;
        }
        if (k == p->n_kinds) {
            memcpy(members[p->n_kinds++], in, sizeof in);
            for (size_t s = 0; s < t->n_sets; s++)
                if (in[s / 8] >> s % 8 & 1)
                    t->sets[s].kinds[k / 8] |= (uint8_t)(1 << k % 8);
        }
        memset(flat + from, (int)k, to - from);
    }
    mote__buf_deinit(&cuts);
    return rc;
}

/* Pack flat[cp] into blocks of 256, each distinct block stored once. */
static int pack_kinds(translator *t, mote__patterns *p, const uint8_t *flat)
{
    for (size_t b = 0; b < 0x1100; b++) {
        const uint8_t *stored = p->kinds.data, *block = flat + b * 256;
        /* usually equal to the previous block */
        size_t n = p->kinds.size / 256, i = b ? p->block[b - 1] : 0;
        if (!n || memcmp(stored + i * 256, block, 256))
            for (i = 0; i < n && memcmp(stored + i * 256, block, 256);)
                i++;
        p->block[b] = (uint16_t)i;
        if (i == n && mote__buf_append(&p->kinds, block, 256))
            return no_memory(t);
    }
    return MOTE_OK;
}

static int write_pattern(translator *t, mote__patterns *p, size_t no)
{
    mote__buf *out = &p->text[no];
    const uint32_t *items = t->items[no].data;
    for (size_t i = 0; i < t->items[no].size / sizeof *items; i++) {
        char text[256 * 4 + 16];
        size_t n = 0;
        if (items[i] < SET_ITEM)
            text[n++] = (char)items[i];
        else {
            const uint8_t *kinds = t->sets[items[i] - SET_ITEM].kinds;
            text[n++] = '[';
            for (unsigned k = 0; k < p->n_kinds; k++)
                if (kinds[k / 8] >> k % 8 & 1) {
                    static const char hex[] = "0123456789abcdef";
                    text[n++] = '\\';
                    text[n++] = 'x';
                    text[n++] = hex[k >> 4];
                    text[n++] = hex[k & 15];
                }
            if (n == 1) { /* the empty set: matches nothing */
                memcpy(text, "[^\\x00-\\xff", 11);
                n = 11;
            }
            text[n++] = ']';
        }
        if (mote__buf_append(out, text, n))
            return no_memory(t);
    }
    return MOTE_OK;
}

int mote__patterns_init(mote__patterns *p, const char *const *patterns, size_t n, const char *what,
                        mote_err *err)
{
    *p = (mote__patterns){ .n = n };
    if (n > MOTE_MAX_PATTERNS) {
        p->n = 0;
        return mote__fail(err, MOTE_EUNSUPPORTED,
                          "%s: %zu pre_tokenizer patterns, at most %d are supported", what, n,
                          MOTE_MAX_PATTERNS);
    }
    translator *t = mote__alloc(NULL, MOTE_MEM_OTHER, sizeof *t);
    uint8_t *flat = mote__alloc(NULL, MOTE_MEM_OTHER, CP_END);
    int rc = MOTE_OK;
    if (!t || !flat)
        rc = mote__fail(err, MOTE_ENOMEM, "%s: out of memory", what);
    for (size_t i = 0; i < n && !rc; i++) {
        t->text = t->at = (const uint8_t *)patterns[i];
        t->end = t->text + strlen(patterns[i]);
        t->pattern_no = i;
        t->what = what;
        t->err = err;
        if (t->end - t->text > MAX_PATTERN_BYTES)
            rc = refuse(t, "longer than 16,384 bytes");
        else
            rc = read_pattern(t);
    }
    if (!rc && n)
        rc = find_kinds(t, p, flat);
    if (!rc)
        rc = pack_kinds(t, p, flat);
    for (size_t i = 0; i < n && !rc; i++)
        rc = write_pattern(t, p, i);
    if (t) {
        for (size_t i = 0; i < t->n_sets; i++)
            mote__buf_deinit(&t->sets[i].ranges);
        for (size_t i = 0; i < MOTE_MAX_PATTERNS; i++)
            mote__buf_deinit(&t->items[i]);
    }
    mote__free(NULL, MOTE_MEM_OTHER, t, sizeof *t);
    mote__free(NULL, MOTE_MEM_OTHER, flat, CP_END);
    if (rc)
        mote__patterns_deinit(p);
    return rc;
}

void mote__patterns_deinit(mote__patterns *p)
{
    for (size_t i = 0; i < MOTE_MAX_PATTERNS; i++)
        mote__buf_deinit(&p->text[i]);
    mote__buf_deinit(&p->kinds);
    p->n = 0;
}
