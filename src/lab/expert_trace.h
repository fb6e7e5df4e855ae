/* Which experts the rows of a run were routed to: a trace in memory, read from a file
 * (docs/format-trace.md) or made by the generator. */
#ifndef MOTE_LAB_EXPERT_TRACE_H
#define MOTE_LAB_EXPERT_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include <mote/mote.h>

/* Rows of one session in one layer of a pass. */
typedef struct lab_trace_record {
    size_t first_id; /* of ids: [n_rows][n_per_token] */
    uint32_t n_rows, session;
    uint16_t layer;
    uint8_t is_prompt;   /* more than one token of the session in this pass */
    uint8_t begins_pass; /* the first record of a pass */
} lab_trace_record;

typedef struct lab_trace {
    uint32_t n_layers, n_experts, n_per_token;
    uint64_t expert_bytes;     /* of one expert's matrices */
    lab_trace_record *records; /* owned */
    uint16_t *ids;             /* owned */
    size_t n_records, n_ids;
    size_t records_room, ids_room;
    size_t cut_bytes; /* behind the last whole record: the run was stopped while writing */
} lab_trace;

/* name: for messages. The header is refused where it is damaged; a record that is cut at the file's
 * end is left out (cut_bytes), any other wrong record is MOTE_EFORMAT. */
int lab_trace_parse(lab_trace *t, const char *name, const uint8_t *data, size_t size,
                    mote_err *err);
void lab_trace_deinit(lab_trace *t);
/* Append a record; *ids: room for its n_rows x n_per_token ids, good until the next call. */
int lab_trace_add(lab_trace *t, const lab_trace_record *record, uint16_t **ids, mote_err *err);

/* Ordered routing that resembles what is known of V4.1 (docs/results/experts.md). An expert's logit
 * is the sum of three normal parts: of the model, of the sequence, and one that is drawn anew with
 * chance `renew` before each token. A token takes n_per_token of them without replacement, each in
 * proportion to exp(logit). */
typedef struct lab_trace_shape {
    uint32_t n_layers, n_experts, n_per_token, n_sequences, prompt_tokens, decode_tokens;
    double model_spread, sequence_spread, token_spread, renew;
    uint64_t seed;
} lab_trace_shape;
/* The public model's sizes and the fitted spreads; 50 sequences of 215 tokens, no prompts. */
lab_trace_shape lab_trace_published(void);
int lab_trace_generate(lab_trace *t, const lab_trace_shape *shape, mote_err *err);

#endif
