/* The members of a tokenizer, shared by text/tokenizer.c (encoding), text/tokenizer_load.c (reading
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
    /* Added tokens. Those with `normalized: false` are searched for first, in the whole text, the
     * others then in the text between them. There is no normaliser, so both see the raw text. */
    mote__added first, second;
    /* Token ids that the file's template adds before and after a text; -1: none. Encoding does not
     * add them. */
    int has_template;
    int32_t front, back;
};

/* The byte alphabet of byte-level BPE has a printable character for each byte: '!'..'~',
 * U+00A1..U+00AC and U+00AE..U+00FF for the byte of the same value, U+0100..U+0143 for the other 68
 * bytes in ascending order. */
uint32_t mote__byte_letter(uint8_t byte);
int mote__letter_byte(uint32_t cp); /* -1: not in the alphabet */

/* Fill a zeroed tokenizer from the text of a tokenizer.json. On failure the caller closes it. */
int mote__tokenizer_load(mote__tokenizer *tok, const char *text, size_t n, const char *what,
                         mote_err *err);

#endif
