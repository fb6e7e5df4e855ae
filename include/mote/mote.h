/* mote: an inference engine for DeepSeek-V4.1-Flash, small models of its architecture, and
 * Llama-style models beside them.
 *
 * Conventions. Functions that can fail return MOTE_OK or a negative MOTE_E... code and put a
 * sentence for a person into the caller's mote_err (which may be NULL). Handles are opaque;
 * *_close/_destroy accept NULL. Strings are UTF-8. Sizes are bytes unless named otherwise;
 * positions and counts are tokens. The library never exits, prints or aborts. Threads: a model may
 * be shared by threads; sessions of one model are used by one thread at a time, and so is
 * mote_step, whatever its sessions. A session must be destroyed before its model is closed. */
#ifndef MOTE_H
#define MOTE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MOTE_API __attribute__((visibility("default")))
#else
#define MOTE_API
#endif

/* ---- errors ---- */
/* clang-format off */
#define MOTE_ERRORS(X)                                                                          \
    X(MOTE_EIO,          -1, "a file or device could not be read or written")                   \
    X(MOTE_EFORMAT,      -2, "a file's content is damaged or contradicts itself")               \
    X(MOTE_EUNSUPPORTED, -3, "a valid input asks for something this version does not do")       \
    X(MOTE_ENOMEM,       -4, "out of memory")                                                   \
    X(MOTE_EINVAL,       -5, "an argument is out of its range")                                 \
    X(MOTE_EFULL,        -6, "the context is full")                                             \
    X(MOTE_ECANCELED,    -7, "cancelled by the caller")                                         \
    X(MOTE_EVERSION,     -8, "a file comes from a newer version")
/* clang-format on */
enum {
    MOTE_OK = 0,
#define MOTE_X(name, number, sentence) name = number,
    MOTE_ERRORS(MOTE_X)
#undef MOTE_X
};
typedef struct mote_err {
    int code;
    char message[500];
} mote_err;
MOTE_API const char *mote_error_name(int code); /* "MOTE_EIO" */
MOTE_API const char *mote_error_sentence(int code);
MOTE_API const char *mote_version(void); /* "0.1.0" */

/* ---- memory accounting ---- */
typedef enum mote_mem_class {
    MOTE_MEM_WEIGHTS,        /* mapped or copied tensors */
    MOTE_MEM_KV_MAIN_CODES,  /* KV classes: bytes of the blocks that sessions hold; a block */
    MOTE_MEM_KV_MAIN_SCALES, /* shared by several sessions counts once */
    MOTE_MEM_KV_INDEX_CODES,
    MOTE_MEM_KV_INDEX_SCALES,
    MOTE_MEM_KV_KEY_CODES, /* the same for Llama-style models */
    MOTE_MEM_KV_KEY_SCALES,
    MOTE_MEM_KV_VALUE_CODES,
    MOTE_MEM_KV_VALUE_SCALES,
    MOTE_MEM_KV_SLACK,  /* block table, headers, page rounding, blocks not yet used */
    MOTE_MEM_KV_WINDOW, /* window rings, partial compressor groups, saved marks */
    MOTE_MEM_SCRATCH,   /* activations of a step, encoder outputs kept for a replay */
    MOTE_MEM_OTHER,     /* tokenizer, token ids, logits, tables */
    MOTE_MEM_CLASSES
} mote_mem_class;
typedef struct mote_memory {
    size_t bytes[MOTE_MEM_CLASSES];
    size_t total, peak;   /* of what the meter counts */
    size_t rss, peak_rss; /* of the process, as the system tells */
} mote_memory;
/* "weights", "kv_main_codes", ... */
MOTE_API const char *mote_memory_class_name(mote_mem_class cls);

/* ---- model ---- */
typedef struct mote_model mote_model;
typedef enum mote_math { MOTE_MATH_FP32, MOTE_MATH_PUBLISHED } mote_math;
/* Where matrices lie: copied into huge pages (faster to read), or read from the mapped files. AUTO
 * copies what takes at most half of the free memory and at most 32 GiB. Embedding and Engram tables
 * are always mapped; results never depend on it. */
