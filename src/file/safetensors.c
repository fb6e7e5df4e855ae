/* safetensors, one file: dtypes and the parser. Owns every check that concerns a single file;
 * folders and indexes are checkpoint.c's.
 *
 * A file is: u64 little-endian header length H | H bytes of JSON, an object, padded with blanks |
 * data to the end. Header: { "name": { "dtype": "BF16", "shape": [2, 3], "data_offsets": [begin,
 * end] }, ..., "__metadata__": { str: str } }, offsets count from the start of the data. What holds
 * once the parse returned 0:
 *   1. every name is unique, every dtype is known, every shape has at most MOTE_MAX_DIMS
 * dimensions;
 *   2. end - begin = dtype x shape, in 64 bits without overflow;
 *   3. sorted by offset the tensors tile the data: no hole, no overlap, nothing left at the end.
 * So a reader that stays inside n_bytes of a tensor stays inside the file. */
#include "file/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "base/mem.h"
#include "base/json.h"

/* The limit that the format itself sets on its header. The largest header of a published shard is
 * some 400 KB. */
enum { HEADER_MAX = 100 * 1000 * 1000 };

static const struct {
    const char *name;
    unsigned char bytes;
} dtypes[MOTE_DTYPES] = {
    [MOTE_DT_F32] = { "F32", 4 },         [MOTE_DT_F16] = { "F16", 2 },
    [MOTE_DT_BF16] = { "BF16", 2 },       [MOTE_DT_F8_E4M3] = { "F8_E4M3", 1 },
    [MOTE_DT_F8_E8M0] = { "F8_E8M0", 1 }, [MOTE_DT_I8] = { "I8", 1 },
    [MOTE_DT_U8] = { "U8", 1 },           [MOTE_DT_I32] = { "I32", 4 },
    [MOTE_DT_I64] = { "I64", 8 },         [MOTE_DT_F64] = { "F64", 8 },
    [MOTE_DT_I16] = { "I16", 2 },         [MOTE_DT_U16] = { "U16", 2 },
    [MOTE_DT_U32] = { "U32", 4 },         [MOTE_DT_U64] = { "U64", 8 },
    [MOTE_DT_BOOL] = { "BOOL", 1 },       [MOTE_DT_F8_E5M2] = { "F8_E5M2", 1 },
};

const char *mote__dtype_name(mote__dtype dt)
{
    return (unsigned)dt < MOTE_DTYPES ? dtypes[dt].name : "?";
}
size_t mote__dtype_bytes(mote__dtype dt)
{
    return (unsigned)dt < MOTE_DTYPES ? dtypes[dt].bytes : 0;
}

uint64_t mote__shape_bytes(mote__dtype dt, const uint64_t *shape, unsigned n_dims)
{
    uint64_t product = mote__dtype_bytes(dt);
    int zero = 0;
    for (unsigned i = 0; i < n_dims; i++) {
        if (shape[i] == 0)
            zero = 1;
        else if (__builtin_mul_overflow(product, shape[i], &product))
            return UINT64_MAX;
    }
    return zero ? 0 : product;
}

/* One tensor of the header while it is checked. */
struct entry {
    mote__tensor t;
    uint64_t begin, end;
};

static int by_offset(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    /* empty tensors come before the one that starts where they lie */
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->t.name, y->t.name);
}

/* Messages show at most this much of a name taken from a file. */
#define NAME "'%.160s'"

static int read_dtype(struct entry *e, const json_t *v, const char *what, mote_err *err)
{
    if (!json_is_string(v))
        return mote__fail(err, MOTE_EFORMAT, "%s: tensor " NAME ": 'dtype' is %s", what, e->t.name,
                          v ? "not a string" : "missing");
    for (int i = 0; i < MOTE_DTYPES; i++)
        if (!strcmp(json_string_value(v), dtypes[i].name)) {
            e->t.dtype = (mote__dtype)i;
            return MOTE_OK;
        }
    return mote__fail(err, MOTE_EUNSUPPORTED,
                      "%s: tensor " NAME ": 'dtype' '%.40s' is not known to this version", what,
                      e->t.name, json_string_value(v));
}

