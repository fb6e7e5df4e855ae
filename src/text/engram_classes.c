/* Owns Engram's compressed vocabulary: tokens with the same normal form share a class
 * (docs/engram.md). The normal form of a token's text: compatibility decomposition (equal to NFKC
 * followed by NFD); characters of categories Mn, Mc and Me removed; each character in lower case;
 * runs of space, tab, CR and LF replaced by one space; Unicode white space trimmed at both ends,
 * except if the result is a single space. If nothing is left, the token's own text is the key. The
 * key of a token that is not valid UTF-8 (or contains U+FFFD) is its spelling in the byte alphabet.
 * Both kinds of key are compared with each other, as in the published code. utf8proc here has
 * Unicode 15; the classes of characters added since may differ. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/tokenizer_impl.h"
#include "base/utf8.h"

/* The characters that are trimmed: Unicode's White_Space, which does not contain U+001C..U+001F. */
static int is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

/* Write the normal form of text[0..n), valid UTF-8, to key; cps is scratch. */
static int normalise(mote__buf *key, mote__buf *cps, const uint8_t *text, size_t n)
{
    const utf8proc_option_t form = UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE;
    utf8proc_ssize_t room = (utf8proc_ssize_t)(cps->capacity / sizeof(int32_t));
    utf8proc_ssize_t count = utf8proc_decompose(text, (utf8proc_ssize_t)n, cps->data, room, form);
    if (count > room) {
        if (mote__buf_reserve(cps, (size_t)count * sizeof(int32_t)))
            return MOTE_ENOMEM;
        count = utf8proc_decompose(text, (utf8proc_ssize_t)n, cps->data, count, form);
    }
    if (count < 0)
        return MOTE_EFORMAT;
    int32_t *c = cps->data;
    size_t kept = 0, begin = 0, in_run = 0;
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        utf8proc_category_t category = utf8proc_category(c[i]);
        if (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
            category == UTF8PROC_CATEGORY_ME)
            continue;
        int blank = c[i] == ' ' || c[i] == '\t' || c[i] == '\r' || c[i] == '\n';
        if (!blank || !in_run)
            c[kept++] = blank ? ' ' : utf8proc_tolower(c[i]);
        in_run = (size_t)blank;
    }
    if (!(kept == 1 && c[0] == ' ')) {
        while (begin < kept && is_space(c[begin]))
            begin++;
        while (kept > begin && is_space(c[kept - 1]))
            kept--;
    }
    if (mote__buf_reserve(key, (kept - begin) * 4 + n))
        return MOTE_ENOMEM;
    uint8_t *out = key->data;
    key->size = 0;
    for (size_t i = begin; i < kept; i++)
        key->size += (size_t)mote__utf8_write(out + key->size, (uint32_t)c[i]);
    if (!key->size) {
        memcpy(out, text, n);
        key->size = n;
    }
    return MOTE_OK;
}

/* Write the token as it is spelled in tokenizer.json. */
static int spell(mote__buf *key, const mote__tokenizer *tok, size_t id)
{
    const mote__token *t = &tok->bpe.tokens[id];
    const uint8_t *text = (const uint8_t *)tok->bpe.text.data + t->offset;
    if (mote__buf_reserve(key, 2 * (size_t)t->length))
        return MOTE_ENOMEM;
    uint8_t *out = key->data;
    key->size = 0;
    for (size_t i = 0; i < t->length; i++) {
        if (tok->bpe.flags[id] & MOTE_TOKEN_BYTES)
            key->size += (size_t)mote__utf8_write(out + key->size, mote__byte_letter(text[i]));
        else
            out[key->size++] = text[i];
    }
    return MOTE_OK;
}

static int make_key(mote__buf *key, mote__buf *cps, const mote__tokenizer *tok, size_t id)
{
    const mote__token *t = &tok->bpe.tokens[id];
    const uint8_t *text = (const uint8_t *)tok->bpe.text.data + t->offset;
    key->size = 0;
    if (!tok->bpe.flags[id])
        return MOTE_OK; /* an id without a token: empty text */
    if (mote__utf8_valid(text, t->length) < t->length || memmem(text, t->length, "\xEF\xBF\xBD", 3))
        return spell(key, tok, id);
    return normalise(key, cps, text, t->length);
}

/* number -1: empty */
typedef struct slot {
    uint64_t hash;
    size_t offset, size;
    int32_t number;
} slot;

static uint64_t hash_of(const uint8_t *p, size_t n) /* FNV-1a */
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001B3u;
    return h ^ h >> 32;
}

int mote__tokenizer_classes(const mote__tokenizer *tok, int32_t *map, size_t n_map,
                            size_t *n_classes, mote_err *err)
{
    size_t n = tok->bpe.n_ids, n_slots = 16;
    int32_t next = 0;
    mote__buf key, cps, keys;
    if (n_map < n)
        return mote__fail(err, MOTE_EINVAL,
                          "room for %zu Engram classes, the tokenizer has %zu ids", n_map, n);
    while (n_slots < 2 * n)
        n_slots *= 2;
    mote__buf_init(&key, NULL, MOTE_MEM_OTHER);
    mote__buf_init(&cps, NULL, MOTE_MEM_OTHER);
    mote__buf_init(&keys, NULL, MOTE_MEM_OTHER);
    slot *slots = mote__alloc(NULL, MOTE_MEM_OTHER, mote__mul(n_slots, sizeof *slots));
    int rc = slots && !mote__buf_reserve(&cps, 64 * sizeof(int32_t)) ? MOTE_OK : MOTE_ENOMEM;
    for (size_t i = 0; i < n_slots && !rc; i++)
        slots[i].number = -1;
    for (size_t id = 0; id < n && !rc; id++) {
        if ((rc = make_key(&key, &cps, tok, id)))
            break;
        uint64_t hash = hash_of(key.data, key.size);
        size_t at = (size_t)hash & (n_slots - 1);
        while (slots[at].number >= 0 &&
               (slots[at].hash != hash || slots[at].size != key.size ||
                (key.size && memcmp((char *)keys.data + slots[at].offset, key.data, key.size))))
            at = (at + 1) & (n_slots - 1);
        if (slots[at].number < 0) {
            slots[at] = (slot){ hash, keys.size, key.size, next++ };
            rc = mote__buf_append(&keys, key.data, key.size);
        }
        map[id] = slots[at].number;
    }
    for (size_t id = n; id < n_map; id++)
        map[id] = 0;
    *n_classes = (size_t)next;
    mote__free(NULL, MOTE_MEM_OTHER, slots, n_slots * sizeof *slots);
    mote__buf_deinit(&key);
    mote__buf_deinit(&cps);
    mote__buf_deinit(&keys);
    if (rc == MOTE_ENOMEM)
        return mote__fail(err, rc, "out of memory while making Engram's classes");
    return rc ? mote__fail(err, rc, "a token could not be normalised for Engram's classes")
              : MOTE_OK;
}