typedef enum mote_weights { MOTE_WEIGHTS_AUTO, MOTE_WEIGHTS_COPY, MOTE_WEIGHTS_MAP } mote_weights;
typedef struct mote_model_params {
    int n_threads; /* 0: MOTE_THREADS, else one per core of the affinity mask */
    mote_math math;
    mote_weights weights;
    int no_tokenizer; /* 1: do not look for tokenizer.json (ids only) */
    /* 1: one that cannot be used is as none; mote_model_info.tokenizer_error says why */
    int tokenizer_optional;
    int tokenizer_only; /* 1: open the tokenizer (unless no_tokenizer) and the wording of the chat
                           format alone; path may be tokenizer.json itself. For mote_encode,
                           mote_token_*, mote_detok_*, mote_chat_*, mote_reply_* */
    /* Long work reports here (may be NULL): fraction in [0, 1]. Return non-zero to cancel. */
    int (*progress)(void *ctx, const char *what, double fraction);
    void *progress_ctx;
} mote_model_params;
typedef struct mote_model_info {
    const char *family; /* "deepseek_v41", "llama", "mistral", "qwen2", "qwen3"; borrowed from the
                           model, like every pointer here */
    const char *kv;     /* its default cache formats */
    int has_chat;       /* its chat format is known: mote_chat_encode works */
    /* no halves: 0 encoder layers; no windows: 0 */
    size_t n_layers, n_encoder_layers, hidden, vocab, window, max_context;
    size_t n_experts, n_experts_per_token, topk, prefix_multiple;
    uint64_t n_parameters, weight_bytes;
    int32_t bos;  /* -1: none */
    int adds_bos; /* MOTE_ENCODE_BOS puts it in front: docs/tokenizer.md */
    const int32_t *eos;
    size_t n_eos;
    int has_tokenizer, n_threads;
    const char *tokenizer_error;
    const char *note;     /* what its files ask for and mote does not do; NULL: nothing */
    mote_weights weights; /* COPY or MAP: what was done */
    /* from generation_config.json; 1, 1, 0 and 0 where it says nothing */
    float temperature, top_p, min_p;
    int top_k;
    const char *cpu; /* kernel set in use: "scalar", "avx2", "avx512" */
} mote_model_info;
/* path: a checkpoint folder in the published layout (config.json, *.safetensors, tokenizer.json),
 * or one of a Llama-style model (docs/config.md). params NULL = defaults. */
MOTE_API int mote_model_open(mote_model **model, const char *path, const mote_model_params *params,
                             mote_err *err);
MOTE_API void mote_model_close(mote_model *model);
MOTE_API void mote_model_get_info(const mote_model *model, mote_model_info *info);
MOTE_API void mote_model_get_memory(const mote_model *model, mote_memory *memory);
/* The layer plan as JSON text (an array, one object per layer); free with mote_free. */
MOTE_API int mote_model_plan_json(const mote_model *model, char **json, mote_err *err);
/* SHA-256 that tells checkpoint folders apart, as 64 hexadecimal digits (docs/format-store.md says
 * over what). */
MOTE_API int mote_fingerprint(const char *path, char hex[65], mote_err *err);
/* What a checkpoint folder holds, tensor by tensor, without loading it: JSON text; free with
 * mote_free. */
MOTE_API int mote_inspect_json(const char *path, char **json, mote_err *err);
/* The machine as mote sees it: instruction sets, threads, memory, disk features. JSON text; free
 * with mote_free. */
MOTE_API int mote_doctor_json(char **json, mote_err *err);
MOTE_API void mote_free(void *ptr);

/* ---- plan: bytes before loading ---- */
/* path: a checkpoint folder or a bare config.json, of this architecture, DeepSeek V1-V4 or a
 * Llama-style model. kv: as in mote_session_params. ctxs: n_ctxs context lengths (0: a default
 * list). ram: bytes to fit into, 0 = this machine's. Result: JSON text with the fields documented
 * in docs/plan.md; free with mote_free. */
MOTE_API int mote_plan_json(char **json, const char *path, const char *kv, const uint64_t *ctxs,
                            size_t n_ctxs, uint64_t ram, mote_err *err);

