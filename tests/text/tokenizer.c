/* The tokenizer: the reference cases on the public DeepSeek-V3 file, nano's own file, small files
 * for each rule, errors by name, a slow BPE for comparison, the growth of time with the text, and
 * failing allocations. */
#include "text/tokenizer.h"

#include <sys/stat.h>
#include <time.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/json.h"
#include "base/utf8.h"
#include "test.h"

/* ---- the V3 file ---- */

/* Path of the public tokenizer.json: MOTE_TOKENIZER_V3, or fetched once into the user's cache. NULL
 * only without npm. */
static const char *v3_path(void)
{
    static char path[4096];
    if (getenv("MOTE_TOKENIZER_V3"))
        return getenv("MOTE_TOKENIZER_V3");
    if (path[0])
        return path;
    char command[9000];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    snprintf(command, sizeof command, "'%s' '%s%s/mote'", source_path("tools/fetch-tokenizer.sh"),
             cache  ? cache
             : home ? home
                    : "/tmp",
             cache ? "" : "/.cache");
    FILE *f = popen(command, "r");
    assert_non_null(f);
    if (!fgets(path, sizeof path, f))
        path[0] = 0;
    int status = pclose(f);
    path[strcspn(path, "\n")] = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
        return NULL;
    if (status)
        fail_msg("%s failed", command);
    return path;
}

static mote__tokenizer *open_v3(void)
{
    const char *path = v3_path();
    if (!path) {
        printf("skipped: npm is not installed, so the DeepSeek-V3 tokenizer.json cannot be fetched "
               "(or set MOTE_TOKENIZER_V3)\n");
        skip();
    }
    mote__tokenizer *tok;
    mote_err err = { 0 };
    if (mote__tokenizer_open(&tok, path, &err))
        fail_msg("%s", err.message);
    return tok;
}

/* decoding the ids gives the text */
static void check_round_trip(const mote__tokenizer *tok, const char *text, size_t n,
                             const int32_t *ids, size_t n_ids)
{
    size_t at = 0;
    for (size_t i = 0; i < n_ids; i++) {
        size_t length;
        const char *bytes = mote__tokenizer_bytes(tok, ids[i], &length);
        assert_non_null(bytes);
        if (length > n - at || memcmp(text + at, bytes, length))
            fail_msg("token %d does not spell the text at byte %zu", ids[i], at);
        at += length;
    }
    assert_int_equal(at, n);
}

static size_t check_cases(const mote__tokenizer *tok, FILE *f)
{
    char *line = NULL;
    size_t room = 0, n_cases = 0;
    for (ssize_t n; (n = getline(&line, &room, f)) > 0; n_cases++) {
        json_t *j = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL),
               *want = json_object_get(j, "ids"), *v;
        assert_non_null(want);
        const char *text = json_string_value(json_object_get(j, "text")), *input = text;
        size_t n_text = json_string_length(json_object_get(j, "text")), n_input = n_text, n_ids, i;
        const char *hex = json_string_value(json_object_get(j, "raw_hex"));
        char raw[256];
        if (hex) {
            n_input = strlen(hex) / 2;
            assert_true(n_input < sizeof raw);
            for (i = 0; i < n_input; i++) {
                unsigned byte;
                assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
                raw[i] = (char)byte;
            }
            input = raw;
        }
        int32_t *ids;
        mote_err err = { 0 };
        if (mote__tokenizer_encode(tok, input, n_input, 0, &ids, &n_ids, &err))
            fail_msg("case %zu: %s", n_cases, err.message);
        assert_int_equal(n_ids, json_array_size(want));
        json_array_foreach(want, i, v) if (ids[i] != json_integer_value(v))
            fail_msg("case %zu, id %zu is %d, expected %lld: %.300s", n_cases, i, ids[i],
                     (long long)json_integer_value(v), line);
        check_round_trip(tok, text, n_text, ids, n_ids);
        free(ids);
        if (mote__tokenizer_encode(tok, input, n_input, MOTE_ENCODE_PLAIN, &ids, &n_ids, &err))
            fail_msg("case %zu: %s", n_cases, err.message);
        for (i = 0; i < n_ids; i++)
            assert_false(mote__tokenizer_is_added(tok, ids[i]));
        check_round_trip(tok, text, n_text, ids, n_ids);
        free(ids);
        json_decref(j);
    }
    free(line);
    return n_cases;
}

