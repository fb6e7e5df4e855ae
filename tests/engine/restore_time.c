/* Not a test: how long a fully stored prompt takes to its first logits, against what it cannot do
 * without (reading its payload as fast as O_DIRECT reads these very files, and running the replayed
 * rows), and against a cold run. build/tests/engine/restore-time models/nano DIR [ROUNDS] (from the
 * source root; DIR: where the store goes) */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "golden.h"

enum { N = 235 * MOTE_BLOCK_TOKENS, CHUNK = 4 << 20, MAX_ROUNDS = 101 }; /* 60,160 tokens */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(int rc, const mote_err *err)
{
    if (rc) {
        fprintf(stderr, "restore-time: %s\n", err->message);
        exit(1);
    }
}

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}
static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* Bytes a second of all segment files in dir, past the page cache, into memory that is there
 * already. */
static double read_direct(const char *dir)
{
    uint8_t *memory = NULL;
    size_t done = 0;
    double t = 0;
    if (posix_memalign((void **)&memory, 4096, CHUNK))
        return 0;
    memset(memory, 1, CHUNK);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[4200];
        snprintf(path, sizeof path, "%.3900s/%.255s", dir, e->d_name);
        int fd = strncmp(e->d_name, "seg-", 4) ? -1 : open(path, O_RDONLY | O_DIRECT);
        if (fd < 0)
            continue;
        double began = now();
        off_t at = 0;
        for (ssize_t n; (n = pread(fd, memory, CHUNK, at)) > 0; at += n)
            ;
        t += now() - began;
        done += (size_t)at;
        close(fd);
    }
    if (d)
        closedir(d);
    free(memory);
    return (double)done / t;
}

int main(int argc, char **argv)
{
    size_t rounds = argc > 3 ? (size_t)atoi(argv[3]) : 9;
    if (argc < 3 || rounds < 1 || rounds > MAX_ROUNDS)
        return fprintf(stderr, "usage: restore-time MODEL DIR [ROUNDS]\n"), 2;
    mote_model *m = model_open(argv[1], MOTE_MATH_FP32, 2);
    char path[4200];
    snprintf(path, sizeof path, "%s/heldout.txt", argv[1]);
    mote__map text;
    int32_t *ids, *many = malloc(N * sizeof *many);
    size_t n_ids;
    mote_err err = { 0 };
    must(mote__map_open(&text, path, &err), &err);
    must(mote_encode(m, (const char *)text.data, text.size, MOTE_ENCODE_BOS, &ids, &n_ids, &err),
         &err);
    for (size_t i = 0; i < N; i++)
        many[i] = ids[i % n_ids];

    mote_store *store;
    must(mote_store_open(&store, argv[2], NULL, &err), &err);
    mote_session *s = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
    must(mote_session_use_store(s, store, NULL, &err), &err);
    double t = now();
    feed(s, many, N, MOTE_LOGITS_LAST, NULL, NULL);
    double cold = now() - t, payload = mote_session_kv_bytes_per_token(s, NULL) * N;
    mote_store_close(store);

    /* the rows that a restored prompt runs again, on a cache that is in memory: a session that
     * never left */
    double rows[MAX_ROUNDS], read[MAX_ROUNDS], all[MAX_ROUNDS], rate[MAX_ROUNDS], ratio[MAX_ROUNDS];
    mote_restored r = { 0 };
    for (size_t i = 0; i < rounds; i++) {
        must(mote_session_forget_windows(s, MOTE_REPLAY_BOUNDED, &err), &err);
        t = now();
        feed(s, NULL, 0, MOTE_LOGITS_LAST, NULL, NULL);
        rows[i] = now() - t;
        rate[i] = read_direct(argv[2]);
        must(mote_store_open(&store, argv[2], NULL, &err), &err);
        mote_session *back = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
        must(mote_session_use_store(back, store, NULL, &err), &err);
        t = now();
        must(mote_session_restore(back, many, N, MOTE_REPLAY_BOUNDED, &r, &err), &err);
        read[i] = now() - t;
        feed(back, NULL, 0, MOTE_LOGITS_LAST, NULL, NULL);
        all[i] = now() - t;
        ratio[i] = all[i] / (payload / rate[i] + rows[i]);
        mote_session_destroy(back);
        mote_store_close(store);
    }
    mote_session_destroy(s);
    printf(
        "prompt of %d tokens, %.1f MB of payload; reused %zu, run again %zu; %zu rounds, medians\n",
        N, 1e-6 * payload, r.reused_tokens, r.replay_tokens, rounds);
    printf("cold, to the first logits        %9.1f ms\n", 1e3 * cold);
    printf("O_DIRECT read of the segments    %9.0f MB/s: payload in %.1f ms\n",
           1e-6 * median(rate, rounds), 1e3 * payload / median(rate, rounds));
    printf("the replayed rows, from memory   %9.1f ms\n", 1e3 * median(rows, rounds));
    printf("restored, to the first logits    %9.1f ms, of which reading %.1f ms: %.0f times faster "
           "than cold\n",
           1e3 * median(all, rounds), 1e3 * median(read, rounds), cold / median(all, rounds));
    double mid = median(ratio, rounds);
    printf("restored / (payload / O_DIRECT + rows) %.2f (%.2f to %.2f)\n", mid, ratio[0],
           ratio[rounds - 1]);
    mote_free(ids);
    free(many);
    mote__map_close(&text);
    mote_model_close(m);
    return 0;
}
