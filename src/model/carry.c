#include "model/carry.h"

#include <assert.h>
#include <string.h>

void mote__carry_copy(mote__carry *to, const mote__carry *from)
{
    size_t n = from->n_tokens;
    assert(to->n_tokens == n && to->h_width == from->h_width && to->mix_width == from->mix_width &&
           to->topk_room == from->topk_room && to->candidate_room == from->candidate_room);
    memcpy(to->h, from->h, n * from->h_width * sizeof *to->h);
    memcpy(to->mix, from->mix, n * from->mix_width * sizeof *to->mix);
    memcpy(to->topk, from->topk, n * from->topk_room * sizeof *to->topk);
    memcpy(to->n_topk, from->n_topk, n * sizeof *to->n_topk);
    memcpy(to->candidates, from->candidates, n * from->candidate_room * sizeof *to->candidates);
    memcpy(to->n_candidates, from->n_candidates, n * sizeof *to->n_candidates);
}
