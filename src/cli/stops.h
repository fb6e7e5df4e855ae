/* Stop strings over streamed text: holds back whatever may turn out to be the beginning of one. */
#ifndef MOTE_CLI_STOPS_H
#define MOTE_CLI_STOPS_H

#include <stddef.h>

typedef struct cli_stops {
    const char *const *strings; /* borrowed, none empty */
    size_t n;
    char *held; /* owned: text not yet released, then its copy out */
    size_t n_held, capacity;
    char *out;
    int hit; /* a stop string was found; nothing follows it */
} cli_stops;

void cli_stops_init(cli_stops *s, const char *const *strings, size_t n);
void cli_stops_deinit(cli_stops *s);
/* Add n bytes of text (zero bytes may be among them); returns what is now certain, *n_certain bytes
 * (0: nothing), valid until the next call, or NULL when out of memory. After a hit: what came
 * before the stop string, and s->hit is set. */
const char *cli_stops_push(cli_stops *s, const char *text, size_t n, size_t *n_certain);
/* The text ends here: what was held back, unless a stop string was hit. */
const char *cli_stops_finish(cli_stops *s, size_t *n_certain);

#endif