/* ---- tokenizer ---- */
typedef enum mote_encode_flags {
    /* put the model's BOS in front, if its tokenizer does; MOTE_EUNSUPPORTED where no file says
       which */
    MOTE_ENCODE_BOS = 1,
    /* text that looks like an added token is ordinary text (untrusted input) */
    MOTE_ENCODE_PLAIN = 2
} mote_encode_flags;
/* *ids: malloc'd, free with mote_free. Invalid UTF-8 is encoded as U+FFFD, one for each maximal
 * subpart (a cut-off character is one), as the reference tokenizer does. */
MOTE_API int mote_encode(const mote_model *model, const char *text, size_t text_bytes, int flags,
                         int32_t **ids, size_t *n_ids, mote_err *err);
/* Bytes of one token (not always whole UTF-8); borrowed from the model. NULL for an id without
 * text. */
MOTE_API const char *mote_token_bytes(const mote_model *model, int32_t id, size_t *n_bytes);
MOTE_API int mote_token_is_special(const mote_model *model, int32_t id);
/* Streaming: feed ids one by one and get text that never ends inside a character. */
typedef struct mote_detok mote_detok;
MOTE_API int mote_detok_create(mote_detok **detok, const mote_model *model, mote_err *err);
MOTE_API void mote_detok_destroy(mote_detok *detok);
/* *text: n_bytes (may be NULL) of text, zero bytes of the model among them, and a 0; valid until
 * the next call; may be "". An invalid sequence becomes U+FFFD. Special tokens and ids that have no
 * text (a vocabulary may be padded) give none. mote_detok_finish returns what an unfinished
 * character left (as U+FFFD) and resets. */
MOTE_API int mote_detok_push(mote_detok *detok, int32_t id, const char **text, size_t *n_bytes,
                             mote_err *err);
MOTE_API const char *mote_detok_finish(mote_detok *detok, size_t *n_bytes);

/* ---- chat format ---- */
typedef struct mote_chat_params {
    int thinking;           /* 0: chat mode, 1: thinking mode */
    int reasoning_effort;   /* 1-100, 0 = 75; only in thinking mode */
    const char *tools_json; /* NULL, or a JSON array of OpenAI-style tool definitions */
    /* NULL, or JSON that says what the reply must look like */
    const char *response_format_json;
} mote_chat_params;
/* messages_json: array of {role: system|user|assistant|tool|developer|latest_reminder, content,
 * reasoning_content?, tool_calls?, tool_call_id?, unfinished?}. Gives the prompt text (special
 * tokens written out, BOS included: encode without MOTE_ENCODE_BOS): *n_bytes and a 0, free with
 * mote_free. A message may hold U+0000. A final assistant message is ended, or continued if its
 * "unfinished" is true. docs/chat-format.md has the whole format. */
MOTE_API int mote_chat_prompt(const mote_model *model, const char *messages_json,
                              const mote_chat_params *params, char **prompt, size_t *n_bytes,
                              mote_err *err);
/* The same without a model, and so with mote's wording of what belongs to one; for messages without
 * U+0000. */
MOTE_API int mote_chat_format(char **prompt, const char *messages_json,
                              const mote_chat_params *params, mote_err *err);
/* The bytes [from, to) of that prompt (0, SIZE_MAX: all) as tokens. Text in the messages that looks
 * like a special token stays ordinary text, which encoding the formatted text cannot promise: this
 * is the way for untrusted messages. *ids: free with mote_free. */
MOTE_API int mote_chat_encode(const mote_model *model, const char *messages_json,
                              const mote_chat_params *params, size_t from, size_t to, int32_t **ids,
                              size_t *n_ids, mote_err *err);

/* A reply taken apart by the same tags: reasoning until the first </think>, content, calls of tools
 * at its end. */
typedef struct mote_reply mote_reply;
typedef enum mote_reply_part { MOTE_REPLY_REASONING, MOTE_REPLY_CONTENT } mote_reply_part;
/* thinking: the prompt ends in <think>. */
MOTE_API int mote_reply_create(mote_reply **reply, const mote_model *model, int thinking,
                               mote_err *err);
MOTE_API void mote_reply_destroy(mote_reply *reply);
/* The next token; a negative id ends the reply. */
MOTE_API int mote_reply_push(mote_reply *reply, int32_t id, mote_err *err);
/* After each push until it gives 0: text that has become certain, whole characters, no part of a
 * tag; borrowed until the next push. */
MOTE_API int mote_reply_next(mote_reply *reply, mote_reply_part *part, const char **text,
                             size_t *n_bytes);
