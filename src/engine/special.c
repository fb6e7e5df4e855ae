/* The tokens that begin and end a text, from three files that each may or may not speak of them
 * (docs/tokenizer.md, "BOS and EOS"). */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

static void add_note(mote_model *m, const char *text, const char *more)
{
    size_t used = strlen(m->note);
    snprintf(m->note + used, sizeof m->note - used, "%s%s%s", used ? "; " : "", text, more);
}

int mote__model_specials(mote_model *m, const char *folder, mote_err *err)
{
    const mote__config *c = &m->net.config;
    mote__generation *g = &m->generation;
    mote__tokenizer_config t = { -1, -1, MOTE_TOKEN_UNSAID, MOTE_TOKEN_UNSAID };
    int32_t front = -1, back = -1;
    int has_template = m->tokenizer && mote__tokenizer_template(m->tokenizer, &front, &back),
        rc = 0;
    if (folder && m->tokenizer)
        rc = mote__tokenizer_config_load(&t, folder, m->tokenizer, err);
    if (rc)
        return rc;
    /* whether: the first file that says so; which: config.json if it has the key */
    int wanted = t.add_bos >= 0 ? t.add_bos : has_template ? front >= 0 : t.bos != MOTE_TOKEN_NULL;
    int known = c->has_bos || front >= 0 || t.bos != MOTE_TOKEN_UNSAID || t.add_bos == 0 ||
                has_template;
    m->bos = c->has_bos ? c->bos : front >= 0 ? front : t.bos;
    if (m->bos == MOTE_TOKEN_UNKNOWN && wanted)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s/tokenizer_config.json: 'bos_token' is not in tokenizer.json", folder);
    m->bos = m->bos < 0 ? -1 : m->bos;
    m->adds_bos = wanted && m->bos >= 0;
    if (m->tokenizer && !known && !c->vocab_size)
        m->adds_bos = -1; /* no configuration, and nothing else says it */
    if (!g->n_eos && !c->has_eos && t.eos >= 0) {
        g->eos[0] = t.eos;
        g->n_eos = 1;
    }
    if (*g->unapplied)
        add_note(m, "generation_config.json asks for what is not done here: ", g->unapplied);
    if (t.add_eos > 0 || (t.add_eos < 0 && back >= 0))
        add_note(m,
                 "the tokenizer would end each text with a token of its own, which is left out: a "
                 "prompt goes on",
                 "");
    return 0;
}
