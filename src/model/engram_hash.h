/* Engram's n-gram hashes: primes, offsets and multipliers from the configuration alone, rows from
 * token ids. Source: docs/engram.md. Multipliers come from NumPy's default_rng(10007 *
 * layer).integers(0, bound, n, int64): SeedSequence, PCG64 and bounded integers (Lemire with
 * rejection) are reproduced here. */
#ifndef MOTE_MODEL_ENGRAM_HASH_H
#define MOTE_MODEL_ENGRAM_HASH_H

#include "file/config.h"

enum { MOTE_ENGRAM_MAX_NGRAM = MOTE_MAX_NGRAM, MOTE_ENGRAM_MAX_HEADS = MOTE_MAX_ENGRAM_HEADS };

typedef struct mote__engram_table { /* of one Engram layer */
    /* [n-gram order - 2][head], flat */
    uint64_t primes[(MOTE_ENGRAM_MAX_NGRAM - 1) * MOTE_ENGRAM_MAX_HEADS];
    uint64_t offsets[(MOTE_ENGRAM_MAX_NGRAM - 1) * MOTE_ENGRAM_MAX_HEADS];
    int64_t multipliers[MOTE_ENGRAM_MAX_NGRAM];
    uint64_t n_rows;
} mote__engram_table;

/* tables: one per Engram layer of the config. Checks n_rows against engram_num_embeddings
 * (MOTE_EFORMAT). */
int mote__engram_tables(mote__engram_table *tables, const mote__config *config, mote_err *err);

/* Table rows of the n-grams that end at position `pos` of ids (ids[0..pos] are read, at most
 * max_ngram of them): rows[(n - 1) * heads], 2-grams first. map: token id -> compressed id. */
void mote__engram_rows(uint64_t *rows, const mote__engram_table *t, const mote__config *config,
                       const int32_t *map, const int32_t *ids, size_t pos);

/* numpy.random.default_rng(seed).integers(0, bound, n, dtype=int64) */
void mote__numpy_integers(int64_t *out, size_t n, uint64_t seed, int64_t bound);

#endif
