/* Unicode 16 character classes as code point ranges: the L, M, N, P, S and white-space classes of
 * tokenizer patterns. The table comes from tools/gen-unicode16.py. */
#ifndef MOTE_TEXT_UNICODE16_H
#define MOTE_TEXT_UNICODE16_H

#include <stddef.h>
#include <stdint.h>

typedef struct mote__cp_range {
    uint32_t first, last;
} mote__cp_range; /* inclusive */
typedef struct mote__cp_class {
    /* 'L' 'M' 'N' 'P' 'S': general category; 's': White_Space; 0 ends the table */
    char name;
    /* ascending, neither overlapping nor touching */
    const mote__cp_range *ranges;
    size_t n_ranges;
} mote__cp_class;
extern const mote__cp_class mote__unicode16[];

#endif
