/* Profiles: the formats that a tuning chose for one model, with what was measured then. Source of
 * the fields: docs/profile.md. */
#ifndef MOTE_LAB_PROFILE_H
#define MOTE_LAB_PROFILE_H

#include <jansson.h>

#include <mote/mote.h>

enum { LAB_PROFILE_VERSION = 1, LAB_PROFILE_KV_BYTES = 2048, LAB_PROFILE_MAX_BYTES = 1 << 20 };

typedef struct lab_profile {
    char kv[LAB_PROFILE_KV_BYTES]; /* as for --kv */
    char fingerprint[65];          /* of the model, 64 lower-case hexadecimal digits */
    json_t *root;                  /* the whole of it; owned */
} lab_profile;

/* `name` is for messages. Only what is used is checked: format, version, model.fingerprint, kv.
 * MOTE_EVERSION: from a newer mote. */
int lab_profile_parse(lab_profile *p, const char *name, const char *text, size_t n_bytes,
                      mote_err *err);
void lab_profile_free(lab_profile *p);
/* MOTE_EINVAL with a sentence unless the model at `path` is the one the profile was made for. */
int lab_profile_check(const lab_profile *p, const char *name, const char *path, mote_err *err);
/* Replaces the file in one step. */
int lab_profile_write(const char *file, const json_t *root, mote_err *err);

#endif
