/* Owns the trie of added tokens. text/tokenizer.c handles their flags and the text between them. */
#include "text/added.h"

#include <string.h>

void mote__added_init(mote__added *a)
{
    *a = (mote__added){ .only_start = -1 };
    mote__buf_init(&a->nodes, NULL, MOTE_MEM_OTHER);
}

void mote__added_deinit(mote__added *a) { mote__buf_deinit(&a->nodes); }

static int add_node(mote__added *a, uint8_t byte, uint32_t sibling)
{
    mote__added_node node = { .child = 0, .sibling = sibling, .id = -1, .byte = byte };
    return mote__buf_append(&a->nodes, &node, sizeof node);
}

/* The child of `node` for `byte`, or 0. */
static uint32_t child_of(const mote__added_node *nodes, uint32_t node, uint8_t byte)
{
    uint32_t c = nodes[node].child;
    while (c && nodes[c].byte != byte)
        c = nodes[c].sibling;
    return c;
}

int mote__added_insert(mote__added *a, const char *text, size_t n, int32_t id)
{
    if (!a->nodes.size && add_node(a, 0, 0))
        return MOTE_ENOMEM;
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t next = child_of(a->nodes.data, node, (uint8_t)text[i]);
        if (!next) {
            next = (uint32_t)(a->nodes.size / sizeof(mote__added_node));
            if (add_node(a, (uint8_t)text[i], ((mote__added_node *)a->nodes.data)[node].child))
                return MOTE_ENOMEM;
            ((mote__added_node *)a->nodes.data)[node].child = next;
        }
        node = next;
    }
    mote__added_node *last = (mote__added_node *)a->nodes.data + node;
    if (last->id >= 0)
        return MOTE_EFORMAT;
    last->id = id;
    a->starts[(uint8_t)text[0]] = 1;
    int n_starts = 0;
    for (int b = 0; b < 256; b++)
        if (a->starts[b]) {
            n_starts++;
            a->only_start = b;
        }
    if (n_starts > 1)
        a->only_start = -1;
    return MOTE_OK;
}

size_t mote__added_find(const mote__added *a, const uint8_t *text, size_t n, size_t from,
                        size_t *end, int32_t *id)
{
    const mote__added_node *nodes = a->nodes.data;
    if (!nodes)
        return n;
    for (size_t at = from; at < n; at++) {
        if (a->only_start >= 0) {
            const uint8_t *hit = memchr(text + at, a->only_start, n - at);
            if (!hit)
                return n;
            at = (size_t)(hit - text);
        } else if (!a->starts[text[at]])
            continue;
        *id = -1;
        uint32_t node = 0;
        for (size_t i = at; i < n && (node = child_of(nodes, node, text[i])); i++)
            if (nodes[node].id >= 0) {
                *id = nodes[node].id;
                *end = i + 1;
            }
        if (*id >= 0)
            return at;
    }
    return n;
}
