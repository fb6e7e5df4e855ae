/* The thread pool: how a loop's pieces are handed out, and how workers sleep. */
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define relax() _mm_pause()
#else
#define relax() ((void)0)
#endif

/* How a loop runs. The caller writes the job, then opens the gate with a new generation. A worker
 * that sees an open gate increments the count of workers inside, takes pieces from `next` until
 * none is left, and decrements the count. The caller takes pieces too; when none is left it closes
 * the gate and waits until the count is 0. A worker that was not scheduled in the meantime is not
 * waited for: it finds the gate closed. So a worker that loses its core to another process delays a
 * loop only if it has already joined.
 *
 * gate: bits 63..32 generation, bit 31 open, bits 30..0 number of workers inside. The job's fields
 * (body, ctx, n, grain) change only while the gate is closed and nobody is inside. A worker that
 * finds no job in SPINS rounds waits on the condition variable. `sleepers` changes only under the
 * mutex; the caller broadcasts under the mutex if it is not 0. */
enum { SPINS = 4000, SHARES = 3 };
#define OPEN ((uint64_t)1 << 31)
#define INSIDE(gate) ((gate) & (OPEN - 1))
#define GENERATION(gate) ((uint32_t)((gate) >> 32))

struct mote__threads {
    int n_threads;
    pthread_t *threads; /* n_threads - 1 of them, owned */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    _Atomic int sleepers;
    _Atomic int stop;
    _Atomic uint64_t gate;
    mote__threads_body body;
    void *ctx;
    size_t n, grain;
    _Atomic size_t next;
};

/* The argument of a new thread; the thread frees it. */
struct start {
    mote__threads *pool;
    int thread;
};

/* Take pieces until none is left. A piece is a fraction of the remaining iterations, at least
 * `grain`: large at first, for few accesses to the counter and neighbouring iterations in one
 * thread; small at the end, so that threads finish at about the same time. */
static void take_pieces(mote__threads *p, int thread)
{
    size_t n = p->n, grain = p->grain, shares = SHARES * (size_t)p->n_threads;
    size_t begin = atomic_load_explicit(&p->next, memory_order_relaxed);
    while (begin < n) {
        size_t piece = (n - begin) / shares / grain * grain, end;
        piece = piece < grain ? grain : piece;
        end = n - begin < piece ? n : begin + piece;
        if (!atomic_compare_exchange_weak_explicit(&p->next, &begin, end, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        p->body(p->ctx, begin, end, thread);
        begin = atomic_load_explicit(&p->next, memory_order_relaxed);
    }
}

/* Join the open job unless its generation is `seen`. Returns 1 and sets *generation if joined. */
static int join(mote__threads *p, uint32_t seen, uint32_t *generation)
{
    uint64_t gate = atomic_load_explicit(&p->gate, memory_order_relaxed);
    while ((gate & OPEN) && GENERATION(gate) != seen)
        if (atomic_compare_exchange_weak_explicit(&p->gate, &gate, gate + 1, memory_order_acquire,
                                                  memory_order_relaxed)) {
            *generation = GENERATION(gate);
            return 1;
        }
    return 0;
}

static void *worker(void *arg)
{
    struct start s = *(struct start *)arg;
    free(arg);
    mote__threads *p = s.pool;
    uint32_t seen = 0;
    while (!atomic_load(&p->stop)) {
        int inside = 0;
        for (int spins = 0; !inside && spins < SPINS; spins++) {
            inside = join(p, seen, &seen);
            if (!inside)
                relax();
        }
        if (inside) {
            take_pieces(p, s.thread);
            atomic_fetch_sub_explicit(&p->gate, 1, memory_order_release);
            continue;
        }
        pthread_mutex_lock(&p->mutex);
        atomic_fetch_add(&p->sleepers, 1);
        for (;;) {
            uint64_t gate = atomic_load(&p->gate);
            if (atomic_load(&p->stop) || ((gate & OPEN) && GENERATION(gate) != seen))
                break;
            pthread_cond_wait(&p->wake, &p->mutex);
        }
        atomic_fetch_sub(&p->sleepers, 1);
        pthread_mutex_unlock(&p->mutex);
    }
    return NULL;
}

mote__threads *mote__threads_create(int n_threads)
{
    mote__threads *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->n_threads = 1;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->threads = calloc(n_threads > 1 ? (size_t)n_threads - 1 : 1, sizeof *p->threads);
    if (!p->threads) {
        mote__threads_destroy(p);
        return NULL;
    }
    for (int i = 1; i < n_threads; i++) {
        struct start *s = malloc(sizeof *s);
        if (!s ||
            (*s = (struct start){ p, i }, pthread_create(&p->threads[i - 1], NULL, worker, s))) {
            free(s);
            mote__threads_destroy(p);
            return NULL;
        }
        p->n_threads++;
    }
    return p;
}

void mote__threads_destroy(mote__threads *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, 1);
    pthread_mutex_lock(&p->mutex);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
    for (int i = 1; i < p->n_threads; i++)
        pthread_join(p->threads[i - 1], NULL);
    free(p->threads);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

int mote__threads_count(const mote__threads *p) { return p ? p->n_threads : 1; }

void mote__threads_for(mote__threads *p, size_t n, size_t grain, mote__threads_body body, void *ctx)
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
    uint32_t generation = GENERATION(atomic_load_explicit(&p->gate, memory_order_relaxed)) + 1;
    generation += generation == 0; /* 0 is the initial `seen` of a worker */
    atomic_store(&p->gate, (uint64_t)generation << 32 | OPEN);
    if (atomic_load(&p->sleepers)) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->mutex);
    }
    take_pieces(p, 0);
    uint64_t gate = atomic_fetch_and(&p->gate, ~OPEN);
    for (int spins = 0; INSIDE(gate); spins++) {
        if (spins < SPINS)
            relax();
        else
            /* a worker was preempted in the middle of a piece */
            sched_yield();
        gate = atomic_load_explicit(&p->gate, memory_order_acquire);
    }
    atomic_thread_fence(memory_order_acquire);
}