static void test_v3_cases(void **state)
{
    mote__tokenizer *tok = open_v3();
    assert_int_equal(mote__tokenizer_size(tok), 128815);
    FILE *f = fopen(source_path("tests/data/tokenizer/cases.jsonl"), "r");
    assert_non_null(f);
    assert_int_equal(check_cases(tok, f), 409);
    fclose(f);
    char command[5000];
    snprintf(command, sizeof command, "xz -dc '%s'",
             source_path("tests/data/tokenizer/fuzz.jsonl.xz"));
    f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(check_cases(tok, f), 20000);
    assert_int_equal(pclose(f), 0);
    mote__tokenizer_close(tok);
}

static void test_v3_tokens(void **state)
{
    mote__tokenizer *tok = open_v3();
    assert_int_equal(mote__tokenizer_find(tok, "<｜User｜>"), 128803);
    assert_int_equal(mote__tokenizer_find(tok, "<｜User｜> "), -1);
    assert_int_equal(mote__tokenizer_find(tok, "<"), -1);
    assert_int_equal(mote__tokenizer_find(tok, ""), -1);
    assert_true(mote__tokenizer_is_special(tok, 0) && mote__tokenizer_is_added(tok, 0));
    assert_true(!mote__tokenizer_is_special(tok, 128803) && mote__tokenizer_is_added(tok, 128803));
    assert_false(mote__tokenizer_is_added(tok, 67));
    size_t n;
    assert_null(mote__tokenizer_bytes(tok, 128815, &n));
    assert_null(mote__tokenizer_bytes(tok, -1, &n));
    assert_false(mote__tokenizer_is_added(tok, INT32_MAX));
    const char *bytes = mote__tokenizer_bytes(tok, 128805, &n);
    assert_int_equal(n, 7);
    assert_memory_equal(bytes, "<|EOT|>", 7);
    /* 98,627 is the result of the prototype for this file (Python's unicodedata, the same for
     * versions 9 to 15.1) */
    int32_t *map = malloc(129280 * sizeof *map);
    size_t n_classes;
    assert_int_equal(mote__tokenizer_classes(tok, map, 129280, &n_classes, NULL), MOTE_OK);
    assert_int_equal(n_classes, 98627);
    assert_int_equal(mote__tokenizer_classes(tok, map, 128814, &n_classes, NULL), MOTE_EINVAL);
    free(map);
    mote__tokenizer_close(tok);
}

/* ---- nano ---- */

static mote__tokenizer *open_nano(void)
{
    mote__tokenizer *tok;
    mote_err err = { 0 };
    if (mote__tokenizer_open(&tok, source_path("models/nano/tokenizer.json"), &err))
        fail_msg("%s", err.message);
    return tok;
}

static void test_nano(void **state)
{
    mote__tokenizer *tok = open_nano();
    assert_int_equal(mote__tokenizer_size(tok), 4096);
    mote__map text, map;
    assert_int_equal(mote__map_open(&text, source_path("models/nano/heldout.txt"), NULL), MOTE_OK);
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(mote__tokenizer_encode(tok, (const char *)text.data, text.size, 0, &ids,
                                            &n_ids, NULL),
                     MOTE_OK);
    static const int32_t first[] = { 35,  3346, 2603, 283, 1011, 2508, 769,  340,
                                     524, 16,   565,  599, 1985, 263,  2317, 277 };
    assert_memory_equal(ids, first, sizeof first);
    assert_int_equal(n_ids, 131078); /* without BOS */
    check_round_trip(tok, (const char *)text.data, text.size, ids, n_ids);
    free(ids);
    mote__map_close(&text);
    assert_int_equal(mote__map_open(&map, source_path("models/nano/engram_token_map.i32"), NULL),
                     MOTE_OK);
    int32_t classes[4100];
    size_t n_classes;
    assert_int_equal(mote__tokenizer_classes(tok, classes, 4100, &n_classes, NULL), MOTE_OK);
    assert_int_equal(n_classes, 3437);
    assert_int_equal(map.size, 4096 * sizeof(int32_t));
    assert_memory_equal(classes, map.data, map.size);
    assert_int_equal(classes[4096], 0);
    mote__map_close(&map);
    mote__tokenizer_close(tok);
}

