#include "talk/generator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "talk/stops.h"

/* Text in order: a piece is a run of one part. */
typedef struct pieces {
    char *data; /* owned */
    size_t n, capacity;
} pieces;

struct talk_generator {
    const mote_model *model;
    mote_model_info info;
    talk_params params;
    mote_sampler *sampler;
    mote_detok *detok; /* plain text; NULL: ids */
    mote_reply *reply; /* take_apart */
    talk_stops stops;
    int32_t *ids;
    size_t n_ids, capacity;
    float logprob;
    talk_logprob top[TALK_MAX_LOGPROBS];
    size_t n_top;
    int ended;
    talk_finish finish;
    /* certain and not taken yet; of a reply reasoning comes before content */
    pieces text[2];
    pieces content; /* take_apart with stop strings: all of it */
};

const char *talk_finish_name(talk_finish finish)
{
    static const char *const names[] = { "length", "eos", "stop", "context", "interrupted" };
    return names[finish];
}

static int no_memory(mote_err *err)
{
    return mote__fail(err, MOTE_ENOMEM, "out of memory for the generated text");
}

static int add(pieces *p, const char *text, size_t n, mote_err *err)
{
    if (p->capacity - p->n < n) {
        size_t capacity = 2 * (p->n + n) + 64;
        char *data = realloc(p->data, capacity);
        if (!data)
            return no_memory(err);
        p->data = data;
        p->capacity = capacity;
    }
    if (n)
        memcpy(p->data + p->n, text, n);
    p->n += n;
    return MOTE_OK;
}

int talk_generator_create(talk_generator **out, const mote_model *model, const talk_params *params,
                          mote_err *err)
{
    *out = NULL;
    talk_generator *g = calloc(1, sizeof *g);
    if (!g)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a reply");
    g->model = model;
    g->params = *params;
    mote_model_get_info(model, &g->info);
    talk_stops_init(&g->stops, params->stops, params->n_stops);
    int rc = mote_sampler_create(&g->sampler, &params->sample, err);
    if (!rc && params->take_apart)
        rc = mote_reply_create(&g->reply, model, params->thinking, err);
    else if (!rc && g->info.has_tokenizer)
        rc = mote_detok_create(&g->detok, model, err);
    if (rc) {
        talk_generator_destroy(g);
        return rc;
    }
    *out = g;
    return MOTE_OK;
}

void talk_generator_destroy(talk_generator *g)
{
    if (!g)
        return;
    mote_sampler_destroy(g->sampler);
    mote_detok_destroy(g->detok);
    mote_reply_destroy(g->reply);
    talk_stops_deinit(&g->stops);
    free(g->text[0].data);
    free(g->text[1].data);
    free(g->content.data);
    free(g->ids);
    free(g);
}

/* ---- text ---- */

static int add_certain(talk_generator *g, const char *certain, size_t n, mote_err *err)
{
    if (!certain)
        return no_memory(err);
    int rc = add(&g->text[MOTE_REPLY_CONTENT], certain, n, err);
    if (!rc && g->reply && g->params.n_stops)
        rc = add(&g->content, certain, n, err);
    return rc;
}

/* Content through the stop strings. */
static int add_content(talk_generator *g, const char *text, size_t n, mote_err *err)
{
    size_t n_certain;
    const char *certain = talk_stops_push(&g->stops, text, n, &n_certain);
    int rc = add_certain(g, certain, n_certain, err);
    if (!rc && g->stops.hit && !g->ended) {
        g->ended = 1;
        g->finish = TALK_STOP;
    }
    return rc;
}

/* Token `id`, or the end of the reply (-1), into a reply that is taken apart. */
static int take_apart(talk_generator *g, int32_t id, mote_err *err)
{
    mote_reply_part part;
    const char *text;
    size_t n;
    int rc = mote_reply_push(g->reply, id, err);
    while (!rc && mote_reply_next(g->reply, &part, &text, &n))
        rc = part == MOTE_REPLY_CONTENT ? add_content(g, text, n, err)
                                        : add(&g->text[part], text, n, err);
    return rc;
}

