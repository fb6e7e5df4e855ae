/* Needles: short facts (numbers and names) hidden in a text at given depths, and the questions that
 * ask for them.
 *
 * One context holds a needle per depth, each with a key of its own: " The secret number of Susan
 * Hale is" + " 4817" + ".". A question repeats a needle's words up to its answer. So a single
 * reading of the context serves all depths, and the answers of the other needles of the same kind,
 * which are as likely by themselves, are the distractors: only retrieval tells them apart. */
#ifndef MOTE_LAB_NEEDLE_TEXT_H
#define MOTE_LAB_NEEDLE_TEXT_H

#include "lab/corpus.h"

enum { LAB_MAX_NEEDLES = 32 };
typedef enum lab_needle_kind { LAB_NUMBER, LAB_NAME, LAB_NEEDLE_KINDS } lab_needle_kind;

typedef struct lab_needle {
    lab_needle_kind kind;
    char question[80], answer[24]; /* both begin with a blank */
    int32_t *ids;                  /* owned: question, answer, full stop */
    size_t n_question, n_answer, n_ids;
    double depth; /* asked: 0 (start) ... 1 (just before the question) */
    size_t at;    /* position of its first token in the context */
} lab_needle;

typedef struct lab_haystack {
    lab_needle needle[LAB_MAX_NEEDLES];
    size_t n_needles;
    int32_t *ids; /* owned: BOS, text with the needles in it */
    /* ctx less room for every question with an answer of its kind */
    size_t n_ids;
} lab_haystack;

/* A context of ctx tokens, question and answer included, from window `sample` of the text (they
 * wrap around its end). Kinds alternate; keys and answers are distinct; everything follows from the
 * seed, the sample's number and the depths. A needle goes behind the last sentence that ends at or
 * up to 64 tokens before its depth. MOTE_EINVAL: too many depths or a context too short for them.
 */
int lab_haystack_make(lab_haystack *h, const mote_model *model, const lab_text *text, size_t ctx,
                      const double *depths, size_t n_depths, uint64_t seed, size_t sample,
                      mote_err *err);
void lab_haystack_free(lab_haystack *h);

#endif
