#include "lab/corpus.h"

#include <string.h>

#include "base/err.h"

int lab_text_init(lab_text *t, const mote_model *model, const char *path, const char *text,
                  size_t n_bytes, int flags, mote_err *err)
{
    mote_model_info info;
    mote_model_get_info(model, &info);
    *t = (lab_text){ .path = path, .bos = info.bos };
    if (!info.has_tokenizer)
        return mote__fail(err, MOTE_EINVAL, "the model has no tokenizer.json");
    if (info.bos < 0)
        return mote__fail(err, MOTE_EINVAL, "the model has no BOS token to start a window with");
    return mote_encode(model, text, n_bytes, flags, &t->ids, &t->n_ids, err);
}

void lab_text_deinit(lab_text *t)
{
    mote_free(t->ids);
    *t = (lab_text){ 0 };
}

int lab_text_windows(const lab_text *t, const mote_model *model, size_t ctx, size_t most, size_t *n,
                     mote_err *err)
{
    mote_model_info info;
    mote_model_get_info(model, &info);
    if (ctx > info.max_context)
        return mote__fail(err, MOTE_EINVAL, "--ctx: %zu is more than the model's %zu tokens", ctx,
                          info.max_context);
    size_t whole = t->n_ids / (ctx - 1);
    if (!whole)
        return mote__fail(err, MOTE_EINVAL,
                          "%s: %zu tokens are too few for a window of %zu (BOS and %zu)", t->path,
                          t->n_ids, ctx, ctx - 1);
    *n = most && most < whole ? most : whole;
    return MOTE_OK;
}

void lab_text_window(const lab_text *t, size_t ctx, size_t w, int32_t *window)
{
    window[0] = t->bos;
    memcpy(window + 1, t->ids + w * (ctx - 1), (ctx - 1) * sizeof *window);
}
