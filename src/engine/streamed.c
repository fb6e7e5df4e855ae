/* What is read from the files while the model runs: experts into slots, rows of tables. */
#include "engine/engine.h"
#include "model/catalog.h"

/* Rows of a pass where experts are read for it: each is read once for so many rows of a prompt. */
enum { WIDE_ROWS = 2048 };

static int source_of(const mote__weights *w, const uint8_t *data, size_t n_rows, size_t row_bytes,
                     mote__row_table *table, mote_err *err)
{
    table->row_bytes = row_bytes;
    if (mote__checkpoint_source_at(w->ckpt, data, n_rows * row_bytes, &table->at))
        return mote__fail(err, MOTE_EINVAL,
                          "a table of the model does not lie in the checkpoint's files");
    return 0;
}

/* Embedding and Engram tables. One reader serves all of them: both groups go together. */
static int open_rows(mote_model *m, mote_err *err)
{
    mote__net *net = &m->net;
    const mote__weights *w = &net->weights;
    const mote__config *c = &net->config;
    int embed = w->placed[MOTE_GROUP_EMBED] == MOTE_WEIGHTS_STREAM,
        engram = w->placed[MOTE_GROUP_ENGRAM] == MOTE_WEIGHTS_STREAM, rc = 0;
    if (!embed && !engram)
        return 0;
    if (embed != engram && c->n_engram_layers)
        return mote__fail(err, MOTE_EINVAL,
                          "embed and engram are streamed together, or neither is");
    size_t most = mote__mat_code_bytes(&w->embed) / c->vocab_size;
    rc = source_of(w, w->embed.data, c->vocab_size, most, &net->embed_rows, err);
    for (size_t l = 0; l < c->n_layers && !rc; l++) {
        const mote__mat *t = &w->layers[l].e_table;
        int i = net->plan[l].engram;
        if (i < 0)
            continue;
        rc = source_of(w, t->data, t->n_out, t->n_in, &net->engram_codes[i], err);
        if (!rc)
            rc = source_of(w, t->scale, t->n_out, t->scale_stride, &net->engram_scales[i], err);
        most = t->n_in > most ? t->n_in : most;
    }
    return rc ? rc : mote__rows_open(&net->rows, w->ckpt, most, NULL, &m->meter, err);
}

int mote__open_streamed(mote_model *m, const mote_model_params *p, mote_err *err)
{
    mote__net *net = &m->net;
    int rc = open_rows(m, err);
    if (rc || net->weights.placed[MOTE_GROUP_EXPERTS] != MOTE_WEIGHTS_STREAM)
        return rc;
    m->chunk_rows = WIDE_ROWS;
    uint64_t budget = p->expert_ram;
    if (!budget) {
        const uint64_t GIB = (uint64_t)1 << 30, free = mote__memory_available();
        uint64_t kept = mote__pass_bytes(net, m->chunk_rows) +
                        (free < 32 * GIB ? free / 10 : 4 * GIB);
        budget = free > kept ? free - kept : 0;
    }
    const mote__streamed_params params = { .budget_bytes = budget,
                                           .n_per_token = net->config.n_experts_per_token,
                                           .seed = 1 };
    rc = mote__streamed_open(&net->streamed, &net->weights, &params, &m->meter, err);
    if (!rc)
        net->experts = mote__streamed_experts(net->streamed);
    return rc;
}

void mote__streamed_count(const mote_model *m, mote_model_stats *stats)
{
    mote__streamed_stats s;
    if (!m->net.streamed)
        return;
    mote__streamed_get_stats(m->net.streamed, &s);
    stats->experts_wanted = s.n_wanted;
    stats->experts_hits = s.n_hits;
    stats->experts_guessed = s.n_guessed;
    stats->experts_read = s.n_read;
    stats->experts_guesses = s.n_guesses;
    stats->expert_read_bytes = s.bytes_wanted;
    stats->expert_guess_bytes = s.bytes_guessed;
    stats->expert_wait_s = s.wait_s;
    stats->expert_busy_s = s.busy_s;
    stats->expert_slots = s.n_slots;
    stats->expert_slot_bytes = s.slot_bytes;
    stats->experts_direct = s.direct;
}