static int add_token(talk_generator *g, int32_t id, mote_err *err)
{
    const char *text = "";
    size_t n = 0;
    char number[16];
    if (g->reply)
        return take_apart(g, id, err);
    if (!g->detok) {
        n = (size_t)snprintf(number, sizeof number, "%s%d", g->n_ids > 1 ? " " : "", (int)id);
        return add_content(g, number, n, err);
    }
    int rc = mote_detok_push(g->detok, id, &text, &n, err);
    return rc ? rc : add_content(g, text, n, err);
}

/* What was held back for more to come. */
static int end_text(talk_generator *g, mote_err *err)
{
    size_t n = 0;
    int rc = MOTE_OK;
    if (g->reply) {
        rc = take_apart(g, -1, err);
    } else if (g->detok) {
        const char *rest = mote_detok_finish(g->detok, &n);
        rc = add_content(g, rest, n, err);
    }
    if (rc)
        return rc;
    const char *rest = talk_stops_finish(&g->stops, &n);
    if (g->stops.hit) /* in what was held back until now: it ended there */
        g->finish = TALK_STOP;
    return add_certain(g, rest, n, err);
}

int talk_generator_text(talk_generator *g, mote_reply_part *part, const char **text,
                        size_t *n_bytes)
{
    for (int i = 0; i < 2; i++) {
        pieces *p = &g->text[i];
        if (!p->n)
            continue;
        *part = (mote_reply_part)i;
        *text = p->data;
        *n_bytes = p->n;
        p->n = 0;
        return 1;
    }
    return 0;
}

/* ---- tokens ---- */

static int is_eos(const talk_generator *g, int32_t id)
{
    for (size_t i = 0; i < g->info.n_eos; i++)
        if (g->info.eos[i] == id)
            return 1;
    return 0;
}

static int add_logprobs(talk_generator *g, const float *logits, mote_err *err)
{
    int32_t ids[TALK_MAX_LOGPROBS];
    float logprobs[TALK_MAX_LOGPROBS];
    size_t n = g->params.n_logprobs;
    n = n < TALK_MAX_LOGPROBS ? n : TALK_MAX_LOGPROBS;
    n = n < g->info.vocab ? n : g->info.vocab;
    int rc = n ? mote_top_logprobs(logits, g->info.vocab, n, ids, logprobs, err) : MOTE_OK;
    for (size_t i = 0; i < n && !rc; i++)
        g->top[i] = (talk_logprob){ ids[i], logprobs[i] };
    g->n_top = rc ? 0 : n;
    return rc;
}

static int keep_id(talk_generator *g, int32_t id, mote_err *err)
{
    if (g->n_ids == g->capacity) {
        size_t capacity = g->capacity ? 2 * g->capacity : 256;
        int32_t *ids = realloc(g->ids, capacity * sizeof *ids);
        if (!ids)
            return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu token ids", capacity);
        g->ids = ids;
        g->capacity = capacity;
    }
    g->ids[g->n_ids++] = id;
    return MOTE_OK;
}

int talk_generator_end(talk_generator *g, talk_finish finish, mote_err *err)
{
    if (g->ended)
        return MOTE_OK;
    g->ended = 1;
    g->finish = finish;
    return end_text(g, err);
}

int talk_generator_next(talk_generator *g, const float *logits, mote_err *err)
{
    int32_t id;
    int rc;
    if (g->ended)
        return 0;
    if (g->n_ids >= g->params.max_tokens)
        return talk_generator_end(g, TALK_LENGTH, err);
    rc = mote_sampler_next(g->sampler, logits, g->info.vocab, &id,
                           g->params.want_logprobs ? &g->logprob : NULL, err);
    if (rc)
        return rc;
    if (!g->params.ignore_eos && is_eos(g, id))
        return talk_generator_end(g, TALK_EOS, err);
    if ((g->params.want_logprobs && (rc = add_logprobs(g, logits, err))) ||
        (rc = keep_id(g, id, err)) || (rc = add_token(g, id, err)))
        return rc;
    if (g->ended) /* a stop string */
        return g->reply ? end_text(g, err) : 0;
    return g->n_ids < g->params.max_tokens ? 1 : talk_generator_end(g, TALK_LENGTH, err);
}