/* BPE by its definition: repeatedly search for the neighbouring pair with the lowest rank, on
 * strings. */
static size_t slow_bpe(json_t *ranks, json_t *vocab, const char *word, int32_t *ids)
{
    char part[400][64];
    size_t n = strlen(word), n_ids;
    for (size_t i = 0; i < n; i++)
        snprintf(part[i], sizeof part[i], "%c", word[i]);
    for (;;) {
        json_int_t best = -1;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            char pair[140];
            snprintf(pair, sizeof pair, "%s %s", part[i], part[i + 1]);
            json_t *rank = json_object_get(ranks, pair);
            if (rank && (best < 0 || json_integer_value(rank) < best)) {
                best = json_integer_value(rank);
                at = i;
            }
        }
        if (best < 0)
            break;
        size_t left = strlen(part[at]), right = strlen(part[at + 1]);
        assert_true(left + right < sizeof part[0]);
        memmove(part[at] + left, part[at + 1], right + 1);
        memmove(part[at + 1], part[at + 2], (n - at - 2) * sizeof part[0]);
        n--;
    }
    for (n_ids = 0; n_ids < n; n_ids++)
        ids[n_ids] = (int32_t)json_integer_value(json_object_get(vocab, part[n_ids]));
    return n_ids;
}

static void test_slow_bpe(void **state)
{
    mote__tokenizer *tok = open_nano();
    json_t *j, *ranks = json_object(), *merge;
    size_t no;
    assert_int_equal(mote__json_load(&j, source_path("models/nano/tokenizer.json"), 1 << 20, NULL),
                     MOTE_OK);
    json_t *model = json_object_get(j, "model"), *vocab = json_object_get(model, "vocab");
    json_array_foreach(json_object_get(model, "merges"), no, merge)
        json_object_set_new(ranks, json_string_value(merge), json_integer((json_int_t)no));
    rnd r = { 7 };
    for (int round = 0; round < 3000; round++) {
        char word[400];
        int32_t want[400], *ids;
        /* lengths around the switch from scanning to the heap; few letters, so many merges */
        size_t n = 1 + rnd_below(&r, round % 10 ? 60 : 399), n_want, n_ids,
               letters = 1 + rnd_below(&r, 26);
        for (size_t i = 0; i < n; i++)
            word[i] = "etaoinshrdlucmfwypvbgkjqxz"[rnd_below(&r, letters)];
        word[n] = 0;
        n_want = slow_bpe(ranks, vocab, word, want);
        assert_int_equal(mote__tokenizer_encode(tok, word, n, 0, &ids, &n_ids, NULL), MOTE_OK);
        if (n_ids != n_want || memcmp(ids, want, n_ids * sizeof *ids))
            fail_msg("'%s' becomes other tokens than by hand", word);
        free(ids);
    }
    json_decref(ranks);
    json_decref(j);
    mote__tokenizer_close(tok);
}

/* ---- small files ---- */

/* tokenizer.json with all byte letters as ids 0..255, "ab" 256, "abc" 257, "bc" 258, merges in the
 * order given. */
