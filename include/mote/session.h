/* mote: sessions, steps, sampling, evaluation. */
#ifndef MOTE_SESSION_H
#define MOTE_SESSION_H

#include <mote/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sessions ---- */
typedef struct mote_session mote_session;
typedef enum mote_prefill {
    MOTE_PREFILL_BOUNDED,
    MOTE_PREFILL_EXACT,
    MOTE_PREFILL_FULL
} mote_prefill;
typedef enum mote_replay { MOTE_REPLAY_BOUNDED, MOTE_REPLAY_EXACT } mote_replay;
typedef struct mote_session_params {
    const char
        *kv; /* "main=fp4,index=mxfp4,window=fp8" (the default, also for NULL); one word is the main
                format; "main.8=fp8" sets one source layer. Llama-style models:
                "key=bf16,value=bf16" (the default); one word is both; "key.3=f32" sets one layer */
    mote_prefill prefill; /* docs/architecture.md, "Prefill". FULL, EXACT: the last logits are the
                             same bits however tokens are cut into steps; BOUNDED: for the same
                             prompts (each of a window and more starts decoder windows anew), in
                             whatever pieces they are pushed */
    size_t max_context;   /* 0: the model's. Nothing is allocated for it. */
    /* To measure what the selection costs; not for ordinary use, and not with a store. */
    size_t topk;          /* entries a query attends to; 0: the model's, SIZE_MAX: all */
    int all_candidates;   /* 1: reindexing layers score every entry, not only candidates */
    uint64_t reserved[8]; /* zeros: mote.h, "Structs" */
} mote_session_params;
MOTE_API int mote_session_create(mote_session **session, mote_model *model,
                                 const mote_session_params *params, mote_err *err);
MOTE_API void mote_session_destroy(mote_session *session);
/* Copies the small mutable part, the unfinished block and the last row of logits; full blocks are
 * shared. */
MOTE_API int mote_session_fork(mote_session **copy, const mote_session *session, mote_err *err);
/* tokens held */
MOTE_API size_t mote_session_length(const mote_session *session);
/* borrowed until the next call */
MOTE_API const int32_t *mote_session_tokens(const mote_session *session);
/* Bounded prefill starts the decoder's windows anew in each step of a window or more, so what a
 * session says next depends on its tokens and on where its windows began: this position; 0 in the
 * other modes (docs/format-snapshot.md, "Origin"). */
MOTE_API size_t mote_session_origin(const mote_session *session);
/* An empty session: its first n_tokens, in whatever steps, are to end with windows that began at
 * `origin`, as another session's did. */
MOTE_API int mote_session_follow(mote_session *session, size_t origin, size_t n_tokens,
                                 mote_err *err);
/* Remember the mutable state at the current position, inside the session, so that truncating to it
 * is exact. */
MOTE_API int mote_session_mark(mote_session *session, mote_err *err);
typedef enum mote_windows_from {
    MOTE_WINDOWS_LIVE,
    MOTE_WINDOWS_MARK,
    MOTE_WINDOWS_REPLAY
} mote_windows_from;
typedef struct mote_truncated {
    size_t length;             /* tokens kept: feed the caller's own tokens from here on */
    mote_windows_from windows; /* LIVE: nothing was cut, or there are no windows; MARK: exact;
                                  REPLAY: the next step recomputes the windows as asked (bounded:
                                  approximate, exact: as a cold run) */
    size_t replay_tokens;      /* prefix tokens the next step will run again for the windows */
    uint64_t reserved[4];      /* zeros: mote.h, "Structs" */
} mote_truncated;
/* Forget everything from position `length` on. The newest mark at or before it is used if there is
 * one; otherwise `length` is rounded down to prefix_multiple and windows come from a replay in the
 * next step. A model without windows keeps exactly `length` tokens and goes on at once. */
MOTE_API int mote_session_truncate(mote_session *session, size_t length, mote_replay replay,
                                   mote_truncated *result, mote_err *err);
/* Keep all tokens and global KV but forget the window KV, as if the prefix had come from a store
 * without a snapshot: the next step rebuilds the windows by replay. The length must be a multiple
 * of prefix_multiple (MOTE_EINVAL otherwise). */
