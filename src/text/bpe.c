/* Owns vocabulary and merges. The rule, as in the reference library: of all neighbouring pairs that
 * have a merge, join the one with the lowest rank, of equal ranks the leftmost; repeat. For short
 * words the pair is found by scanning an array. For long words a heap of pairs is kept (an entry
 * whose pair has changed since is dropped when it is popped), so that a word of a megabyte takes
 * time n log n, not n^2. */
#include "text/bpe.h"

#include <string.h>

enum { SHORT_WORD = 40 }; /* in bytes; up to here scanning is faster than the heap */
static const uint32_t none = UINT32_MAX;

static void *zeros(size_t n, size_t size)
{
    return mote__alloc(NULL, MOTE_MEM_OTHER, mote__mul(n, size));
}

static size_t slots_for(size_t n) /* at most half full */
{
    size_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

int mote__bpe_init(mote__bpe *b, size_t n_ids, size_t n_merges)
{
    *b = (mote__bpe){ .n_ids = n_ids,
                      .n_words = slots_for(n_ids),
                      .n_merge_slots = slots_for(n_merges) };
    mote__buf_init(&b->text, NULL, MOTE_MEM_OTHER);
    b->tokens = zeros(n_ids, sizeof *b->tokens);
    b->flags = zeros(n_ids, 1);
    b->whole = zeros(n_ids, 1);
    b->words = zeros(b->n_words, sizeof *b->words);
    b->merges = zeros(b->n_merge_slots, sizeof *b->merges);
    b->joined = zeros(n_merges, sizeof *b->joined);
    if (!b->tokens || !b->flags || !b->whole || !b->words || !b->merges || !b->joined) {
        mote__bpe_deinit(b);
        return MOTE_ENOMEM;
    }
    for (size_t i = 0; i < b->n_words; i++)
        b->words[i].id = -1;
    for (size_t i = 0; i < b->n_merge_slots; i++)
        b->merges[i].rank = none;
    return MOTE_OK;
}

void mote__bpe_deinit(mote__bpe *b)
{
    mote__free(NULL, MOTE_MEM_OTHER, b->tokens, 0); /* the size is used only by a meter */
    mote__free(NULL, MOTE_MEM_OTHER, b->flags, 0);
    mote__free(NULL, MOTE_MEM_OTHER, (void *)b->whole, 0);
    mote__free(NULL, MOTE_MEM_OTHER, b->words, 0);
    mote__free(NULL, MOTE_MEM_OTHER, b->merges, 0);
    mote__free(NULL, MOTE_MEM_OTHER, b->joined, 0);
    mote__buf_deinit(&b->text);
    *b = (mote__bpe){ 0 };
}

size_t mote__bpe_memory(const mote__bpe *b)
{
    return sizeof *b + b->n_ids * (sizeof *b->tokens + 2) + b->n_words * sizeof *b->words +
           b->n_merge_slots * sizeof *b->merges + b->n_merges * sizeof *b->joined +
           b->text.capacity;
}

static uint64_t mix(uint64_t h)
{
    h *= 0x9E3779B97F4A7C15u;
    return h ^ h >> 32;
}

static uint64_t hash_bytes(const uint8_t *p, size_t n)
{
    uint64_t h = n, v;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&v, p, 8);
        h = mix(h ^ v);
    }
    v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return mix(mix(h ^ v));
}

static const uint8_t *bytes_of(const mote__bpe *b, int32_t id)
{
    return (const uint8_t *)b->text.data + b->tokens[id].offset;
}

/* The slot of these bytes, or the empty slot where they would be inserted. */
static size_t word_slot(const mote__bpe *b, const uint8_t *bytes, size_t n, uint32_t *tag)
{
    uint64_t h = hash_bytes(bytes, n);
    *tag = (uint32_t)(h >> 32);
    size_t i = (size_t)h & (b->n_words - 1);
    for (; b->words[i].id >= 0; i = (i + 1) & (b->n_words - 1)) {
        int32_t id = b->words[i].id;
        if (b->words[i].tag == *tag && b->tokens[id].length == n &&
            !memcmp(bytes_of(b, id), bytes, n))
            break;
    }
    return i;
}

int32_t mote__bpe_find(const mote__bpe *b, const uint8_t *bytes, size_t n)
{
    uint32_t tag;
    return n ? b->words[word_slot(b, bytes, n, &tag)].id : -1;
}

