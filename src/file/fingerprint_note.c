/* Owns the notes of fingerprints: small files, each for one state of one checkpoint. */
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/le.h"
#include "base/crc32c.h"
#include "base/file_limit.h"
#include "file/fingerprint.h"
#include "base/path.h"

enum { KEY = 8, DIGEST = 40, CRC = 72, NOTE = 80, SETTLED_S = 2 };
static const char magic[8] = "MOTEFPR1";

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static int add_id(EVP_MD_CTX *md, const mote__file_id *id)
{
    const uint64_t words[5] = { id->device, id->inode, id->size, (uint64_t)id->mtime_ns,
                                (uint64_t)id->ctime_ns };
    uint8_t b[sizeof words];
    for (size_t i = 0; i < sizeof b; i++)
        b[i] = (uint8_t)(words[i / 8] >> 8 * (i % 8));
    return EVP_DigestUpdate(md, b, sizeof b);
}

/* Compute the key of the files in the state in which they were opened. 0: out of memory. *settled:
 * the newest change is old enough for a note to be written. */
static int key_of(uint8_t key[32], const mote__checkpoint *ckpt, const mote__file_id *config,
                  int *settled)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    int64_t newest = config->ctime_ns;
    int good = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) &&
               EVP_DigestUpdate(md, "mote fingerprint note 1", 23) && add_id(md, config);
    for (size_t i = 0; good && i < mote__checkpoint_n_shards(ckpt); i++) {
        const mote__file_id *id = &mote__checkpoint_shard_map(ckpt, i)->id;
        newest = id->ctime_ns > newest ? id->ctime_ns : newest;
        good = add_id(md, id);
    }
    good = good && EVP_DigestFinal_ex(md, key, NULL);
    EVP_MD_CTX_free(md);
    *settled = newest / 1000000000 + SETTLED_S < (int64_t)time(NULL);
    return good;
}

static int same(const mote__file_id *id, const char *path)
{
    mote__file_id now;
    return !mote__file_id_get(&now, path, NULL) && now.device == id->device &&
           now.inode == id->inode && now.size == id->size && now.mtime_ns == id->mtime_ns &&
           now.ctime_ns == id->ctime_ns;
}

/* Whether the files are unchanged since they were opened, so that the hashed contents belong to the
 * key. */
static int unchanged(const mote__checkpoint *ckpt, const mote__file_id *config,
                     const char *config_path)
{
    int good = same(config, config_path);
    for (size_t i = 0; good && i < mote__checkpoint_n_shards(ckpt); i++)
        good = same(&mote__checkpoint_shard_map(ckpt, i)->id, mote__checkpoint_shard_path(ckpt, i));
    return good;
}

static int read_note(uint8_t digest[32], const uint8_t key[32], const char *path)
{
    uint8_t b[NOTE + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : read(fd, b, sizeof b);
    if (fd >= 0)
        close(fd);
    if (n != NOTE || memcmp(b, magic, sizeof magic) || memcmp(b + KEY, key, 32) ||
        mote__le32(b + CRC) != mote__crc32c(0, b, CRC))
        return 0;
    memcpy(digest, b + DIGEST, 32);
    return 1;
}

static void write_note(const uint8_t digest[32], const uint8_t key[32], const char *path)
{
    uint8_t b[NOTE] = { 0 };
    char beside[MOTE_PATH_ROOM + 24];
    memcpy(b, magic, sizeof magic);
    memcpy(b + KEY, key, 32);
    memcpy(b + DIGEST, digest, 32);
    put_u32(b + CRC, mote__crc32c(0, b, CRC));
    snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    if (!mote__file_size_allowed(sizeof b))
        return;
    /* left by a dead process with our process id */
    unlink(beside);
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    /* no sync: after a crash a torn note fails its checksum */
    int good = write(fd, b, sizeof b) == (ssize_t)sizeof b;
    close(fd);
    if (!good || rename(beside, path))
        unlink(beside);
}

int mote__fingerprint_noted(uint8_t digest[32], const mote__checkpoint *ckpt,
                            const char *config_path, const char *notes, int may_write,
                            mote_err *err)
{
    mote__file_id config;
    uint8_t key[32];
    char path[MOTE_PATH_ROOM];
    int settled, rc = mote__file_id_get(&config, config_path, err);
    if (rc)
        return rc;
    if (!key_of(key, ckpt, &config, &settled))
        return mote__fingerprint(digest, ckpt, config_path, err);
    char name[64] = "model-";
    for (size_t i = 0; i < 16; i++)
        snprintf(name + strlen(name), sizeof name - strlen(name), "%02x", key[i]);
    strcat(name, ".mote");
    if (!*mote__path_join(path, notes, name))
        return mote__fingerprint(digest, ckpt, config_path, err);
    if (read_note(digest, key, path))
        return 0;
    rc = mote__fingerprint(digest, ckpt, config_path, err);
    if (!rc && may_write && settled && unchanged(ckpt, &config, config_path))
        write_note(digest, key, path);
    return rc;
}
