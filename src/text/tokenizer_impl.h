/* What a tokenizer is made of: shared by text/tokenizer.c (use), text/tokenizer_load.c (reading
 * tokenizer.json) and text/engram_classes.c. */
#ifndef MOTE_TEXT_TOKENIZER_IMPL_H
#define MOTE_TEXT_TOKENIZER_IMPL_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/pretok.h"
#include "text/tokenizer.h"

struct mote__tokenizer {
    mote__bpe bpe;
    mote__pretok *pretok;
    /* Added tokens. Those with `normalized: false` are looked for first, in the whole text; the
     * others then in what is left between them (there is no normaliser, so both see the raw text).
     */
    mote__added first, second;
    /* What the file's template puts around a text: -1 nothing. Encoding leaves it to the caller. */
    int has_template;
    int32_t front, back;
};

/* The byte alphabet of byte-level BPE: every byte has a printable stand-in. '!'..'~',
 * U+00A1..U+00AC and U+00AE..U+00FF stand for themselves, the other 68 bytes, in order, are
 * U+0100..U+0143. */
uint32_t mote__byte_letter(uint8_t byte);
int mote__letter_byte(uint32_t cp); /* -1: not in the alphabet */

/* Fills a zeroed tokenizer from tokenizer.json; on failure the caller closes it. */
int mote__tokenizer_load(mote__tokenizer *tok, const char *text, size_t n, const char *what,
                         mote_err *err);

#endif
