/* Any bytes as a snapshot file: what is accepted lies inside it and says the same when it is
 * written again. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/le.h"
#include "store/slot.h"

static void try_file(const uint8_t *file, size_t size)
{
    mote__snapfile s;
    const uint8_t *tail, *blob;
    const char *why = NULL;
    if (mote__snapfile_read(&s, file, size, &tail, &blob, &why)) {
        if (!why)
            abort();
        return;
    }
    if (tail != file + MOTE_SNAPSHOT_HEADER || blob < tail || blob + s.blob_bytes != file + size ||
        s.n_tail > 255 || memchr(s.label, 0, sizeof s.label) == NULL)
        abort();
    uint8_t *again = malloc(size);
    if (!again)
        return;
    mote__snapfile_write(again, &s, tail, blob);
    if (memcmp(again, file, 12) || memcmp(again + 16, file + 16, 112) ||
        memcmp(again + 320, file + 320, size - 320))
        abort();
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_file(data, size);
    if (size < MOTE_SNAPSHOT_HEADER || size > 1 << 20)
        return 0;
    /* sizes, key and checksum made right, so that what lies behind them is reached too */
    uint8_t *file = malloc(size);
    if (!file)
        return 0;
    memcpy(file, data, size);
    uint32_t n_tail = file[24] % 256;
    if (MOTE_SNAPSHOT_HEADER + 4 * n_tail > size)
        n_tail = 0;
    mote__put_le32(file + 24, n_tail);
    mote__put_le64(file + 16, size - MOTE_SNAPSHOT_HEADER - 4 * n_tail);
    mote__snapfile s = { .approximate = file[28] & 1,
                         .n_tail = n_tail,
                         .origin = mote__le32(file + 56) };
    memcpy(s.context, file + 96, 32);
    memcpy(s.tokens, file + 320, 16);
    memcpy(s.chain.id, file + 80, 16);
    mote__snapfile_key(&s, file + MOTE_SNAPSHOT_HEADER);
    memcpy(file + 64, s.key, 16);
    mote__put_le32(file + 12, 0);
    mote__put_le32(file + 12, mote__crc32c(0, file, size));
    try_file(file, size);
    free(file);
    return 0;
}
