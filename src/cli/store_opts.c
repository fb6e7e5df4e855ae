#include "cli/store_opts.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/out.h"

double cli_hours(const cli_args *a)
{
    if (!strcmp(a->value, "never"))
        return -1;
    double hours = cli_real(a, 0, 1e9);
    if (hours == 0)
        cli_usage_error(a,
                        "%s: 0 hours would keep nothing ('never' keeps for ever; "
                        "'mote kv rm --all' removes)",
                        a->name);
    return hours * 3600;
}

int cli_store_option(cli_store *s, const cli_args *a, int id)
{
    mote_err err;
    switch (id) {
    case CLI_O_STORE:
        if (mote_store_check_place(a->value, &err))
            cli_usage_error(a, "--store: %s", err.message);
        s->dir = a->value;
        return 1;
    case CLI_O_REPLAY:
        s->replay = (mote_replay)cli_choice(a, cli_replay_names);
        s->needs_store = "--replay";
        return 1;
    case CLI_O_STORE_BUDGET:
        s->budget_bytes = cli_size(a);
        s->needs_store = "--store-budget";
        return 1;
    case CLI_O_SNAP_BUDGET:
        s->snapshot_budget_bytes = cli_size(a);
        s->needs_store = "--snapshot-budget";
        return 1;
    case CLI_O_TTL:
        s->ttl_s = cli_hours(a);
        s->needs_store = "--ttl";
        return 1;
    case CLI_O_SNAP_TTL:
        s->snapshot_ttl_s = cli_hours(a);
        s->needs_store = "--snapshot-ttl";
        return 1;
    case CLI_O_REDIS_TIMEOUT:
        s->server_timeout_ms = (int)cli_uint(a, 1, 600000);
        s->needs_store = "--redis-timeout";
        return 1;
    case CLI_O_NAMESPACE:
        s->name_space = a->value;
        s->needs_store = "--namespace";
        return 1;
    }
    return 0;
}

void cli_store_check(const cli_store *s, const cli_args *a)
{
    if (!s->dir && s->needs_store)
        cli_usage_error(a, "%s needs --store", s->needs_store);
    if (s->server_timeout_ms && !strstr(s->dir, "://"))
        cli_usage_error(a, "--redis-timeout needs a server in --store: DIR,redis://host");
}

/* From any thread, so the progress line is overwritten, not told to go; one call, so that lines
 * stay whole. */
static void on_log(void *ctx, const char *line)
{
    (void)ctx;
    static const char lead[] = "store "; /* "store DIR: what" */
    if (!strncmp(line, lead, strlen(lead)))
        line += strlen(lead);
    fprintf(stderr, "%smote: store: %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", line);
}

void cli_store_open(cli_store *s)
{
    if (!s->dir)
        return;
    mote_err err = { 0 };
    mote_store_params params = { .budget_bytes = s->budget_bytes,
                                 .snapshot_budget_bytes = s->snapshot_budget_bytes,
                                 .ttl_s = s->ttl_s,
                                 .snapshot_ttl_s = s->snapshot_ttl_s,
                                 .server_timeout_ms = s->server_timeout_ms,
                                 .log = on_log };
    if (mote_store_open(&s->store, s->dir, &params, &err)) {
        s->store = NULL;
        cli_say("mote: store: %s; going on without it", err.message);
    }
}

void cli_store_attach(cli_store *s, mote_session *session)
{
    mote_err err = { 0 };
    if (s->store && mote_session_use_store(session, s->store, s->name_space, &err)) {
        cli_say("mote: store: %s; going on without it", err.message);
        cli_store_close(s); /* no session uses it */
    }
}

int cli_store_restore(cli_store *s, mote_session *session, const int32_t *ids, size_t n_ids,
                      mote_restored *r, mote_err *err)
{
    *r = (mote_restored){ .exact = 1 };
    if (!s->store || n_ids == 0)
        return MOTE_OK;
    int rc = mote_session_restore(session, ids, n_ids, s->replay, r, err);
    if (!rc)
        return MOTE_OK;
    *r = (mote_restored){ .exact = 1 };
    if (mote_session_length(session))
        return rc;
    /* a prompt too long: the step will say so */
    if (rc != MOTE_EFULL)
        cli_say("mote: store: %s; nothing is reused", err->message);
    *err = (mote_err){ 0 };
    return MOTE_OK;
}

void cli_store_snapshot(cli_store *s, mote_session *session)
{
    mote_err err = { 0 };
    if (s->store && mote_session_snapshot(session, &err))
        cli_say("mote: store: no snapshot: %s", err.message);
}

void cli_store_close(cli_store *s)
{
    mote_store_close(s->store);
    s->store = NULL;
}
