#include "talk/stops.h"

#include <stdlib.h>
#include <string.h>

void talk_stops_init(talk_stops *s, const char *const *strings, size_t n)
{
    *s = (talk_stops){ .strings = strings, .n = n };
}

void talk_stops_deinit(talk_stops *s)
{
    free(s->held);
    free(s->out);
    *s = (talk_stops){ 0 };
}

static const char *release(talk_stops *s, size_t n, size_t *n_certain)
{
    memcpy(s->out, s->held, n);
    s->out[n] = 0;
    memmove(s->held, s->held + n, s->n_held - n);
    s->n_held -= n;
    *n_certain = n;
    return s->out;
}

const char *talk_stops_push(talk_stops *s, const char *text, size_t n, size_t *n_certain)
{
    *n_certain = 0;
    if (s->hit)
        return "";
    if (s->n_held + n + 1 > s->capacity || !s->held) {
        size_t capacity = 2 * (s->n_held + n) + 64;
        char *held = realloc(s->held, capacity), *out = held ? realloc(s->out, capacity) : NULL;
        if (held)
            s->held = held;
        if (!out)
            return NULL;
        s->out = out;
        s->capacity = capacity;
    }
    memcpy(s->held + s->n_held, text, n);
    s->n_held += n;

    /* Held text is at most one stop string minus a byte long, so this looks at little. Of several
     * stop strings the one that is complete first counts, so that the result does not depend on how
     * the text was cut into tokens. */
    size_t best_end = (size_t)-1, best_at = 0, hold_at = s->n_held;
    for (size_t at = 0; at < s->n_held; at++)
        for (size_t i = 0; i < s->n; i++) {
            size_t len = strlen(s->strings[i]), left = s->n_held - at;
            if (memcmp(s->held + at, s->strings[i], len < left ? len : left))
                continue;
            if (len <= left && at + len < best_end) {
                best_end = at + len;
                best_at = at;
            } else if (len > left && at < hold_at)
                hold_at = at;
        }
    s->hit = best_end != (size_t)-1;
    return release(s, s->hit ? best_at : hold_at, n_certain);
}

const char *talk_stops_finish(talk_stops *s, size_t *n_certain)
{
    *n_certain = 0;
    if (s->hit || !s->held)
        return "";
    return release(s, s->n_held, n_certain);
}
