/* Little-endian numbers in unaligned memory. */
#ifndef MOTE_BASE_LE_H
#define MOTE_BASE_LE_H

#include <stdint.h>

static inline uint16_t mote__le16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t mote__le32(const uint8_t *p)
{
    return mote__le16(p) | (uint32_t)mote__le16(p + 2) << 16;
}
static inline uint64_t mote__le64(const uint8_t *p)
{
    return mote__le32(p) | (uint64_t)mote__le32(p + 4) << 32;
}

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
