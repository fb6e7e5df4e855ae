/* Routing made by a model of four parameters. A layer keeps weights of its experts, in integers, in
 * a tree of sums: a draw and a change of one weight take log2(n_experts) steps. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "lab/expert_trace.h"
#include "lab/rng.h"

lab_trace_shape lab_trace_published(void)
{
    return (lab_trace_shape){
        .n_layers = 40,
        .n_experts = 384,
        .n_per_token = 6,
        .n_sequences = 50,
        .decode_tokens = 215,
        .model_spread = 1.59,
        .sequence_spread = 1.48,
        .token_spread = 1.48,
        .renew = 0.038,
        .seed = 1,
    };
}

enum { V41_EXPERT_BYTES = 18800640 };

typedef struct layer_state {
    float *model, *sequence, *token; /* [n_experts] parts of a logit */
    uint64_t *sums;                  /* [2 * width]: sums[i] = sums[2i] + sums[2i + 1] */
} layer_state;

typedef struct generator {
    const lab_trace_shape *shape;
    size_t width; /* leaves of a tree: a power of two */
    layer_state layer;
    uint64_t random;
} generator;

/* About normal, mean 0, variance 1: twelve uniform numbers less their mean. */
static float normal(uint64_t *random)
{
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t r = lab_random(random);
        for (int k = 0; k < 4; k++)
            sum += (double)(r >> 16 * k & 0xffff);
    }
    return (float)((sum + 6) / 65536 - 6);
}

static void set_weight(generator *g, layer_state *l, size_t e, uint64_t weight)
{
    size_t i = g->width + e;
    uint64_t change = weight - l->sums[i]; /* modulo 2^64 */
    for (; i; i /= 2)
        l->sums[i] += change;
}

static void weigh(generator *g, layer_state *l, size_t e)
{
    const lab_trace_shape *s = g->shape;
    double logit = s->model_spread * (double)l->model[e] +
                   s->sequence_spread * (double)l->sequence[e] +
                   s->token_spread * (double)l->token[e];
    set_weight(g, l, e, (uint64_t)(exp(fmin(fmax(logit, -12), 12)) * (1 << 24)));
}

static size_t take(generator *g, const layer_state *l)
{
    uint64_t at = lab_random(&g->random) % l->sums[1];
    size_t i = 1;
    while (i < g->width) {
        i *= 2;
        if (at >= l->sums[i])
            at -= l->sums[i++];
    }
    return i - g->width;
}

static void begin_sequence(generator *g, layer_state *l)
{
    for (size_t e = 0; e < g->shape->n_experts; e++) {
        l->sequence[e] = normal(&g->random);
        l->token[e] = normal(&g->random);
        weigh(g, l, e);
    }
}

/* One token: some experts' token parts anew, then the draws. */
static void route(generator *g, layer_state *l, uint16_t *ids)
{
    const lab_trace_shape *s = g->shape;
    double scale = s->renew > 0 ? 1 / log1p(-s->renew) : 0;
    for (size_t e = 0; s->renew > 0; e++) {
        double u = ((double)(lab_random(&g->random) >> 11) + 0.5) / 9007199254740992.0;
        double gap = log(u) * scale;
        if (gap >= (double)(s->n_experts - e))
            break;
        e += (size_t)gap;
        if (e >= s->n_experts)
            break;
        l->token[e] = normal(&g->random);
        weigh(g, l, e);
    }
    uint64_t weights[256];
    for (size_t i = 0; i < s->n_per_token; i++) {
        size_t e = take(g, l);
        ids[i] = (uint16_t)e;
        weights[i] = l->sums[g->width + e];
        set_weight(g, l, e, 0);
    }
    for (size_t i = 0; i < s->n_per_token; i++)
        set_weight(g, l, ids[i], weights[i]);
}

static layer_state layer_at(const generator *g, size_t layer)
{
    size_t n = g->shape->n_experts;
    layer_state all = g->layer;
    return (layer_state){ all.model + layer * n, all.sequence + layer * n, all.token + layer * n,
                          all.sums + layer * 2 * g->width };
}

/* n_rows tokens of a sequence, in all layers. */
static int pass(lab_trace *t, generator *g, uint32_t session, uint32_t n_rows, int is_prompt,
                mote_err *err)
{
    for (size_t i = 0; i < g->shape->n_layers; i++) {
        layer_state l = layer_at(g, i);
        lab_trace_record r = { .n_rows = n_rows,
                               .session = session,
                               .layer = (uint16_t)i,
                               .is_prompt = (uint8_t)is_prompt,
                               .begins_pass = i == 0 };
        uint16_t *ids;
        int rc = lab_trace_add(t, &r, &ids, err);
        if (rc)
            return rc;
        for (size_t k = 0; k < n_rows; k++)
            route(g, &l, ids + k * t->n_per_token);
    }
    return 0;
}

int lab_trace_generate(lab_trace *t, const lab_trace_shape *s, mote_err *err)
{
    *t = (lab_trace){ .n_layers = s->n_layers,
                      .n_experts = s->n_experts,
                      .n_per_token = s->n_per_token,
                      .expert_bytes = V41_EXPERT_BYTES };
    if (!s->n_layers || s->n_layers > 4096 || s->n_experts > 65535 || !s->n_per_token ||
        s->n_per_token > 256 || s->n_per_token > s->n_experts || !(s->renew >= 0 && s->renew < 1))
        return mote__fail(err, MOTE_EINVAL,
                          "generated trace: %u layers of %u experts, %u for each token, renew %g",
                          s->n_layers, s->n_experts, s->n_per_token, s->renew);
    generator g = { .shape = s, .width = 1, .random = s->seed };
    while (g.width < s->n_experts)
        g.width *= 2;
    size_t n = (size_t)s->n_layers * s->n_experts, n_sums = 2 * g.width * s->n_layers;
    size_t bytes = 3 * n * sizeof(float) + n_sums * sizeof(uint64_t);
    uint64_t *memory = mote__alloc(NULL, MOTE_MEM_OTHER, bytes);
    if (!memory)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a generated trace");
    g.layer.sums = memory;
    g.layer.model = (float *)(void *)(memory + n_sums);
    g.layer.sequence = g.layer.model + n;
    g.layer.token = g.layer.sequence + n;
    for (size_t i = 0; i < n; i++)
        g.layer.model[i] = normal(&g.random);
    int rc = 0;
    for (uint32_t q = 0; !rc && q < s->n_sequences; q++) {
        for (size_t i = 0; i < s->n_layers; i++) {
            layer_state l = layer_at(&g, i);
            begin_sequence(&g, &l);
        }
        if (s->prompt_tokens)
            rc = pass(t, &g, q, s->prompt_tokens, 1, err);
        for (uint32_t k = 0; !rc && k < s->decode_tokens; k++)
            rc = pass(t, &g, q, 1, 0, err);
    }
    mote__free(NULL, MOTE_MEM_OTHER, memory, bytes);
    if (rc)
        lab_trace_deinit(t);
    return rc;
}
