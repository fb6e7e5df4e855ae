/* Between the two halves of the index: index.c says what is asked, index_db.c asks it. */
#ifndef MOTE_STORE_INDEX_DB_H
#define MOTE_STORE_INDEX_DB_H

#include "store/index.h"

/* The statements by number (index.c); NULL behind the last. */
extern const char *const mote__index_sql[MOTE_INDEX_STATEMENTS];

/* What ?1, ?2, ... stand for: an identity or, where that is NULL, a number. */
typedef struct mote__index_arg {
    const uint8_t *blob;
    int64_t number;
} mote__index_arg;
/* A row's values -> *to. Non-zero: one that cannot be. */
typedef int (*mote__index_take)(sqlite3_stmt *s, void *to);

/* SQLite's rc as MOTE_EFORMAT or MOTE_EIO; x->why, busy and full say more. */
int mote__index_failed(mote__index *x, int rc);
/* Runs a statement and calls `take` for its rows, at most max, `stride` bytes apart from `to` on.
 * 0: at least one row, or none expected (take NULL, or n_rows given); else MOTE_INDEX_NONE, or as
 * mote__index_failed. */
int mote__index_run(mote__index *x, int which, const mote__index_arg *args, int n_args,
                    mote__index_take take, void *to, size_t stride, size_t max, size_t *n_rows);

#endif
