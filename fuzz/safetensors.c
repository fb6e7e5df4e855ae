/* Any bytes as a safetensors file: what is accepted must lie inside the file and tile it, and
 * survive being written and read. */
#include <stdlib.h>

#include "file/safetensors.h"
#include "base/le.h"

struct seen {
    const uint8_t *data, *end;
    uint64_t bytes;
    unsigned sum;
};

static int see(void *ctx, const mote__tensor *t, mote_err *err)
{
    struct seen *s = ctx;
    (void)err;
    if (mote__shape_bytes(t->dtype, t->shape, t->n_dims) != t->n_bytes || t->data < s->data ||
        t->data > s->end || t->n_bytes > (uint64_t)(s->end - t->data))
        abort();
    for (uint64_t i = 0; i < t->n_bytes; i++)
        s->sum += t->data[i];
    s->bytes += t->n_bytes;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen s = { .data = data, .end = data + size };
    mote_err err;
    if (!mote__safetensors_parse(data, size, "fuzz", see, &s, &err) &&
        s.bytes != size - 8 - mote__le64(data))
        abort();
    return 0;
}
