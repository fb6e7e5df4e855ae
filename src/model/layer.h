/* A pass: a batch of tokens through consecutive layers. The layer plan says what each layer does
 * and which backend does it; where two layers' backends differ, the carry moves. */
#ifndef MOTE_MODEL_LAYER_H
#define MOTE_MODEL_LAYER_H

#include "model/net.h"

enum { MOTE_MAX_BACKENDS = 4 };

typedef struct mote__pass {
    mote__net *net; /* borrowed */
    mote__batch batch;
    /* of each backend in the plan; owned, made by the first begin */
    mote__backend_pass *of[MOTE_MAX_BACKENDS];
    mote__backend_pass *holds; /* the one whose carry is the pass's; NULL: before embed */
    mote__buf logits;          /* for the caller's rows of logits */
} mote__pass;

void mote__pass_init(mote__pass *pass, mote__net *net);
void mote__pass_deinit(mote__pass *pass);
/* Bytes of scratch of a pass over n_tokens, for choosing how many it may have. */
size_t mote__pass_bytes(const mote__net *net, size_t n_tokens);
/* Free what grows with the number of tokens (it comes back with the next mote__pass_begin). */
void mote__pass_shrink(mote__pass *pass);

/* Make room for the extents' tokens and list the rows. The extents are borrowed until the next
 * begin. 0 or MOTE_ENOMEM. */
int mote__pass_begin(mote__pass *pass, mote__extent *extents, size_t n_extents);
/* The carry from token embeddings. */
int mote__pass_embed(mote__pass *pass);
/* Run layers [first, last), of one half, over the live rows. 0 or MOTE_ENOMEM. */
int mote__pass_layers(mote__pass *pass, size_t first, size_t last);
/* Global KV of the decoder half from the encoder's output, for rows from publish_from on. */
int mote__pass_publish_decoder(mote__pass *pass);
/* Logits of n rows (numbers into batch.rows): n x vocab floats. */
int mote__pass_logits(mote__pass *pass, const uint32_t *rows, size_t n, float *logits);

/* A cut before `layer`. carry: the state behind the layers that ran, borrowed until the next call
 * on this pass. take: a pass that was begun with the same extents, `skip` included, goes on from
 * it at `layer`. */
int mote__pass_carry(mote__pass *pass, mote__carry *view);
int mote__pass_take(mote__pass *pass, size_t layer, const mote__carry *carry);

#endif
