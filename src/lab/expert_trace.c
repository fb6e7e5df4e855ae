/* Reading a trace: docs/format-trace.md, whose numbers these are. */
#include "lab/expert_trace.h"

#include <string.h>

#include "base/err.h"
#include "base/le.h"
#include "base/mem.h"

enum { HEADER_BYTES = 32, RECORD_BYTES = 12, VERSION = 1 };
enum { MAX_LAYERS = 4096, MAX_EXPERTS = 65535, MAX_PER_TOKEN = 256, MAX_IN_ALL = 1 << 22 };
enum { FLAG_PROMPT = 1, FLAG_PASS = 2 };

int lab_trace_add(lab_trace *t, const lab_trace_record *record, uint16_t **ids, mote_err *err)
{
    size_t n = mote__mul(record->n_rows, t->n_per_token);
    while (t->ids_room - t->n_ids < n)
        if (mote__list_grow(NULL, MOTE_MEM_OTHER, &t->ids, t->ids_room, &t->ids_room,
                            sizeof *t->ids))
            return mote__fail(err, MOTE_ENOMEM, "out of memory for a trace of experts");
    if (mote__list_grow(NULL, MOTE_MEM_OTHER, &t->records, t->n_records, &t->records_room,
                        sizeof *t->records))
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a trace of experts");
    lab_trace_record *r = &t->records[t->n_records++];
    *r = *record;
    r->first_id = t->n_ids;
    *ids = t->ids + t->n_ids;
    t->n_ids += n;
    return 0;
}

static int parse_header(lab_trace *t, const char *name, const uint8_t *data, size_t size,
                        mote_err *err)
{
    if (size < HEADER_BYTES || memcmp(data, "MOTEEXPT", 8) != 0)
        return mote__fail(err, MOTE_EFORMAT, "%s: not a trace of experts", name);
    uint32_t version = mote__le32(data + 8);
    if (version != VERSION)
        return mote__fail(err, version > VERSION ? MOTE_EVERSION : MOTE_EFORMAT,
                          "%s: version %u of the trace format, known is %d", name, version,
                          VERSION);
    t->n_layers = mote__le32(data + 12);
    t->n_experts = mote__le32(data + 16);
    t->n_per_token = mote__le32(data + 20);
    t->expert_bytes = mote__le64(data + 24);
    if (!t->n_layers || t->n_layers > MAX_LAYERS || !t->n_experts || t->n_experts > MAX_EXPERTS ||
        t->n_layers * t->n_experts > MAX_IN_ALL || !t->n_per_token ||
        t->n_per_token > MAX_PER_TOKEN || t->n_per_token > t->n_experts)
        return mote__fail(err, MOTE_EFORMAT, "%s: %u layers of %u experts, %u for each token", name,
                          t->n_layers, t->n_experts, t->n_per_token);
    return 0;
}

static int parse_record(lab_trace *t, const char *name, const uint8_t *data, size_t at,
                        mote_err *err)
{
    const uint8_t *p = data + at;
    uint8_t flags = p[0];
    lab_trace_record r = { .layer = mote__le16(p + 2),
                           .session = mote__le32(p + 4),
                           .n_rows = mote__le32(p + 8),
                           .is_prompt = flags & FLAG_PROMPT,
                           .begins_pass = (flags & FLAG_PASS) != 0 };
    if (flags & ~(FLAG_PROMPT | FLAG_PASS) || p[1] || r.layer >= t->n_layers || !r.n_rows)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: record at byte %zu: flags %u, layer %u of %u, %u rows", name, at,
                          flags, r.layer, t->n_layers, r.n_rows);
    if (!t->n_records && !r.begins_pass)
        return mote__fail(err, MOTE_EFORMAT, "%s: record at byte %zu: no pass began", name, at);
    uint16_t *ids;
    int rc = lab_trace_add(t, &r, &ids, err);
    for (size_t i = 0, n = (size_t)r.n_rows * t->n_per_token; !rc && i < n; i++) {
        ids[i] = mote__le16(p + RECORD_BYTES + 2 * i);
        if (ids[i] >= t->n_experts)
            rc = mote__fail(err, MOTE_EFORMAT, "%s: record at byte %zu: expert %u of %u", name, at,
                            ids[i], t->n_experts);
    }
    return rc;
}

int lab_trace_parse(lab_trace *t, const char *name, const uint8_t *data, size_t size, mote_err *err)
{
    *t = (lab_trace){ 0 };
    int rc = parse_header(t, name, data, size, err);
    size_t at = HEADER_BYTES;
    while (!rc && size - at >= RECORD_BYTES) {
        /* at most 2^32 x 256 x 2 bytes */
        uint64_t n = (uint64_t)mote__le32(data + at + 8) * t->n_per_token * 2;
        if (n > size - at - RECORD_BYTES)
            break;
        rc = parse_record(t, name, data, at, err);
        at += RECORD_BYTES + (size_t)n;
    }
    if (rc)
        lab_trace_deinit(t);
    else
        t->cut_bytes = size - at;
    return rc;
}

void lab_trace_deinit(lab_trace *t)
{
    mote__list_free(NULL, MOTE_MEM_OTHER, t->records, t->records_room, sizeof *t->records);
    mote__list_free(NULL, MOTE_MEM_OTHER, t->ids, t->ids_room, sizeof *t->ids);
    *t = (lab_trace){ 0 };
}
