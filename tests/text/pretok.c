/* Pattern translation and splitting: pieces of small texts, refusals by name, and every code
 * point's classes. */
#include "text/pretok.h"

#include "text/unicode16.h"
#include "base/utf8.h"
#include "test.h"

typedef struct pieces {
    const char *at;
    char out[400];
    size_t used;
} pieces;

static int add_piece(void *ctx, size_t n_chars)
{
    pieces *p = ctx;
    if (p->used)
        p->out[p->used++] = '|';
    for (size_t i = 0; i < n_chars; i++) {
        size_t n = mote__utf8_length((uint8_t)*p->at);
        memcpy(p->out + p->used, p->at, n);
        p->used += n;
        p->at += n;
    }
    return MOTE_OK;
}

static void check_split(const char *const *patterns, size_t n, const char *text, const char *want)
{
    mote__pretok *pretok;
    mote_err err = { 0 };
    if (mote__pretok_create(&pretok, patterns, n, "t.json", &err))
        fail_msg("%s", err.message);
    pieces p = { .at = text };
    uint8_t kinds[400];
    size_t chars = mote__pretok_classify(pretok, (const uint8_t *)text, strlen(text), kinds);
    assert_int_equal(mote__pretok_split(pretok, kinds, chars, add_piece, &p, &err), MOTE_OK);
    p.out[p.used] = 0;
    assert_string_equal(p.out, want);
    mote__pretok_destroy(pretok);
}

static void split_one(const char *pattern, const char *text, const char *want)
{
    check_split(&pattern, 1, text, want);
}

static void test_splits(void **state)
{
    split_one("\\p{N}{1,3}", "ab12345c٣", "ab|123|45|c|٣");
    split_one("\\P{N}+", "ab12c", "ab|12|c");
    split_one("[^\\p{L}\\s]+", "ab, c!d", "ab|,| c|!|d");
    split_one("[^\\S]", "a b", "a| |b"); /* a doubly negated class */
    split_one("\\s+(?!\\S)|\\s+", "a   b  ", "a|  | |b|  ");
    split_one("[a\\-c]+", "abc-", "a|b|c-");
    split_one("[-a]+", "b-ab", "b|-a|b");
    split_one("[a-]+", "b-ab", "b|-a|b");
    split_one("(ab)+?c?|x{2}", "ababcxxx", "ab|abc|xx|x");
    split_one("(?:a|b)++.", "abc\nab\n", "abc|\nab\n");
    split_one("x*", "axxb", "a|xx|b"); /* empty matches cut: a|, |b */
    split_one("(?=b)", "abab", "a|ba|b");
    split_one("a(?=b)", "abac", "a|bac");
    split_one("[^\\s\\S]", "abc", "abc"); /* the empty set */
    split_one("[一-龥぀-ゟ゠-ヿ]+", "ab中文かなカd", "ab|中文かなカ|d");
    split_one("\\.\\[\\]\\{\\}\\t", "a.[]{}\tb", "a|.[]{}\t|b");
    split_one(" ?[\\p{P}\\p{S}]+[\\r\\n]*", "a +=\n\nb", "a| +=\n\n|b");
    split_one("", "abc", "a|b|c");
    /* a step sees only its own piece, not the 'b' after its end */
    const char *two[] = { "[0-9]", "a(?!b)|b" };
    check_split(two, 2, "ab1a2b", "a|b|1|a|2|b");
    check_split(NULL, 0, "a b", "a b");
    check_split(NULL, 0, "", "");
}

