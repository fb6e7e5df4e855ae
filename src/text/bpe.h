/* Byte-level BPE: the vocabulary (bytes of every token id) and the merges, and cutting one word
 * into tokens. Filled by text/tokenizer_load.c; read-only and shared by threads after
 * mote__bpe_finish. */
#ifndef MOTE_TEXT_BPE_H
#define MOTE_TEXT_BPE_H

#include <stdatomic.h>

#include "base/mem.h"

enum { MOTE_MAX_TOKEN_IDS = 1 << 22, MOTE_MAX_TOKEN_BYTES = 1 << 16 };
enum mote__token_flags {
    MOTE_TOKEN_KNOWN = 1,
    /* spelled in the byte alphabet: its bytes may be part of a character */
    MOTE_TOKEN_BYTES = 2,
    MOTE_TOKEN_ADDED = 4,
    MOTE_TOKEN_SPECIAL = 8
};

typedef struct mote__token {
    uint32_t offset, length;
} mote__token; /* into text.data */
/* id -1: empty */
typedef struct mote__word_slot {
    uint32_t tag;
    int32_t id;
} mote__word_slot;
/* rank UINT32_MAX: empty */
typedef struct mote__merge_slot {
    uint32_t left, right, rank, id;
} mote__merge_slot;

typedef struct mote__bpe {
    /* largest id + 1; merges; bytes of the longest token made of bytes */
    size_t n_ids, n_merges, longest;
    mote__token *tokens; /* [n_ids] */
    uint8_t *flags;      /* [n_ids] mote__token_flags */
    _Atomic uint8_t
        *whole;     /* [n_ids] does the token's own text become this one token? 0: not tried yet,
                       1 yes, 2 no. Found when first needed; every thread finds the same. */
    mote__buf text; /* bytes of all tokens */
    /* open addressing: bytes -> id, tokens of the byte alphabet only */
    mote__word_slot *words;
    size_t n_words; /* slots, a power of two */
    /* open addressing: (left id, right id) -> rank, joined id */
    mote__merge_slot *merges;
    size_t n_merge_slots;
    uint32_t *joined; /* [n_merges] rank -> joined id */
    int32_t byte_id[256];
} mote__bpe;

/* Room for ids below n_ids and for n_merges merges. */
int mote__bpe_init(mote__bpe *b, size_t n_ids, size_t n_merges);
void mote__bpe_deinit(mote__bpe *b);
size_t mote__bpe_memory(const mote__bpe *b);

/* MOTE_EFORMAT: the id is taken (by other bytes), or, for tokens of the byte alphabet, the bytes
 * are. */
int mote__bpe_add_token(mote__bpe *b, uint32_t id, const void *bytes, size_t n, unsigned flags);
/* a token of the byte alphabet, or -1 */
int32_t mote__bpe_find(const mote__bpe *b, const uint8_t *bytes, size_t n);
/* The next merge in order of rank; ids of the byte alphabet. MOTE_EFORMAT: the pair was given
 * before. */
int mote__bpe_add_merge(mote__bpe *b, uint32_t left, uint32_t right, uint32_t joined);
/* After all tokens: sets byte_id. Returns -1, or a byte that has no token. */
int mote__bpe_finish(mote__bpe *b);

/* Scratch of one caller, reused from word to word; zero-initialise. */
typedef struct mote__bpe_scratch {
    mote__buf symbols, heap;
} mote__bpe_scratch;
void mote__bpe_scratch_deinit(mote__bpe_scratch *s);
/* Append the ids of word[0..n), 1 <= n < 2^31, to `ids` (int32_t). Time n log n. */
int mote__bpe_encode_word(const mote__bpe *b, mote__bpe_scratch *s, const uint8_t *word, size_t n,
                          mote__buf *ids);

#endif
