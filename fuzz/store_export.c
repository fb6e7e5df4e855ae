/* Any bytes as an export: the import refuses or takes it, and what it took is whole: a verification
 * finds no damage. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/le.h"
#include "store/port.h"

static char dir[128], file[160];
static mote_store *store;

static void clean(void)
{
    char command[400];
    mote_store_close(store);
    snprintf(command, sizeof command, "rm -rf %s %s", dir, file);
    if (system(command))
        return;
}

static void begin(void)
{
    mote_err err;
    snprintf(dir, sizeof dir, "%s/mote-fuzz-%ld", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm",
             (long)getpid());
    snprintf(file, sizeof file, "%s.kvx", dir);
    if (mote_store_open(&store, dir, NULL, &err))
        abort();
    atexit(clean);
}

static void try_import(const uint8_t *data, size_t size)
{
    mote_err err;
    char *text = NULL;
    int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    int rc = mote_store_import_json(store, file, &text, &err);
    if (rc && (!err.message[0] || strchr(err.message, '\n')))
        abort();
    mote_free(text);
    text = NULL;
    if (mote_store_verify_json(store, 0, &text, &err) || !strstr(text, "\"damaged\":0"))
        abort();
    mote_free(text);
    text = NULL;
    static unsigned n;
    if (++n % 64 == 0) {
        if (mote_store_rm_json(store, NULL, 0, &text, &err))
            abort();
        mote_free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *why;
    mote__port_record r;
    if (!store)
        begin();
    mote__port_header_read(data, size, &why);
    mote__port_record_read(&r, data, size, &why);
    if (size > 1 << 16)
        return 0;
    try_import(data, size);
    /* checksums of the frame made right */
    uint8_t *copy = malloc(size + 1);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (size >= MOTE_PORT_HEADER) {
        memcpy(copy, "MOTEKVX1\1\0\0\0", 12);
        mote__put_le32(copy + 28, mote__crc32c(0, copy, 28));
        size_t at = MOTE_PORT_HEADER;
        for (uint64_t n = 0; at + MOTE_PORT_RECORD <= size; n++) {
            memcpy(copy + at, "MREC", 4);
            mote__put_le32(copy + at + 4, copy[at + 4] % 3);
            mote__put_le64(copy + at + 16, n);
            mote__put_le32(copy + at + 24, 0);
            mote__put_le32(copy + at + 28, mote__crc32c(0, copy + at, 28));
            uint64_t bytes = (uint64_t)copy[at + 8] | (uint64_t)copy[at + 9] << 8 |
                             (uint64_t)copy[at + 10] << 16;
            at += MOTE_PORT_RECORD + (size_t)bytes;
        }
        try_import(copy, size);
    }
    free(copy);
    return 0;
}