static char *small_file(const char *merges, const char *added)
{
    const size_t room = 20000;
    char *s = malloc(room);
    if (!s)
        abort();
    size_t n = (size_t)snprintf(s, room,
                                "{\"version\": \"1.0\", \"truncation\": null, \"added_tokens\": "
                                "[%s], \"normalizer\": null, \"pre_tokenizer\": "
                                "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                                "\"Split\", \"pattern\": {\"Regex\": \"\\\\s+\"}, "
                                "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": "
                                "\"ByteLevel\", \"add_prefix_space\": false, "
                                "\"trim_offsets\": true, \"use_regex\": false}]}, "
                                "\"post_processor\": null, \"decoder\": {\"type\": "
                                "\"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"dropout\": null, "
                                "\"byte_fallback\": false, \"vocab\": {",
                                added);
    for (unsigned b = 0, other = 0; b < 256; b++) {
        int itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        n += (size_t)snprintf(s + n, room - n, "\"\\u%04x\": %u, ", itself ? b : 0x100 + other++,
                              b);
    }
    snprintf(s + n, room - n, "\"ab\": 256, \"abc\": 257, \"bc\": 258}, \"merges\": [%s]}}",
             merges);
    return s;
}

static mote__tokenizer *small(const char *merges, const char *added)
{
    char *s = small_file(merges, added);
    mote__tokenizer *tok;
    mote_err err = { 0 };
    if (mote__tokenizer_parse(&tok, s, strlen(s), "small", &err))
        fail_msg("%s", err.message);
    free(s);
    return tok;
}

/* want: ids as text, "256 99" */
static void check_ids(const mote__tokenizer *tok, const char *text, int flags, const char *want)
{
    int32_t *ids;
    size_t n_ids, used = 0;
    char got[1000] = "";
    mote_err err = { 0 };
    if (mote__tokenizer_encode(tok, text, strlen(text), flags, &ids, &n_ids, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < n_ids; i++)
        used += (size_t)snprintf(got + used, sizeof got - used, i ? " %d" : "%d", ids[i]);
    assert_string_equal(got, want);
    free(ids);
}

static void test_merge_rules(void **state)
{
    mote__tokenizer *tok = small("\"a b\", \"ab c\"", "");
    check_ids(tok, "abc", 0, "257");
    /* in the vocabulary, but no merge makes it */
    check_ids(tok, "bc", 0, "98 99");
    /* again, from the stored result */
    check_ids(tok, "bc", 0, "98 99");
    check_ids(tok, "ab c", 0, "256 32 99");
    check_ids(tok, "", 0, "");
    mote__tokenizer_close(tok);
    /* pairs as lists; bc first */
    tok = small("[\"b\", \"c\"], [\"a\", \"b\"], [\"a\", \"bc\"]", "");
    check_ids(tok, "abcab", 0, "257 256");
    mote__tokenizer_close(tok);
    tok = small("", "");
    check_ids(tok, "\xC3\xA9\xFF", 0, "195 169 239 191 189");
    size_t n;
    assert_memory_equal(mote__tokenizer_bytes(tok, 0, &n), "", 1); /* byte 0 */
    assert_int_equal(n, 1);
    mote__tokenizer_close(tok);
}

#define ADDED(id, content, normalized)                                             \
    "{\"id\": " #id ", \"content\": \"" content "\", \"normalized\": " #normalized \
    ", \"special\": true}"

static void test_added_tokens(void **state)
{
    mote__tokenizer *tok = small(
        "\"a b\"", ADDED(300, "<x>", false) "," ADDED(301, "<x>y", false) "," ADDED(
                       302, "a<", true) "," ADDED(303, "y<z>", true) "," ADDED(304, "<<", true));
    check_ids(tok, "ab<x>ab", 0, "256 300 256");
    /* the longest token at the leftmost position */
    check_ids(tok, "<x>yb", 0, "301 98");
    /* normalized: false first, although "a<" starts earlier */
    check_ids(tok, "a<x>", 0, "97 300");
    check_ids(tok, "a<y", 0, "302 121");
    /* "y" is taken before the second kind is searched for */
    check_ids(tok, "<x>y<z>", 0, "301 60 122 62");
    check_ids(tok, "<x>", MOTE_ENCODE_PLAIN, "60 120 62");
    check_ids(tok, "<<x>", 0, "60 300");
    check_ids(tok, "<<<x", 0, "304 60 120");
    assert_int_equal(mote__tokenizer_find(tok, "<x>y"), 301);
    assert_int_equal(mote__tokenizer_find(tok, "y<z>"), 303);
    assert_int_equal(mote__tokenizer_find(tok, "y<z"), -1);
    assert_int_equal(mote__tokenizer_size(tok), 305);
    size_t n;
    assert_null(mote__tokenizer_bytes(tok, 299, &n)); /* a hole */
    int32_t map[305];
    assert_int_equal(mote__tokenizer_classes(tok, map, 305, &n, NULL), MOTE_OK);
    assert_int_equal(map[299], map[260]); /* all holes are one class */
    assert_int_equal(map['A'], map['a']);
    assert_int_equal(map['\t'], map[' ']);
    mote__tokenizer_close(tok);
}

/* Replace the first `from` in a valid file, or insert `to` before the last brace if from is NULL;
 * expect an error. */
static void check_refused(const char *from, const char *to, const char *says)
{
    char *s = small_file("\"a b\"", ADDED(300, "<x>", false));
    static char bad[30000];
    char *at = from ? strstr(s, from) : s + strlen(s) - 1;
    if (!at)
        fail_msg("'%s' is not in the good file", from);
    snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - s), s, to, at + (from ? strlen(from) : 0));
    mote__tokenizer *tok;
    mote_err err = { 0 };
    int rc = mote__tokenizer_parse(&tok, bad, strlen(bad), "bad.json", &err);
    if (rc != MOTE_EUNSUPPORTED && rc != MOTE_EFORMAT)
        fail_msg("'%s' for '%s' gives code %d", to, from ? from : "}", rc);
    if (strncmp(err.message, "bad.json: ", 10) || !strstr(err.message, says))
        fail_msg("'%s' for '%s': %s", to, from ? from : "}", err.message);
    assert_null(tok);
    free(s);
}

