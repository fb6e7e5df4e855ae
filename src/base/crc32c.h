/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as in iSCSI and ext4: crc32c("123456789")
 * = 0xE3069283. */
#ifndef MOTE_BASE_CRC32C_H
#define MOTE_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of more bytes after those that gave `crc` (0 at the start). Uses SSE4.2 where the
 * processor has it. */
uint32_t mote__crc32c(uint32_t crc, const void *data, size_t n);
/* The definition, by table: tests compare. */
uint32_t mote__crc32c_table(uint32_t crc, const void *data, size_t n);

#endif
