#include "file/runs.h"

#include <assert.h>

void mote__runs_of(mote__runs *runs, const mote__source *tensors, size_t n)
{
    size_t order[MOTE_RUN_TENSORS], k = 0;
    assert(n <= MOTE_RUN_TENSORS);
    *runs = (mote__runs){ 0 };
    for (size_t i = 0; i < n; i++) {
        const mote__source *t = &tensors[i];
        runs->part[i].run = -1;
        if (!t->bytes)
            continue;
        size_t at = k++;
        for (; at > 0; at--) {
            const mote__source *o = &tensors[order[at - 1]];
            if (o->shard < t->shard || (o->shard == t->shard && o->offset < t->offset))
                break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    for (size_t i = 0; i < k; i++) {
        const mote__source *t = &tensors[order[i]];
        mote__source *last = runs->n ? &runs->run[runs->n - 1] : NULL;
        if (!last || last->shard != t->shard || last->offset + last->bytes != t->offset) {
            last = &runs->run[runs->n++];
            *last = (mote__source){ t->shard, t->offset, 0 };
        }
        runs->part[order[i]].run = (int)runs->n - 1;
        runs->part[order[i]].at = last->bytes;
        last->bytes += t->bytes;
    }
}
