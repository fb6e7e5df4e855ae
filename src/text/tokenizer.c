/* Owns opening, closing and encoding: added tokens are found first, the text between them is split
 * into words, and each word becomes tokens. text/tokenizer_load.c reads the file, text/pretok.c
 * splits, text/bpe.c encodes words. */
#include "text/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/utf8.h"

enum { MAX_FILE_BYTES = 256 << 20, MAX_TEXT_BYTES = 1 << 30 };

int mote__tokenizer_parse(mote__tokenizer **tok, const char *text, size_t n, const char *what,
                          mote_err *err)
{
    *tok = mote__alloc(NULL, MOTE_MEM_OTHER, sizeof **tok);
    if (!*tok)
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", what);
    mote__added_init(&(*tok)->first);
    mote__added_init(&(*tok)->second);
    (*tok)->front = (*tok)->back = -1;
    int rc = mote__tokenizer_load(*tok, text, n, what, err);
    if (rc) {
        mote__tokenizer_close(*tok);
        *tok = NULL;
    }
    return rc;
}

int mote__tokenizer_open(mote__tokenizer **tok, const char *path, mote_err *err)
{
    mote__map map;
    *tok = NULL;
    int rc = mote__map_open(&map, path, err);
    if (rc)
        return rc;
    if (map.size > MAX_FILE_BYTES)
        rc = mote__fail(err, MOTE_EFORMAT, "%s: %zu bytes, more than the %d allowed for this file",
                        path, map.size, MAX_FILE_BYTES);
    else
        rc = mote__tokenizer_parse(tok, (const char *)map.data, map.size, path, err);
    mote__map_close(&map);
    return rc;
}

void mote__tokenizer_close(mote__tokenizer *tok)
{
    if (!tok)
        return;
    mote__added_deinit(&tok->first);
    mote__added_deinit(&tok->second);
    mote__pretok_destroy(tok->pretok);
    mote__bpe_deinit(&tok->bpe);
    mote__free(NULL, MOTE_MEM_OTHER, tok, sizeof *tok);
}

size_t mote__tokenizer_size(const mote__tokenizer *tok) { return tok->bpe.n_ids; }

size_t mote__tokenizer_memory(const mote__tokenizer *tok)
{
    return sizeof *tok + mote__bpe_memory(&tok->bpe) + mote__pretok_memory(tok->pretok) +
           tok->first.nodes.capacity + tok->second.nodes.capacity;
}

static unsigned flags_of(const mote__tokenizer *tok, int32_t id)
{
    return id >= 0 && (size_t)id < tok->bpe.n_ids ? tok->bpe.flags[id] : 0;
}

const char *mote__tokenizer_bytes(const mote__tokenizer *tok, int32_t id, size_t *n_bytes)
{
    *n_bytes = 0;
    if (!flags_of(tok, id))
        return NULL;
    *n_bytes = tok->bpe.tokens[id].length;
    return (const char *)tok->bpe.text.data + tok->bpe.tokens[id].offset;
}

int mote__tokenizer_is_special(const mote__tokenizer *tok, int32_t id)
{
    return (flags_of(tok, id) & MOTE_TOKEN_SPECIAL) != 0;
}

int mote__tokenizer_is_added(const mote__tokenizer *tok, int32_t id)
{
    return (flags_of(tok, id) & MOTE_TOKEN_ADDED) != 0;
}

int32_t mote__tokenizer_find(const mote__tokenizer *tok, const char *content)
{
    size_t n = strlen(content), end;
    int32_t id;
    const mote__added *tries[2] = { &tok->first, &tok->second };
    for (int i = 0; i < 2; i++)
        if (n && mote__added_find(tries[i], (const uint8_t *)content, n, 0, &end, &id) == 0 &&
            end == n)
            return id;
    return -1;
}

int32_t mote__tokenizer_find_any(const mote__tokenizer *tok, const char *content)
{
    int32_t id = mote__tokenizer_find(tok, content);
    return id >= 0 ? id : mote__bpe_find(&tok->bpe, (const uint8_t *)content, strlen(content));
}

int mote__tokenizer_template(const mote__tokenizer *tok, int32_t *front, int32_t *back)
{
    *front = tok->front;
    *back = tok->back;
    return tok->has_template;
}

/* ---- encoding ---- */

/* begin: offset of *piece in the text */
typedef struct cursor {
    const mote__text_piece *piece, *last;
    size_t begin;
} cursor;

typedef struct encoder {
    const mote__tokenizer *tok;
    const uint8_t *text;
    cursor cursors[2]; /* of each kind of added tokens */
    const uint8_t *at; /* begin of the next word */
    int one_byte;      /* the text being split is ASCII: each character is one byte */
    uint8_t *kinds;    /* [text bytes] */
    mote__bpe_scratch scratch;
    mote__buf ids;
    mote_err *err;
} encoder;

static int no_memory(const encoder *e)
{
    return mote__fail(e->err, MOTE_ENOMEM, "out of memory while encoding text");
}

static int encode_word(void *ctx, size_t n_chars)
{
    encoder *e = ctx;
    const uint8_t *word = e->at;
    if (e->one_byte)
        e->at += n_chars;
    else
        for (size_t i = 0; i < n_chars; i++)
            e->at += mote__utf8_length(*e->at);
    return mote__bpe_encode_word(&e->tok->bpe, &e->scratch, word, (size_t)(e->at - word), &e->ids)
               ? no_memory(e)
               : MOTE_OK;
}

