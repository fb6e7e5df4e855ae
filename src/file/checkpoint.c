/* A checkpoint: the shards of a folder (or one file), mapped, and one list of all tensors, sorted
 * by name for a binary search. Owns the agreement of index and shards; what one file must obey is
 * safetensors.c's. Files must not shrink while they are mapped: the system answers a read past the
 * new end with SIGBUS, as for every program that maps files.
 *
 * The index is { "metadata": {...}, "weight_map": { "tensor": "shard file" } }.
 * `metadata.total_size` is not compared: published conversions are known to carry wrong sums, and
 * sizes are checked tensor by tensor anyway. */
#include "file/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/explain.h"
#include "base/json.h"

/* 96,085 tensors make an index of about 9 MB. */
enum { INDEX_MAX = 256 << 20, NAMES_CHUNK = 256 << 10 };
static const char index_name[] = "model.safetensors.index.json",
                  single_name[] = "model.safetensors", single_end[] = ".safetensors";

struct shard {
    char *path;       /* owned */
    const char *file; /* last part of path */
    mote__map map;
    int fd; /* owned; -1: not kept */
};

/* Names are copied out of the headers' JSON, which is some ten times as large, into chunks that
 * never move. */
struct chunk {
    struct chunk *next;
    size_t used, size;
    char bytes[];
};

struct mote__checkpoint {
    struct shard *shards; /* owned, n_shards */
    size_t n_shards;
    mote__buf tensors; /* of mote__tensor, sorted by name once open */
    struct chunk *names;
    uint64_t n_bytes;
};

static const mote__tensor *all(const mote__checkpoint *c) { return c->tensors.data; }
size_t mote__checkpoint_n_tensors(const mote__checkpoint *c)
{
    return c->tensors.size / sizeof(mote__tensor);
}
const mote__tensor *mote__checkpoint_tensor(const mote__checkpoint *c, size_t i)
{
    return &all(c)[i];
}
size_t mote__checkpoint_n_shards(const mote__checkpoint *c) { return c->n_shards; }
const char *mote__checkpoint_shard_path(const mote__checkpoint *c, size_t shard)
{
    return c->shards[shard].path;
}
const mote__map *mote__checkpoint_shard_map(const mote__checkpoint *c, size_t shard)
{
    return &c->shards[shard].map;
}
uint64_t mote__checkpoint_shard_bytes(const mote__checkpoint *c, size_t shard)
{
    return c->shards[shard].map.size;
}
uint64_t mote__checkpoint_bytes(const mote__checkpoint *c) { return c->n_bytes; }

size_t mote__checkpoint_memory(const mote__checkpoint *c)
{
    size_t n = sizeof *c + c->n_shards * sizeof *c->shards + c->tensors.capacity;
    for (const struct chunk *k = c->names; k; k = k->next)
        n += sizeof *k + k->size;
    return n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const mote__tensor *)a)->name, ((const mote__tensor *)b)->name);
}

const mote__tensor *mote__checkpoint_find(const mote__checkpoint *c, const char *name)
{
    mote__tensor key = { .name = name };
    size_t n = mote__checkpoint_n_tensors(c);
    return n ? bsearch(&key, all(c), n, sizeof key, by_name) : NULL;
}

static char *keep_name(mote__checkpoint *c, const char *name)
{
    size_t n = strlen(name) + 1;
    if (!c->names || c->names->size - c->names->used < n) {
        size_t size = n > NAMES_CHUNK ? n : NAMES_CHUNK;
        struct chunk *chunk = mote__alloc(NULL, MOTE_MEM_OTHER, mote__add(sizeof *chunk, size));
        if (!chunk)
            return NULL;
        *chunk = (struct chunk){ .next = c->names, .size = size };
        c->names = chunk;
    }
    char *kept = memcpy(c->names->bytes + c->names->used, name, n);
    c->names->used += n;
    return kept;
}

