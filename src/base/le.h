/* Little-endian writes into unaligned memory; the reads are in base/map.h. */
#ifndef MOTE_BASE_LE_H
#define MOTE_BASE_LE_H

#include <stdint.h>

static inline void mote__put_le32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}
static inline void mote__put_le64(uint8_t *p, uint64_t v)
{
    mote__put_le32(p, (uint32_t)v);
    mote__put_le32(p + 4, (uint32_t)(v >> 32));
}

#endif