int talk_generator_ended(const talk_generator *g) { return g->ended; }
talk_finish talk_generator_finish(const talk_generator *g) { return g->finish; }

const int32_t *talk_generator_tokens(const talk_generator *g, size_t *n)
{
    *n = g->n_ids;
    return g->ids;
}

talk_logprob talk_generator_logprob(const talk_generator *g, const talk_logprob **top, size_t *n)
{
    *top = g->top;
    *n = g->n_top;
    return (talk_logprob){ g->n_ids ? g->ids[g->n_ids - 1] : -1, g->logprob };
}

int talk_generator_message(const talk_generator *g, json_t **message, mote_err *err)
{
    char *json = NULL;
    *message = NULL;
    int rc = mote_reply_json(g->reply, &json, err);
    if (rc)
        return rc;
    *message = json_loads(json, JSON_ALLOW_NUL, NULL);
    mote_free(json);
    int whole = *message != NULL;
    if (whole && g->finish == TALK_STOP) { /* what came behind it is none of the reply */
        json_object_del(*message, "tool_calls");
        whole = !json_object_set_new(
            *message, "content", json_stringn(g->content.n ? g->content.data : "", g->content.n));
    }
    if (whole)
        return MOTE_OK;
    json_decref(*message);
    *message = NULL;
    return mote__fail(err, MOTE_ENOMEM, "out of memory for the reply");
}

/* ---- the loop for one session ---- */

/* The token that was drawn last goes in. */
static int feed_last(mote_model *model, mote_session *session, talk_generator *g, talk_loop *loop,
                     mote_err *err)
{
    mote_feed feed = { session, g->ids + loop->n_fed, 1, MOTE_LOGITS_LAST };
    double begin = mote__clock_s();
    int rc = mote_run(model, &feed, 1, NULL, NULL, err);
    if (rc == MOTE_EFULL)
        return talk_generator_end(g, TALK_CONTEXT, err);
    if (rc)
        return rc;
    loop->seconds += mote__clock_s() - begin;
    loop->n_steps++;
    loop->n_fed++;
    return MOTE_OK;
}

static int give_text(talk_generator *g, const talk_loop *loop)
{
    mote_reply_part part;
    const char *text;
    size_t n;
    int ended = 0;
    while (!ended && talk_generator_text(g, &part, &text, &n))
        ended = loop->on_text && loop->on_text(loop->ctx, part, text, n);
    return ended;
}

int talk_generate(mote_model *model, mote_session *session, talk_generator *g, talk_loop *loop,
                  mote_err *err)
{
    int rc = MOTE_OK, more = !g->ended && g->params.max_tokens > 0;
    if (!more)
        rc = talk_generator_end(g, TALK_LENGTH, err);
    while (!rc && more) {
        size_t before = g->n_ids;
        if (loop->cancelled && loop->cancelled(loop->ctx))
            rc = talk_generator_end(g, TALK_CANCELLED, err);
        else if (g->n_ids > loop->n_fed)
            rc = feed_last(model, session, g, loop, err);
        if (!rc && !g->ended) {
            size_t n_rows = 0, first;
            const float *logits = mote_session_logits(session, &n_rows, &first);
            if (!logits || !n_rows)
                return mote__fail(err, MOTE_EINVAL, "the session holds no logits to sample from");
            int got = talk_generator_next(g, logits + (n_rows - 1) * g->info.vocab, err);
            rc = got < 0 ? got : MOTE_OK;
        }
        if (rc)
            return rc;
        more = !g->ended;
        if (g->n_ids > before && loop->on_token && loop->on_token(loop->ctx, g))
            return MOTE_OK;
        if (give_text(g, loop))
            return MOTE_OK;
    }
    return rc;
}