MOTE_API int mote_session_forget_windows(mote_session *session, mote_replay replay, mote_err *err);
/* this session's share */
MOTE_API void mote_session_get_memory(const mote_session *session, mote_memory *memory);
/* Exact bytes of global KV per token for this session's formats, by part. */
MOTE_API double mote_session_kv_bytes_per_token(const mote_session *session, double parts[4]);
/* "main_codes", "main_scales", "index_codes", "index_scales"; "key_codes", ..., "value_scales" in a
 * Llama-style model. */
MOTE_API const char *mote_session_kv_part_name(const mote_session *session, int part);
MOTE_API size_t mote_session_window_bytes(const mote_session *session);
/* How far the KV that `session` holds is from `base`'s (the same tokens, usually in f32): per layer
 * and part (main, index, window) the relative error |a - b| / |b| of all values together, and of
 * base's own values rounded to session's format. JSON text, an array of {layer, part, format,
 * vectors, rounding, error}; free with mote_free. */
MOTE_API int mote_kv_error_json(const mote_session *session, const mote_session *base, char **json,
                                mote_err *err);

/* ---- steps ---- */
typedef enum mote_logits_rows {
    MOTE_LOGITS_NONE,
    MOTE_LOGITS_LAST,
    MOTE_LOGITS_ALL
} mote_logits_rows;
/* A prompt of a session is pushed, in one piece or several, and done by steps. Tokens that were
 * pushed and whose prompt is not finished are pending: mote_session_length does not count them.
 *
 * Push: checks and reserves, runs nothing. n_more: how many tokens of the same prompt will be
 * pushed later; whatever pieces a prompt comes in, its results are those of one piece. While a
 * prompt is pending, a push must go on with it: n_ids + n_more = what was announced (MOTE_EINVAL).
 * n_ids may be 0 only when a truncated session awaits its replay. logits: the last push's holds;
 * ALL: every row the decoder runs over (full: all new positions).
 * MOTE_EINVAL: a token outside the vocabulary; MOTE_EFULL: over the context's limit; MOTE_ENOMEM.
 * After an error the session is unchanged. */
MOTE_API int mote_session_push(mote_session *session, const int32_t *ids, size_t n_ids,
                               size_t n_more, mote_logits_rows logits, mote_err *err);
/* tokens pushed whose prompt is not finished */
MOTE_API size_t mote_session_pending(const mote_session *session);
/* Forget the pending prompt, between any two steps. The session keeps its old tokens and goes on
 * as if the prompt had not been pushed; where passes of it had run, after an exact replay of the
 * windows. Blocks that went to a store stay there. */
MOTE_API void mote_session_drop(mote_session *session);

typedef struct mote_step_params {
    size_t max_rows; /* of the pass; 0, or more than the scratch memory is meant for: the default */
    uint64_t reserved[4]; /* zeros: mote.h, "Structs" */
} mote_step_params;
typedef struct mote_stepped {
    mote_err err;  /* code 0, or what made this session's prompt fail: it was dropped */
    int ready;     /* 1: the prompt is finished, and the logits it asked for are there */
    size_t n_rows; /* in this pass; 0: it had to wait, for room or for tokens to be pushed */
    /* of the prompt, in all; rows of a replay count */
    size_t done_rows, all_rows;
    uint64_t reserved[4]; /* zeros: mote.h, "Structs" */
} mote_stepped;
/* One pass over pending tokens of several sessions, each at most once in the list, sharing every
 * weight read: first, in the order of the list, the sessions with at most 8 rows left; what
 * max_rows leaves is shared evenly by the longer prompts. Whoever is in a pass changes no bit of
 * the others' results. stepped: n results. Where memory is short the pass is smaller. A failure of
 * one session (its numbers are not finite) costs its prompt alone; one of the whole pass drops the
 * prompts that took part. Returns MOTE_EINVAL (the list) or MOTE_ENOMEM (not even for one row);
 * then nothing has run. */
MOTE_API int mote_step(mote_model *model, mote_session *const *sessions, size_t n_sessions,
                       const mote_step_params *params, mote_stepped *stepped, mote_err *err);