/* What the callback of one shard's parse needs. weight_map is NULL where there is no index. */
struct shard_parse {
    mote__checkpoint *c;
    unsigned shard;
    const json_t *weight_map;
};

static int take_tensor(void *ctx, const mote__tensor *t, mote_err *err)
{
    struct shard_parse *p = ctx;
    const struct shard *s = &p->c->shards[p->shard];
    if (p->weight_map) {
        /* This also catches a tensor that lies in two shards: the index can name only one of them.
         */
        const char *place = json_string_value(json_object_get(p->weight_map, t->name));
        if (!place)
            return mote__fail(err, MOTE_EFORMAT, "%s: tensor '%.160s' is not in %s", s->path,
                              t->name, index_name);
        if (strcmp(place, s->file))
            return mote__fail(err, MOTE_EFORMAT,
                              "%s: tensor '%.160s' is here, but %s places it in '%.80s'", s->path,
                              t->name, index_name, place);
    }
    mote__tensor kept = *t;
    kept.shard = p->shard;
    kept.name = keep_name(p->c, t->name);
    if (!kept.name || mote__buf_append(&p->c->tensors, &kept, sizeof kept))
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory for the list of tensors", s->path);
    p->c->n_bytes += t->n_bytes;
    return MOTE_OK;
}

/* Every tensor of the index must have been met in its shard. */
static int check_index_met(const mote__checkpoint *c, const json_t *weight_map,
                           const char *index_path, mote_err *err)
{
    const char *name;
    json_t *place;
    json_object_foreach((json_t *)weight_map, name, place) if (
        !mote__checkpoint_find(c, name)) return mote__fail(err, MOTE_EFORMAT,
                                                           "%s: tensor '%.160s' is not in '%.80s', "
                                                           "where the index places it",
                                                           index_path, name,
                                                           json_string_value(place));
    return MOTE_OK;
}

/* A shard is a plain file name beside the index: nothing that could lead elsewhere. */
static int check_shard_name(const char *name, const char *tensor, const char *index_path,
                            mote_err *err)
{
    size_t n = strlen(name);
    static const char ending[] = ".safetensors";
    if (name[0] == '.' || strchr(name, '/') || n < sizeof ending ||
        strcmp(name + n - (sizeof ending - 1), ending))
        return mote__fail(
            err, MOTE_EFORMAT,
            "%s: tensor '%.160s': shard '%.80s' is not the plain name of a .safetensors file",
            index_path, tensor, name);
    return MOTE_OK;
}

static int by_string(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Distinct shard names of the index, sorted, become c->shards (paths only). */
static int list_shards(mote__checkpoint *c, const char *folder, const json_t *weight_map,
                       const char *index_path, mote_err *err)
{
    size_t n = json_object_size(weight_map), n_names = 0,
           names_bytes = mote__mul(n, sizeof(char *));
    if (n == 0)
        return mote__fail(err, MOTE_EFORMAT, "%s: 'weight_map' is empty", index_path);
    const char **names = mote__alloc(NULL, MOTE_MEM_OTHER, names_bytes);
    if (!names)
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory for %zu names", index_path, n);
    int rc = MOTE_OK;
    const char *tensor;
    json_t *place;
    json_object_foreach((json_t *)weight_map, tensor, place)
    {
        if (!json_is_string(place))
            rc = mote__fail(err, MOTE_EFORMAT, "%s: 'weight_map': '%.160s' is not a string",
                            index_path, tensor);
        else
            rc = check_shard_name(json_string_value(place), tensor, index_path, err);
        if (rc)
            goto out;
        names[n_names++] = json_string_value(place);
    }
    qsort(names, n_names, sizeof *names, by_string);
    size_t n_distinct = 0;
    for (size_t i = 0; i < n_names; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]))
            names[n_distinct++] = names[i];
    c->shards = calloc(n_distinct, sizeof *c->shards);
    for (size_t i = 0; c->shards && i < n_distinct; i++) {
        if (asprintf(&c->shards[i].path, "%s/%s", folder, names[i]) < 0) {
            c->shards[i].path = NULL;
            break;
        }
        c->shards[i].fd = -1;
        c->n_shards++;
    }
    if (c->n_shards < n_distinct)
        rc = mote__fail(err, MOTE_ENOMEM, "%s: out of memory for %zu shards", index_path,
                        n_distinct);
