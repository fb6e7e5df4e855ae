/* tokenizer.json: byte-level BPE with a sequence of Split patterns, added and special tokens,
 * byte-level decoder. Anything else in the file is refused by name. Thread-safe once open. Encoding
 * time grows linearly with the text. */
#ifndef MOTE_TEXT_TOKENIZER_H
#define MOTE_TEXT_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct mote__tokenizer mote__tokenizer;

int mote__tokenizer_open(mote__tokenizer **tok, const char *path, mote_err *err);
int mote__tokenizer_parse(mote__tokenizer **tok, const char *text, size_t n, const char *what,
                          mote_err *err);
void mote__tokenizer_close(mote__tokenizer *tok);
size_t mote__tokenizer_size(const mote__tokenizer *tok); /* largest id + 1 */

/* flags: MOTE_ENCODE_PLAIN as in the public header (BOS is the caller's). *ids malloc'd. Invalid
 * UTF-8 counts as U+FFFD, one for each maximal subpart (base/utf8.h). With PLAIN no added token is
 * matched at all, special or not. */
int mote__tokenizer_encode(const mote__tokenizer *tok, const char *text, size_t n, int flags,
                           int32_t **ids, size_t *n_ids, mote_err *err);
/* Text made of pieces, n bytes in all of valid UTF-8: added tokens are matched inside literal
 * pieces only (never across their ends), everything else is encoded as if the pieces were one text.
 */
typedef struct mote__text_piece {
    size_t n_bytes;
    int literal;
} mote__text_piece;
int mote__tokenizer_encode_pieces(const mote__tokenizer *tok, const char *text,
                                  const mote__text_piece *pieces, size_t n_pieces, int32_t **ids,
                                  size_t *n_ids, mote_err *err);
size_t mote__tokenizer_memory(const mote__tokenizer *tok); /* bytes held */
/* Raw bytes of a token; NULL for ids that do not exist. Added tokens give their content. */
const char *mote__tokenizer_bytes(const mote__tokenizer *tok, int32_t id, size_t *n_bytes);
/* `special: true` in the file */
int mote__tokenizer_is_special(const mote__tokenizer *tok, int32_t id);
int mote__tokenizer_is_added(const mote__tokenizer *tok, int32_t id);
/* an added token's id, or -1 */
int32_t mote__tokenizer_find(const mote__tokenizer *tok, const char *content);
/* or an ordinary token of these bytes */
int32_t mote__tokenizer_find_any(const mote__tokenizer *tok, const char *content);
/* 1 if the file has a template; *front, *back: the token it puts before and behind a text, -1 none.
 */
int mote__tokenizer_template(const mote__tokenizer *tok, int32_t *front, int32_t *back);

/* tokenizer_config.json beside it; a missing file says nothing. add_*: 0, 1, or -1 where it does
 * not say. bos, eos: ids of its tokens, MOTE_TOKEN_NULL where it has none, _UNSAID where it does
 * not say, _UNKNOWN where tokenizer.json has no such token. Nothing else of it is read. */
enum { MOTE_TOKEN_NULL = -1, MOTE_TOKEN_UNSAID = -2, MOTE_TOKEN_UNKNOWN = -3 };
typedef struct mote__tokenizer_config {
    int add_bos, add_eos;
    int32_t bos, eos;
} mote__tokenizer_config;
int mote__tokenizer_config_load(mote__tokenizer_config *t, const char *folder,
                                const mote__tokenizer *tok, mote_err *err);

/* Engram's compressed vocabulary, docs/engram.md: class id per token id (map has room for n_map >=
 * tokenizer_size ids), numbered by first appearance; *n_classes = how many. Ids below
 * tokenizer_size that no token has share the class of the empty text, as in the published code. Ids
 * from tokenizer_size on cannot come out of the tokenizer: they get class 0 and do not count. */
int mote__tokenizer_classes(const mote__tokenizer *tok, int32_t *map, size_t n_map,
                            size_t *n_classes, mote_err *err);

/* Streaming detokenisation; text never ends inside a character. */
typedef struct mote__detok {
    unsigned char pending[4];
    unsigned n_pending;
    char *out;
    size_t out_capacity;
} mote__detok;
int mote__detok_push(mote__detok *d, const char *bytes, size_t n, const char **text, size_t *n_text,
                     mote_err *err);
const char *mote__detok_finish(mote__detok *d, size_t *n_text);
void mote__detok_deinit(mote__detok *d);

#endif
