/* Any bytes as a slot and as a segment header: what is accepted says the same when it is written
 * again. */
#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "base/crc32c.h"
#include "store/slot.h"

static void segment(const uint8_t *data, size_t size)
{
    mote__segment_header h;
    const char *why = NULL;
    uint8_t page[MOTE_SEGMENT_HEADER];
    if (mote__segment_read(&h, data, size, &why)) {
        if (!why)
            abort();
        return;
    }
    mote__segment_write(page, &h);
    if (memcmp(page, data, sizeof page))
        abort();
}

/* The checksum made right, so that what lies behind it is reached too. */
static int try_slot(const uint8_t *data, size_t size, int mend)
{
    if (size < MOTE_SLOT_HEAD + 1)
        return 0;
    size_t payload = size - MOTE_SLOT_HEAD, whole = mote__slot_bytes(payload);
    uint8_t *image = calloc(1, whole), again[MOTE_SLOT_HEAD];
    mote__slot s;
    const char *why = NULL;
    if (!image)
        return 0;
    memcpy(image, data, size);
    if (mend) {
        mote__put_le32(image + 16, (uint32_t)whole);
        mote__put_le32(image + 20, (uint32_t)payload);
        uint64_t generation = 0;
        memcpy(&generation, image + 32, 8);
        if (mend > 1)
            mote__block_identity(image + 64, image + 96, image[28] & 1, image + 80,
                                 image + MOTE_SLOT_HEADER);
        mote__slot_seal(image, generation, image + MOTE_SLOT_HEAD, payload, whole);
    }
    int rc = mote__slot_read(&s, image, image + MOTE_SLOT_HEAD, payload,
                             image + MOTE_SLOT_HEAD + payload, whole, &why);
    if (rc && !why)
        abort();
    if (!rc) {
        mote__slot_write(again, &s, image + MOTE_SLOT_HEADER);
        mote__slot_seal(again, s.generation, image + MOTE_SLOT_HEAD, payload, whole);
        /* the label is for people: bytes that are not ASCII are shown as '?' */
        if (memcmp(again, image, 12) || memcmp(again + 16, image + 16, 112) ||
            memcmp(again + 320, image + 320, MOTE_SLOT_HEAD - 320))
            abort();
        if (memchr(s.label, 0, sizeof s.label) == NULL)
            abort();
    }
    free(image);
    return !rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    segment(data, size);
    for (int mend = 0; mend < 3; mend++)
        try_slot(data, size, mend);
    return 0;
}
