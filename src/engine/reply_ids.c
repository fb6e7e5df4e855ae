/* mote_reply: token ids to a reply's parts. Tags are found in text, whether the tokenizer calls
 * their tokens special or not, and however they are cut into tokens; other special tokens give no
 * text, as in mote_detok. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "text/reply.h"

struct mote_reply {
    const mote_model *model;
    mote__detok detok;
    mote__reply parts;
};

static int no_memory(mote_err *err)
{
    return mote__fail(err, MOTE_ENOMEM, "out of memory for a reply");
}

int mote_reply_create(mote_reply **reply, const mote_model *m, int thinking, mote_err *err)
{
    *reply = NULL;
    if (!m->tokenizer)
        return mote__fail(err, MOTE_EUNSUPPORTED, "%s has no tokenizer.json: a reply has no text",
                          m->path);
    *reply = calloc(1, sizeof **reply);
    if (!*reply)
        return no_memory(err);
    (*reply)->model = m;
    mote__reply_init(&(*reply)->parts, thinking);
    return MOTE_OK;
}

void mote_reply_destroy(mote_reply *r)
{
    if (!r)
        return;
    mote__detok_deinit(&r->detok);
    mote__reply_deinit(&r->parts);
    free(r);
}

int mote_reply_push(mote_reply *r, int32_t id, mote_err *err)
{
    const char *text;
    size_t n_text;
    if (id < 0) {
        text = mote__detok_finish(&r->detok, &n_text);
        return mote__reply_push(&r->parts, text, n_text) || mote__reply_end(&r->parts)
                   ? no_memory(err)
                   : MOTE_OK;
    }
    size_t n = 0;
    const char *bytes = mote_token_bytes(r->model, id, &n);
    if (!bytes || (mote_token_is_special(r->model, id) && !mote__reply_is_tag(bytes, n)))
        return MOTE_OK;
    int rc = mote__detok_push(&r->detok, bytes, n, &text, &n_text, err);
    return rc ? rc : mote__reply_push(&r->parts, text, n_text) ? no_memory(err) : MOTE_OK;
}

int mote_reply_next(mote_reply *r, mote_reply_part *part, const char **text, size_t *n)
{
    return mote__reply_next(&r->parts, part, text, n);
}

int mote_reply_json(const mote_reply *r, char **json, mote_err *err)
{
    mote__buf out;
    mote__buf_init(&out, NULL, MOTE_MEM_OTHER);
    *json = NULL;
    int rc = r->parts.ended ? mote__reply_message(&r->parts, &out) : MOTE_OK;
    if (!r->parts.ended)
        rc = mote__fail(err, MOTE_EINVAL, "the reply has not ended");
    else if (rc || !(*json = malloc(out.size + 1)))
        rc = no_memory(err);
    else {
        memcpy(*json, out.data, out.size);
        (*json)[out.size] = 0;
    }
    mote__buf_deinit(&out);
    return rc;
}
