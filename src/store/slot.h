/* What lies in the store's files, byte for byte: segment headers, slots, snapshot files. Pure
 * functions over memory: nothing is read or written here, and nothing is believed before it was
 * checked. The page is docs/format-store.md; numbers are little-endian. */
#ifndef MOTE_STORE_SLOT_H
#define MOTE_STORE_SLOT_H

#include "store/store.h"

enum {
    MOTE_SLOT_HEADER = 512,
    MOTE_SLOT_IDS = MOTE_BLOCK_TOKENS * 4,
    /* bytes before the payload */
    MOTE_SLOT_HEAD = MOTE_SLOT_HEADER + MOTE_SLOT_IDS,
    /* no page holds parts of two slots */
    MOTE_SLOT_ALIGN = 4096,
    MOTE_SEGMENT_HEADER = 4096,
    MOTE_SNAPSHOT_HEADER = 512
};

/* ---- identities ---- */
void mote__sha256(uint8_t digest[MOTE_STORE_DIGEST], const void *const *parts, const size_t *sizes,
                  size_t n_parts);
/* ids: as in a slot, little-endian. */
void mote__block_identity(uint8_t id[MOTE_STORE_ID], const uint8_t context[MOTE_STORE_DIGEST],
                          int approximate, const uint8_t parent[MOTE_STORE_ID],
                          const uint8_t ids[MOTE_SLOT_IDS]);
void mote__put_ids(uint8_t *dst, const int32_t *ids, size_t n);
void mote__hex(char *dst, const uint8_t *bytes, size_t n); /* 2 n digits and a 0 */

/* ---- slots ---- */
typedef struct mote__slot {
    uint32_t slot_bytes, payload_bytes;
    int approximate;
    /* n_blocks: of the chain that ends here */
    uint64_t generation, created, n_blocks;
    uint8_t id[MOTE_STORE_ID], parent[MOTE_STORE_ID], context[MOTE_STORE_DIGEST];
    char label[MOTE_STORE_LABEL];
} mote__slot;

static inline size_t mote__slot_bytes(size_t payload) /* 0: too large */
{
    return payload == 0 || payload > (size_t)1 << 30
               ? 0
               : (MOTE_SLOT_HEAD + payload + MOTE_SLOT_ALIGN - 1) / MOTE_SLOT_ALIGN *
                     MOTE_SLOT_ALIGN;
}
/* head: header and ids, MOTE_SLOT_HEAD bytes, checksum still 0. */
void mote__slot_write(uint8_t *head, const mote__slot *slot, const uint8_t ids[MOTE_SLOT_IDS]);
/* Fill in generation and checksum; payload and `pad` zeros follow the head. */
void mote__slot_seal(uint8_t *head, uint64_t generation, const uint8_t *payload,
                     size_t payload_bytes, size_t slot_bytes);
/* Checks everything a slot says about itself, checksum and identity included: 0, or a word for what
 * is wrong in *why. The slot is head, payload[payload_bytes], pad[slot_bytes - head - payload]. */
int mote__slot_read(mote__slot *slot, const uint8_t *head, const uint8_t *payload,
                    size_t payload_bytes, const uint8_t *pad, size_t slot_bytes, const char **why);

/* Whether a slot that was read is the block that `chain` ends with, below `parent` and made of
 * these 256 ids. */
int mote__slot_answers(const mote__slot *slot, const uint8_t *head, const mote__store_context *c,
                       const mote__chain *chain, const uint8_t *parent, const int32_t *ids,
                       const char **why);
/* What a block's slot says about it, from the chains before and after it. */
void mote__slot_describe(mote__slot *slot, uint8_t head[MOTE_SLOT_HEAD],
                         const mote__store_context *c, const mote__chain *parent,
                         const mote__chain *chain, const int32_t *ids, uint64_t created);

/* ---- segment headers ---- */
typedef struct mote__segment_header {
    uint32_t id, slot_bytes, payload_bytes;
} mote__segment_header;
void mote__segment_write(uint8_t page[MOTE_SEGMENT_HEADER], const mote__segment_header *h);
int mote__segment_read(mote__segment_header *h, const uint8_t *page, size_t n, const char **why);

/* ---- snapshot files ---- */
typedef struct mote__snapfile {
    /* tokens: the all-exact chain over the same ids */
    uint8_t key[MOTE_STORE_ID], tokens[MOTE_STORE_ID], context[MOTE_STORE_DIGEST];
    mote__chain chain;
    int approximate;
    uint32_t n_tail, origin; /* origin: where the decoder's windows began */
    uint64_t blob_bytes, created;
    char label[MOTE_STORE_LABEL];
} mote__snapfile;

static inline size_t mote__snapfile_bytes(const mote__snapfile *s)
{
    return MOTE_SNAPSHOT_HEADER + s->n_tail * 4u + (size_t)s->blob_bytes;
}
void mote__snapfile_key(mote__snapfile *s, const uint8_t *tail);
/* Whether `key` is that of s, whatever its origin; it is read from the key into s->origin. */
int mote__snapfile_is(mote__snapfile *s, const uint8_t *tail, const uint8_t *key);
/* The whole file; `file` has mote__snapfile_bytes. tail: little-endian ids. */
void mote__snapfile_write(uint8_t *file, const mote__snapfile *s, const uint8_t *tail,
                          const void *blob);
int mote__snapfile_read(mote__snapfile *s, const uint8_t *file, size_t n, const uint8_t **tail,
                        const uint8_t **blob, const char **why);

#endif