typedef struct mote_feed {
    mote_session *session;
    const int32_t *ids;
    size_t n_ids;
    mote_logits_rows logits;
} mote_feed;
/* How far rows (or tokens) are; non-zero cancels (MOTE_ECANCELED). Called by the thread that
 * called. */
typedef int (*mote_run_progress)(void *ctx, size_t done, size_t all);
/* Push all feeds and step until they are finished. If a push fails nothing runs. If a session fails
 * or progress (may be NULL; called after each pass) returns non-zero, what is pending is dropped;
 * sessions that were finished by then keep their new tokens. err names the feed. */
MOTE_API int mote_run(mote_model *model, const mote_feed *feeds, size_t n_feeds,
                      mote_run_progress progress, void *progress_ctx, mote_err *err);
/* Logits of the last step: n_rows x vocab floats, row 0 belongs to position *first. Borrowed until
 * the next step. */
MOTE_API const float *mote_session_logits(const mote_session *session, size_t *n_rows,
                                          size_t *first);
/* Write a safetensors file with one tensor, `logits`, F32 [n_rows, vocab]. An existing file is
 * replaced atomically. */
MOTE_API int mote_logits_write(const char *path, const float *logits, size_t n_rows, size_t vocab,
                               mote_err *err);

/* ---- sampling ---- */
typedef struct mote_sample_params {
    float temperature;  /* 0: greedy (smallest id wins ties) */
    float top_p, min_p; /* 1 and 0 switch them off; top_p 0: the likeliest token alone */
    int top_k;          /* 0: off */
    uint64_t seed;
    uint64_t reserved[8]; /* zeros: mote.h, "Structs" */
} mote_sample_params;
typedef struct mote_sampler mote_sampler;
MOTE_API int mote_sampler_create(mote_sampler **sampler, const mote_sample_params *params,
                                 mote_err *err);
MOTE_API void mote_sampler_destroy(mote_sampler *sampler);
/* Draws a token from `logits`. logprob (may be NULL): natural log of its probability at temperature
 * 1, all tokens. */
MOTE_API int mote_sampler_next(mote_sampler *sampler, const float *logits, size_t vocab,
                               int32_t *id, float *logprob, mote_err *err);
/* The n most likely tokens and their logprobs at temperature 1, best first. */
MOTE_API int mote_top_logprobs(const float *logits, size_t vocab, size_t n, int32_t *ids,
                               float *logprobs, mote_err *err);

/* ---- evaluation ---- */
typedef struct mote_eval_result {
    size_t n_predicted;
    /* natural log, mean per predicted token */
    double mean_loss, perplexity;
    /* against `base` (NaN without): mean KL(base || this) */
    double kl, top1_agreement;
    double kv_bytes_per_token;
    double prefill_tokens_per_s;
    /* the session's share plus scratch, at its largest */
    size_t peak_bytes;
    uint64_t reserved[4]; /* zeros: mote.h, "Structs" */
} mote_eval_result;
/* One row of logits against the token that came: natural logs. */
typedef struct mote_score {
    /* -ln p(token) */
    double loss;
    /* KL(base || this); NaN without base */
    double kl;
    /* the likeliest token, the smallest id among equals */
    int32_t best;
    /* base's likeliest token is the same */
    int same_top1;
} mote_score;
/* Rows of logits of this model; targets[r] is the id that followed row r. base: the same rows of
 * another session, or NULL. */
MOTE_API void mote_score_rows(mote_model *model, const float *logits, const float *base,
                              size_t n_rows, const int32_t *targets, mote_score *scores);
/* Teacher-forced loss over one window of tokens with `params`' formats, prefill full. base_kv: NULL
 * or formats to compare with, run side by side chunk by chunk so that no logits are kept. */
MOTE_API int mote_eval_window(mote_model *model, const int32_t *ids, size_t n_ids, const char *kv,
                              const char *base_kv, mote_run_progress progress, void *progress_ctx,
                              mote_eval_result *result, mote_err *err);

#ifdef __cplusplus
}
#endif
#endif
