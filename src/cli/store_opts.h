/* A store behind the sessions of a command: its options, and the rule that a store which fails is a
 * warning on stderr and never ends a run. All of it does nothing where no --store was given or the
 * store could not be opened. */
#ifndef MOTE_CLI_STORE_OPTS_H
#define MOTE_CLI_STORE_OPTS_H

#include <mote/mote.h>

#include "cli/opts.h"

enum {
    CLI_O_STORE = 1300,
    CLI_O_REPLAY,
    CLI_O_STORE_BUDGET,
    CLI_O_NAMESPACE,
    CLI_O_SNAP_BUDGET,
    CLI_O_TTL,
    CLI_O_SNAP_TTL,
    CLI_O_REDIS_TIMEOUT
};
#define CLI_ROWS_STORE                                                                        \
    { CLI_O_STORE, "store", "DIR[,URL...]",                                                   \
      "keep the cache in DIR (made if missing) and reuse what is there of the prompt, in\n"   \
      "blocks of 256 tokens. A store that fails is a warning: the run goes on without it.\n"  \
      "URL: redis://[user[:password]@]host[:port][/db], a server (or servers of a\n"          \
      "cluster) behind it; MOTE_REDIS_PASSWORD is used where no password is given" },         \
        { CLI_O_REPLAY, "replay", "MODE",                                                     \
          "how windows come back behind reused blocks, with window W and E encoder layers:\n" \
          "bounded (default): W tokens run again, the model's own approximation;\n"           \
          "exact: (E - 1)(W - 1) and more, the result is that of a run without a store;\n"    \
          "it reads exact blocks only" },                                                     \
        { CLI_O_STORE_BUDGET, "store-budget", "SIZE",                                         \
          "bytes of blocks the store may hold, default 64G; the least recently used go" },    \
        { CLI_O_SNAP_BUDGET, "snapshot-budget", "SIZE",                                       \
          "bytes of snapshots it may hold, default 4G" },                                     \
        { CLI_O_TTL, "ttl", "HOURS",                                                          \
          "what was unused for so long goes, on servers too; default 72; 'never'" },          \
        { CLI_O_SNAP_TTL, "snapshot-ttl", "HOURS",                                            \
          "the same for snapshots; default 72; 'never'" },                                    \
        { CLI_O_REDIS_TIMEOUT, "redis-timeout", "MS",                                         \
          "how long a prompt waits for a server that does not answer; default 200" },         \
    {                                                                                         \
        CLI_O_NAMESPACE, "namespace", "NAME",                                                 \
            "share blocks only with runs that give the same NAME; default: an empty one"      \
    }

typedef struct cli_store {
    /* borrowed from argv; dir NULL: no store was asked for */
    const char *dir, *name_space;
    uint64_t budget_bytes, snapshot_budget_bytes; /* and the next three: 0 = the default */
    double ttl_s, snapshot_ttl_s;
    int server_timeout_ms;
    mote_replay replay;
    /* the last option that makes no sense without --store */
    const char *needs_store;
    /* NULL: none, or it could not be opened */
    mote_store *store;
} cli_store;

/* The current option's hours in seconds; "never" is -1, and 0 a usage error that says why. */
double cli_hours(const cli_args *a);
/* 1: it was one of the rows above. cli_store_check comes after the last option. */
int cli_store_option(cli_store *s, const cli_args *a, int id);
void cli_store_check(const cli_store *s, const cli_args *a);

void cli_store_open(cli_store *s);
/* Put the store behind a fresh session. */
void cli_store_attach(cli_store *s, mote_session *session);
/* Fill an empty session from the store. *r is as if nothing were stored where that fails or there
 * is no store. The only error is a session that was left half filled. */
int cli_store_restore(cli_store *s, mote_session *session, const int32_t *ids, size_t n_ids,
                      mote_restored *r, mote_err *err);
void cli_store_snapshot(cli_store *s, mote_session *session);
/* Writes what is queued. After the sessions, before the model. */
void cli_store_close(cli_store *s);

#endif
