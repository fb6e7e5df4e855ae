/* The opaque handles of the public API, as the engine sees them. */
#ifndef MOTE_ENGINE_ENGINE_H
#define MOTE_ENGINE_ENGINE_H

#include <pthread.h>

#include "text/tokenizer.h"
#include "text/wording.h"
#include "model/layer.h"
#include "store/store.h"
#include "base/path.h"

struct mote_model {
    mote__meter meter;
    mote__net net;
    mote__pass pass; /* reused by every step */
    mote__generation generation;
    mote__tokenizer *tokenizer; /* may be NULL */
    /* why it is NULL though there is a file; "" otherwise */
    char tokenizer_error[500];
    /* engine/special.c */
    int32_t bos;  /* -1: none */
    int adds_bos; /* MOTE_ENCODE_BOS puts it in front; -1: not known */
    /* what the files ask for and is not done; "": nothing */
    char note[500];
    mote__wording wording; /* of its chat format */
    /* one per KV layout in use */
    struct pool_list {
        struct pool_list *next;
        mote__kv_pool pool;
    } * pools;
    size_t chunk_rows; /* rows of one pass at most */
    mote__buf lists;   /* of a step: which sessions take part in its pass */
    int net_open;
    uint8_t fingerprint[MOTE_STORE_DIGEST];
    int has_fingerprint;
    size_t n_sessions;
    mote_model_stats stats; /* but n_sessions */
    pthread_mutex_t mutex;  /* of pools, fingerprint, has_fingerprint, n_sessions and stats */
    char path[MOTE_FOLDER_ROOM];
};

/* What the passes of one prompt do: positions, and how the halves are cut. docs/architecture.md,
 * "Prefill". */
typedef struct mote__schedule {
    /* rows of the encoder half: [begin, end) */
    uint64_t begin, end;
    /* = n_kv: rows before it rebuild windows only */
    uint64_t publish_from;
    /* first position whose encoder output is needed */
    uint64_t encoder_apex;
    /* first row of the decoder half */
    uint64_t decoder_begin;
    /* first position whose final output is wanted (cone), 0: all rows */
    uint64_t decoder_apex;
    /* windows start anew */
    int fresh_encoder, fresh_decoder;
} mote__schedule;

/* A prompt: tokens that were pushed and are not finished. They lie in `ids` behind the n_ids that
 * the session holds. */
struct prompt {
    int pending;   /* 1: there is one (perhaps without tokens: a replay alone) */
    int begun;     /* 1: passes ran; what follows n_more holds */
    size_t n;      /* tokens pushed */
    size_t n_more; /* announced and not pushed yet: the schedule's end counts them */
    mote_logits_rows logits;
    mote__schedule k; /* made by the first push */
    uint64_t at;      /* next row of the encoder half */
    /* for the way back */
    size_t old_n_kv;
    uint64_t old_approximate;
    int was_live;
};

/* State between steps. Global KV covers ids[0, n_kv); windows are live (they belong to position
 * n_kv == n_ids) or must be rebuilt by a replay in the next step, which then also runs ids[n_kv,
 * n_ids). */
struct mote_session {
    mote_model *model; /* borrowed */
    mote__seq seq;
    mote__buf ids; /* int32_t tokens */
    size_t n_ids, n_kv, max_context;
    int live;
    mote_prefill prefill;
    mote_replay replay;
    struct mark {
        size_t n;
        uint64_t origin, approximate_from;
        mote__kv_state state;
    } marks[4];
    /* ascending n; the oldest gives way */
    size_t n_marks;
    /* provenance, and the store behind the session (engine/persist.c) */
    /* first position whose global KV follows a bounded encoder replay; UINT64_MAX: none */
    uint64_t approximate_from;
    /* Where the decoder's windows began: with the tokens it decides the state,
     * docs/format-snapshot.md. Until follow_until tokens are held they begin at follow_origin,
     * whatever steps the tokens come in; 0: each step decides. */
    uint64_t origin, follow_origin, follow_until;
    mote__store *store; /* borrowed, or NULL */
    mote__store_context context;
    mote__chain chain; /* of the full blocks that were offered to the store */
    mote__buf logits;
    size_t n_logits, first_logits; /* rows, position of the first */
    struct prompt prompt;
};

/* Position behind the last token whose global KV is there. */
static inline size_t mote__session_written(const mote_session *s)
{
    return s->prompt.begun && s->prompt.at > s->n_kv ? (size_t)s->prompt.at : s->n_kv;
}

/* engine/prompt.c. begin: the first pass of a pending prompt is about to run. finish: its last row
 * ran. idle: MOTE_EINVAL where a prompt is pending. */
void mote__prompt_begin(mote_session *s);
void mote__prompt_finish(mote_session *s);
int mote__session_idle(const mote_session *s, mote_err *err);

/* A session more (1) or less (-1) hangs on the model. Any thread. */
void mote__model_count(mote_model *model, int change);

/* engine/special.c: bos, adds_bos, the generation's eos and note, from the files of `folder` (NULL:
 * a tokenizer without one). */
int mote__model_specials(mote_model *model, const char *folder, mote_err *err);

/* Any thread. NULL: no memory */
mote__kv_pool *mote__model_pool(mote_model *model, const mote__kv_spec *spec);

/* Offer the whole blocks of the first n_tokens to the store; forget what was known of blocks that
 * are gone. */
void mote__persist_blocks(mote_session *s, uint64_t n_tokens);
void mote__persist_cut(mote_session *s);

/* asked 0: MOTE_THREADS, else the affinity mask */
int mote__count_threads(int asked, int *n, mote_err *err);
size_t mote__chunk_rows(const mote__net *net); /* rows of one pass */
/* streamed.c: what was placed so, once the rest of the model is open; and its statistics */
int mote__open_streamed(mote_model *m, const mote_model_params *params, mote_err *err);
void mote__streamed_count(const mote_model *m, mote_model_stats *stats);

/* For n_new tokens behind those that the session holds. Pure. */
mote__schedule mote__schedule_make(const mote_session *s, size_t n_new);

#endif
