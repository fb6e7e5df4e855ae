/* Owns the digest of a checkpoint; fingerprint_note.c caches it. */
#include "file/fingerprint.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

static void add_u64(EVP_MD_CTX *md, uint64_t v)
{
    uint8_t b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> 8 * i);
    EVP_DigestUpdate(md, b, sizeof b);
}

static void add_text(EVP_MD_CTX *md, const char *s)
{
    add_u64(md, strlen(s));
    EVP_DigestUpdate(md, s, strlen(s));
}

/* Hash the name, dtype and shape of a tensor, then all of its bytes or three pages of them. */
static void add_tensor(EVP_MD_CTX *md, const mote__tensor *t, int whole)
{
    add_text(md, t->name);
    add_text(md, mote__dtype_name(t->dtype));
    add_u64(md, t->n_dims);
    for (unsigned i = 0; i < t->n_dims; i++)
        add_u64(md, t->shape[i]);
    if (whole || t->n_bytes <= 3 * PAGE) {
        EVP_DigestUpdate(md, t->data, t->n_bytes);
        return;
    }
    EVP_DigestUpdate(md, t->data, PAGE);
    EVP_DigestUpdate(md, t->data + (t->n_bytes / 2 - PAGE / 2), PAGE);
    EVP_DigestUpdate(md, t->data + (t->n_bytes - PAGE), PAGE);
}

int mote__fingerprint(uint8_t digest[32], const mote__checkpoint *ckpt, const char *config_path,
                      mote_err *err)
{
    mote__map config;
    int rc = mote__map_open(&config, config_path, err);
    if (rc)
        return rc;
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    if (!md || !EVP_DigestInit_ex(md, EVP_sha256(), NULL)) {
        EVP_MD_CTX_free(md);
        mote__map_close(&config);
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a fingerprint");
    }
    int whole = mote__checkpoint_bytes(ckpt) < MOTE_FINGERPRINT_WHOLE;
    add_text(md, whole ? "mote fingerprint 1 whole" : "mote fingerprint 1 pages");
    add_u64(md, config.size);
    EVP_DigestUpdate(md, config.data, config.size);
    size_t n = mote__checkpoint_n_tensors(ckpt);
    add_u64(md, n);
    /* sorted by name, so that the distribution over shards does not matter */
    for (size_t i = 0; i < n; i++)
        add_tensor(md, mote__checkpoint_tensor(ckpt, i), whole);
    EVP_DigestFinal_ex(md, digest, NULL);
    EVP_MD_CTX_free(md);
    mote__map_close(&config);
    return 0;
}
