/* docs/format-trace.md is the format; lab/expert_trace.c reads it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/le.h"
#include "model/route_log.h"

enum { HEADER_BYTES = 32, RECORD_BYTES = 12, VERSION = 1 };
enum { FLAG_PROMPT = 1, FLAG_PASS = 2 };

struct mote__route_log {
    FILE *file; /* owned; NULL: the recording ended early, `err` says why */
    size_t n_per_token, last_layer;
    int begun; /* a pass was recorded */
    /* sequences that ran, numbered in the order of their first pass */
    struct known {
        const mote__seq *seq; /* compared only */
        uint32_t session;
    } * known;
    size_t n_known, known_room;
    uint32_t n_sessions;
    mote__buf record;
    mote_err err;
    char path[4096];
};

static void stop(mote__route_log *g, int code, const char *why)
{
    if (!g->file)
        return;
    mote__fail(&g->err, code, "%s: the recording of routing ended early: %s", g->path, why);
    fclose(g->file);
    g->file = NULL;
}

int mote__route_log_open(mote__route_log **log, const char *path, size_t n_layers, size_t n_experts,
                         size_t n_per_token, uint64_t expert_bytes, mote_err *err)
{
    *log = NULL;
    mote__route_log *g = calloc(1, sizeof *g);
    if (!g)
        return mote__fail(err, MOTE_ENOMEM, "out of memory");
    errno = ENAMETOOLONG;
    if (strlen(path) >= sizeof g->path || !(g->file = fopen(path, "wbe"))) {
        free(g);
        return mote__fail(err, MOTE_EIO, "%s: cannot be written: %s", path, strerror(errno));
    }
    strcpy(g->path, path);
    g->n_per_token = n_per_token;
    mote__buf_init(&g->record, NULL, MOTE_MEM_OTHER);
    uint8_t h[HEADER_BYTES] = "MOTEEXPT";
    mote__put_le32(h + 8, VERSION);
    mote__put_le32(h + 12, (uint32_t)n_layers);
    mote__put_le32(h + 16, (uint32_t)n_experts);
    mote__put_le32(h + 20, (uint32_t)n_per_token);
    mote__put_le64(h + 24, expert_bytes);
    if (fwrite(h, 1, sizeof h, g->file) != sizeof h)
        stop(g, MOTE_EIO, strerror(errno));
    *log = g;
    return 0;
}

/* A sequence that is new, or begins again, gets the next number. 0, or MOTE_ENOMEM. */
static int session_of(mote__route_log *g, const mote__extent *x, int begins, uint32_t *session)
{
    size_t i = 0;
    while (i < g->n_known && g->known[i].seq != x->seq)
        i++;
    if (i == g->n_known) {
        if (mote__list_grow(NULL, MOTE_MEM_OTHER, &g->known, g->n_known, &g->known_room,
                            sizeof *g->known))
            return MOTE_ENOMEM;
        g->known[g->n_known++] = (struct known){ x->seq, g->n_sessions++ };
    } else if (begins && x->pos == 0)
        g->known[i].session = g->n_sessions++;
    *session = g->known[i].session;
    return 0;
}

static void put_record(mote__route_log *g, const mote__extent *x, size_t layer, int begins,
                       int begins_pass, const int32_t *ids, size_t n_rows)
{
    uint32_t session;
    size_t n = n_rows * g->n_per_token, bytes = RECORD_BYTES + 2 * n;
    if (session_of(g, x, begins, &session) || mote__buf_reserve(&g->record, bytes)) {
        stop(g, MOTE_ENOMEM, "out of memory");
        return;
    }
    uint8_t *p = g->record.data;
    p[0] = (uint8_t)((x->n > 1 ? FLAG_PROMPT : 0) | (begins_pass ? FLAG_PASS : 0));
    p[1] = 0;
    p[2] = (uint8_t)layer;
    p[3] = (uint8_t)(layer >> 8);
    mote__put_le32(p + 4, session);
    mote__put_le32(p + 8, (uint32_t)n_rows);
    for (size_t i = 0; i < n; i++) {
        p[RECORD_BYTES + 2 * i] = (uint8_t)ids[i];
        p[RECORD_BYTES + 2 * i + 1] = (uint8_t)(ids[i] >> 8);
    }
    if (fwrite(p, 1, bytes, g->file) != bytes)
        stop(g, MOTE_EIO, strerror(errno));
}

void mote__route_log_rows(mote__route_log *g, const mote__batch *batch, size_t layer,
                          const int32_t *ids)
{
    int begins = !g->begun || layer <= g->last_layer, begins_pass = begins;
    for (size_t r = 0, end; g->file && r < batch->n_rows; r = end) {
        uint32_t extent = batch->rows[r].extent;
        for (end = r + 1; end < batch->n_rows && batch->rows[end].extent == extent;)
            end++;
        put_record(g, &batch->extents[extent], layer, begins, begins_pass, ids + r * g->n_per_token,
                   end - r);
        begins_pass = 0;
    }
    g->begun = 1;
    g->last_layer = layer;
}

int mote__route_log_close(mote__route_log *g, mote_err *err)
{
    if (!g)
        return 0;
    if (g->file && fflush(g->file))
        stop(g, MOTE_EIO, strerror(errno));
    if (g->file && fclose(g->file)) {
        g->file = NULL;
        mote__fail(&g->err, MOTE_EIO, "%s: the recording of routing ended early: %s", g->path,
                   strerror(errno));
    }
    int rc = g->err.code;
    if (rc)
        mote__fail(err, rc, "%s", g->err.message);
    mote__buf_deinit(&g->record);
    mote__list_free(NULL, MOTE_MEM_OTHER, g->known, g->known_room, sizeof *g->known);
    free(g);
    return rc;
}
