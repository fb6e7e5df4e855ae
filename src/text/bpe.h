/* Byte-level BPE: the vocabulary (bytes of each token id), the merges, and the encoding of one
 * word. Filled by text/tokenizer_load.c; after mote__bpe_finish it is read-only and any thread may
 * use it. */
#ifndef MOTE_TEXT_BPE_H
#define MOTE_TEXT_BPE_H

#include <stdatomic.h>

#include "base/mem.h"

enum { MOTE_MAX_TOKEN_IDS = 1 << 22, MOTE_MAX_TOKEN_BYTES = 1 << 16 };
enum mote__token_flags {
    MOTE_TOKEN_KNOWN = 1,
    /* spelled in the byte alphabet: its bytes may be an incomplete character */
    MOTE_TOKEN_BYTES = 2,
    MOTE_TOKEN_ADDED = 4,
    MOTE_TOKEN_SPECIAL = 8
};

/* Bytes of a token in text.data. */
typedef struct mote__token {
    uint32_t offset, length;
} mote__token;
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
    /* [n_ids] Is the token's own text encoded as this one token? 0: not known, 1: yes, 2: no. Set
     * when first needed; all threads compute the same value. */
    _Atomic uint8_t *whole;
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

/* Allocate for ids below n_ids and n_merges merges. 0 or MOTE_ENOMEM; call deinit in both cases. */
int mote__bpe_init(mote__bpe *b, size_t n_ids, size_t n_merges);
void mote__bpe_deinit(mote__bpe *b);
/* Bytes allocated. */
size_t mote__bpe_memory(const mote__bpe *b);

/* Add a token; flags: mote__token_flags. 0, MOTE_ENOMEM, or MOTE_EFORMAT: the id has other bytes
 * already, or another token of the byte alphabet has the same bytes. */
int mote__bpe_add_token(mote__bpe *b, uint32_t id, const void *bytes, size_t n, unsigned flags);
/* The id of the token of the byte alphabet with these bytes, or -1. */
int32_t mote__bpe_find(const mote__bpe *b, const uint8_t *bytes, size_t n);
/* Add the next merge in order of rank; all ids are of the byte alphabet. 0, or MOTE_EFORMAT: the
 * pair has a merge already. */
int mote__bpe_add_merge(mote__bpe *b, uint32_t left, uint32_t right, uint32_t joined);
/* Call after all tokens and merges: sets byte_id. Returns -1, or the first byte that has no
 * token. */
int mote__bpe_finish(mote__bpe *b);

/* Scratch of one thread, reused from word to word; initialise to zeros. */
typedef struct mote__bpe_scratch {
    mote__buf symbols, heap;
} mote__bpe_scratch;
void mote__bpe_scratch_deinit(mote__bpe_scratch *s);
/* Append the ids of word[0..n), 1 <= n < 2^31, to `ids` (int32_t) in time O(n log n). 0 or
 * MOTE_ENOMEM. */
int mote__bpe_encode_word(const mote__bpe *b, mote__bpe_scratch *s, const uint8_t *word, size_t n,
                          mote__buf *ids);

#endif