static int read_shape(struct entry *e, const json_t *v, const char *what, mote_err *err)
{
    if (!json_is_array(v))
        return mote__fail(err, MOTE_EFORMAT, "%s: tensor " NAME ": 'shape' is %s", what, e->t.name,
                          v ? "not an array" : "missing");
    if (json_array_size(v) > MOTE_MAX_DIMS)
        return mote__fail(err, MOTE_EUNSUPPORTED,
                          "%s: tensor " NAME
                          ": 'shape' has %zu dimensions, at most %d are supported",
                          what, e->t.name, json_array_size(v), MOTE_MAX_DIMS);
    e->t.n_dims = (unsigned)json_array_size(v);
    for (unsigned i = 0; i < e->t.n_dims; i++) {
        const json_t *d = json_array_get(v, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return mote__fail(err, MOTE_EFORMAT,
                              "%s: tensor " NAME ": 'shape'[%u] is not a non-negative integer",
                              what, e->t.name, i);
        e->t.shape[i] = (uint64_t)json_integer_value(d);
    }
    e->t.n_bytes = mote__shape_bytes(e->t.dtype, e->t.shape, e->t.n_dims);
    if (e->t.n_bytes == UINT64_MAX)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: tensor " NAME ": 'shape' times 'dtype' overflows 64 bits", what,
                          e->t.name);
    return MOTE_OK;
}

static int read_offsets(struct entry *e, const json_t *v, uint64_t data_bytes, const char *what,
                        mote_err *err)
{
    const json_t *b = json_array_get(v, 0), *n = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(b) || !json_is_integer(n) ||
        json_integer_value(b) < 0)
        return mote__fail(err, MOTE_EFORMAT, "%s: tensor " NAME ": 'data_offsets' is %s", what,
                          e->t.name, v ? "not a pair of non-negative integers" : "missing");
    if (json_integer_value(n) < json_integer_value(b))
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: tensor " NAME ": 'data_offsets' end (%lld) before they begin (%lld)",
                          what, e->t.name, (long long)json_integer_value(n),
                          (long long)json_integer_value(b));
    e->begin = (uint64_t)json_integer_value(b);
    e->end = (uint64_t)json_integer_value(n);
    if (e->end > data_bytes)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: tensor " NAME
                          ": 'data_offsets' end at %llu, the file has %llu data bytes "
                          "(is it truncated?)",
                          what, e->t.name, (unsigned long long)e->end,
                          (unsigned long long)data_bytes);
    if (e->end - e->begin != e->t.n_bytes)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: tensor " NAME
                          ": 'data_offsets' span %llu bytes, 'shape' and 'dtype' make %llu",
                          what, e->t.name, (unsigned long long)(e->end - e->begin),
                          (unsigned long long)e->t.n_bytes);
    return MOTE_OK;
}

static int read_entry(struct entry *e, const char *name, json_t *v, uint64_t data_bytes,
                      const char *what, mote_err *err)
{
    *e = (struct entry){ .t.name = name };
    if (!json_is_object(v))
        return mote__fail(err, MOTE_EFORMAT, "%s: tensor " NAME ": its entry is not an object",
                          what, name);
    /* A field that is not in the format might change what the others mean, so it is not skipped. */
    const char *key;
    json_t *ignored;
    json_object_foreach(v, key, ignored) if (
        strcmp(key, "dtype") && strcmp(key, "shape") &&
        strcmp(key,
               "data_offsets")) return mote__fail(err, MOTE_EUNSUPPORTED,
                                                  "%s: tensor " NAME
                                                  ": field '%.40s' is not known to this version",
                                                  what, name, key);
    int rc = read_dtype(e, json_object_get(v, "dtype"), what, err);
    if (!rc)
        rc = read_shape(e, json_object_get(v, "shape"), what, err);
    if (!rc)
        rc = read_offsets(e, json_object_get(v, "data_offsets"), data_bytes, what, err);
    return rc;
}

