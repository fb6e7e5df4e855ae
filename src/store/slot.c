#include "store/slot.h"

#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/crc32c.h"
#include "base/le.h"

/* Offsets in a slot's header; a snapshot's shares MAGIC to LABEL where the names are the same. */
enum {
    MAGIC = 0,
    VERSION = 8,
    CRC = 12,
    SLOT_BYTES = 16,
    PAYLOAD_BYTES = 20,
    N_IDS = 24,
    APPROXIMATE = 28,
    GENERATION = 32,
    CREATED = 40,
    N_BLOCKS = 48,
    ID = 64,
    PARENT = 80,
    CONTEXT = 96,
    LABEL = 128,
    SLOT_END = LABEL + MOTE_STORE_LABEL
};
enum { SEG_ID = 16, SEG_SLOT_BYTES = 20, SEG_PAYLOAD_BYTES = 24, SEG_END = 28 };
enum {
    SNAP_BLOB = 16,
    SNAP_TAIL = 24,
    SNAP_BLOCKS = 32,
    SNAP_CREATED = 40,
    SNAP_EXACT = 48,
    SNAP_ORIGIN = 56,
    SNAP_KEY = 64,
    SNAP_CHAIN = 80,
    SNAP_TOKENS = LABEL + MOTE_STORE_LABEL,
    SNAP_END = SNAP_TOKENS + MOTE_STORE_ID
};

static const uint8_t slot_magic[8] = "MOTESLT1", segment_magic[8] = "MOTESEG1",
                     snapshot_magic[8] = "MOTESNP1";
static const uint8_t context_tag[16] = "mote context", block_tag[16] = "mote block",
                     snapshot_tag[16] = "mote snapshot";

static int all_zero(const uint8_t *p, size_t n)
{
    while (n && !*p)
        p++, n--;
    return n == 0;
}

/* Zeros when libcrypto has no memory: no context is made of them, and an identity of zeros fails
 * when the slot is read. */
void mote__sha256(uint8_t digest[MOTE_STORE_DIGEST], const void *const *parts, const size_t *sizes,
                  size_t n_parts)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    unsigned n = 0;
    int ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
    for (size_t i = 0; ok && i < n_parts; i++)
        ok = EVP_DigestUpdate(ctx, parts[i], sizes[i]);
    if (!ok || !EVP_DigestFinal_ex(ctx, digest, &n) || n != MOTE_STORE_DIGEST)
        memset(digest, 0, MOTE_STORE_DIGEST);
    EVP_MD_CTX_free(ctx);
}

void mote__put_ids(uint8_t *dst, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mote__put_le32(dst + 4 * i, (uint32_t)ids[i]);
}

