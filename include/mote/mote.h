/* mote: an inference engine for DeepSeek-V4.1-Flash, small models of its architecture, and
 * Llama-style models beside them.
 *
 * Conventions. Functions that can fail return MOTE_OK or a negative MOTE_E... code and put a
 * sentence for a person into the caller's mote_err (which may be NULL). Handles are opaque;
 * *_close/_destroy accept NULL. Strings are UTF-8. Sizes are bytes unless named otherwise;
 * positions and counts are tokens. The library never exits, prints or aborts. Threads: a model may
 * be shared by threads; sessions of one model are used by one thread at a time, and so is
 * mote_step, whatever its sessions. A session must be destroyed before its model is closed. */
#ifndef MOTE_H
#define MOTE_H

#include <mote/model.h>
#include <mote/text.h>
#include <mote/session.h>
#include <mote/store.h>

#endif