static void test_refusals(void **state)
{
    check_refused("\"truncation\": null", "\"truncation\": {\"max_length\": 5}", "truncation");
    check_refused(NULL, ", \"strange\": 1", "strange");
    check_refused("\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", "NFC");
    check_refused(
        "\"normalizer\": null",
        "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}", "NFC");
    check_refused("\"normalizer\": null", "\"normalizer\": 3", "normalizer");
    static const char post[] = "\"post_processor\": null";
#define TEMPLATE(single, ids)                                                     \
    "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [" single \
    "], \"pair\": [], "                                                           \
    "\"special_tokens\": {\"<x>\": {\"id\": \"<x>\", \"ids\": [" ids "], \"tokens\": [\"<x>\"]}}}"
#define TEXT "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
#define X "{\"SpecialToken\": {\"id\": \"<x>\", \"type_id\": 0}}"
    check_refused(post, "\"post_processor\": {\"type\": \"TemplateProcessing\"}",
                  "'single' is missing");
    check_refused(post, "\"post_processor\": {\"type\": \"BertProcessing\"}", "BertProcessing");
    check_refused(post, TEMPLATE(X, "300"), "'single' has 0 texts");
    check_refused(post, TEMPLATE(X "," X "," TEXT, "300"), "one token before and behind it");
    check_refused(post, TEMPLATE(X "," TEXT, "299"), "id 299, which is not in the vocabulary");
    check_refused(post, TEMPLATE(X "," TEXT, "300, 300"), "of 2 ids");
    check_refused(post, TEMPLATE("{\"SpecialToken\": {\"id\": \"<y>\"}}," TEXT, "300"),
                  "special token '<y>' has no ids");
    check_refused(
        post,
        "\"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": \"Lowercase\"}]}",
        "Lowercase");
    check_refused("\"decoder\": {\"type\": \"ByteLevel\"}",
                  "\"decoder\": {\"type\": \"Metaspace\"}", "Metaspace");
    check_refused("\"decoder\": {\"type\": \"ByteLevel\"}", "\"decoder\": null", "decoder");
    check_refused("\"type\": \"Sequence\"", "\"type\": \"Whitespace\"", "Whitespace");
    check_refused("\"type\": \"Split\"", "\"type\": \"Digits\"", "Digits");
    check_refused("\"type\": \"Split\"", "\"type\": \"ByteLevel\"", "pretokenizers[0]");
    check_refused("\"Isolated\"", "\"Removed\"", "Removed");
    check_refused("\"invert\": false", "\"invert\": true", "invert");
    check_refused("\"Regex\"", "\"String\"", "String");
    check_refused("\\\\s+", "\\\\d+", "pattern 0, byte 0");
    check_refused("\"add_prefix_space\": false", "\"add_prefix_space\": true", "add_prefix_space");
    check_refused("\"use_regex\": false", "\"use_regex\": true", "use_regex");
    check_refused(", \"use_regex\": false", "", "use_regex");
    check_refused(
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
        "\"use_regex\": false}",
        "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Isolated\"}",
        "ByteLevel");
    check_refused("\"type\": \"BPE\"", "\"type\": \"Unigram\"", "Unigram");
    check_refused("\"dropout\": null", "\"dropout\": 0.1", "dropout");
    check_refused("\"dropout\": null", "\"unk_token\": \"<unk>\"", "unk_token");
    check_refused("\"dropout\": null", "\"ignore_merges\": true", "ignore_merges");
    check_refused("\"dropout\": null", "\"continuing_subword_prefix\": \"##\"",
                  "continuing_subword_prefix");
    check_refused("\"byte_fallback\": false", "\"byte_fallback\": true", "byte_fallback");
    check_refused("\"byte_fallback\": false", "\"byte_fallback\": 0", "byte_fallback");
    check_refused("\"bc\": 258", "\"bc\": 257", "257");
    check_refused("\"bc\": 258", "\"bc\": -1", "-1");
    check_refused("\"bc\": 258", "\"bc\": 2147483648", "2147483648");
    check_refused("\"bc\": 258", "\"bc\": 1.5", "'bc'");
    check_refused("\"bc\": 258", "\"\": 258", "0 bytes");
    check_refused("\"\\u0061\": 97, ", "", "0x61");
    check_refused("\"a b\"", "\"ab\"", "merges[0]");
    check_refused("\"a b\"", "\"a b c\"", "merges[0]");
    check_refused("\"a b\"", "[\"a\"]", "merges[0]");
    check_refused("\"a b\"", "7", "merges[0]");
    check_refused("\"a b\"", "\"a zz\"", "'zz'");
    check_refused("\"a b\"", "\"a \"", "merges[0]");
    check_refused("\"a b\"", "\"a z\"", "joined");
    check_refused("\"a b\"", "\"a b\", \"a b\"", "merges[1]");
    check_refused("\"id\": 300", "\"id\": 97", "97");
    check_refused("\"id\": 300", "\"id\": \"x\"", "added_tokens[0]");
    check_refused("\"content\": \"<x>\"", "\"content\": \"\"", "added_tokens[0]");
    check_refused("\"content\": \"<x>\"", "\"content\": \"ab\"", "'ab'");
    check_refused("300, \"content\": \"<x>\"", "256, \"content\": \"ab\"", "merges");
    check_refused("\"normalized\": false", "\"lstrip\": true", "lstrip");
    check_refused("\"normalized\": false", "\"rstrip\": true", "rstrip");
    check_refused("\"normalized\": false", "\"single_word\": true", "single_word");
    check_refused("\"normalized\": false", "\"normalized\": 1", "normalized");
    check_refused("}", "}, {\"id\": 301, \"content\": \"<x>\", \"normalized\": false}", "before");
    check_refused("[", "[5, ", "added_tokens[0]");
    check_refused("\"model\"", "\"modell\"", "modell");
    mote__tokenizer *tok;
    mote_err err = { 0 };
    assert_int_equal(mote__tokenizer_parse(&tok, "[]", 2, "x", &err), MOTE_EFORMAT);
    assert_int_equal(mote__tokenizer_parse(&tok, "{}", 2, "x", &err), MOTE_EFORMAT);
    assert_int_equal(mote__tokenizer_open(&tok, "/nonexistent/tokenizer.json", &err), MOTE_EIO);
    assert_null(tok);
}

