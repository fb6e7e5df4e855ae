/* safetensors, the writer: one file, replaced as a whole or not at all. The order of tensors is the
 * caller's; put wider dtypes first to keep data aligned (the header is padded so that data starts
 * at a multiple of 8). */
#include "file/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/replace.h"
#include "base/json.h"

/* The header's JSON text, malloc'd, padded with blanks to a multiple of 8. */
static int make_header(char **text, size_t *n_text, const char *path, const mote__tensor *tensors,
                       size_t n, mote_err *err)
{
    json_t *root = json_object();
    uint64_t at = 0;
    int rc = root ? MOTE_OK : MOTE_ENOMEM;
    for (size_t i = 0; !rc && i < n; i++) {
        const mote__tensor *t = &tensors[i];
        uint64_t end = at;
        if (!t->name || !strcmp(t->name, "__metadata__"))
            rc = mote__fail(err, MOTE_EINVAL, "%s: tensor %zu has no usable name", path, i);
        else if (json_object_get(root, t->name))
            rc = mote__fail(err, MOTE_EINVAL, "%s: tensor '%.160s' is given twice", path, t->name);
        else if (t->n_dims > MOTE_MAX_DIMS || (unsigned)t->dtype >= MOTE_DTYPES ||
                 mote__shape_bytes(t->dtype, t->shape, t->n_dims) != t->n_bytes ||
                 t->n_bytes > INT64_MAX)
            rc = mote__fail(err, MOTE_EINVAL,
                            "%s: tensor '%.160s': dtype, shape and bytes contradict each other",
                            path, t->name);
        else if (__builtin_add_overflow(at, t->n_bytes, &end) || end > INT64_MAX)
            rc = mote__fail(err, MOTE_EINVAL, "%s: tensor '%.160s' passes 2^63 bytes of data", path,
                            t->name);
        if (rc)
            break;
        json_t *shape = json_array();
        for (unsigned d = 0; d < t->n_dims; d++) {
            /* possible where another dimension is 0; the format has no such number */
            if (t->shape[d] > INT64_MAX)
                rc = mote__fail(err, MOTE_EINVAL, "%s: tensor '%.160s': shape[%u] passes 2^63",
                                path, t->name, d);
            json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
        }
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", mote__dtype_name(t->dtype),
                                  "shape", shape, "data_offsets", (json_int_t)at, (json_int_t)end);
        if (!entry)
            rc = rc ? rc : MOTE_ENOMEM;
        else if (json_object_set_new(root, t->name, entry))
            rc = mote__fail(err, MOTE_EINVAL, "%s: tensor %zu: its name is not valid UTF-8", path,
                            i);
        at = end;
    }
    char *json = rc ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (json) {
        size_t length = strlen(json), padded = (length + 7) & ~(size_t)7;
        char *grown = realloc(json, padded + 1);
        if (grown) {
            memset(grown + length, ' ', padded - length);
            *text = grown;
            *n_text = padded;
            return MOTE_OK;
        }
        free(json);
    }
    return rc && rc != MOTE_ENOMEM
               ? rc
               : mote__fail(err, MOTE_ENOMEM, "%s: out of memory for the header", path);
}

int mote__safetensors_write(const char *path, const mote__tensor *tensors, size_t n, mote_err *err)
{
    char *header = NULL;
    size_t header_bytes = 0;
    mote__replace out;
    int rc = make_header(&header, &header_bytes, path, tensors, n, err);
    if (!rc)
        rc = mote__replace_begin(&out, path, 0666, err);
    if (!rc) {
        uint8_t length[8];
        for (int i = 0; i < 8; i++)
            length[i] = (uint8_t)((uint64_t)header_bytes >> 8 * i);
        fwrite(length, 1, 8, out.file);
        fwrite(header, 1, header_bytes, out.file);
        for (size_t i = 0; i < n && !ferror(out.file); i++)
            fwrite(tensors[i].data, 1, tensors[i].n_bytes, out.file);
        rc = mote__replace_commit(&out, err);
    }
    free(header);
    return rc;
}
