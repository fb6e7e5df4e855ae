/* mote: errors, memory, opening a model, and what is known before one is opened (plan, inspect,
 * doctor). Conventions: mote.h. */
#ifndef MOTE_MODEL_H
#define MOTE_MODEL_H

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
enum { MOTE_MEM_ROOM = 32 }; /* for classes of later versions */
typedef struct mote_memory {
    size_t bytes[MOTE_MEM_ROOM]; /* by mote_mem_class */
    size_t total, peak;          /* of what the meter counts */
    size_t rss, peak_rss;        /* of the process, as the system tells */
    uint64_t reserved[4];        /* zeros: mote.h, "Structs" */
} mote_memory;
/* "weights", "kv_main_codes", ... */
MOTE_API const char *mote_memory_class_name(mote_mem_class cls);

/* ---- model ---- */
typedef struct mote_model mote_model;
typedef enum mote_math { MOTE_MATH_FP32, MOTE_MATH_PUBLISHED } mote_math;
/* Where matrices lie: copied into huge pages (faster to read), read from the mapped files, or
 * (experts, embed and engram) streamed: read from the files past the page cache when they are
 * wanted; experts are kept in as many slots as `expert_ram` has room for. Results never depend on
 * it. AUTO copies groups in the order below, that of use, as long as the copies take at most half
 * of the free memory and at most 32 GiB; experts that do not fit are streamed, and then embedding
 * and Engram tables, of which a token reads some rows, are too; else those are mapped. */
typedef enum mote_weights {
    MOTE_WEIGHTS_AUTO,
    MOTE_WEIGHTS_COPY,
    MOTE_WEIGHTS_MAP,
    MOTE_WEIGHTS_STREAM
} mote_weights;
typedef enum mote_weight_group {
    MOTE_GROUP_DENSE,   /* attention, indexer, routers, feed-forward parts without experts */
    MOTE_GROUP_SHARED,  /* shared experts */
    MOTE_GROUP_HEAD,    /* output head; tied to the embedding: a copy is the head's alone */
    MOTE_GROUP_EXPERTS, /* routed experts */
    MOTE_GROUP_EMBED,   /* token embedding */
    MOTE_GROUP_ENGRAM,  /* Engram tables */
    MOTE_WEIGHT_GROUPS
} mote_weight_group;
enum { MOTE_GROUP_ROOM = 16 }; /* for groups of later versions */
/* "dense", "shared", "head", "experts", "embed", "engram" */
MOTE_API const char *mote_weight_group_name(mote_weight_group group);
/* Long work reports here: what it does (a word or two) and how far it is, in [0, 1] or -1 where
 * that is not known; non-zero cancels (MOTE_ECANCELED). Called by the thread that called. */
typedef int (*mote_progress)(void *ctx, const char *what, double fraction);
typedef struct mote_model_params {
    int n_threads; /* 0: MOTE_THREADS, else one per core of the affinity mask */
    mote_math math;
    mote_weights weights;
    /* by group; AUTO: as `weights` says */
    mote_weights place[MOTE_GROUP_ROOM];
    /* bytes for streamed experts; 0: the memory that is free when the rest is loaded, less 4 GiB
     * (less a tenth where that is under 32 GiB) */
    uint64_t expert_ram;
    int no_tokenizer; /* 1: do not look for tokenizer.json (ids only) */
    /* 1: one that cannot be used is as none; mote_model_info.tokenizer_error says why */
    int tokenizer_optional;
    int tokenizer_only; /* 1: open the tokenizer (unless no_tokenizer) and the wording of the chat
                           format alone; path may be tokenizer.json itself. For mote_encode,
                           mote_token_*, mote_detok_*, mote_chat_*, mote_reply_* */
    mote_progress progress; /* may be NULL */
    void *progress_ctx;
    uint64_t reserved[8]; /* zeros: mote.h, "Structs" */
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
    const char *note; /* what its files ask for and mote does not do; NULL: nothing */
    /* by group: bytes of its tensors in the files (0: it has none); COPY, MAP or STREAM: what was
     * done */
    uint64_t group_bytes[MOTE_GROUP_ROOM];
    mote_weights placed[MOTE_GROUP_ROOM];
    /* from generation_config.json; 1, 1, 0 and 0 where it says nothing */
    float temperature, top_p, min_p;
    int top_k;
    const char *cpu;      /* kernel set in use: "scalar", "avx2", "avx512" */
    uint64_t reserved[8]; /* zeros: mote.h, "Structs" */
} mote_model_info;
/* What a model has done since it was opened, as numbers. */
typedef struct mote_model_stats {
    size_t n_sessions;            /* now */
    uint64_t n_steps;             /* passes that ran */
    uint64_t prompt_rows;         /* rows of sessions with more than 8 left: prompts */
    uint64_t decode_rows;         /* rows of the others: drawn tokens and what drafts propose */
    uint64_t decode_steps;        /* passes with no prompt's rows in them */
    uint64_t finished, failed;    /* prompts, drawn tokens among them */
    double step_s, decode_step_s; /* time of all passes, and of those without prompts */
    uint64_t most_rows;           /* of a pass */
    /* streamed experts; all 0 without. wanted = hits (there) + guessed (there or on the way because
     * of a guess) + read */
    uint64_t experts_wanted, experts_hits, experts_guessed, experts_read, experts_guesses;
    uint64_t expert_read_bytes, expert_guess_bytes; /* from the files */
    double expert_wait_s;                           /* layers waited for reads */
    double expert_busy_s;                           /* with a read in flight */
    size_t expert_slots, expert_slot_bytes;
    int experts_direct;   /* 1: past the page cache */
    uint64_t reserved[8]; /* zeros: mote.h, "Structs" */
} mote_model_stats;
/* path: a checkpoint folder in the published layout (config.json, *.safetensors, tokenizer.json),
 * or one of a Llama-style model (docs/config.md). params NULL = defaults. */
MOTE_API int mote_model_open(mote_model **model, const char *path, const mote_model_params *params,
                             mote_err *err);
/* NULL is fine. MOTE_EINVAL, and nothing is closed, while sessions of the model are left. */
MOTE_API int mote_model_close(mote_model *model);
/* From now on each step appends to the file at `path`, emptied first, which experts its rows are
 * routed to (docs/format-trace.md); path NULL: no more. A recording that goes on ends first: its
 * error, if it had one, is returned, and none begins. A file that cannot be written never fails a
 * step. MOTE_EUNSUPPORTED: no routed experts. Not during a step. */
MOTE_API int mote_model_trace_experts(mote_model *model, const char *path, mote_err *err);
MOTE_API void mote_model_get_info(const mote_model *model, mote_model_info *info);
MOTE_API void mote_model_get_memory(const mote_model *model, mote_memory *memory);
/* From any thread; nothing waits for a step. */
MOTE_API void mote_model_get_stats(const mote_model *model, mote_model_stats *stats);
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

#ifdef __cplusplus
}
#endif
#endif
