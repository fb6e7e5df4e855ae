/* The model's wording of a prompt: the sentences that introduce tools, a response format and the
 * reasoning effort. A checkpoint has them in encoding/encoding.py, as three string constants
 * (text/py_constants.h); for a folder without that file mote has its own. They are templates of
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

/* What a part of a template is replaced by; MOTE_SLOT_TEXT: text of the template itself. */
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
    char *path; /* the model's file, owned; NULL: mote's wording */
    mote_err
        error; /* code 0, or why that file cannot be used; mote's wording is not used instead */
    /* text: owned; NULL: the file lacks the constant */
    struct mote__template {
        char *text;
        size_t n;
    } words[MOTE_WORDS];
} mote__wording;

/* Load from the checkpoint folder `folder`. 0 or MOTE_ENOMEM. Any other error of the file is kept
 * in w->error, because only the chat format needs the file. */
int mote__wording_load(mote__wording *w, const char *folder, mote_err *err);
/* The same from text[0..n), the contents of the file `path`. */
int mote__wording_parse(mote__wording *w, const char *text, size_t n, const char *path,
                        mote_err *err);
void mote__wording_deinit(mote__wording *w);

/* Iterates over the parts of a template. w: NULL for mote's wording; must outlive the walk. 0, or
 * MOTE_EFORMAT naming the file and the missing constant. */
typedef struct mote__words_walk {
    const char *at, *end;
    mote__words which;
} mote__words_walk;
int mote__words_begin(mote__words_walk *walk, const mote__wording *w, mote__words which,
                      mote_err *err);
/* 1: *slot is the next part; for MOTE_SLOT_TEXT *text is its text, borrowed from w. 0: end of the
 * template. -1: syntax of str.format that is not supported; *text points to it. */
int mote__words_next(mote__words_walk *walk, mote__slot *slot, const char **text, size_t *n);

#endif
