/* The sentences of the chat format that belong to the model: how tools, a response format and the
 * reasoning effort are told. A checkpoint has them in encoding/encoding.py (three string constants,
 * read by text/py_constants.h); a folder without that file gets ours. They are templates of
 * Python's str.format: {placeholder}, {{ and }}. */
#ifndef MOTE_TEXT_WORDING_H
#define MOTE_TEXT_WORDING_H

#include "base/mem.h"

typedef enum mote__words {
    MOTE_WORDS_TOOLS,
    MOTE_WORDS_FORMAT,
    MOTE_WORDS_EFFORT,
    MOTE_WORDS
} mote__words;

/* What stands at a placeholder; MOTE_SLOT_TEXT: the template's own text. */
typedef enum mote__slot {
    MOTE_SLOT_TEXT,
    MOTE_SLOT_SCHEMAS,
    MOTE_SLOT_DSML,
    MOTE_SLOT_CALLS,
    MOTE_SLOT_INVOKE,
    MOTE_SLOT_PARAMETER,
    MOTE_SLOT_THINK,
    MOTE_SLOT_END_THINK,
    MOTE_SLOT_SCHEMA,
    MOTE_SLOT_BUDGET,
} mote__slot;

typedef struct mote__wording {
    char *path;     /* owned: the model's file, or NULL: ours */
    mote_err error; /* code 0, or why that file cannot be used; ours do not stand in */
    /* text owned; NULL: the file lacks it */
    struct mote__template {
        char *text;
        size_t n;
    } words[MOTE_WORDS];
} mote__wording;

/* From the checkpoint folder `folder`. Only a lack of memory is a failure: what is wrong with the
 * file stands in w->error, for whoever needs the chat format. */
int mote__wording_load(mote__wording *w, const char *folder, mote_err *err);
/* From a file's text. */
int mote__wording_parse(mote__wording *w, const char *text, size_t n, const char *path,
                        mote_err *err);
void mote__wording_deinit(mote__wording *w);

/* A walk over a template; w may be NULL (ours). MOTE_EFORMAT names the file and the constant that
 * it lacks. */
typedef struct mote__words_walk {
    const char *at, *end;
    mote__words which;
} mote__words_walk;
int mote__words_begin(mote__words_walk *walk, const mote__wording *w, mote__words which,
                      mote_err *err);
/* 1: the next part, its text (of MOTE_SLOT_TEXT) borrowed; 0: the end; -1: no template of
 * str.format that is read, *text names the place. */
int mote__words_next(mote__words_walk *walk, mote__slot *slot, const char **text, size_t *n);

#endif