/* ---- time and memory ---- */

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sixteen times the text takes about sixteen times as long (n log n: 21; quadratic: 256). Page
 * faults and other load change single measurements by a factor of three, so the sizes are far
 * apart. */
/* The tokens that a template adds are reported to the caller and not added. */
static void test_template(void **state)
{
    (void)state;
    static const struct {
        const char *post;
        int has;
        int32_t front, back;
    } rows[] = {
        { "\"post_processor\": null", 0, -1, -1 },
        { TEMPLATE(TEXT, "300"), 1, -1, -1 },
        { TEMPLATE(X "," TEXT, "300"), 1, 300, -1 },
        { TEMPLATE(TEXT "," X, "300"), 1, -1, 300 },
        { "\"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": "
          "\"ByteLevel\"}, {\"type\": \"TemplateProcessing\", \"single\": [" X "," TEXT
          "], \"special_tokens\": {\"<x>\": {\"ids\": [300]}}}]}",
          1, 300, -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *s = small_file("\"a b\"", ADDED(300, "<x>", false)), *at = strstr(s, rows[0].post);
        static char text[30000];
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - s), s, rows[i].post,
                 at + strlen(rows[0].post));
        mote__tokenizer *tok;
        mote_err err;
        int32_t front, back;
        if (mote__tokenizer_parse(&tok, text, strlen(text), "t.json", &err))
            fail_msg("%s", err.message);
        assert_int_equal(mote__tokenizer_template(tok, &front, &back), rows[i].has);
        assert_true(front == rows[i].front && back == rows[i].back);
        check_ids(tok, "ab", 0, "256");
        mote__tokenizer_close(tok);
        free(s);
    }
}