int mote__bpe_add_token(mote__bpe *b, uint32_t id, const void *bytes, size_t n, unsigned flags)
{
    if (b->flags[id]) {
        if (b->tokens[id].length != n || memcmp(bytes_of(b, (int32_t)id), bytes, n))
            return MOTE_EFORMAT;
        b->flags[id] |= (uint8_t)flags;
        return MOTE_OK;
    }
    uint32_t tag = 0;
    size_t slot = 0;
    if (flags & MOTE_TOKEN_BYTES) {
        slot = word_slot(b, bytes, n, &tag);
        if (b->words[slot].id >= 0)
            return MOTE_EFORMAT;
    }
    if (b->text.size > UINT32_MAX - n || mote__buf_append(&b->text, bytes, n))
        return MOTE_ENOMEM;
    b->tokens[id] = (mote__token){ (uint32_t)(b->text.size - n), (uint32_t)n };
    b->flags[id] = (uint8_t)(flags | MOTE_TOKEN_KNOWN);
    if (flags & MOTE_TOKEN_BYTES) {
        b->words[slot] = (mote__word_slot){ tag, (int32_t)id };
        b->longest = n > b->longest ? n : b->longest;
    }
    return MOTE_OK;
}

static const mote__merge_slot *merge_slot(const mote__bpe *b, uint32_t left, uint32_t right)
{
    size_t i = (size_t)mix((uint64_t)left << 32 | right) & (b->n_merge_slots - 1);
    while (b->merges[i].rank != none && (b->merges[i].left != left || b->merges[i].right != right))
        i = (i + 1) & (b->n_merge_slots - 1);
    return &b->merges[i];
}

static uint32_t rank_of(const mote__bpe *b, uint32_t left, uint32_t right)
{
    return merge_slot(b, left, right)->rank;
}

int mote__bpe_add_merge(mote__bpe *b, uint32_t left, uint32_t right, uint32_t joined)
{
    mote__merge_slot *slot = b->merges + (merge_slot(b, left, right) - b->merges);
    if (slot->rank != none)
        return MOTE_EFORMAT;
    *slot = (mote__merge_slot){ left, right, (uint32_t)b->n_merges, joined };
    b->joined[b->n_merges++] = joined;
    return MOTE_OK;
}

int mote__bpe_finish(mote__bpe *b)
{
    for (int byte = 0; byte < 256; byte++) {
        uint8_t c = (uint8_t)byte;
        b->byte_id[byte] = mote__bpe_find(b, &c, 1);
        if (b->byte_id[byte] < 0)
            return byte;
    }
    return -1;
}

void mote__bpe_scratch_deinit(mote__bpe_scratch *s)
{
    mote__buf_deinit(&s->symbols);
    mote__buf_deinit(&s->heap);
}

/* Merge ids[0..n), n <= SHORT_WORD, in place; returns the new number of ids. */
static size_t merge_short(const mote__bpe *b, uint32_t *ids, size_t n)
{
    uint32_t rank[SHORT_WORD]; /* of (ids[i], ids[i + 1]) */
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(b, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t at = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[at])
                at = i;
        if (rank[at] == none)
            break;
        ids[at] = b->joined[rank[at]];
        n--;
        memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof *ids);
        if (at + 1 < n)
            memmove(rank + at + 1, rank + at + 2, (n - at - 2) * sizeof *rank);
        if (at + 1 < n)
            rank[at] = rank_of(b, ids[at], ids[at + 1]);
        if (at)
            rank[at - 1] = rank_of(b, ids[at - 1], ids[at]);
    }
    return n;
}

/* A symbol of a long word, in a doubly linked list. rank: of the pair with the next symbol, `none`
 * if that pair has no merge or there is no next symbol. */
typedef struct symbol {
    uint32_t id, prev, next, rank;
} symbol;

static int push(mote__buf *heap, uint64_t key) /* smallest first */
{
    if (mote__buf_append(heap, &key, sizeof key))
        return MOTE_ENOMEM;
    uint64_t *h = heap->data;
    size_t i = heap->size / sizeof key - 1;
    for (size_t up; i && h[up = (i - 1) / 2] > key; i = up)
        h[i] = h[up];
    h[i] = key;
    return MOTE_OK;
}