static void test_refusals(void **state)
{
    static const struct {
        const char *pattern, *says;
    } bad[] = {
        { "\\d+", "escape" },
        { "\\w", "escape" },
        { "\\b", "escape" },
        { "\\x41", "escape" },
        { "\\1", "escape" },
        { "\\p{Lu}", "one-letter" },
        { "\\p{Han}", "one-letter" },
        { "\\pL", "one-letter" },
        { "\\p{^L}", "one-letter" },
        { "\\p{Z}", "only the classes" },
        { "\\p{s}", "one-letter" },
        { "\\", "backslash" },
        { "[a", "does not end" },
        { "[a\\", "backslash" },
        { "[a[b]]", "inside a class" },
        { "[[:alpha:]]", "inside a class" },
        { "[a&&b]", "intersection" },
        { "[]a]", "empty class" },
        { "[^]", "empty class" },
        { "[b-a]", "range" },
        { "[a-\\s]", "range" },
        { "[\\s-a]", "range" },
        { "[a-c-e]", "escaped" },
        { "^a", "anchor" },
        { "a$", "anchor" },
        { "a]", "anchor" },
        { "(?i:a)", "group" },
        { "(?<=a)b", "group" },
        { "(?>a)", "group" },
        { "(?#x)", "group" },
        { "(?", "group" },
        { "a{", "repeat count" },
        { "a{x}", "repeat count" },
        { "a{1", "repeat count" },
        { "a{1,x}", "repeat count" },
        { "a{,3}", "repeat count" },
        { "a{3,2}", "backwards" },
        { "a{1001}", "above 1000" },
        { "a{99999999999999999999}", "above 1000" },
        { "a**", "quantifier after" },
        { "a{2}?", "quantifier after" },
        { "a{1,2}+", "quantifier after" },
        { "a???", "quantifier" },
        { "(a", "does not compile" },
        { "a)", "does not compile" },
        { "*a", "does not compile" },
        { "\xFF", "not UTF-8" },
        { "[a\xC3]", "not UTF-8" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        mote__pretok *pretok;
        mote_err err = { 0 };
        int rc = mote__pretok_create(&pretok, &bad[i].pattern, 1, "t.json", &err);
        if (rc != MOTE_EUNSUPPORTED && rc != MOTE_EFORMAT)
            fail_msg("'%s' was taken", bad[i].pattern);
        if (!strstr(err.message, bad[i].says) || !strstr(err.message, "t.json") ||
            !strstr(err.message, "pattern 0"))
            fail_msg("'%s': %s", bad[i].pattern, err.message);
        assert_null(pretok);
    }
    const char *many[MOTE_MAX_PATTERNS + 1];
    for (size_t i = 0; i <= MOTE_MAX_PATTERNS; i++)
        many[i] = "a";
    mote__pretok *pretok;
    assert_int_equal(mote__pretok_create(&pretok, many, MOTE_MAX_PATTERNS + 1, "t", NULL),
                     MOTE_EUNSUPPORTED);
    /* 300 different letters are more kinds than fit into a byte */
    char letters[300 * 4 + 1];
    size_t n = 0;
    for (uint32_t cp = 0x4E00; cp < 0x4E00 + 250; cp++)
        n += (size_t)mote__utf8_write((uint8_t *)letters + n, cp);
    letters[n] = 0;
    const char *p = letters;
    assert_int_equal(mote__pretok_create(&pretok, &p, 1, "t", NULL), MOTE_OK);
    mote__pretok_destroy(pretok);
    for (uint32_t cp = 0x5E00; cp < 0x5E00 + 50; cp++)
        n += (size_t)mote__utf8_write((uint8_t *)letters + n, cp);
    letters[n] = 0;
    assert_int_equal(mote__pretok_create(&pretok, &p, 1, "t", NULL), MOTE_EUNSUPPORTED);
}

static int no_piece(void *ctx, size_t n_chars) { return MOTE_OK; }

/* Patterns with exponential backtracking fail quickly; deep group repeats work without a
 * compiled-code stack. */
static void test_limits(void **state)
{
    static uint8_t kinds[200000];
    char *text = malloc(sizeof kinds);
    memset(text, 'a', sizeof kinds);
    const char *slow = "(a+)+b|(a*)*c", *deep = "(?:a|b)+";
    mote__pretok *pretok;
    mote_err err = { 0 };
    assert_int_equal(mote__pretok_create(&pretok, &slow, 1, "t", &err), MOTE_OK);
    size_t n = mote__pretok_classify(pretok, (uint8_t *)text, 3000, kinds);
    assert_int_equal(mote__pretok_split(pretok, kinds, n, no_piece, NULL, &err), MOTE_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "too many steps"));
    mote__pretok_destroy(pretok);
    assert_int_equal(mote__pretok_create(&pretok, &deep, 1, "t", &err), MOTE_OK);
    n = mote__pretok_classify(pretok, (uint8_t *)text, sizeof kinds, kinds);
    if (mote__pretok_split(pretok, kinds, n, no_piece, NULL, &err))
        fail_msg("%s", err.message);
    mote__pretok_destroy(pretok);
    free(text);
}

/* two code points have the same kind if and only if they are in the same classes */
static void test_classes(void **state)
{
    const char *patterns[] = { "\\p{L}", "\\p{M}", "\\p{N}", "\\p{P}", "\\p{S}", "\\s" };
    mote__patterns p;
    assert_int_equal(mote__patterns_init(&p, patterns, 6, "t", NULL), MOTE_OK);
    /* six disjoint classes, and all other characters */
    assert_int_equal(p.n_kinds, 7);
    int name_of[256] = { 0 };
    for (const mote__cp_class *c = mote__unicode16; c->name; c++)
        for (size_t i = 0; i < c->n_ranges; i++)
            for (uint32_t cp = c->ranges[i].first; cp <= c->ranges[i].last; cp++) {
                uint8_t kind = mote__patterns_kind(&p, cp);
                if (!name_of[kind])
                    name_of[kind] = c->name;
                if (name_of[kind] != c->name)
                    fail_msg("U+%04X is taken for class %c, not %c", cp, name_of[kind], c->name);
            }
    assert_int_equal(name_of[mote__patterns_kind(&p, 'a')], 'L');
    /* new in Unicode 16 */
    assert_int_equal(name_of[mote__patterns_kind(&p, 0x1C80 + 9)], 'L');
    assert_int_equal(name_of[mote__patterns_kind(&p, 0x0301)], 'M');
    assert_int_equal(name_of[mote__patterns_kind(&p, 0x85)], 's');
    assert_int_equal(name_of[mote__patterns_kind(&p, 0x1F)], 0);
    assert_int_equal(name_of[mote__patterns_kind(&p, 0x10FFFF)], 0);
    mote__patterns_deinit(&p);
}

static void test_no_memory(void **state)
{
    const char *patterns[] = { "[a-z\\p{N}]+(?!\\S)", "[^\\p{L}x]{1,3}|\\s" };
    for (long at = 1;; at++) {
        mote__pretok *pretok;
        mote__alloc_fail_at = at;
        int rc = mote__pretok_create(&pretok, patterns, 2, "t", NULL);
        mote__alloc_fail_at = 0;
        if (!rc) {
            mote__pretok_destroy(pretok);
            assert_true(at > 10);
            break;
        }
        assert_int_equal(rc, MOTE_ENOMEM);
        assert_null(pretok);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),    cmocka_unit_test(test_classes),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("file/pretok", tests, NULL, NULL);
}