static void check_config(const char *text, int code, int add_bos, int add_eos, int32_t bos,
                         int32_t eos)
{
    char folder[] = "/tmp/mote-test-XXXXXX", path[64];
    make_tree(folder);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    FILE *f = text ? fopen(path, "w") : NULL;
    if (f) {
        fputs(text, f);
        fclose(f);
    }
    mote__tokenizer *tok = small("\"a b\"", ADDED(300, "<x>", false));
    mote__tokenizer_config t;
    mote_err err = { 0 };
    int rc = mote__tokenizer_config_load(&t, folder, tok, &err);
    if (rc != code || (rc && !strstr(err.message, "tokenizer_config.json")))
        fail_msg("%s: %d '%s'", text, rc, err.message);
    if (!rc && (t.add_bos != add_bos || t.add_eos != add_eos || t.bos != bos || t.eos != eos))
        fail_msg("%s: %d %d %d %d", text, t.add_bos, t.add_eos, t.bos, t.eos);
    mote__tokenizer_close(tok);
    remove_tree(folder);
}

static void test_config(void **state)
{
    (void)state;
    check_config(NULL, 0, -1, -1, MOTE_TOKEN_UNSAID, MOTE_TOKEN_UNSAID);
    check_config("{}", 0, -1, -1, MOTE_TOKEN_UNSAID, MOTE_TOKEN_UNSAID);
    check_config("{\"add_bos_token\": false, \"add_eos_token\": true, \"bos_token\": null, "
                 "\"eos_token\": \"<x>\"}",
                 0, 0, 1, MOTE_TOKEN_NULL, 300);
    check_config("{\"add_bos_token\": true, \"bos_token\": {\"__type\": \"AddedToken\", "
                 "\"content\": \"<x>\"}, \"eos_token\": \"ab\"}",
                 0, 1, -1, 300, 256);
    check_config("{\"bos_token\": \"<gone>\", \"eos_token\": \"\", \"model_max_length\": "
                 "1000000000000000019884624838656}",
                 0, -1, -1, MOTE_TOKEN_UNKNOWN, MOTE_TOKEN_NULL);
    check_config("{\"add_bos_token\": null}", 0, -1, -1, MOTE_TOKEN_UNSAID, MOTE_TOKEN_UNSAID);
    check_config("{\"add_bos_token\": 1}", MOTE_EFORMAT, 0, 0, 0, 0);
    check_config("{\"bos_token\": 1}", MOTE_EFORMAT, 0, 0, 0, 0);
    check_config("[]", MOTE_EFORMAT, 0, 0, 0, 0);
    check_config("", MOTE_EFORMAT, 0, 0, 0, 0);
}

