/* Added tokens in raw text: the leftmost position where any of them stands, and the longest one
 * there. */
#ifndef MOTE_TEXT_ADDED_H
#define MOTE_TEXT_ADDED_H

#include "base/mem.h"

/* of one token; search time is at most this times the text's length */
enum { MOTE_MAX_ADDED_BYTES = 1024 };

/* A trie over bytes. Node 0 is the root. */
typedef struct mote__added_node {
    uint32_t child, sibling;
    int32_t id;
    uint8_t byte;
} mote__added_node;
typedef struct mote__added {
    mote__buf nodes;
    uint8_t starts[256]; /* 1: some token starts with this byte */
    int only_start;      /* that byte, where there is only one; else -1 */
} mote__added;

void mote__added_init(mote__added *a);
void mote__added_deinit(mote__added *a);
/* 0, MOTE_ENOMEM, or MOTE_EFORMAT when the same text was added before. n in [1,
 * MOTE_MAX_ADDED_BYTES]. */
int mote__added_insert(mote__added *a, const char *text, size_t n, int32_t id);
/* Searches text[from..n). Returns the start of a token with *end and *id set, or n. */
size_t mote__added_find(const mote__added *a, const uint8_t *text, size_t n, size_t from,
                        size_t *end, int32_t *id);

#endif
