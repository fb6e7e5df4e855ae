/* Rows of tables (token embedding, Engram) read from the checkpoint's files when tokens name them,
 * many at once, past the page cache where that is possible. One thread. */
#ifndef MOTE_MODEL_ROWS_H
#define MOTE_MODEL_ROWS_H

#include "file/safetensors.h"
#include "io/reads.h"

/* A table: rows of row_bytes, one after the other. */
typedef struct mote__row_table {
    mote__source at;
    size_t row_bytes;
} mote__row_table;

typedef struct mote__rows mote__rows;

/* ckpt: borrowed. most_row_bytes: of the tables that will be read. reads: engine and preadv, for
 * tests; may be NULL. MOTE_ENOMEM, MOTE_EIO. */
int mote__rows_open(mote__rows **r, const mote__checkpoint *ckpt, size_t most_row_bytes,
                    const mote__reads_params *reads, mote__meter *meter, mote_err *err);
void mote__rows_close(mote__rows *r);
/* Row rows[i] of the table to `to` + i * row_bytes, for n rows in any order, the same ones among
 * them: neighbours are read together, and none twice. 0, MOTE_ENOMEM, or, naming the shard,
 * MOTE_EIO (tried twice) or MOTE_EFORMAT (it has become shorter). */
int mote__rows_read(mote__rows *r, const mote__row_table *table, const uint64_t *rows, size_t n,
                    uint8_t *to, mote_err *err);

#endif
