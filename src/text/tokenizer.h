/* The tokenizer of a tokenizer.json: byte-level BPE with a sequence of Split patterns, added and
 * special tokens, byte-level decoder. Anything else in the file is refused by name. Any thread may
 * use an open tokenizer. The time of encoding grows linearly with the text. */
#ifndef MOTE_TEXT_TOKENIZER_H
#define MOTE_TEXT_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct mote__tokenizer mote__tokenizer;

/* Open a file, or parse text[0..n) and begin messages with `what`. *tok is owned by the caller.
 * MOTE_EIO, MOTE_ENOMEM, MOTE_EFORMAT (malformed) or MOTE_EUNSUPPORTED (naming the member). */
int mote__tokenizer_open(mote__tokenizer **tok, const char *path, mote_err *err);
int mote__tokenizer_parse(mote__tokenizer **tok, const char *text, size_t n, const char *what,
                          mote_err *err);
void mote__tokenizer_close(mote__tokenizer *tok);
size_t mote__tokenizer_size(const mote__tokenizer *tok); /* largest id + 1 */

/* Encode text[0..n). flags: MOTE_ENCODE_PLAIN of the public header: no added token is matched,
 * special or not. BOS is not added. *ids: malloc'd, owned by the caller. Each maximal subpart of
 * invalid UTF-8 counts as U+FFFD (base/utf8.h). */
int mote__tokenizer_encode(const mote__tokenizer *tok, const char *text, size_t n, int flags,
                           int32_t **ids, size_t *n_ids, mote_err *err);
/* Encode text that consists of pieces; together they are valid UTF-8. Added tokens are matched
 * inside literal pieces only, never across their ends. Everything else is encoded as if the pieces
 * were one text. */
typedef struct mote__text_piece {
    size_t n_bytes;
    int literal;
} mote__text_piece;
int mote__tokenizer_encode_pieces(const mote__tokenizer *tok, const char *text,
                                  const mote__text_piece *pieces, size_t n_pieces, int32_t **ids,
                                  size_t *n_ids, mote_err *err);
size_t mote__tokenizer_memory(const mote__tokenizer *tok); /* bytes allocated */
/* Raw bytes of a token, borrowed from tok; the content of an added token; NULL if no token has the
 * id. */
const char *mote__tokenizer_bytes(const mote__tokenizer *tok, int32_t id, size_t *n_bytes);
/* Whether the file marks the token as special; whether it is an added token. */
int mote__tokenizer_is_special(const mote__tokenizer *tok, int32_t id);
int mote__tokenizer_is_added(const mote__tokenizer *tok, int32_t id);
/* The id of the added token with this content, or -1. */
int32_t mote__tokenizer_find(const mote__tokenizer *tok, const char *content);
/* The same, or the id of the ordinary token with these bytes. */
int32_t mote__tokenizer_find_any(const mote__tokenizer *tok, const char *content);
/* 1 if the file has a template, else 0. *front, *back: the tokens it adds before and after a text;
 * -1: none. */
int mote__tokenizer_template(const mote__tokenizer *tok, int32_t *front, int32_t *back);

/* The tokenizer_config.json in the same folder; if it is missing, all members are unset. add_bos,
 * add_eos: 0, 1, or -1: unset. bos, eos: token ids, MOTE_TOKEN_NULL: null, MOTE_TOKEN_UNSAID:
 * unset, MOTE_TOKEN_UNKNOWN: tokenizer.json has no such token. No other member is read. */
enum { MOTE_TOKEN_NULL = -1, MOTE_TOKEN_UNSAID = -2, MOTE_TOKEN_UNKNOWN = -3 };
typedef struct mote__tokenizer_config {
    int add_bos, add_eos;
    int32_t bos, eos;
} mote__tokenizer_config;
int mote__tokenizer_config_load(mote__tokenizer_config *t, const char *folder,
                                const mote__tokenizer *tok, mote_err *err);

/* Engram's compressed vocabulary (docs/engram.md): map[id] is the class of a token id, n_map >=
 * mote__tokenizer_size; classes are numbered by first appearance. *n_classes: their number. Ids
 * below mote__tokenizer_size without a token share the class of the empty text, as in the published
 * code. The tokenizer never returns ids from mote__tokenizer_size on; they get class 0. 0 or
 * MOTE_ENOMEM. */
int mote__tokenizer_classes(const mote__tokenizer *tok, int32_t *map, size_t n_map,
                            size_t *n_classes, mote_err *err);

/* Streaming detokenisation; a returned text never ends inside a character. Initialise to zeros. */
typedef struct mote__detok {
    unsigned char pending[4];
    unsigned n_pending;
    char *out;
    size_t out_capacity;
} mote__detok;
/* Add bytes[0..n). *text: the text that is now complete, *n_text bytes and a 0, borrowed until the
 * next call. 0 or MOTE_ENOMEM. */
int mote__detok_push(mote__detok *d, const char *bytes, size_t n, const char **text, size_t *n_text,
                     mote_err *err);
/* The rest of the text at the end: "" or U+FFFD for an incomplete character; borrowed. */
const char *mote__detok_finish(mote__detok *d, size_t *n_text);
void mote__detok_deinit(mote__detok *d);

#endif
