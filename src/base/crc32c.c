/* CRC-32C by table (eight bytes at a time) and by the SSE4.2 instruction. */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

/* table[k][b]: the CRC of byte b followed by k zero bytes. Eight lookups advance the CRC by eight
 * bytes. */
static uint32_t table[8][256];
/* shift[k][b]: the register after STRIDE zero bytes if its byte k was b and its other bytes were
 * 0. */
enum { STRIDE = 4096 };
static uint32_t shift[4][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t c = b;
        for (int i = 0; i < 8; i++)
            c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
        table[0][b] = c;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
    /* the CRC is linear: the result for a value is the XOR of the results for its bits */
    for (int k = 0; k < 4; k++)
        for (int bit = 0; bit < 8; bit++) {
            uint32_t c = 1u << (8 * k + bit);
            for (int i = 0; i < STRIDE; i++)
                c = c >> 8 ^ table[0][c & 255];
            for (int b = 0; b < 256; b++)
                shift[k][b] ^= b >> bit & 1 ? c : 0;
        }
}

uint32_t mote__crc32c_table(uint32_t crc, const void *data, size_t n)
{
    pthread_once(&once, make_table);
    const uint8_t *p = data;
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8)
        crc = table[7][p[0] ^ (crc & 255)] ^ table[6][p[1] ^ (crc >> 8 & 255)] ^
              table[5][p[2] ^ (crc >> 16 & 255)] ^ table[4][p[3] ^ crc >> 24] ^ table[3][p[4]] ^
              table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    for (; n; n--, p++)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}

#if defined(__x86_64__)
/* The register after STRIDE zero bytes. */
static uint32_t after_stride(uint32_t c)
{
    return shift[0][c & 255] ^ shift[1][c >> 8 & 255] ^ shift[2][c >> 16 & 255] ^ shift[3][c >> 24];
}

/* crc32 has a latency of 3 cycles and a throughput of 1 per cycle, so three strides run in
 * parallel; after_stride() combines their results. */
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data,
                                                               size_t n)
{
    const uint8_t *p = data;
    uint64_t c = ~crc;
    for (; n >= 3 * STRIDE; n -= 3 * STRIDE, p += 3 * STRIDE) {
        uint64_t c1 = 0, c2 = 0;
        for (size_t i = 0; i < STRIDE; i += 8) {
            uint64_t w[3];
            memcpy(&w[0], p + i, 8);
            memcpy(&w[1], p + STRIDE + i, 8);
            memcpy(&w[2], p + 2 * STRIDE + i, 8);
            c = _mm_crc32_u64(c, w[0]);
            c1 = _mm_crc32_u64(c1, w[1]);
            c2 = _mm_crc32_u64(c2, w[2]);
        }
        c = after_stride(after_stride((uint32_t)c) ^ (uint32_t)c1) ^ (uint32_t)c2;
    }
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = _mm_crc32_u64(c, word);
    }
    for (; n; n--, p++)
        c = _mm_crc32_u8((uint32_t)c, *p);
    return ~(uint32_t)c;
}
#endif

uint32_t mote__crc32c(uint32_t crc, const void *data, size_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
        pthread_once(&once, make_table);
        return crc32c_sse42(crc, data, n);
    }
#endif
    return mote__crc32c_table(crc, data, n);
}
