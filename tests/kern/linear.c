/* The driver of linears: any mix of jobs gives the result of one job, one row, one thread; gathers;
 * shared inputs; views; failing allocations. */
#include "kern/guard.h"

#include <mote/mote.h>

#include "kern/lanes.h"
#include "kern/linear.h"

typedef struct job_memory {
    mote__mat m;
    uint8_t *data, *scale;
    float *x, *want, *got;
    uint32_t *rows;
} job_memory;

static void random_matrix(rnd *r, job_memory *j, mote__wkind kind, size_t n_out, size_t n_in)
{
    size_t bytes = n_out * n_in / mote__columns_per_word(kind) * 4,
           scales = (n_out + 95) * (n_in + 31) / 32 + 8;
    j->m = (mote__mat){
        kind, n_out, n_in, NULL, NULL, (n_in + 31) / 32, kind == MOTE_W_FP8 ? rnd_below(r, 40) : 0
    };
    j->m.data = j->data = malloc(bytes + 1);
    j->m.scale = j->scale = malloc(scales);
    fill_bytes(r, j->data, bytes);
    for (size_t i = 0; i < scales; i++)
        j->scale[i] = (uint8_t)(115 + rnd_below(r, 20));
    if (kind == MOTE_W_F32)
        fill_floats(r, (float *)(void *)j->data, n_out * n_in, NORMAL);
    for (size_t i = 0; kind == MOTE_W_BF16 && i < n_out * n_in; i++) {
        uint16_t h = mote__bf16_encode(rnd_unit(r));
        memcpy(j->data + 2 * i, &h, 2);
    }
    for (size_t i = 0; kind == MOTE_W_FP8 && i < bytes; i++)
        j->data[i] &= 0xfb;
}

static void free_jobs(job_memory *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(m[i].data), free(m[i].scale), free(m[i].want), free(m[i].got), free(m[i].rows);
        if (i == 0 || m[i].x != m[i - 1].x)
            free(m[i].x);
    }
}

static void test_any_cut(void **state)
{
    enum { JOBS = 6, MOST_THREADS = 5 };
    mote__threads *pools[MOST_THREADS + 1] = { NULL };
    for (int t = 2; t <= MOST_THREADS; t++)
        assert_non_null(pools[t] = mote__threads_create(t));
    for (uint64_t seed = 1; seed <= 60; seed++) {
        rnd r = { seed * 7919 };
        rnd_u64(&r);
        mote__linear_job jobs[JOBS] = { 0 };
        job_memory m[JOBS] = { 0 };
        size_t n_jobs = rnd_below(&r, JOBS + 1), many = seed % 15 == 0;
        for (size_t i = 0; i < n_jobs; i++) {
            mote__wkind kind = (mote__wkind)rnd_below(&r, MOTE_W_KINDS);
            size_t n_in = 32 * (1 + rnd_below(&r, 12)), n_out = rnd_below(&r, many ? 200 : 90);
            size_t n_rows = many ? rnd_below(&r, 230) : rnd_below(&r, 3) ? rnd_below(&r, 9) : 0;
            int share = i && rnd_below(&r, 3) == 0; /* the inputs of the job before */
            if (share) {
                n_in = m[i - 1].m.n_in;
                n_rows = jobs[i - 1].n_rows;
                if (rnd_below(&r, 2))
                    kind = m[i - 1].m.kind;
            }
            random_matrix(&r, &m[i], kind, n_out, n_in);
            size_t held = n_rows + 5;
            jobs[i] = (mote__linear_job){ .w = &m[i].m,
                                          .ldx = n_in + rnd_below(&r, 3),
                                          .n_rows = n_rows,
                                          .ldy = n_out + rnd_below(&r, 3) };
            if (share) {
                /* or the same data with another stride */
                jobs[i].ldx = jobs[i - 1].ldx;
                if (jobs[i].ldx > n_in && rnd_below(&r, 2))
                    jobs[i].ldx--;
                m[i].x = m[i - 1].x;
            } else {
                m[i].x = malloc(held * jobs[i].ldx * sizeof(float));
                fill_floats(&r, m[i].x, held * jobs[i].ldx, SMALL_AND_LARGE);
            }
            jobs[i].x = m[i].x;
            if (rnd_below(&r, 2)) {
                m[i].rows = malloc((n_rows + 1) * sizeof(uint32_t));
                for (size_t k = 0; k < n_rows; k++)
                    m[i].rows[k] = (uint32_t)rnd_below(&r, held);
                jobs[i].rows = m[i].rows;
            }
            size_t n_y = n_rows * jobs[i].ldy;
            m[i].want = malloc((n_y + 1) * sizeof(float));
            m[i].got = malloc((n_y + 1) * sizeof(float));
            for (size_t k = 0; k < n_y; k++)
                m[i].want[k] = 12345;
            /* row by row with the scalar kernel */
            float *xp = malloc((mote__arranged_size(kind, n_in) + 1) * sizeof(float));
            for (size_t k = 0; k < n_rows; k++) {
                mote__arrange(kind, xp, m[i].x + (jobs[i].rows ? jobs[i].rows[k] : k) * jobs[i].ldx,
                              n_in);
                mote__kern_linear(mote__kern_at(0), &m[i].m, 0, n_out, xp, 1, 0,
                                  m[i].want + k * jobs[i].ldy, jobs[i].ldy, NULL);
            }
            free(xp);
        }
        for (int level = 0; mote__kern_at(level); level++)
            for (int t = 1; t <= MOST_THREADS; t++) {
                mote__meter meter = { 0 };
                mote__linear_ctx ctx;
                assert_int_equal(mote__linear_init(&ctx, mote__kern_at(level), pools[t], &meter),
                                 0);
                /* all at once, then job by job, with one context */
                for (int pass = 0; pass < 2; pass++) {
                    for (size_t i = 0; i < n_jobs; i++)
                        for (size_t k = 0; k < jobs[i].n_rows * jobs[i].ldy; k++)
                            m[i].got[k] = 12345;
                    for (size_t i = 0; i < n_jobs; i++)
                        jobs[i].y = m[i].got;
                    if (pass == 0)
                        assert_int_equal(mote__linear_run(&ctx, jobs, n_jobs), 0);
                    else
                        for (size_t i = 0; i < n_jobs; i++)
                            assert_int_equal(mote__linear_run(&ctx, jobs + i, 1), 0);
                    for (size_t i = 0; i < n_jobs; i++)
                        check_same_f32(m[i].want, m[i].got, jobs[i].n_rows * jobs[i].ldy,
                                       "linear_run/%s seed=%llu threads=%d pass=%d job=%zu "
                                       "rows=%zu out=%zu in=%zu",
                                       ctx.kern->name, (unsigned long long)seed, t, pass, i,
                                       jobs[i].n_rows, m[i].m.n_out, m[i].m.n_in);
                }
                mote__linear_deinit(&ctx);
                assert_int_equal(mote__meter_total(&meter), 0);
            }
        free_jobs(m, n_jobs);
    }
    for (int t = 2; t <= MOST_THREADS; t++)
        mote__threads_destroy(pools[t]);
}

