/* tokenizer.json and text: up to the first 0xFF byte the input is a tokenizer.json, the rest is
 * text to encode with it. An input without 0xFF is text for a small built-in tokenizer. Checked:
 * ids exist, they spell the (repaired) text, plain encoding has no added token, detokenised text is
 * valid UTF-8 however it is cut. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz/tokenizer: %s\n", what);
        abort();
    }
}

static mote__tokenizer *built_in(void)
{
    static mote__tokenizer *tok;
    static char s[20000];
    if (tok)
        return tok;
    char *p = s;
    static const char head[] =
        "{\"added_tokens\": [{\"id\": 300, \"content\": \"<x>\", \"normalized\": false}, "
        "{\"id\": 301, \"content\": \"<x>ab\", \"normalized\": true}], \"pre_tokenizer\": "
        "{\"type\": \"Sequence\", \"pretokenizers\": ["
        "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{N}{1,3}\"}, \"behavior\": "
        "\"Isolated\"}, "
        "{\"type\": \"Split\", \"pattern\": {\"Regex\": "
        "\"[^\\\\r\\\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| "
        "?[\\\\p{P}\\\\p{S}]+[\\\\r\\\\n]*|"
        "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": \"Isolated\"}, "
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}, "
        "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {";
    p += sprintf(p, "%s", head);
    for (unsigned b = 0, other = 0; b < 256; b++) {
        int itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        p += sprintf(p, "\"\\u%04x\": %u, ", itself ? b : 0x100 + other++, b);
    }
    sprintf(p, "\"ab\": 256, \"aba\": 257, \"ba\": 258, \"aa\": 259}, \"merges\": [\"a a\", \"a "
               "b\", \"ab a\", \"b a\"]}}");
    check(!mote__tokenizer_parse(&tok, s, strlen(s), "built-in", NULL),
          "the built-in tokenizer is refused");
    return tok;
}

static void encode(const mote__tokenizer *tok, const uint8_t *text, size_t n, int flags)
{
    int32_t *ids;
    size_t n_ids, at = 0, length, spelt = 0, n_piece;
    mote__buf repaired;
    mote__detok d = { 0 };
    const char *piece;
    mote__buf_init(&repaired, NULL, MOTE_MEM_OTHER);
    check(!mote__utf8_repair(&repaired, text, n), "no memory");
    check(mote__utf8_valid(repaired.data, repaired.size) == repaired.size,
          "repaired text is not valid");
    if (!mote__tokenizer_encode(tok, (const char *)text, n, flags, &ids, &n_ids, NULL)) {
        for (size_t i = 0; i < n_ids; i++, at += length) {
            const char *bytes = mote__tokenizer_bytes(tok, ids[i], &length);
            check(bytes && length <= repaired.size - at &&
                      !memcmp((char *)repaired.data + at, bytes, length),
                  "ids spell another text");
            check(!flags || !mote__tokenizer_is_added(tok, ids[i]), "an added token in plain text");
            check(!mote__detok_push(&d, bytes, length, &piece, &n_piece, NULL), "no memory");
            check(mote__utf8_valid((const uint8_t *)piece, n_piece) == n_piece,
                  "a piece is not valid");
            check(n_piece <= repaired.size - spelt &&
                      (!n_piece || !memcmp(repaired.data + spelt, piece, n_piece)),
                  "detokenised text differs");
            spelt += n_piece;
        }
        check(at == repaired.size, "ids spell only a part of the text");
        check(spelt == repaired.size, "detokenised text is shorter");
        check(!*mote__detok_finish(&d, &n_piece) && !n_piece, "a valid text leaves something over");
        free(ids);
    }
    mote__detok_deinit(&d);
    mote__buf_deinit(&repaired);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, 0xFF, size) : NULL;
    mote__tokenizer *tok = built_in();
    mote_err err;
    if (cut &&
        mote__tokenizer_parse(&tok, (const char *)data, (size_t)(cut - data), "fuzz.json", &err)) {
        check(err.code && *err.message && !tok, "a refusal without a sentence");
        return 0;
    }
    const uint8_t *text = cut ? cut + 1 : data;
    size_t n = cut ? size - (size_t)(text - data) : size;
    encode(tok, text, n, 0);
    encode(tok, text, n, MOTE_ENCODE_PLAIN);
    if (cut) {
        size_t n_map = mote__tokenizer_size(tok), n_classes;
        int32_t *map = malloc(n_map * sizeof *map);
        check(map && !mote__tokenizer_classes(tok, map, n_map, &n_classes, NULL) &&
                  n_classes <= n_map,
              "no classes");
        free(map);
        mote__tokenizer_close(tok);
    }
    return 0;
}
