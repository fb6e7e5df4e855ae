/* Stop strings over streamed text: holds back whatever may turn out to be the beginning of one. */
#ifndef MOTE_TALK_STOPS_H
#define MOTE_TALK_STOPS_H

#include <stddef.h>

typedef struct talk_stops {
    const char *const *strings; /* borrowed, none empty */
    size_t n;
    char *held; /* owned: text not yet released, then its copy out */
    size_t n_held, capacity;
    char *out;
    int hit; /* a stop string was found; nothing follows it */
} talk_stops;

void talk_stops_init(talk_stops *s, const char *const *strings, size_t n);
void talk_stops_deinit(talk_stops *s);
/* Add n bytes of text (zero bytes may be among them); returns what is now certain, *n_certain bytes
 * (0: nothing), valid until the next call, or NULL when out of memory. After a hit: what came
 * before the stop string, and s->hit is set. */
const char *talk_stops_push(talk_stops *s, const char *text, size_t n, size_t *n_certain);
/* The text ends here: what was held back, unless a stop string was hit. */
const char *talk_stops_finish(talk_stops *s, size_t *n_certain);

#endif
