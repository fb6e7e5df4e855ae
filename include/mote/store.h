/* mote: the prefix store, by itself and behind sessions. */
#ifndef MOTE_STORE_H
#define MOTE_STORE_H

#include <mote/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- store ---- */
/* A directory of cache blocks and snapshots that outlives the process (docs/format-store.md).
 * Several processes may use one at once. A store that fails is reported through `log`, one line
 * each, and never ends a run. `place` is the directory, or
 * DIR,redis://[user[:password]@]host[:port][/db][,redis://...]: what the directory lacks is then
 * looked for there, and blocks are sent there in the background. MOTE_REDIS_PASSWORD is used where
 * no password is given. */
typedef struct mote_store mote_store;
/* One line, without an end of line. From any thread, also the store's own. */
typedef void (*mote_store_log)(void *ctx, const char *line);
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
    /* of verify, export and import; may be NULL */
    mote_progress progress;
    void *progress_ctx;
    mote_store_log log; /* may be NULL */
    void *log_ctx;
    uint64_t reserved[8]; /* zeros: mote.h, "Structs" */
} mote_store_params;
MOTE_API int mote_store_open(mote_store **store, const char *place, const mote_store_params *params,
                             mote_err *err);
/* its form alone: MOTE_EINVAL */
MOTE_API int mote_store_check_place(const char *place, mote_err *err);
/* writes what is queued, and sends for at most some seconds */
MOTE_API void mote_store_close(mote_store *store);
/* What a store holds and has done, as numbers. The struct grows at its end: `size` is the caller's
 * sizeof, and no more is written. From any thread; nothing waits for the writer or for a server,
 * but the index and the directory are read. MOTE_EIO: the index cannot be read just now; what it
 * and the directory say is 0 then, and the rest is right. */
typedef struct mote_store_stats {
    /* on the disk, put there by all processes: from the index */
    uint64_t blocks, exact_blocks, tokens, payload_bytes;
    uint64_t segments, slots, free_slots;
    uint64_t snapshots, snapshot_bytes;
    /* what the files take: segments; index, lock and notes; snapshots */
    uint64_t segment_bytes, index_bytes, snapshot_disk_bytes;
    uint64_t budget_bytes, snapshot_budget_bytes;
    int read_only;
    int n_servers, n_servers_down;
    /* waiting to be written, or being written; to be sent to a server */
    uint64_t queued_items, queued_sends;
    /* memory of this store, the newest snapshots included; blocks in queues are their model's */
    uint64_t memory_bytes, memory_peak_bytes;
    uint64_t memory_snapshots, memory_snapshot_bytes; /* whole snapshots among it */
    uint64_t memory_scratch_bytes;                    /* held while calls are under way */
    /* since it was opened, by this process. Blocks that were asked for: found here (in the
     * directory or on the way there), and neither here nor on a server */
    uint64_t matched_blocks, missed_blocks;
    uint64_t read_bytes, written_bytes; /* slots and snapshots, from and to files */
    /* put = written + known (stored already) + dropped (queue full, no room, no parent) + failed +
     * queued */
    uint64_t put_blocks, written_blocks, known_blocks, dropped_blocks, failed_blocks;
    uint64_t put_snapshots, written_snapshots, known_snapshots, dropped_snapshots, failed_snapshots;
    uint64_t found_snapshots, recent_snapshots; /* recent: those of them that were in memory */
    uint64_t damaged_blocks, damaged_snapshots, evicted_blocks, rebuilds;
    /* blocks that came from a server; walks that ended because it had no more */
    uint64_t remote_hits, remote_misses;
    /* blocks sent; there already, and renewed; not sent; refusals and failures; values not used */
    uint64_t remote_written, remote_known, remote_dropped, remote_errors, remote_damaged;
} mote_store_stats;
MOTE_API int mote_store_get_stats(mote_store *store, mote_store_stats *stats, size_t size);
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
    /* 1: the bits of a session that computes the prompt in one step (or in mote_session_follow's
     * way) without a store; 0: a bounded replay, or what follows one, or windows of another origin
     */
    int exact;
    uint64_t reserved[4]; /* zeros: mote.h, "Structs" */
} mote_restored;
/* Fill an empty session with the longest stored prefix of a prompt. replay: how the next step
 * rebuilds windows; exact takes nothing that would change a bit. Finding nothing is no error
 * (reused_tokens 0). */
MOTE_API int mote_session_restore(mote_session *session, const int32_t *ids, size_t n_ids,
                                  mote_replay replay, mote_restored *restored, mote_err *err);
/* The same in slices: next reads at most about max_tokens (0: no limit; a block of 256 is the
 * least, and a snapshot comes whole) and returns 1 while there is more, 0 when the session is
 * filled as *restored says, or an error. Destroyed before that the session stays empty. ids are
 * borrowed until then. Nothing else may use the session meanwhile; other sessions may be stepped.
 */
typedef struct mote_restore mote_restore;
MOTE_API int mote_restore_create(mote_restore **restore, mote_session *session, const int32_t *ids,
                                 size_t n_ids, mote_replay replay, mote_err *err);
MOTE_API int mote_restore_next(mote_restore *restore, size_t max_tokens, mote_restored *restored,
                               mote_err *err);
MOTE_API void mote_restore_destroy(mote_restore *restore);

typedef struct mote_probed {
    size_t tokens;          /* of the prompt's beginning that are stored in whole blocks */
    size_t exact_tokens;    /* of those, the ones that an exact replay may take */
    size_t snapshot_tokens; /* of the longest snapshot; 0: none */
    uint64_t reserved[4];   /* zeros: mote.h, "Structs" */
} mote_probed;
/* How much of a prompt the session's store holds, by the directory's index alone: nothing is read
 * or changed, servers are not asked, and a restore may still find less. */
MOTE_API int mote_store_probe(const mote_session *session, const int32_t *ids, size_t n_ids,
                              mote_probed *probed, mote_err *err);

/* Save the session's state to its store (in the background), so that continuing it later is exact.
 * A snapshot holds no logits: for the same prompt again take it before the last token is fed
 * (mote_session_restore, or _follow, sees to it that this changes no bit). */
MOTE_API int mote_session_snapshot(mote_session *session, mote_err *err);

#ifdef __cplusplus
}
#endif
#endif