/* Encode text without matching added tokens. */
static int encode_plain(encoder *e, const uint8_t *text, size_t n)
{
    size_t n_chars = mote__pretok_classify(e->tok->pretok, text, n, e->kinds);
    e->at = text;
    e->one_byte = n_chars == n;
    return mote__pretok_split(e->tok->pretok, e->kinds, n_chars, encode_word, e, e->err);
}

/* Search text[from..end) for an added token inside literal pieces. Returns its start, or `end`. The
 * cursor advances only past pieces that end before `end`, so that all searches together visit each
 * piece once. */
static size_t find_added(const encoder *e, const mote__added *added, cursor *c, size_t from,
                         size_t end, size_t *stop, int32_t *id)
{
    for (; c->piece < c->last && c->begin < end; c->begin += c->piece->n_bytes, c->piece++) {
        size_t begin = c->begin > from ? c->begin : from, limit = c->begin + c->piece->n_bytes;
        limit = limit < end ? limit : end;
        if (c->piece->literal && begin < limit) {
            size_t at = mote__added_find(added, e->text, limit, begin, stop, id);
            if (at < limit)
                return at;
        }
        if (limit == end)
            break;
    }
    return end;
}

/* Encode text[begin..end). Level 0 searches for the first kind of added tokens, level 1 for the
 * second, level 2 for none. The text on each side of an added token is encoded separately: patterns
 * do not see across it. */
static int encode_level(encoder *e, int level, size_t begin, size_t end)
{
    if (begin == end)
        return MOTE_OK;
    if (level == 2)
        return encode_plain(e, e->text + begin, end - begin);
    const mote__added *added = level ? &e->tok->second : &e->tok->first;
    for (size_t from = begin; from < end;) {
        size_t stop = end;
        int32_t id;
        size_t at = find_added(e, added, &e->cursors[level], from, end, &stop, &id);
        int rc = encode_level(e, level + 1, from, at);
        if (rc)
            return rc;
        if (at < end && mote__buf_append(&e->ids, &id, sizeof id))
            return no_memory(e);
        from = at < end ? stop : end;
    }
    return MOTE_OK;
}

static int encode_all(encoder *e, size_t n, const mote__text_piece *pieces, size_t n_pieces,
                      int32_t **ids, size_t *n_ids)
{
    int rc = MOTE_OK;
    for (int level = 0; level < 2; level++)
        e->cursors[level] = (cursor){ pieces, n_pieces ? pieces + n_pieces : pieces, 0 };
    e->kinds = mote__alloc(NULL, MOTE_MEM_OTHER, n);
    if (!e->kinds || mote__buf_reserve(&e->ids, (n / 3 + 16) * sizeof(int32_t)))
        rc = no_memory(e);
    if (!rc)
        rc = encode_level(e, 0, 0, n);
    if (!rc) {
        *ids = malloc(e->ids.size ? e->ids.size : 1);
        if (!*ids)
            rc = no_memory(e);
        else {
            if (e->ids.size)
                memcpy(*ids, e->ids.data, e->ids.size);
            *n_ids = e->ids.size / sizeof(int32_t);
        }
    }
    mote__free(NULL, MOTE_MEM_OTHER, e->kinds, n);
    mote__bpe_scratch_deinit(&e->scratch);
    mote__buf_deinit(&e->ids);
    return rc;
}

static int too_long(size_t n, mote_err *err)
{
    return mote__fail(err, MOTE_EINVAL, "a text of %zu bytes, at most %d can be encoded at once", n,
                      MAX_TEXT_BYTES);
}

int mote__tokenizer_encode(const mote__tokenizer *tok, const char *text, size_t n, int flags,
                           int32_t **ids, size_t *n_ids, mote_err *err)
{
    encoder e = { .tok = tok, .text = (const uint8_t *)text, .err = err };
    mote__buf repaired;
    mote__buf_init(&repaired, NULL, MOTE_MEM_OTHER);
    int rc = MOTE_OK;
    *ids = NULL;
    *n_ids = 0;
    if (n > MAX_TEXT_BYTES)
        return too_long(n, err);
    if (mote__utf8_valid(e.text, n) < n) {
        rc = mote__utf8_repair(&repaired, e.text, n) ? no_memory(&e) : MOTE_OK;
        e.text = repaired.data;
        n = repaired.size;
    }
    mote__text_piece whole = { n, !(flags & MOTE_ENCODE_PLAIN) };
    if (!rc)
        rc = encode_all(&e, n, &whole, 1, ids, n_ids);
    mote__buf_deinit(&repaired);
    return rc;
}

int mote__tokenizer_encode_pieces(const mote__tokenizer *tok, const char *text,
                                  const mote__text_piece *pieces, size_t n_pieces, int32_t **ids,
                                  size_t *n_ids, mote_err *err)
{
    encoder e = { .tok = tok, .text = (const uint8_t *)text, .err = err };
    size_t n = 0;
    *ids = NULL;
    *n_ids = 0;
    for (size_t i = 0; i < n_pieces; i++)
        n = mote__add(n, pieces[i].n_bytes);
    if (n > MAX_TEXT_BYTES)
        return too_long(n, err);
    if (mote__utf8_valid(e.text, n) < n)
        return mote__fail(err, MOTE_EINVAL, "a text in pieces is not valid UTF-8");
    return encode_all(&e, n, pieces, n_pieces, ids, n_ids);
}
