/* safetensors, the writer: one file, replaced as a whole or not at all. The order of tensors is the caller's; put wider
 * dtypes first to keep data aligned (the header is padded so that data starts at a multiple of 8). */
#include "file/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/json.h"

/* The header's JSON text, malloc'd, padded with blanks to a multiple of 8. */
static int make_header(char **text, size_t *n_text, const char *path, const mote__tensor *tensors, size_t n, mote_err *err)
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
                 mote__shape_bytes(t->dtype, t->shape, t->n_dims) != t->n_bytes || t->n_bytes > INT64_MAX)
            rc = mote__fail(err, MOTE_EINVAL, "%s: tensor '%.160s': dtype, shape and bytes contradict each other", path, t->name);
        else if (__builtin_add_overflow(at, t->n_bytes, &end) || end > INT64_MAX)
            rc = mote__fail(err, MOTE_EINVAL, "%s: tensor '%.160s' passes 2^63 bytes of data", path, t->name);
        if (rc)
            break;
        json_t *shape = json_array();
        for (unsigned d = 0; d < t->n_dims; d++) {
            if (t->shape[d] > INT64_MAX)          /* possible where another dimension is 0; the format has no such number */
                rc = mote__fail(err, MOTE_EINVAL, "%s: tensor '%.160s': shape[%u] passes 2^63", path, t->name, d);
            json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
        }
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", mote__dtype_name(t->dtype), "shape", shape,
                                  "data_offsets", (json_int_t)at, (json_int_t)end);
        if (!entry)
            rc = rc ? rc : MOTE_ENOMEM;
        else if (json_object_set_new(root, t->name, entry))
            rc = mote__fail(err, MOTE_EINVAL, "%s: tensor %zu: its name is not valid UTF-8", path, i);
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
    return rc && rc != MOTE_ENOMEM ? rc : mote__fail(err, MOTE_ENOMEM, "%s: out of memory for the header", path);
}

static int write_all(int fd, const void *bytes, uint64_t n)
{
    const char *p = bytes;
    while (n) {
        ssize_t done = write(fd, p, n < 1 << 30 ? (size_t)n : 1 << 30);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            if (done == 0)
                errno = EIO;
            return -1;
        }
        p += done;
        n -= (uint64_t)done;
    }
    return 0;
}

/* So that the rename itself survives a power cut. Some file systems refuse to sync a folder; the file is whole anyway. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == path ? strdup("/") : slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

int mote__safetensors_write(const char *path, const mote__tensor *tensors, size_t n, mote_err *err)
{
    static _Atomic unsigned serial;
    char *header = NULL, *temp = NULL;
    size_t header_bytes = 0;
    int fd = -1, rc = make_header(&header, &header_bytes, path, tensors, n, err);
    if (rc)
        return rc;
    if (asprintf(&temp, "%s.tmp-%ld-%u", path, (long)getpid(), atomic_fetch_add(&serial, 1)) < 0) {
        temp = NULL;
        rc = mote__fail(err, MOTE_ENOMEM, "%s: out of memory", path);
        goto out;
    }
    fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        rc = mote__fail(err, MOTE_EIO, "%s: cannot create: %s", temp, strerror(errno));
        goto out;
    }
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header_bytes >> 8 * i);
    int failed = write_all(fd, length, 8) || write_all(fd, header, header_bytes);
    for (size_t i = 0; !failed && i < n; i++)
        failed = write_all(fd, tensors[i].data, tensors[i].n_bytes);
    failed = failed || fsync(fd);
    int closed = close(fd);
    fd = -1;
    if (failed || closed || rename(temp, path)) {
        rc = mote__fail(err, MOTE_EIO, "%s: cannot write: %s", path, strerror(errno));
        unlink(temp);
        goto out;
    }
    sync_folder(path);
out:
    if (fd >= 0)
        close(fd);
    free(temp);
    free(header);
    return rc;
}
