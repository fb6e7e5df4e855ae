/* What every test needs: cmocka in its required order, a seeded generator, and paths of the source
 * tree. */
#ifndef MOTE_TESTS_TEST_H
#define MOTE_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* xorshift64*: the same sequence everywhere */
typedef struct rnd {
    uint64_t s;
} rnd;
static inline uint64_t rnd_u64(rnd *r)
{
    r->s ^= r->s >> 12;
    r->s ^= r->s << 25;
    r->s ^= r->s >> 27;
    return r->s * 0x2545F4914F6CDD1Dull;
}
static inline size_t rnd_below(rnd *r, size_t n) { return n ? (size_t)(rnd_u64(r) >> 33) % n : 0; }
/* [-1, 1) */
static inline float rnd_unit(rnd *r)
{
    return (float)((double)(rnd_u64(r) >> 40) / (1 << 23) - 1.0);
}

/* "<source root>/<relative>", in a static buffer per call site's turn (4 of them) */
static inline const char *source_path(const char *relative)
{
    static char paths[4][4096];
    static int turn;
    const char *root = getenv("MOTE_SOURCE_ROOT");
    char *p = paths[turn++ & 3];
    snprintf(p, sizeof paths[0], "%s/%s", root ? root : ".", relative);
    return p;
}

/* dir: "/tmp/mote-<name>-XXXXXX" on the way in, a new directory afterwards */
static inline void make_tree(char *dir) { assert_non_null(mkdtemp(dir)); }
static inline void remove_tree(const char *dir)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

#endif
