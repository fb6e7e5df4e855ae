/* mote: an inference engine for DeepSeek-V4.1-Flash, small models of its architecture, and
 * Llama-style models beside them.
 *
 * Conventions. Functions that can fail return MOTE_OK or a negative MOTE_E... code and put a
 * sentence for a person into the caller's mote_err (which may be NULL). Handles are opaque;
 * *_close/_destroy accept NULL. Strings are UTF-8. Sizes are bytes unless named otherwise;
 * positions and counts are tokens. The library never exits, prints or aborts.
 *
 * Structs. Parameters and results end in `reserved`, zeros: later versions take fields from there,
 * and zero is always the default, so `{ .kv = "fp8" }` stays right and a program runs with a
 * library of another version. A parameter that the library does not know is MOTE_EUNSUPPORTED.
 * Items of arrays (mote_feed, mote_score) and mote_err stay as they are.
 * Arrays by enum have room for later values. Statistics grow by their `size`, where they have one.
 *
 * Threads. A model may be shared. A session is used by one thread at a time; different sessions of
 * a model may be used by different threads at once: created, forked, destroyed, pushed to, probed,
 * restored, snapshotted. Of what computes (mote_step, mote_run, mote_score_rows, mote_eval_window)
 * one call runs at a time on a model, and the sessions in its list belong to it meanwhile. A store
 * may be used by any thread at any time, a sampler or detokenizer by one at a time. A session must
 * be destroyed before its model is closed. */
#ifndef MOTE_H
#define MOTE_H

#include <mote/model.h>
#include <mote/text.h>
#include <mote/session.h>
#include <mote/store.h>

#endif
