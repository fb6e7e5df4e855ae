/* splitmix64: the same numbers everywhere from the same seed. */
#ifndef MOTE_LAB_RNG_H
#define MOTE_LAB_RNG_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t lab_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
static inline size_t lab_random_below(uint64_t *state, size_t n)
{
    return (size_t)(lab_random(state) >> 33) % n;
}

#endif
