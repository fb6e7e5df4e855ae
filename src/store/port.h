/* The portable file: what it looks like. Reading is a pure function over memory, so that it can be
 * fuzzed. docs/format-store.md.
 *
 * A file is a header, records, and an end record. A record is its own header of 32 bytes, then a
 * slot image or a snapshot file. */
#ifndef MOTE_STORE_PORT_H
#define MOTE_STORE_PORT_H

#include "store/slot.h"

enum { MOTE_PORT_HEADER = 32, MOTE_PORT_RECORD = 32 };
typedef enum mote__port_kind { MOTE_PORT_END, MOTE_PORT_BLOCK, MOTE_PORT_SNAPSHOT } mote__port_kind;

/* n_before: records */
typedef struct mote__port_record {
    mote__port_kind kind;
    uint64_t bytes;
    uint64_t n_before;
} mote__port_record;

void mote__port_header_write(uint8_t dst[MOTE_PORT_HEADER]);
int mote__port_header_read(const uint8_t *src, size_t n, const char **why);
void mote__port_record_write(uint8_t dst[MOTE_PORT_RECORD], const mote__port_record *r);
/* MOTE_EFORMAT where the kind, the length or the checksum cannot be. */
int mote__port_record_read(mote__port_record *r, const uint8_t *src, size_t n, const char **why);

#endif
