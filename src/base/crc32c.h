/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as in iSCSI and ext4. Check value:
 * crc32c("123456789") = 0xE3069283. Any thread. */
#ifndef MOTE_BASE_CRC32C_H
#define MOTE_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Extend `crc` (0 for the first call) by data[0..n) and return the new checksum. Uses SSE4.2 if the
 * processor has it. */
uint32_t mote__crc32c(uint32_t crc, const void *data, size_t n);
/* The same result by table on any processor; tests compare the two. */
uint32_t mote__crc32c_table(uint32_t crc, const void *data, size_t n);

#endif