static void test_linear_time(void **state)
{
    static const char *const units[] = { "a",           " ",   "中",        "国家", "\n",
                                         "7",           "!",   "\x01",      "\xFF", "<",
                                         "<｜begin▁of", " \n", "a\xCC\x81", "x ",   "   x",
                                         "\xD8\xA7",    "ab1" };
    mote__tokenizer *tok = open_nano();
    size_t n = 1 << 20;
    char *text = malloc(n);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        for (size_t i = 0, length = strlen(units[u]); i < n; i++)
            text[i] = units[u][i % length];
        double best[2] = { 1e9, 1e9 };
        for (int round = 0; round < 3; round++)
            for (int size = 0; size < 2; size++) {
                int32_t *ids;
                size_t n_ids;
                mote_err err = { 0 };
                double start = cpu_seconds(), took;
                if (mote__tokenizer_encode(tok, text, size ? n : n / 16, 0, &ids, &n_ids, &err))
                    fail_msg("%zu bytes of '%s': %s", n, units[u], err.message);
                took = cpu_seconds() - start;
                best[size] = took < best[size] ? took : best[size];
                free(ids);
            }
        if (best[1] > 80 * best[0] + 0.05)
            fail_msg("'%s': %zu bytes take %.4f s, %zu take %.4f s", units[u], n / 16, best[0], n,
                     best[1]);
    }
    free(text);
    mote__tokenizer_close(tok);
}

static void test_no_memory(void **state)
{
    char *s = small_file("\"a b\", \"ab c\"", ADDED(300, "<x>", false));
    mote__tokenizer *tok = NULL;
    long at;
    for (at = 1; !tok; at++) {
        mote__alloc_fail_at = at;
        int rc = mote__tokenizer_parse(&tok, s, strlen(s), "x", NULL);
        mote__alloc_fail_at = 0;
        assert_int_equal(rc, tok ? MOTE_OK : MOTE_ENOMEM);
    }
    assert_true(at > 20);
    char text[300];
    memset(text, 'a', sizeof text); /* a long word: the heap */
    memcpy(text + 200, "\xFF <x>", 5);
    int32_t *ids = NULL;
    size_t n_ids;
    for (at = 1; !ids; at++) {
        mote__alloc_fail_at = at;
        int rc = mote__tokenizer_encode(tok, text, sizeof text, 0, &ids, &n_ids, NULL);
        mote__alloc_fail_at = 0;
        assert_int_equal(rc, ids ? MOTE_OK : MOTE_ENOMEM);
    }
    assert_true(at > 4);
    free(ids);
    int32_t map[301];
    for (at = 1;; at++) {
        mote__alloc_fail_at = at;
        int rc = mote__tokenizer_classes(tok, map, 301, &n_ids, NULL);
        mote__alloc_fail_at = 0;
        if (!rc)
            break;
        assert_int_equal(rc, MOTE_ENOMEM);
    }
    assert_true(at > 3);
    assert_true(mote__tokenizer_memory(tok) > 10000);
    mote__tokenizer_close(tok);
    mote__tokenizer_close(NULL);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nano),        cmocka_unit_test(test_slow_bpe),
        cmocka_unit_test(test_merge_rules), cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_template),
        cmocka_unit_test(test_config),      cmocka_unit_test(test_linear_time),
        cmocka_unit_test(test_no_memory),   cmocka_unit_test(test_v3_tokens),
        cmocka_unit_test(test_v3_cases),
    };
    return cmocka_run_group_tests_name("file/tokenizer", tests, NULL, NULL);
}
