/* What a store holds and has done, as numbers. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "store/impl.h"
#include "base/path.h"

void mote__disk_bytes(const mote__store *s, uint64_t *segments, uint64_t *index,
                      uint64_t *snapshots)
{
    *segments = *index = *snapshots = 0;
    DIR *d = opendir(s->dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[MOTE_PATH_ROOM];
        struct stat st;
        if (snprintf(path, sizeof path, "%.3900s/%.255s", s->dir, e->d_name) >= (int)sizeof path ||
            lstat(path, &st) || !S_ISREG(st.st_mode))
            continue;
        uint64_t n = (uint64_t)st.st_blocks * 512;
        if (!strncmp(e->d_name, "seg-", 4))
            *segments += n;
        else if (!strncmp(e->d_name, "snap-", 5))
            *snapshots += n;
        else if (!strncmp(e->d_name, "index.", 6) || !strncmp(e->d_name, "model-", 6) ||
                 !strcmp(e->d_name, "lock"))
            *index += n;
    }
    if (d)
        closedir(d);
}

/* What changes without the disk. */
static void fill_counts(mote__store *s, mote_store_stats *m)
{
    mote__store_counts c;
    mote__tier_stat tier = { 0 };
    mote__store_get_counts(s, &c);
#define MOTE_X(name) m->name = c.name;
    MOTE_STORE_COUNTS(MOTE_X)
#undef MOTE_X
    m->budget_bytes = s->budget;
    m->snapshot_budget_bytes = s->snap_budget;
    m->read_only = s->read_only;
    mote__recent_sum(&s->recent, &m->memory_snapshots, &m->memory_snapshot_bytes);
    m->memory_bytes = mote__meter_total(&s->meter);
    m->memory_peak_bytes = atomic_load(&s->meter.peak);
    m->memory_scratch_bytes = atomic_load(&s->meter.bytes[MOTE_MEM_SCRATCH]);
    pthread_mutex_lock(&s->mutex);
    m->queued_items = s->n_waiting;
    pthread_mutex_unlock(&s->mutex);
    if (s->tier)
        mote__tier_remote->stat(s->tier, &tier);
    m->queued_sends = tier.queued_blocks;
    m->n_servers = (int)tier.n_servers;
    m->n_servers_down = (int)tier.n_servers_down;
}

int mote__store_stats(mote__store *s, mote_store_stats *m, mote_err *err)
{
    mote__index_sums sums = { 0 };
    *m = (mote_store_stats){ 0 };
    fill_counts(s, m);
    pthread_mutex_lock(&s->read_mutex);
    int rc = mote__index_sum(&s->reader, &sums);
    if (rc)
        mote__fail(err, rc, "%s: %s", s->dir, s->reader.why);
    pthread_mutex_unlock(&s->read_mutex);
    if (rc)
        return rc;
    mote__disk_bytes(s, &m->segment_bytes, &m->index_bytes, &m->snapshot_disk_bytes);
    m->blocks = sums.blocks;
    m->exact_blocks = sums.exact_blocks;
    m->tokens = sums.blocks * MOTE_BLOCK_TOKENS;
    m->payload_bytes = sums.payload_bytes;
    m->segments = sums.segments;
    m->slots = sums.slots;
    m->free_slots = sums.free_slots;
    m->snapshots = sums.snapshots;
    m->snapshot_bytes = sums.snapshot_bytes;
    return 0;
}

int mote_store_get_stats(mote_store *s, mote_store_stats *stats, size_t size)
{
    mote_store_stats m;
    int rc = mote__store_stats(s, &m, NULL);
    memset(stats, 0, size); /* what a newer caller knows and this library does not */
    memcpy(stats, &m, size < sizeof m ? size : sizeof m);
    return rc ? MOTE_EIO : 0;
}