void mote__hex(char *dst, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        dst[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    dst[2 * n] = 0;
}

void mote__block_identity(uint8_t id[MOTE_STORE_ID], const uint8_t context[MOTE_STORE_DIGEST],
                          int approximate, const uint8_t parent[MOTE_STORE_ID],
                          const uint8_t ids[MOTE_SLOT_IDS])
{
    uint8_t numbers[8], digest[MOTE_STORE_DIGEST];
    mote__put_le32(numbers, MOTE_STORE_VERSION);
    mote__put_le32(numbers + 4, approximate != 0);
    mote__sha256(digest, (const void *const[]){ block_tag, numbers, context, parent, ids },
                 (const size_t[]){ sizeof block_tag, sizeof numbers, MOTE_STORE_DIGEST,
                                   MOTE_STORE_ID, MOTE_SLOT_IDS },
                 5);
    memcpy(id, digest, MOTE_STORE_ID);
}

int mote__store_context_init(mote__store_context *c, const mote__store_context_desc *d,
                             mote_err *err)
{
    *c = (mote__store_context){ .block_bytes = d->block_bytes };
    if (!mote__slot_bytes(d->block_bytes))
        return mote__fail(err, MOTE_EINVAL, "a store cannot hold blocks of %zu bytes (1 to 2^30)",
                          d->block_bytes);
    if (d->block_tokens != MOTE_BLOCK_TOKENS)
        return mote__fail(err, MOTE_EINVAL, "a store cannot hold blocks of %zu tokens, only of %d",
                          d->block_tokens, MOTE_BLOCK_TOKENS);
    uint8_t numbers[16], lengths[4][4];
    mote__put_le32(numbers, MOTE_STORE_VERSION);
    mote__put_le32(numbers + 4, (uint32_t)d->block_tokens);
    mote__put_le64(numbers + 8, d->block_bytes);
    const char *text[4] = { d->kv, d->math, d->name_space, d->geometry };
    const void *parts[3 + 8] = { context_tag, numbers, d->fingerprint };
    size_t sizes[3 + 8] = { sizeof context_tag, sizeof numbers, MOTE_STORE_DIGEST };
    for (int i = 0; i < 4; i++) {
        text[i] = text[i] ? text[i] : "";
        mote__put_le32(lengths[i], (uint32_t)strlen(text[i]));
        parts[3 + 2 * i] = lengths[i];
        sizes[3 + 2 * i] = 4;
        parts[4 + 2 * i] = text[i];
        sizes[4 + 2 * i] = strlen(text[i]);
    }
    mote__sha256(c->hash, parts, sizes, 3 + 8);
    if (all_zero(c->hash, sizeof c->hash))
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a digest");
    char model[9];
    mote__hex(model, d->fingerprint, 4);
    snprintf(c->label, sizeof c->label, "model=%s math=%s kv=%.100s ns=%s", model, text[1], text[0],
             text[2]);
    return 0;
}

mote__chain mote__chain_next(const mote__store_context *c, const mote__chain *chain,
                             const int32_t *ids, int exact)
{
    uint8_t bytes[MOTE_SLOT_IDS];
    mote__put_ids(bytes, ids, MOTE_BLOCK_TOKENS);
    exact = exact && mote__chain_exact(chain);
    mote__chain next = { .n_blocks = chain->n_blocks + 1,
                         .n_exact = chain->n_exact + (exact ? 1 : 0) };
    mote__block_identity(next.id, c->hash, !exact, chain->id, bytes);
    return next;
}

/* ---- checks shared by all three ---- */

static int wrong(const char **why, const char *what)
{
    *why = what;
    return MOTE_EFORMAT;
}

static int frame(const uint8_t *p, const uint8_t magic[8], const char **why)
{
    if (memcmp(p + MAGIC, magic, 8))
        return wrong(why, "magic");
    return mote__le32(p + VERSION) == MOTE_STORE_VERSION ? 0 : wrong(why, "version");
}

/* The checksum of a header of n bytes (its own four as zeros). */
static uint32_t header_crc(const uint8_t *p, size_t n)
{
    static const uint8_t zeros[4];
    uint32_t crc = mote__crc32c(0, p, CRC);
    crc = mote__crc32c(crc, zeros, 4);
    return mote__crc32c(crc, p + CRC + 4, n - CRC - 4);
}

static void put_label(uint8_t *dst, const char *label)
{
    size_t n = strnlen(label, MOTE_STORE_LABEL - 1);
    memcpy(dst, label, n);
    memset(dst + n, 0, MOTE_STORE_LABEL - n);
}

static void get_label(char *label, const uint8_t *src)
{
    size_t n = 0;
    for (; n < MOTE_STORE_LABEL - 1 && src[n]; n++)
        label[n] = src[n] < 0x20 || src[n] >= 0x7f ? '?' : (char)src[n];
    memset(label + n, 0, MOTE_STORE_LABEL - n);
}

/* ---- slots ---- */

void mote__slot_write(uint8_t *head, const mote__slot *s, const uint8_t ids[MOTE_SLOT_IDS])
{
    memset(head, 0, MOTE_SLOT_HEADER);
    memcpy(head + MAGIC, slot_magic, 8);
    mote__put_le32(head + VERSION, MOTE_STORE_VERSION);
    mote__put_le32(head + SLOT_BYTES, s->slot_bytes);
    mote__put_le32(head + PAYLOAD_BYTES, s->payload_bytes);
    mote__put_le32(head + N_IDS, MOTE_BLOCK_TOKENS);
    mote__put_le32(head + APPROXIMATE, s->approximate != 0);
    mote__put_le64(head + GENERATION, s->generation);
    mote__put_le64(head + CREATED, s->created);
    mote__put_le64(head + N_BLOCKS, s->n_blocks);
    memcpy(head + ID, s->id, MOTE_STORE_ID);
    memcpy(head + PARENT, s->parent, MOTE_STORE_ID);
    memcpy(head + CONTEXT, s->context, MOTE_STORE_DIGEST);
    put_label(head + LABEL, s->label);
    memmove(head + MOTE_SLOT_HEADER, ids, MOTE_SLOT_IDS);
}

static uint32_t slot_crc(const uint8_t *head, const uint8_t *payload, size_t payload_bytes,
                         const uint8_t *pad, size_t pad_bytes)
{
    uint32_t crc = header_crc(head, MOTE_SLOT_HEAD);
    crc = mote__crc32c(crc, payload, payload_bytes);
    return mote__crc32c(crc, pad, pad_bytes);
}

void mote__slot_seal(uint8_t *head, uint64_t generation, const uint8_t *payload,
                     size_t payload_bytes, size_t slot_bytes)
{
    static const uint8_t zeros[MOTE_SLOT_ALIGN];
    mote__put_le64(head + GENERATION, generation);
    mote__put_le32(head + CRC, slot_crc(head, payload, payload_bytes, zeros,
                                        slot_bytes - MOTE_SLOT_HEAD - payload_bytes));
}

int mote__slot_read(mote__slot *s, const uint8_t *head, const uint8_t *payload,
                    size_t payload_bytes, const uint8_t *pad, size_t slot_bytes, const char **why)
{
    if (slot_bytes != mote__slot_bytes(payload_bytes))
        return wrong(why, "size");
    int rc = frame(head, slot_magic, why);
    if (rc)
        return rc;
    if (mote__le32(head + CRC) !=
        slot_crc(head, payload, payload_bytes, pad, slot_bytes - MOTE_SLOT_HEAD - payload_bytes))
        return wrong(why, "checksum");
    uint32_t approximate = mote__le32(head + APPROXIMATE);
    if (mote__le32(head + SLOT_BYTES) != slot_bytes ||
        mote__le32(head + PAYLOAD_BYTES) != payload_bytes)
        return wrong(why, "size");
    if (mote__le32(head + N_IDS) != MOTE_BLOCK_TOKENS || approximate > 1 ||
        !all_zero(head + 56, 8) || !all_zero(head + SLOT_END, MOTE_SLOT_HEADER - SLOT_END))
        return wrong(why, "header");
    *s = (mote__slot){ .slot_bytes = (uint32_t)slot_bytes,
                       .payload_bytes = (uint32_t)payload_bytes,
                       .approximate = approximate != 0,
                       .generation = mote__le64(head + GENERATION),
                       .created = mote__le64(head + CREATED),
                       .n_blocks = mote__le64(head + N_BLOCKS) };
    if (s->generation > INT64_MAX || s->n_blocks == 0 || s->n_blocks > INT64_MAX)
        return wrong(why, "header");
    memcpy(s->id, head + ID, MOTE_STORE_ID);
    memcpy(s->parent, head + PARENT, MOTE_STORE_ID);
    memcpy(s->context, head + CONTEXT, MOTE_STORE_DIGEST);
    get_label(s->label, head + LABEL);
    if ((s->n_blocks == 1) != all_zero(s->parent, MOTE_STORE_ID))
        return wrong(why, "parent");
    uint8_t id[MOTE_STORE_ID];
    mote__block_identity(id, s->context, s->approximate, s->parent, head + MOTE_SLOT_HEADER);
    return memcmp(id, s->id, MOTE_STORE_ID) ? wrong(why, "identity") : 0;
}

int mote__slot_answers(const mote__slot *slot, const uint8_t *head, const mote__store_context *c,
                       const mote__chain *chain, const uint8_t *parent, const int32_t *ids,
                       const char **why)
{
    uint8_t bytes[MOTE_SLOT_IDS];
    mote__put_ids(bytes, ids, MOTE_BLOCK_TOKENS);
    *why = memcmp(slot->id, chain->id, MOTE_STORE_ID)             ? "another block's identity"
           : memcmp(slot->parent, parent, MOTE_STORE_ID)          ? "another parent"
           : memcmp(slot->context, c->hash, MOTE_STORE_DIGEST)    ? "another context"
           : slot->n_blocks != chain->n_blocks                    ? "another place in the chain"
           : memcmp(head + MOTE_SLOT_HEADER, bytes, sizeof bytes) ? "other tokens"
                                                                  : NULL;
    return *why ? MOTE_EFORMAT : 0;
}

void mote__slot_describe(mote__slot *slot, uint8_t head[MOTE_SLOT_HEAD],
                         const mote__store_context *c, const mote__chain *parent,
                         const mote__chain *chain, const int32_t *ids, uint64_t created)
{
    uint8_t bytes[MOTE_SLOT_IDS];
    *slot = (mote__slot){ .slot_bytes = (uint32_t)mote__slot_bytes(c->block_bytes),
                          .payload_bytes = (uint32_t)c->block_bytes,
                          .approximate = !mote__chain_exact(chain),
                          .created = created,
                          .n_blocks = chain->n_blocks };
    memcpy(slot->id, chain->id, MOTE_STORE_ID);
    memcpy(slot->parent, parent->id, MOTE_STORE_ID);
    memcpy(slot->context, c->hash, MOTE_STORE_DIGEST);
    memcpy(slot->label, c->label, MOTE_STORE_LABEL);
    mote__put_ids(bytes, ids, MOTE_BLOCK_TOKENS);
    mote__slot_write(head, slot, bytes);
}

/* ---- segment headers ---- */

void mote__segment_write(uint8_t page[MOTE_SEGMENT_HEADER], const mote__segment_header *h)
{
    memset(page, 0, MOTE_SEGMENT_HEADER);
    memcpy(page + MAGIC, segment_magic, 8);
    mote__put_le32(page + VERSION, MOTE_STORE_VERSION);
    mote__put_le32(page + SEG_ID, h->id);
    mote__put_le32(page + SEG_SLOT_BYTES, h->slot_bytes);
    mote__put_le32(page + SEG_PAYLOAD_BYTES, h->payload_bytes);
    mote__put_le32(page + CRC, header_crc(page, MOTE_SEGMENT_HEADER));
}

int mote__segment_read(mote__segment_header *h, const uint8_t *page, size_t n, const char **why)
{
    if (n < MOTE_SEGMENT_HEADER)
        return wrong(why, "size");
    int rc = frame(page, segment_magic, why);
    if (rc)
        return rc;
    if (mote__le32(page + CRC) != header_crc(page, MOTE_SEGMENT_HEADER))
        return wrong(why, "checksum");
    *h = (mote__segment_header){ mote__le32(page + SEG_ID), mote__le32(page + SEG_SLOT_BYTES),
                                 mote__le32(page + SEG_PAYLOAD_BYTES) };
    if (h->slot_bytes != mote__slot_bytes(h->payload_bytes) || !h->slot_bytes ||
        !all_zero(page + SEG_END, MOTE_SEGMENT_HEADER - SEG_END))
        return wrong(why, "header");
    return 0;
}

/* ---- snapshot files ---- */

/* An origin can be read from the key by whoever knows the rest: so a finder opens no file that it
 * cannot use. */
enum { KEY_ORIGIN = MOTE_STORE_ID - 4 };

void mote__snapfile_key(mote__snapfile *s, const uint8_t *tail)
{
    uint8_t numbers[12], digest[MOTE_STORE_DIGEST];
    mote__put_le32(numbers, MOTE_STORE_VERSION);
    mote__put_le32(numbers + 4, s->approximate != 0);
    mote__put_le32(numbers + 8, s->n_tail);
    mote__sha256(digest,
                 (const void *const[]){ snapshot_tag, numbers, s->context, s->tokens, s->chain.id,
                                        tail },
                 (const size_t[]){ sizeof snapshot_tag, sizeof numbers, MOTE_STORE_DIGEST,
                                   MOTE_STORE_ID, MOTE_STORE_ID, s->n_tail * 4u },
                 6);
    memcpy(s->key, digest, MOTE_STORE_ID);
    mote__put_le32(s->key + KEY_ORIGIN, mote__le32(digest + KEY_ORIGIN) ^ s->origin);
}

int mote__snapfile_is(mote__snapfile *s, const uint8_t *tail, const uint8_t *key)
{
    s->origin = 0;
    mote__snapfile_key(s, tail);
    s->origin = mote__le32(s->key + KEY_ORIGIN) ^ mote__le32(key + KEY_ORIGIN);
    return !memcmp(s->key, key, KEY_ORIGIN);
}

void mote__snapfile_write(uint8_t *file, const mote__snapfile *s, const uint8_t *tail,
                          const void *blob)
{
    memset(file, 0, MOTE_SNAPSHOT_HEADER);
    memcpy(file + MAGIC, snapshot_magic, 8);
    mote__put_le32(file + VERSION, MOTE_STORE_VERSION);
    mote__put_le64(file + SNAP_BLOB, s->blob_bytes);
    mote__put_le32(file + SNAP_TAIL, s->n_tail);
    mote__put_le32(file + APPROXIMATE, s->approximate != 0);
    mote__put_le64(file + SNAP_BLOCKS, s->chain.n_blocks);
    mote__put_le64(file + SNAP_CREATED, s->created);
    mote__put_le64(file + SNAP_EXACT, s->chain.n_exact);
    mote__put_le32(file + SNAP_ORIGIN, s->origin);
    memcpy(file + SNAP_KEY, s->key, MOTE_STORE_ID);
    memcpy(file + SNAP_CHAIN, s->chain.id, MOTE_STORE_ID);
    memcpy(file + CONTEXT, s->context, MOTE_STORE_DIGEST);
    put_label(file + LABEL, s->label);
    memcpy(file + SNAP_TOKENS, s->tokens, MOTE_STORE_ID);
    if (s->n_tail)
        memcpy(file + MOTE_SNAPSHOT_HEADER, tail, s->n_tail * 4u);
    if (s->blob_bytes)
        memcpy(file + MOTE_SNAPSHOT_HEADER + s->n_tail * 4u, blob, (size_t)s->blob_bytes);
    mote__put_le32(file + CRC, header_crc(file, mote__snapfile_bytes(s)));
}

int mote__snapfile_read(mote__snapfile *s, const uint8_t *file, size_t n, const uint8_t **tail,
                        const uint8_t **blob, const char **why)
{
    if (n < MOTE_SNAPSHOT_HEADER)
        return wrong(why, "size");
    int rc = frame(file, snapshot_magic, why);
    if (rc)
        return rc;
    if (mote__le32(file + CRC) != header_crc(file, n))
        return wrong(why, "checksum");
    uint32_t approximate = mote__le32(file + APPROXIMATE);
    *s = (mote__snapfile){ .chain = { .n_blocks = mote__le64(file + SNAP_BLOCKS),
                                      .n_exact = mote__le64(file + SNAP_EXACT) },
                           .approximate = approximate != 0,
                           .n_tail = mote__le32(file + SNAP_TAIL),
                           .origin = mote__le32(file + SNAP_ORIGIN),
                           .blob_bytes = mote__le64(file + SNAP_BLOB),
                           .created = mote__le64(file + SNAP_CREATED) };
    if (approximate > 1 || s->n_tail >= MOTE_BLOCK_TOKENS ||
        s->blob_bytes > MOTE_STORE_MAX_SNAPSHOT || mote__snapfile_bytes(s) != n)
        return wrong(why, "size");
    if (s->chain.n_exact > s->chain.n_blocks || s->chain.n_blocks > INT64_MAX / MOTE_BLOCK_TOKENS ||
        (!s->approximate && s->chain.n_exact != s->chain.n_blocks) ||
        !all_zero(file + SNAP_ORIGIN + 4, 4) ||
        !all_zero(file + SNAP_END, MOTE_SNAPSHOT_HEADER - SNAP_END))
        return wrong(why, "header");
    memcpy(s->key, file + SNAP_KEY, MOTE_STORE_ID);
    memcpy(s->chain.id, file + SNAP_CHAIN, MOTE_STORE_ID);
    memcpy(s->context, file + CONTEXT, MOTE_STORE_DIGEST);
    memcpy(s->tokens, file + SNAP_TOKENS, MOTE_STORE_ID);
    get_label(s->label, file + LABEL);
    if ((s->chain.n_blocks == 0) != all_zero(s->chain.id, MOTE_STORE_ID))
        return wrong(why, "chain");
    *tail = file + MOTE_SNAPSHOT_HEADER;
    *blob = *tail + s->n_tail * 4u;
    uint8_t key[MOTE_STORE_ID];
    memcpy(key, s->key, sizeof key);
    mote__snapfile_key(s, *tail);
    return memcmp(key, s->key, sizeof key) ? wrong(why, "identity") : 0;
}
