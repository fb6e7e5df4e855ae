/* Search for added tokens in raw text: finds the leftmost position at which one begins, and the
 * longest one there. Read-only after the last insert; then any thread may search. */
#ifndef MOTE_TEXT_ADDED_H
#define MOTE_TEXT_ADDED_H

#include "base/mem.h"

/* Limit of one token; a search takes at most this times the text's length. */
enum { MOTE_MAX_ADDED_BYTES = 1024 };

/* A trie over bytes. Node 0 is the root; child and sibling are 0 if there is none; id is -1 if no
 * token ends here. */
typedef struct mote__added_node {
    uint32_t child, sibling;
    int32_t id;
    uint8_t byte;
} mote__added_node;
typedef struct mote__added {
    mote__buf nodes;
    uint8_t starts[256]; /* 1: a token starts with this byte */
    int only_start;      /* the first byte, if all tokens share it; else -1 */
} mote__added;

void mote__added_init(mote__added *a);
void mote__added_deinit(mote__added *a);
/* Add a token, n in [1, MOTE_MAX_ADDED_BYTES]. 0, MOTE_ENOMEM, or MOTE_EFORMAT if the same text was
 * added before. */
int mote__added_insert(mote__added *a, const char *text, size_t n, int32_t id);
/* Search text[from..n). Returns the start of a token and sets *end and *id, or returns n. */
size_t mote__added_find(const mote__added *a, const uint8_t *text, size_t n, size_t from,
                        size_t *end, int32_t *id);

#endif