/* The ended reply as a message {role, content, reasoning_content?, tool_calls?}: JSON text; free
 * with mote_free. */
MOTE_API int mote_reply_json(const mote_reply *reply, char **json, mote_err *err);

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
                             same bits however tokens are cut into steps; BOUNDED: only for the same
                             cut (steps of a window and more start decoder windows anew) */
    size_t max_context;   /* 0: the model's. Nothing is allocated for it. */
    /* To measure what the selection costs; not for ordinary use, and not with a store. */
    size_t topk;        /* entries a query attends to; 0: the model's, SIZE_MAX: all */
    int all_candidates; /* 1: reindexing layers score every entry, not only candidates */
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
typedef struct mote_feed {
    mote_session *session;
    /* n_ids new tokens; n_ids may be 0 only when a truncated session awaits its replay */
    const int32_t *ids;
    size_t n_ids;
    mote_logits_rows logits; /* ALL: every row the decoder ran over (full: all new positions) */
} mote_feed;
/* Run new tokens of several sessions (each at most once in the list) through the model, sharing
 * every weight read. Blocks go to the store as soon as they are finished, and stay there if the
 * step is cancelled or fails. On failure the sessions keep their old tokens and await a replay (an
 * exact one where they were live) or are unchanged; the code is MOTE_EFULL when a context limit
 * would be passed (nothing was run). progress (may be NULL) is called between chunks. */
MOTE_API int mote_step(mote_model *model, const mote_feed *feeds, size_t n_feeds,
                       int (*progress)(void *ctx, size_t done_tokens, size_t all_tokens),
                       void *progress_ctx, mote_err *err);
/* Logits of the last step: n_rows x vocab floats, row 0 belongs to position *first. Borrowed until
 * the next step. */
MOTE_API const float *mote_session_logits(const mote_session *session, size_t *n_rows,
                                          size_t *first);
/* Write a safetensors file with one tensor, `logits`, F32 [n_rows, vocab]. An existing file is
 * replaced atomically. */
MOTE_API int mote_logits_write(const char *path, const float *logits, size_t n_rows, size_t vocab,
                               mote_err *err);

/* ---- store ---- */
/* A directory of cache blocks and snapshots that outlives the process (docs/format-store.md).
 * Several processes may use one at once. A store that fails is reported through `log`, one line
 * each, and never ends a run. `place` is the directory, or
 * DIR,redis://[user[:password]@]host[:port][/db][,redis://...]: what the directory lacks is then
 * looked for there, and blocks are sent there in the background. MOTE_REDIS_PASSWORD is used where
 * no password is given. */
typedef struct mote_store mote_store;
typedef struct mote_store_params {
    /* for blocks on disk; 0 = 64 GiB */
    uint64_t budget_bytes;
    /* 0 = 4 GiB */
    uint64_t snapshot_budget_bytes;
    /* unused for so long: gone; 0 = 72 h, negative = never */
    double ttl_s;
    /* the same for snapshots; 0 = 72 h */
    double snapshot_ttl_s;
    /* the newest snapshots stay in memory as well; 0 = 64 MiB */
    uint64_t snapshot_memory_bytes;
    /* and for so long; 0 = 5 minutes, negative = no limit */
    double snapshot_memory_ttl_s;
    /* 1: write nothing, not even times of use */
    int read_only;
    /* 1: MOTE_EIO where there is no store yet */
    int must_exist;
    /* without an answer from a server; 0 = 200 */
    int server_timeout_ms;
    /* What ls, rm (of everything), gc and export are about; NULL: all. Borrowed until the store is
     * closed. */
    /* a fingerprint in hexadecimal, or its beginning */
    const char *only_model;
    /* formats that it has: "fp4", "main=fp4,index=bf16" */
    const char *only_kv;
    /* "": the one without a name */
    const char *only_namespace;
    /* the hash of a context, or its beginning */
    const char *only_context;
    /* verify, export and import report here (may be NULL): fraction in [0, 1], or -1; non-zero
     * cancels. */
    int (*progress)(void *ctx, const char *what, double fraction);
    void *progress_ctx;
    /* may be NULL; from any thread */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
} mote_store_params;
MOTE_API int mote_store_open(mote_store **store, const char *place, const mote_store_params *params,
                             mote_err *err);