static void sift(uint64_t *h, size_t n, size_t i)
{
    uint64_t key = h[i];
    for (size_t down; (down = 2 * i + 1) < n; i = down) {
        if (down + 1 < n && h[down + 1] < h[down])
            down++;
        if (h[down] >= key)
            break;
        h[i] = h[down];
    }
    h[i] = key;
}

static uint64_t pop(mote__buf *heap)
{
    uint64_t *h = heap->data, least = h[0];
    size_t n = heap->size / sizeof least - 1;
    heap->size -= sizeof least;
    if (n) {
        h[0] = h[n];
        sift(h, n, 0);
    }
    return least;
}

static int merge_long(const mote__bpe *b, mote__bpe_scratch *s, const uint8_t *word, size_t n,
                      mote__buf *ids)
{
    if (mote__buf_reserve(&s->symbols, mote__mul(n, sizeof(symbol))) ||
        mote__buf_reserve(&s->heap, mote__mul(n, 8)))
        return MOTE_ENOMEM;
    symbol *sym = s->symbols.data;
    uint64_t *heap = s->heap.data;
    size_t n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        sym[i] = (symbol){ (uint32_t)b->byte_id[word[i]], i - 1, i + 1 < n ? i + 1 : none, none };
        if (i + 1 < n)
            sym[i].rank = rank_of(b, sym[i].id, (uint32_t)b->byte_id[word[i + 1]]);
        if (sym[i].rank != none)
            heap[n_heap++] = (uint64_t)sym[i].rank << 32 | i;
    }
    for (size_t i = n_heap / 2; i-- > 0;)
        sift(heap, n_heap, i);
    s->heap.size = n_heap * sizeof *heap;
    while (s->heap.size) {
        uint64_t least = pop(&s->heap);
        uint32_t at = (uint32_t)least, rank = (uint32_t)(least >> 32);
        /* stale: the pair has changed (a symbol that was joined to another has no rank) */
        if (sym[at].rank != rank)
            continue;
        uint32_t gone = sym[at].next, next = sym[gone].next, prev = sym[at].prev;
        sym[at].id = b->joined[rank];
        sym[at].next = next;
        sym[gone].rank = none;
        sym[at].rank = none;
        if (next != none) {
            sym[next].prev = at;
            sym[at].rank = rank_of(b, sym[at].id, sym[next].id);
            if (sym[at].rank != none && push(&s->heap, (uint64_t)sym[at].rank << 32 | at))
                return MOTE_ENOMEM;
        }
        if (at) {
            sym[prev].rank = rank_of(b, sym[prev].id, sym[at].id);
            if (sym[prev].rank != none && push(&s->heap, (uint64_t)sym[prev].rank << 32 | prev))
                return MOTE_ENOMEM;
        }
    }
    for (uint32_t i = 0; i != none; i = sym[i].next)
        if (mote__buf_append(ids, &sym[i].id, sizeof(int32_t)))
            return MOTE_ENOMEM;
    return MOTE_OK;
}

static int merge(const mote__bpe *b, mote__bpe_scratch *s, const uint8_t *word, size_t n,
                 mote__buf *ids)
{
    if (n > SHORT_WORD)
        return merge_long(b, s, word, n, ids);
    uint32_t short_ids[SHORT_WORD];
    for (size_t i = 0; i < n; i++)
        short_ids[i] = (uint32_t)b->byte_id[word[i]];
    n = merge_short(b, short_ids, n);
    return mote__buf_append(ids, short_ids, n * sizeof *short_ids);
}

int mote__bpe_encode_word(const mote__bpe *b, mote__bpe_scratch *s, const uint8_t *word, size_t n,
                          mote__buf *ids)
{
    int32_t id = n == 1 ? b->byte_id[word[0]] : n <= b->longest ? mote__bpe_find(b, word, n) : -1;
    if (id < 0)
        return merge(b, s, word, n, ids);
    uint8_t whole = n == 1 ? 1 : atomic_load_explicit(&b->whole[id], memory_order_relaxed);
    if (whole == 1)
        return mote__buf_append(ids, &id, sizeof id);
    size_t before = ids->size;
    int rc = merge(b, s, word, n, ids);
    if (!rc && !whole)
        atomic_store_explicit(&b->whole[id], ids->size - before == sizeof id ? 1 : 2,
                              memory_order_relaxed);
    return rc;
}
