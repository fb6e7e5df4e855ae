#include "lab/needle_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/rng.h"

/* Everyday words that a model of books knows; each list is longer than the needles one context can
 * hold of a kind. The phrasing is one of those that the bundled model met in training
 * (train/needle.py), with other facts: another wording would measure whether it understands the
 * question before what it recalls. */
static const char *const things[] = {
    "casket", "chest",  "closet", "cabinet", "cellar", "library", "granary", "stable",
    "tower",  "chapel", "garden", "mill",    "barn",   "vault",   "drawer",  "desk",
};
static const char *const people[] = {
    "Thomas Carew", "Margaret Lisle", "Henry Bolton", "Eleanor Frost",
    "Philip Marsh", "Martha Green",   "Edward Vane",  "Harriet Stone",
    "Arthur Bell",  "Susan Hale",     "Walter Price", "Frances Moor",
    "Ralph Denton", "George Lane",    "Isabel Wood",  "Hugh Barton",
};
static const char *const names[] = {
    "Thomas Green", "Margaret Bell", "Henry Stone",   "Eleanor Lane",  "Philip Wood",
    "Martha Hale",  "Edward Price",  "Harriet Marsh", "Arthur Frost",  "Susan Barton",
    "Walter Vane",  "Frances Hill",  "Ralph Moor",    "George Denton", "Isabel Carew",
    "Hugh Bolton",  "Agnes Lisle",   "Stephen Green", "Louisa Stone",  "Peter Marsh",
    "Rachel Lane",  "Oliver Price",  "Dorothy Wood",  "Caroline Hale",
};
#define COUNT(a) (sizeof(a) / sizeof(a)[0])
static const struct {
    const char *format;
    const char *const *keys;
    size_t n_keys;
} kinds[LAB_NEEDLE_KINDS] = {
    [LAB_NUMBER] = { " The secret number of %s is", people, COUNT(people) },
    [LAB_NAME] = { " The key of the %s is kept by", things, COUNT(things) },
};

/* The i-th of a random order of 0 ... n - 1 (Fisher-Yates on at most 64). */
static void shuffled(size_t *order, size_t n, uint64_t *rng)
{
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t i = n; i > 1; i--) {
        size_t j = lab_random_below(rng, i), t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
}

static int append(lab_needle *n, const mote_model *model, const char *text, size_t *count,
                  mote_err *err)
{
    int32_t *ids;
    size_t k;
    int rc = mote_encode(model, text, strlen(text), MOTE_ENCODE_PLAIN, &ids, &k, err);
    if (rc)
        return rc;
    int32_t *all = realloc(n->ids, (n->n_ids + k + 1) * sizeof *all);
    if (all) {
        memcpy(all + n->n_ids, ids, k * sizeof *ids);
        n->ids = all;
        n->n_ids += k;
        *count = k;
    } else
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory for a needle");
    mote_free(ids);
    return rc;
}

static int make_needles(lab_haystack *h, const mote_model *model, const double *depths,
                        uint64_t *rng, mote_err *err)
{
    size_t keys[LAB_NEEDLE_KINDS][64], called[64], used[LAB_NEEDLE_KINDS] = { 0 }, stop;
    for (int k = 0; k < LAB_NEEDLE_KINDS; k++)
        shuffled(keys[k], kinds[k].n_keys, rng);
    shuffled(called, COUNT(names), rng);
    for (size_t i = 0; i < h->n_needles; i++) {
        lab_needle *n = &h->needle[i];
        n->kind = (lab_needle_kind)(i % LAB_NEEDLE_KINDS);
        n->depth = depths[i];
        size_t u = used[n->kind]++;
        snprintf(n->question, sizeof n->question, kinds[n->kind].format,
                 kinds[n->kind].keys[keys[n->kind][u]]);
        for (int again = 1; again;) {
            again = 0;
            if (n->kind == LAB_NAME)
                snprintf(n->answer, sizeof n->answer, " %s", names[called[u]]);
            else
                snprintf(n->answer, sizeof n->answer, " %zu", 1000 + lab_random_below(rng, 9000));
            for (size_t j = 0; j < i; j++)
                again |= !strcmp(n->answer, h->needle[j].answer);
        }
        int rc = append(n, model, n->question, &n->n_question, err);
        if (!rc)
            rc = append(n, model, n->answer, &n->n_answer, err);
        if (!rc)
            rc = append(n, model, ".", &stop, err);
        if (rc)
            return rc;
    }
    return MOTE_OK;
}