out:
    mote__free(NULL, MOTE_MEM_OTHER, names, names_bytes);
    return rc;
}

/* Descriptors in the upper half of the allowed range stay free for the rest of the process, and so
 * do the standard ones of a process that was started without them. */
static int may_keep(int fd)
{
    struct rlimit most;
    return fd > STDERR_FILENO && !getrlimit(RLIMIT_NOFILE, &most) && (rlim_t)fd < most.rlim_cur / 2;
}

static int open_shards(mote__checkpoint *c, const json_t *weight_map, mote_err *err)
{
    for (size_t i = 0; i < c->n_shards; i++) {
        struct shard *s = &c->shards[i];
        const char *slash = strrchr(s->path, '/');
        s->file = slash ? slash + 1 : s->path;
        mote_err why;
        int fd, rc = mote__map_open_fd(&s->map, &fd, s->path, &why);
        if (rc && weight_map)
            return mote__fail(err, rc, "%.400s (a shard named by %s)", why.message, index_name);
        if (rc)
            return mote__fail(err, rc, "%s", why.message);
        if (may_keep(fd))
            s->fd = fd;
        else
            close(fd);
        struct shard_parse p = { c, (unsigned)i, weight_map };
        rc = mote__safetensors_parse(s->map.data, s->map.size, s->path, take_tensor, &p, err);
        if (rc)
            return rc;
    }
    if (c->tensors.size)
        qsort(c->tensors.data, mote__checkpoint_n_tensors(c), sizeof(mote__tensor), by_name);
    return MOTE_OK;
}

static int open_indexed(mote__checkpoint *c, const char *folder, const char *index_path,
                        mote_err *err)
{
    json_t *root = NULL;
    int rc = mote__json_load(&root, index_path, INDEX_MAX, err);
    if (rc)
        return rc;
    const json_t *weight_map = json_object_get(root, "weight_map");
    if (!json_is_object(weight_map))
        rc = mote__fail(err, MOTE_EFORMAT, "%s: 'weight_map' is %s", index_path,
                        weight_map ? "not an object" : "missing");
    if (!rc)
        rc = list_shards(c, folder, weight_map, index_path, err);
    if (!rc)
        rc = open_shards(c, weight_map, err);
    if (!rc)
        rc = check_index_met(c, weight_map, index_path, err);
    json_decref(root);
    return rc;
}

static int open_single(mote__checkpoint *c, const char *path, mote_err *err)
{
    c->shards = calloc(1, sizeof *c->shards);
    char *copy = c->shards ? strdup(path) : NULL;
    if (!copy)
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", path);
    c->shards[0].path = copy;
    c->shards[0].fd = -1;
    c->n_shards = 1;
    return open_shards(c, NULL, err);
}