/* its form alone: MOTE_EINVAL */
MOTE_API int mote_store_check_place(const char *place, mote_err *err);
/* writes what is queued, and sends for at most some seconds */
MOTE_API void mote_store_close(mote_store *store);
/* JSON text about a store, or about what was done to it; free with mote_free. Fields:
 * docs/format-store.md. */
MOTE_API int mote_store_stat_json(mote_store *store, char **json, mote_err *err);
MOTE_API int mote_store_ls_json(mote_store *store, char **json, mote_err *err);
/* Reads everything, drops what is damaged; "damaged" counts it. rebuild: then make the index anew
 * from the segments; times stay. */
MOTE_API int mote_store_verify_json(mote_store *store, int rebuild, char **json, mote_err *err);
/* One segment and what the index says of it, made to agree; what is right stays, times of use
 * included. Others may go on meanwhile. */
MOTE_API int mote_store_repair_json(mote_store *store, uint32_t segment, char **json,
                                    mote_err *err);
/* The servers of a place (or redis://... alone): reached, logged in, a value written, read,
 * removed. "failed" counts those that were not; passwords are never told. */
MOTE_API int mote_store_check_json(const char *place, int timeout_ms, char **json, mote_err *err);
/* Expired, over budget, out of reach: goes, and its room is given back. */
MOTE_API int mote_store_gc_json(mote_store *store, char **json, mote_err *err);
/* ids: hexadecimal identities of blocks (with all that stands on them) or snapshots, or unique
 * beginnings of at least 6 digits; NULL = everything. */
MOTE_API int mote_store_rm_json(mote_store *store, const char *const *ids, size_t n_ids,
                                char **json, mote_err *err);
/* One portable file; path "-": standard output or input, and pipes will do. An import checks each
 * record as if it came from disk; what is stored already is left alone. Whoever gives you such a
 * file decides what your model remembers: import only what you trust. */
MOTE_API int mote_store_export_json(mote_store *store, const char *path, char **json,
                                    mote_err *err);
MOTE_API int mote_store_import_json(mote_store *store, const char *path, char **json,
                                    mote_err *err);

/* Put the store behind a session: finished blocks are written in the background from now on, and
 * mote_session_restore reads. name_space (NULL: ""): prefixes are shared only inside one. The store
 * must be closed after the session and before the model. */
MOTE_API int mote_session_use_store(mote_session *session, mote_store *store,
                                    const char *name_space, mote_err *err);
typedef struct mote_restored {
    /* of the prompt: the session holds them now; feed the rest (it may be nothing) */
    size_t reused_tokens;
    /* of those, run again by the next step to rebuild the windows; 0 after a snapshot */
    size_t replay_tokens;
    /* of the reused ones, those that came from a server */
    size_t remote_tokens;
    /* 1: the session goes on exactly where it was saved */
    int from_snapshot;
    int exact; /* 1: the bits of a session that computes the prompt in one step (or in
                  mote_session_follow's way) without a store; 0: a bounded replay, or what follows
                  one, or windows of another origin */
} mote_restored;
/* Fill an empty session with the longest stored prefix of a prompt. replay: how the next step
 * rebuilds windows; exact takes nothing that would change a bit. Finding nothing is no error
 * (reused_tokens 0). */
MOTE_API int mote_session_restore(mote_session *session, const int32_t *ids, size_t n_ids,
                                  mote_replay replay, mote_restored *restored, mote_err *err);
/* Save the session's state to its store (in the background), so that continuing it later is exact.
 * A snapshot holds no logits: for the same prompt again take it before the last token is fed
 * (mote_session_restore, or _follow, sees to it that this changes no bit). */
MOTE_API int mote_session_snapshot(mote_session *session, mote_err *err);

/* ---- sampling ---- */
typedef struct mote_sample_params {
    float temperature;  /* 0: greedy (smallest id wins ties) */
    float top_p, min_p; /* 1 and 0 switch them off; top_p 0: the likeliest token alone */
    int top_k;          /* 0: off */
    uint64_t seed;
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
                              const char *base_kv,
                              int (*progress)(void *ctx, size_t done_tokens, size_t all_tokens),
                              void *progress_ctx, mote_eval_result *result, mote_err *err);

#ifdef __cplusplus
}
#endif
#endif
