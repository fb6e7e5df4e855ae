#include "lab/knapsack.h"

#include <stdlib.h>
#include <string.h>

/* A state after some items: how it was reached is the state before and the option taken. */
typedef struct state {
    double bytes, cost;
    size_t before;
    unsigned char option;
} state;

static int by_bytes(const void *a, const void *b)
{
    const state *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return (x->before > y->before) - (x->before < y->before);
}

/* Keep what is cheaper than everything smaller. */
static size_t prune(state *s, size_t n)
{
    qsort(s, n, sizeof *s, by_bytes);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!kept || s[i].cost < s[kept - 1].cost)
            s[kept++] = s[i];
    return kept;
}

static int collect(lab_frontier *f, state *const *layers, const size_t *counts, size_t n_items)
{
    size_t n = counts[n_items];
    f->points = calloc(n, sizeof *f->points);
    f->choices = calloc(n, n_items ? n_items : 1);
    if (!f->points || !f->choices)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const state *s = &layers[n_items][i];
        f->points[i] = (lab_point){ s->bytes, s->cost, f->choices + i * n_items };
        for (size_t k = n_items; k > 0; k--) {
            f->points[i].choice[k - 1] = s->option;
            s = &layers[k - 1][s->before];
        }
    }
    f->n = n;
    return 0;
}

int lab_frontier_make(lab_frontier *f, const lab_item *items, size_t n_items)
{
    *f = (lab_frontier){ 0 };
    state **layers = calloc(n_items + 1, sizeof *layers);
    size_t *counts = calloc(n_items + 1, sizeof *counts);
    int rc = layers && counts && (layers[0] = calloc(1, sizeof(state))) ? 0 : -1;
    if (!rc)
        counts[0] = 1;
    for (size_t k = 0; !rc && k < n_items; k++) {
        state *next = malloc((counts[k] * items[k].n + 1) * sizeof *next);
        if (!next) {
            rc = -1;
            break;
        }
        size_t n = 0;
        for (size_t i = 0; i < counts[k]; i++)
            for (size_t o = 0; o < items[k].n; o++)
                next[n++] = (state){ layers[k][i].bytes + items[k].options[o].bytes,
                                     layers[k][i].cost + items[k].options[o].cost, i,
                                     (unsigned char)o };
        counts[k + 1] = prune(next, n);
        layers[k + 1] = next;
    }
    if (!rc)
        rc = collect(f, layers, counts, n_items);
    for (size_t k = 0; layers && k <= n_items; k++)
        free(layers[k]);
    free(layers);
    free(counts);
    if (rc)
        lab_frontier_free(f);
    return rc;
}

void lab_frontier_free(lab_frontier *f)
{
    free(f->points);
    free(f->choices);
    *f = (lab_frontier){ 0 };
}

const lab_point *lab_frontier_best(const lab_frontier *f, double budget)
{
    const lab_point *best = NULL;
    for (size_t i = 0; i < f->n && f->points[i].bytes <= budget; i++)
        best = &f->points[i];
    return best;
}