int mote__checkpoint_open(mote__checkpoint **ckpt, const char *path, mote_err *err)
{
    *ckpt = NULL;
    struct stat st;
    if (stat(path, &st))
        return mote__explain_folder(path, NULL, err);
    size_t n = strlen(path), m = strlen(single_end);
    if (S_ISREG(st.st_mode) && (n < m || strcmp(path + n - m, single_end))) {
        int rc = mote__explain_file(path, 0, err);
        if (rc)
            return rc;
    }
    mote__checkpoint *c = calloc(1, sizeof *c);
    char *index_path = NULL, *single = NULL;
    int rc;
    if (!c)
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", path);
    mote__buf_init(&c->tensors, NULL, MOTE_MEM_OTHER);
    if (asprintf(&index_path, "%s/%s", path, index_name) < 0)
        index_path = NULL;
    if (asprintf(&single, "%s/%s", path, single_name) < 0)
        single = NULL;
    if (!index_path || !single)
        rc = mote__fail(err, MOTE_ENOMEM, "%s: out of memory", path);
    else if (!S_ISDIR(st.st_mode))
        rc = open_single(c, path, err);
    else if (mote__file_is_there(index_path))
        rc = open_indexed(c, path, index_path, err);
    else if (mote__file_is_there(single))
        rc = open_single(c, single, err);
    else
        rc = mote__explain_weights(path, err);
    free(index_path);
    free(single);
    if (rc) {
        mote__checkpoint_close(c);
        return rc;
    }
    *ckpt = c;
    return MOTE_OK;
}

mote__source mote__checkpoint_source(const mote__checkpoint *c, const mote__tensor *t)
{
    uint64_t offset = (uint64_t)(t->data - c->shards[t->shard].map.data);
    return (mote__source){ .shard = t->shard, .offset = offset, .bytes = t->n_bytes };
}

int mote__checkpoint_shard_fd(const mote__checkpoint *c, size_t shard)
{
    return c->shards[shard].fd;
}

/* *fd: of the file that is mapped, for this read; the caller closes it. */
static int reopen(const struct shard *s, int *fd, mote_err *err)
{
    mote__map now;
    int rc = mote__map_open_fd(&now, fd, s->path, err);
    if (rc)
        return rc;
    if (now.id.device != s->map.id.device || now.id.inode != s->map.id.inode ||
        now.id.size != s->map.id.size || now.id.mtime_ns != s->map.id.mtime_ns) {
        rc = mote__fail(err, MOTE_EIO, "%s: has changed since it was opened", s->path);
        close(*fd);
    }
    mote__map_close(&now);
    return rc;
}

int mote__checkpoint_read(const mote__checkpoint *c, const mote__source *source, void *to,
                          mote_err *err)
{
    if (source->shard >= c->n_shards)
        return mote__fail(err, MOTE_EINVAL, "shard %u of %zu", source->shard, c->n_shards);
    const struct shard *s = &c->shards[source->shard];
    if (source->offset > s->map.size || source->bytes > s->map.size - source->offset)
        return mote__fail(err, MOTE_EINVAL, "%s: %llu bytes at %llu are outside of the file",
                          s->path, (unsigned long long)source->bytes,
                          (unsigned long long)source->offset);
    int rc = MOTE_OK, fd = s->fd;
    if (fd < 0 && (rc = reopen(s, &fd, err)))
        return rc;
    for (uint64_t done = 0; done < source->bytes && !rc;) {
        ssize_t n = pread(fd, (uint8_t *)to + done, (size_t)(source->bytes - done),
                          (off_t)(source->offset + done));
        if (n > 0)
            done += (uint64_t)n;
        else if (n == 0)
            rc = mote__fail(err, MOTE_EIO, "%s: has become shorter since it was opened", s->path);
        else if (errno != EINTR)
            rc = mote__fail(err, MOTE_EIO, "%s: cannot read: %s", s->path, strerror(errno));
    }
    if (s->fd < 0)
        close(fd);
    return rc;
}

void mote__checkpoint_close(mote__checkpoint *c)
{
    if (!c)
        return;
    mote__buf_deinit(&c->tensors);
    while (c->names) {
        struct chunk *next = c->names->next;
        mote__free(NULL, MOTE_MEM_OTHER, c->names, sizeof *c->names + c->names->size);
        c->names = next;
    }
    for (size_t i = 0; i < c->n_shards; i++) {
        if (c->shards[i].fd >= 0)
            close(c->shards[i].fd);
        mote__map_close(&c->shards[i].map);
        free(c->shards[i].path);
    }
    free(c->shards);
    free(c);
}
