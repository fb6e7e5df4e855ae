#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define relax() _mm_pause()
#else
#define relax() ((void)0)
#endif

/* How a loop runs. The caller publishes the job, then raises `generation`; each worker that sees a new generation takes
 * pieces from `next` until none is left, then decrements `busy`. The caller takes pieces too and waits for busy == 0,
 * so a job's memory is never read after mote__pool_for returned.
 * Sleeping: a worker that saw no new generation for SPINS rounds waits on the condition variable; `sleepers` is
 * changed only under the mutex, and the caller broadcasts under it when somebody sleeps. */
enum { SPINS = 20000 };

struct mote__pool {
    int n_threads;
    pthread_t *threads;              /* n_threads - 1 of them, owned */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    _Atomic int sleepers;
    _Atomic unsigned generation;
    _Atomic int busy;
    _Atomic int stop;
    mote__pool_body body;
    void *ctx;
    size_t n, grain;
    _Atomic size_t next;
};

struct start { mote__pool *pool; int thread; };

static void take_pieces(mote__pool *p, int thread)
{
    size_t n = p->n, grain = p->grain;
    for (;;) {
        size_t begin = atomic_fetch_add_explicit(&p->next, grain, memory_order_relaxed);
        if (begin >= n)
            return;
        p->body(p->ctx, begin, n - begin < grain ? n : begin + grain, thread);
    }
}

static void *worker(void *arg)
{
    struct start s = *(struct start *)arg;
    free(arg);
    mote__pool *p = s.pool;
    unsigned seen = 0;
    for (;;) {
        int spins = 0;
        while (atomic_load_explicit(&p->generation, memory_order_acquire) == seen) {
            if (++spins < SPINS) {
                relax();
                continue;
            }
            pthread_mutex_lock(&p->mutex);
            atomic_fetch_add(&p->sleepers, 1);
            while (atomic_load(&p->generation) == seen)
                pthread_cond_wait(&p->wake, &p->mutex);
            atomic_fetch_sub(&p->sleepers, 1);
            pthread_mutex_unlock(&p->mutex);
        }
        seen = atomic_load_explicit(&p->generation, memory_order_acquire);
        if (atomic_load(&p->stop))
            return NULL;
        take_pieces(p, s.thread);
        atomic_fetch_sub_explicit(&p->busy, 1, memory_order_release);
    }
}

static void raise_generation(mote__pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->sleepers)) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->mutex);
    }
}

mote__pool *mote__pool_create(int n_threads)
{
    mote__pool *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->n_threads = 1;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->threads = calloc(n_threads > 1 ? (size_t)n_threads - 1 : 1, sizeof *p->threads);
    if (!p->threads) {
        mote__pool_destroy(p);
        return NULL;
    }
    for (int i = 1; i < n_threads; i++) {
        struct start *s = malloc(sizeof *s);
        if (!s || (*s = (struct start){ p, i }, pthread_create(&p->threads[i - 1], NULL, worker, s))) {
            free(s);
            mote__pool_destroy(p);
            return NULL;
        }
        p->n_threads++;
    }
    return p;
}

void mote__pool_destroy(mote__pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, 1);
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->generation, 1);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
    for (int i = 1; i < p->n_threads; i++)
        pthread_join(p->threads[i - 1], NULL);
    free(p->threads);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

int mote__pool_threads(const mote__pool *p) { return p ? p->n_threads : 1; }

void mote__pool_for(mote__pool *p, size_t n, size_t grain, mote__pool_body body, void *ctx)
{
    if (n == 0)
        return;
    if (grain == 0)
        grain = 1;
    if (!p || p->n_threads == 1 || n <= grain) {
        body(ctx, 0, n, 0);
        return;
    }
    p->body = body;
    p->ctx = ctx;
    p->n = n;
    p->grain = grain;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->busy, p->n_threads - 1, memory_order_relaxed);
    raise_generation(p);
    take_pieces(p, 0);
    for (int spins = 0; atomic_load_explicit(&p->busy, memory_order_acquire); spins++)
        if (spins < SPINS)
            relax();
        else
            sched_yield();   /* more threads than cores: let the others finish */
}
