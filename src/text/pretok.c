/* Owns the matching of translated patterns with PCRE2. text/pattern.c translates them.
 *
 * Long matches: a repeated class uses no stack per character, compiled or interpreted. A pattern
 * that repeats a group may exceed PCRE2's 32 KB machine stack for compiled code; that match is then
 * interpreted, with its stack on the heap. */
#include "text/pretok.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/utf8.h"

enum {
    /* Limit of steps of one match: a pattern may try a few alternatives, each of which runs to the
     * end of the piece and backtracks. A pattern that needs more is not linear. Compiled code
     * counts only some of the steps, so the limit is generous. */
    STEPS_BASE = 20000,
    STEPS_PER_CHAR = 64,
    HEAP_KIB = 1 << 20
};

struct mote__pretok {
    mote__patterns patterns;
    size_t n_steps;
    pcre2_code *code[MOTE_MAX_PATTERNS];
    int compiled[MOTE_MAX_PATTERNS]; /* compiled to machine code; 0 if the system forbids it */
};

int mote__pretok_create(mote__pretok **pretok, const char *const *patterns, size_t n,
                        const char *what, mote_err *err)
{
    mote__pretok *p = *pretok = mote__alloc(NULL, MOTE_MEM_OTHER, sizeof *p);
    if (!p)
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", what);
    int rc = mote__patterns_init(&p->patterns, patterns, n, what, err);
    for (size_t i = 0; i < n && !rc; i++) {
        int code;
        PCRE2_SIZE at;
        p->code[i] = pcre2_compile(p->patterns.text[i].data ? p->patterns.text[i].data
                                                            : (PCRE2_SPTR) "",
                                   p->patterns.text[i].size, PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_UTF,
                                   &code, &at, NULL);
        if (!p->code[i]) {
            PCRE2_UCHAR sentence[200] = "";
            pcre2_get_error_message(code, sentence, sizeof sentence);
            rc = mote__fail(err, code == PCRE2_ERROR_NOMEMORY ? MOTE_ENOMEM : MOTE_EFORMAT,
                            "%s: pre_tokenizer pattern %zu does not compile: %s", what, i,
                            (const char *)sentence);
        } else {
            p->compiled[i] = !pcre2_jit_compile(p->code[i], PCRE2_JIT_COMPLETE);
            p->n_steps++;
        }
    }
    if (rc) {
        mote__pretok_destroy(p);
        *pretok = NULL;
    }
    return rc;
}

void mote__pretok_destroy(mote__pretok *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_steps; i++)
        pcre2_code_free(p->code[i]);
    mote__patterns_deinit(&p->patterns);
    mote__free(NULL, MOTE_MEM_OTHER, p, sizeof *p);
}

size_t mote__pretok_memory(const mote__pretok *p)
{
    size_t sum = sizeof *p + p->patterns.kinds.capacity;
    for (size_t i = 0; i < p->n_steps; i++) {
        size_t code = 0, machine = 0;
        pcre2_pattern_info(p->code[i], PCRE2_INFO_SIZE, &code);
        pcre2_pattern_info(p->code[i], PCRE2_INFO_JITSIZE, &machine);
        sum += p->patterns.text[i].capacity + code + machine;
    }
    return sum;
}

size_t mote__pretok_classify(const mote__pretok *p, const uint8_t *text, size_t n, uint8_t *kinds)
{
    const uint8_t *all = p->patterns.kinds.data, *ascii = all + (size_t)p->patterns.block[0] * 256;
    const uint16_t *block = p->patterns.block;
    size_t out = 0;
    for (size_t i = 0; i < n;) {
        uint32_t b = text[i];
        if (b < 0x80) {
            kinds[out++] = ascii[b];
            i++;
            continue;
        }
        uint32_t cp;
        if (b < 0xE0) {
            cp = (b & 0x1F) << 6 | (text[i + 1] & 0x3F);
            i += 2;
        } else if (b < 0xF0) {
            cp = (b & 0x0F) << 12 | (uint32_t)(text[i + 1] & 0x3F) << 6 | (text[i + 2] & 0x3F);
            i += 3;
        } else {
            cp = (b & 7) << 18 | (uint32_t)(text[i + 1] & 0x3F) << 12 |
                 (uint32_t)(text[i + 2] & 0x3F) << 6 | (text[i + 3] & 0x3F);
            i += 4;
        }
        kinds[out++] = all[(size_t)block[cp >> 8] << 8 | (cp & 255)];
    }
    return out;
}

typedef struct run {
    const mote__pretok *p;
    const uint8_t *kinds;
    pcre2_match_data *match;
    pcre2_match_context *context;
    int (*word)(void *ctx, size_t n_chars);
    void *ctx;
    mote_err *err;
} run;

/* Find the first match of step `step` in piece[0..n) at or after `from`. 1 and *begin, *end set; 0:
 * no match; or a negative error. */
static int find(const run *r, size_t step, const uint8_t *piece, size_t n, size_t from,
                size_t *begin, size_t *end)
{
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (r->p->compiled[step])
        rc = pcre2_jit_match(r->p->code[step], piece, n, from, 0, r->match, r->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(r->p->code[step], piece, n, from, PCRE2_NO_JIT, r->match, r->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return mote__fail(r->err, MOTE_ENOMEM, "out of memory while splitting text");
    if (rc < 0)
        return mote__fail(r->err, MOTE_EUNSUPPORTED,
                          "pre_tokenizer pattern %zu needs too many steps for this text", step);
    const PCRE2_SIZE *o = pcre2_get_ovector_pointer(r->match);
    *begin = o[0];
    *end = o[1];
    return 1;
}

/* Split a piece by step `step` and the following ones; recursion depth is the number of steps. */
static int split(const run *r, size_t step, const uint8_t *piece, size_t n)
{
    if (step == r->p->n_steps)
        return r->word(r->ctx, n);
    int rc;
    size_t done = 0; /* end of the last piece passed on */
    for (size_t from = 0, begin = 0, end = 0; from <= n;) {
        if ((rc = find(r, step, piece, n, from, &begin, &end)) < 0)
            return rc;
        if (!rc)
            break;
        if (begin > done && (rc = split(r, step + 1, piece + done, begin - done)))
            return rc;
        if (end > begin && (rc = split(r, step + 1, piece + begin, end - begin)))
            return rc;
        done = end;
        from = end > begin ? end : end + 1; /* an empty match cuts but is no piece */
    }
    return done < n ? split(r, step + 1, piece + done, n - done) : 0;
}

int mote__pretok_split(const mote__pretok *p, const uint8_t *kinds, size_t n_chars,
                       int (*word)(void *ctx, size_t n_chars), void *ctx, mote_err *err)
{
    if (!n_chars)
        return MOTE_OK;
    run r = { .p = p, .kinds = kinds, .word = word, .ctx = ctx, .err = err };
    r.match = pcre2_match_data_create(1, NULL);
    r.context = pcre2_match_context_create(NULL);
    int rc;
    if (!r.match || !r.context)
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory while splitting text");
    else {
        uint64_t steps = STEPS_BASE + (uint64_t)n_chars * STEPS_PER_CHAR;
        pcre2_set_match_limit(r.context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
        pcre2_set_heap_limit(r.context, HEAP_KIB);
        rc = split(&r, 0, kinds, n_chars);
    }
    pcre2_match_context_free(r.context);
    pcre2_match_data_free(r.match);
    return rc;
}
