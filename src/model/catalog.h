/* Where a loaded model has each tensor of the names' tables (file/names.h), and to which group of
 * weights it belongs. With those tables it is the one list of tensors: loading, placement and the
 * bench's model walk it. */
#ifndef MOTE_MODEL_CATALOG_H
#define MOTE_MODEL_CATALOG_H

#include "file/names.h"
#include "model/weights.h"

typedef enum mote__form {
    MOTE_FORM_MATRIX, /* a mote__mat of linears */
    MOTE_FORM_TABLE,  /* a mote__mat whose rows are looked up; E4M3, scales by row */
    MOTE_FORM_VECTOR, /* fp32 copy */
    MOTE_FORM_FACTOR  /* multiplied into the vector that is there: its row comes later */
} mote__form;

typedef enum mote__owner { MOTE_OF_MODEL, MOTE_OF_LAYER, MOTE_OF_EXPERT } mote__owner;

typedef struct mote__catalog_row {
    mote__form form;
    mote_weight_group group; /* of a model with experts; else the shared one is dense */
    mote__owner owner;
    size_t at; /* of the member, in mote__weights, mote__layer_weights or mote__expert */
} mote__catalog_row;

const mote__catalog_row *mote__catalog(mote__tensor_id id);
/* A mote__mat or a float *, as the row's form says. layer, expert: as its owner needs them. */
void *mote__catalog_member(mote__weights *w, mote__tensor_id id, size_t layer, size_t expert);
mote_weight_group mote__catalog_group(const mote__weights *w, mote__tensor_id id);

/* Bytes of a matrix or table as it is stored: codes, and scales. */
size_t mote__mat_code_bytes(const mote__mat *m);
size_t mote__mat_scale_bytes(const mote__mat *m, mote__form form);
/* Of an expert's three matrices. */
size_t mote__expert_bytes(const mote__expert *x);

/* Every matrix and table of the groups (a set of 1 << mote_weight_group) that the model has. */
void mote__weights_each(mote__weights *w, unsigned groups,
                        void (*each)(void *ctx, mote__tensor_id id, mote__mat *m), void *ctx);

#endif
