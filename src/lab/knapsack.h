/* One option of each item, least cost in all, under a budget of bytes: exact, by carrying the
 * frontier of (bytes, cost) from item to item. */
#ifndef MOTE_LAB_KNAPSACK_H
#define MOTE_LAB_KNAPSACK_H

#include <stddef.h>

typedef struct lab_option {
    double bytes, cost;
} lab_option;
typedef struct lab_item {
    const lab_option *options;
    size_t n;
} lab_item;

/* A choice that no other beats in both bytes and cost. */
typedef struct lab_point {
    double bytes, cost;
    unsigned char *choice; /* [n_items], in the frontier's memory */
} lab_point;
typedef struct lab_frontier {
    lab_point *points;
    size_t n;
    unsigned char *choices;
} lab_frontier;

/* All of them, by ascending bytes and so by falling cost. Items have 1 to 255 options. 0, or -1:
 * out of memory. */
int lab_frontier_make(lab_frontier *f, const lab_item *items, size_t n_items);
void lab_frontier_free(lab_frontier *f);
/* The cheapest that fits, or NULL when even the smallest does not. */
const lab_point *lab_frontier_best(const lab_frontier *f, double budget);

#endif