static int check_metadata(json_t *v, const char *what, mote_err *err)
{
    if (!json_is_object(v))
        return mote__fail(err, MOTE_EFORMAT, "%s: '__metadata__' is not an object", what);
    const char *key;
    json_t *value;
    json_object_foreach(v, key, value) if (!json_is_string(value)) return mote__fail(
        err, MOTE_EFORMAT, "%s: '__metadata__': '%.80s' is not a string", what, key);
    return MOTE_OK;
}

/* No hole, no overlap, nothing left over: entries are sorted by offset. */
static int check_tiling(const struct entry *e, size_t n, uint64_t data_bytes, const char *what,
                        mote_err *err)
{
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (e[i].begin < at)
            return mote__fail(err, MOTE_EFORMAT,
                              "%s: tensor " NAME ": 'data_offsets' begin at %llu and overlap " NAME
                              ", which ends at %llu",
                              what, e[i].t.name, (unsigned long long)e[i].begin, e[i - 1].t.name,
                              (unsigned long long)at);
        if (e[i].begin > at)
            return mote__fail(err, MOTE_EFORMAT,
                              "%s: tensor " NAME
                              ": 'data_offsets' begin at %llu and leave a hole from %llu",
                              what, e[i].t.name, (unsigned long long)e[i].begin,
                              (unsigned long long)at);
        at = e[i].end;
    }
    if (at != data_bytes)
        return mote__fail(err, MOTE_EFORMAT, "%s: %llu bytes after the last tensor belong to none",
                          what, (unsigned long long)(data_bytes - at));
    return MOTE_OK;
}

int mote__safetensors_parse(const uint8_t *bytes, size_t n, const char *what,
                            int (*on_tensor)(void *ctx, const mote__tensor *t, mote_err *err),
                            void *ctx, mote_err *err)
{
    if (n < 8)
        return mote__fail(err, MOTE_EFORMAT, "%s: %zu bytes are too short for a safetensors header",
                          what, n);
    uint64_t header_bytes = mote__le64(bytes);
    if (header_bytes > HEADER_MAX)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: the header length %llu is over the format's limit of %d", what,
                          (unsigned long long)header_bytes, (int)HEADER_MAX);
    if (header_bytes > n - 8)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: the header length %llu passes the end of the file (%zu bytes)", what,
                          (unsigned long long)header_bytes, n);
    const uint8_t *data = bytes + 8 + header_bytes;
    uint64_t data_bytes = n - 8 - header_bytes;

    json_t *root = NULL;
    struct entry *entries = NULL;
    size_t n_entries = 0, entries_bytes = 0;
    int rc = mote__json_parse(&root, (const char *)bytes + 8, (size_t)header_bytes, what, err);
    if (rc)
        return rc;
    if (!json_is_object(root)) {
        rc = mote__fail(err, MOTE_EFORMAT, "%s: the header is not a JSON object", what);
        goto out;
    }
    entries_bytes = mote__mul(json_object_size(root), sizeof *entries);
    entries = mote__alloc(NULL, MOTE_MEM_OTHER, entries_bytes);
    if (!entries) {
        rc = mote__fail(err, MOTE_ENOMEM, "%s: out of memory for %zu tensors", what,
                        json_object_size(root));
        goto out;
    }
    const char *name;
    json_t *v;
    json_object_foreach(root, name, v)
    {
        if (!strcmp(name, "__metadata__"))
            rc = check_metadata(v, what, err);
        else
            rc = read_entry(&entries[n_entries++], name, v, data_bytes, what, err);
        if (rc)
            goto out;
    }
    qsort(entries, n_entries, sizeof *entries, by_offset);
    rc = check_tiling(entries, n_entries, data_bytes, what, err);
    for (size_t i = 0; !rc && i < n_entries; i++) {
        entries[i].t.data = data + entries[i].begin;
        rc = on_tensor ? on_tensor(ctx, &entries[i].t, err) : MOTE_OK;
    }
out:
    mote__free(NULL, MOTE_MEM_OTHER, entries, entries_bytes);
    json_decref(root);
    return rc;
}