static int ends_sentence(const mote_model *model, int32_t id)
{
    size_t n = 0;
    const char *s = mote_token_bytes(model, id, &n);
    return s && n && strchr(".!?\n", s[n - 1]) != NULL;
}

int lab_haystack_make(lab_haystack *h, const mote_model *model, const lab_text *text, size_t ctx,
                      const double *depths, size_t n_depths, uint64_t seed, size_t sample,
                      mote_err *err)
{
    *h = (lab_haystack){ .n_needles = n_depths };
    if (n_depths == 0 || n_depths > LAB_MAX_NEEDLES)
        return mote__fail(err, MOTE_EINVAL, "a context takes 1 to %d needles, not %zu",
                          LAB_MAX_NEEDLES, n_depths);
    uint64_t rng = seed;
    rng = lab_random(&rng) ^ (uint64_t)sample * 0xD1342543DE82EF95u;
    int rc = make_needles(h, model, depths, &rng, err);
    /* room for every question with its answer, and with the others of its kind but for their last
     * token, which is not read */
    size_t needles = 0, tail = 0;
    for (size_t i = 0; !rc && i < n_depths; i++) {
        needles += h->needle[i].n_ids;
        for (size_t k = i % LAB_NEEDLE_KINDS; k < n_depths; k += LAB_NEEDLE_KINDS) {
            size_t room = h->needle[i].n_question + h->needle[k].n_answer - (i != k);
            tail = room > tail ? room : tail;
        }
    }
    /* half of the context at least is text */
    if (!rc && (ctx < 2 * (needles + tail + 1) || text->n_ids == 0))
        rc = mote__fail(err, MOTE_EINVAL,
                        "a context of %zu tokens is too short for %zu needles: they and a question "
                        "take %zu, and half of it must be text",
                        ctx, n_depths, needles + tail + 1);
    if (rc) {
        lab_haystack_free(h);
        return rc;
    }
    size_t n_text = ctx - 1 - needles - tail;
    if (n_text > text->n_ids) {
        lab_haystack_free(h);
        return mote__fail(err, MOTE_EINVAL,
                          "%s: %zu tokens are too few for a context of %zu with %zu needles",
                          text->path, text->n_ids, ctx, n_depths);
    }
    h->n_ids = ctx - tail;
    h->ids = malloc(h->n_ids * sizeof *h->ids);
    if (!h->ids) {
        lab_haystack_free(h);
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a context of %zu tokens", ctx);
    }
    size_t out = 0, start = sample * n_text % text->n_ids, done = 0;
    h->ids[out++] = text->bos;
    /* depths ascend; one that does not goes where the text has got to */
    for (size_t i = 0; i <= n_depths; i++) {
        size_t end = n_text;
        if (i < n_depths) {
            double d = depths[i] < 0 ? 0 : depths[i] > 1 ? 1 : depths[i];
            end = (size_t)(d * (double)n_text + 0.5);
            for (size_t back = end; back > done && end - back < 64 && end != n_text; back--)
                if (ends_sentence(model, text->ids[(start + back - 1) % text->n_ids])) {
                    end = back;
                    break;
                }
            if (end < done)
                end = done;
        }
        for (; done < end; done++)
            h->ids[out++] = text->ids[(start + done) % text->n_ids];
        if (i < n_depths) {
            h->needle[i].at = out;
            memcpy(h->ids + out, h->needle[i].ids, h->needle[i].n_ids * sizeof *h->ids);
            out += h->needle[i].n_ids;
        }
    }
    return MOTE_OK;
}

void lab_haystack_free(lab_haystack *h)
{
    for (size_t i = 0; i < h->n_needles && i < LAB_MAX_NEEDLES; i++)
        free(h->needle[i].ids);
    free(h->ids);
    *h = (lab_haystack){ 0 };
}
