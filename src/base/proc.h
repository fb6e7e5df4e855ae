/* What the system tells of itself in /proc and /sys: small files of lines. Any thread. */
#ifndef MOTE_BASE_PROC_H
#define MOTE_BASE_PROC_H

#include <stdint.h>

/* *n: the number behind `key` on the first line that begins with it, in the file root + path (root
 * "" but in tests). 1: found; 0: there is no such file or line, or a word ("max") in its place. */
int mote__proc_number(const char *root, const char *path, const char *key, uint64_t *n);
/* The whole file, 0-terminated, malloc'd; NULL: none, or no memory. */
char *mote__proc_text(const char *path);

#endif
