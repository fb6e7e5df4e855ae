/* The text that is measured on, as tokens, cut into windows: BOS + consecutive ctx - 1 tokens from
 * its start. */
#ifndef MOTE_LAB_CORPUS_H
#define MOTE_LAB_CORPUS_H

#include <stddef.h>
#include <stdint.h>

#include <mote/mote.h>

typedef struct lab_text {
    const char *path; /* borrowed, for messages */
    int32_t *ids;     /* without BOS; owned */
    size_t n_ids;
    int32_t bos;
} lab_text;

/* `text` is what the file holds. Models without tokenizer or BOS are refused. flags:
 * mote_encode_flags. */
int lab_text_init(lab_text *t, const mote_model *model, const char *path, const char *text,
                  size_t n_bytes, int flags, mote_err *err);
void lab_text_deinit(lab_text *t);
/* Windows of ctx tokens to use: the whole ones, capped by `most` (0: no cap). A text or a model
 * that is too short is an error. */
int lab_text_windows(const lab_text *t, const mote_model *model, size_t ctx, size_t most, size_t *n,
                     mote_err *err);
/* Window w: room for ctx ids. */
void lab_text_window(const lab_text *t, size_t ctx, size_t w, int32_t *window);

#endif
