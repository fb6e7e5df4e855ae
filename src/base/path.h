/* Names of files: a folder and what is in it. */
#ifndef MOTE_BASE_PATH_H
#define MOTE_BASE_PATH_H

#include <stdio.h>

/* Room for the longest folder that is taken (MOTE_FOLDER_ROOM with its 0), a name in it and what is
 * put behind a name while a file is written. */
enum { MOTE_FOLDER_ROOM = 4096, MOTE_PATH_ROOM = MOTE_FOLDER_ROOM + 512 };

/* "folder/name" into path[MOTE_PATH_ROOM]; "" (which no file has) where that is too long. Returns
 * path. */
static inline char *mote__path_join(char *path, const char *folder, const char *name)
{
    if (snprintf(path, MOTE_PATH_ROOM, "%s/%s", folder, name) >= MOTE_PATH_ROOM)
        *path = 0;
    return path;
}

#endif