/* 8 block-diagonal views of one scaled matrix (as wo_a is used) give the same rows as the whole
 * matrix */
static void test_views(void **state)
{
    enum { GROUPS = 4, OUT = 24, IN = 64 };
    rnd r = { 9 };
    job_memory m = { 0 };
    mote__linear_ctx ctx;
    float x[IN], whole[GROUPS * OUT], parts[GROUPS * OUT];
    random_matrix(&r, &m, MOTE_W_FP8, GROUPS * OUT, IN);
    m.m.scale_row0 = 0;
    fill_floats(&r, x, IN, NORMAL);
    assert_int_equal(mote__linear_init(&ctx, mote__kern(), NULL, NULL), 0);
    mote__linear_job all = { .w = &m.m,
                             .x = x,
                             .ldx = IN,
                             .n_rows = 1,
                             .y = whole,
                             .ldy = GROUPS * OUT },
                     some[GROUPS];
    assert_int_equal(mote__linear_run(&ctx, &all, 1), 0);
    mote__mat view[GROUPS];
    for (size_t i = 0; i < GROUPS; i++) {
        view[i] = m.m;
        view[i].n_out = OUT;
        view[i].data += i * OUT * IN;
        view[i].scale_row0 = i * OUT; /* not a multiple of 32 */
        some[i] = (mote__linear_job){
            .w = &view[i], .x = x, .ldx = IN, .n_rows = 1, .y = parts + i * OUT, .ldy = OUT
        };
    }
    assert_int_equal(mote__linear_run(&ctx, some, GROUPS), 0);
    assert_memory_equal(whole, parts, sizeof whole);
    mote__linear_deinit(&ctx);
    free_jobs(&m, 1);
}

static void test_no_memory(void **state)
{
    rnd r = { 10 };
    job_memory m = { 0 };
    mote__linear_ctx ctx;
    float x[64] = { 0 }, y[16];
    random_matrix(&r, &m, MOTE_W_BF16, 16, 64);
    mote__linear_job job = { .w = &m.m, .x = x, .ldx = 64, .n_rows = 1, .y = y, .ldy = 16 };
    mote__meter meter = { 0 };
    mote__alloc_fail_at = 1;
    assert_int_equal(mote__linear_init(&ctx, mote__kern(), NULL, &meter), MOTE_ENOMEM);
    mote__linear_deinit(&ctx);
    for (int at = 1; at <= 2; at++) {
        mote__alloc_fail_at = 0;
        assert_int_equal(mote__linear_init(&ctx, mote__kern(), NULL, &meter), 0);
        mote__alloc_fail_at = at;
        assert_int_equal(mote__linear_run(&ctx, &job, 1), MOTE_ENOMEM);
        mote__alloc_fail_at = 0;
        assert_int_equal(mote__linear_run(&ctx, &job, 1), 0);
        size_t allocs = meter.n_allocs;
        assert_int_equal(mote__linear_run(&ctx, &job, 1), 0);
        assert_int_equal(meter.n_allocs, allocs); /* no allocations in the steady state */
        mote__linear_deinit(&ctx);
    }
    job.n_rows = (size_t)-1 / 8; /* fails before any input is read */
    assert_int_equal(mote__linear_init(&ctx, mote__kern(), NULL, &meter), 0);
    assert_int_equal(mote__linear_run(&ctx, &job, 1), MOTE_ENOMEM);
    assert_int_equal(mote__linear_run(&ctx, &job, 0), 0);
    mote__linear_deinit(&ctx);
    assert_int_equal(mote__meter_total(&meter), 0);
    free_jobs(&m, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_cut),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
