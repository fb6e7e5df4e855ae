/* A reply in the making: fed with logits, it draws tokens and gives their text as it becomes
 * certain. It runs no model: who steps sessions (one of a command, many of a server) feeds the
 * token it drew and brings the logits that follow.
 *
 *     while ((rc = talk_generator_next(g, logits, &err)) == 1)
 *         ... text; feed talk_generator_tokens' last; logits = those after it
 *     ... text
 *
 * talk_generate is that loop for one session. One thread at a time. */
#ifndef MOTE_TALK_GENERATOR_H
#define MOTE_TALK_GENERATOR_H

#include <jansson.h>
#include <mote/mote.h>

typedef enum talk_finish {
    TALK_LENGTH,   /* as many tokens as it may have */
    TALK_EOS,      /* the model ended it */
    TALK_STOP,     /* a stop string came */
    TALK_CONTEXT,  /* the session's context is full */
    TALK_CANCELLED /* the caller ended it */
} talk_finish;
/* "length", "eos", "stop", "context", "interrupted" */
const char *talk_finish_name(talk_finish finish);

enum { TALK_MAX_LOGPROBS = 64 };

typedef struct talk_params {
    mote_sample_params sample;
    size_t max_tokens;
    int ignore_eos; /* 1: end-of-sequence tokens are tokens like others */
    /* The text ends before the first of them; none is empty; borrowed. Of a reply that is taken
     * apart: its content. */
    const char *const *stops;
    size_t n_stops;
    int take_apart; /* 1: reasoning, content and calls of tools (mote_reply); 0: plain text */
    int thinking;   /* with take_apart: the prompt ends in <think> */
    int want_logprobs;
    size_t n_logprobs; /* alternatives a token, at most TALK_MAX_LOGPROBS */
} talk_params;

typedef struct talk_logprob {
    int32_t id;
    float logprob;
} talk_logprob;

typedef struct talk_generator talk_generator;

/* model: borrowed; one without a tokenizer gives ids as text, separated by spaces. */
int talk_generator_create(talk_generator **g, const mote_model *model, const talk_params *params,
                          mote_err *err);
void talk_generator_destroy(talk_generator *g);
/* Draw a token from a row of logits. 1: feed it and go on; 0: the reply has ended, and a token that
 * was drawn need not be fed; negative: an error. */
int talk_generator_next(talk_generator *g, const float *logits, mote_err *err);
/* End it from outside: TALK_CONTEXT or TALK_CANCELLED. What was held back becomes certain. */
int talk_generator_end(talk_generator *g, talk_finish finish, mote_err *err);
/* Text that has become certain, until it gives 0: n_bytes of it (never 0; zero bytes may be among
 * them), never half a character, a part of a tag or of a stop string; borrowed until the next call
 * of the generator. part: MOTE_REPLY_CONTENT for plain text. */
int talk_generator_text(talk_generator *g, mote_reply_part *part, const char **text,
                        size_t *n_bytes);
int talk_generator_ended(const talk_generator *g);
talk_finish talk_generator_finish(const talk_generator *g);
/* Drawn so far, an ending EOS left out; borrowed. */
const int32_t *talk_generator_tokens(const talk_generator *g, size_t *n);
/* Of the last token, and the likeliest ones (n_logprobs of them), best first. */
talk_logprob talk_generator_logprob(const talk_generator *g, const talk_logprob **top, size_t *n);
/* The ended reply as a message {role, content, reasoning_content?, tool_calls?}, with take_apart;
 * new reference in *message. */
int talk_generator_message(const talk_generator *g, json_t **message, mote_err *err);

/* What the loop tells and asks; each may be NULL. Non-zero ends the reply: of `cancelled` as
 * TALK_CANCELLED, of the others as it is. */
typedef struct talk_loop {
    int (*cancelled)(void *ctx);
    int (*on_token)(void *ctx, const talk_generator *g);
    int (*on_text)(void *ctx, mote_reply_part part, const char *text, size_t n_bytes);
    void *ctx;
    /* set here: decode steps, their time, and the tokens that the session holds of the reply (the
     * last one drawn is not fed) */
    size_t n_steps, n_fed;
    double seconds;
} talk_loop;
/* The whole reply. The session holds the prompt and the logits of its last token. */
int talk_generate(mote_model *model, mote_session *session, talk_generator *g, talk_loop *loop,
                  mote_err *err);

#endif
