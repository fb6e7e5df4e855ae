/* What the commands that run a model share: opening it with the common options, generating tokens
 * with stop strings, and telling speeds and memory. */
#ifndef MOTE_CLI_GEN_H
#define MOTE_CLI_GEN_H

#include <jansson.h>
#include <mote/mote.h>

#include "cli/opts.h"
#include "cli/stops.h"

/* ids_only: a tokenizer.json that cannot be used is as none. */
int cli_model_open(mote_model **model, mote_model_info *info, const char *path, const cli_args *a,
                   int ids_only, mote_err *err);
/* An error about formats of the cache is one of the option (or of the profile) that gave them: says
 * so in *err, and makes *status CLI_USAGE where the option itself is wrong. Any other error stays
 * as it is. */
void cli_kv_error(const char *option, const cli_args *a, int *status, mote_err *err);
/* A session with the common options; max_context 0: the model's. Bad formats: cli_kv_error has been
 * called. */
int cli_session_create(mote_session **session, mote_model *model, const cli_args *a,
                       size_t max_context, int *status, mote_err *err);

typedef enum cli_finish {
    CLI_FINISH_LENGTH,
    CLI_FINISH_EOS,
    CLI_FINISH_STOP,
    CLI_FINISH_CONTEXT,
    CLI_FINISH_INTERRUPTED
} cli_finish;
/* "length", "eos", "stop", "context", "interrupted" */
extern const char *const cli_finish_names[];

typedef struct cli_gen_params {
    mote_sample_params sample;
    /* tokens at most */
    size_t n_max;
    int ignore_eos;
    const char *const *stops;
    size_t n_stops;
    /* alternatives per token; 0 with want_logprobs: the token's own */
    size_t n_logprobs;
    int want_logprobs;
    /* Text as it becomes certain (never half a character, never a part of a stop string); id is the
     * token that released it. Without a tokenizer the text is the ids, separated by spaces. n_bytes
     * of it, never 0; zero bytes may be among them. Non-zero ends the generation. */
    int (*on_text)(void *ctx, const char *text, size_t n_bytes);
    /* In place of on_text, and without stop strings: each token. Non-zero ends the generation. */
    int (*on_token)(void *ctx, int32_t id);
    void *ctx;
} cli_gen_params;

typedef struct cli_gen_result {
    /* owned; what was sampled, an ending EOS left out */
    int32_t *ids;
    size_t n_ids;
    /* how many of them the session holds (the last is not needed) */
    size_t n_fed;
    cli_finish finish;
    /* of the n_steps decode steps */
    double seconds;
    size_t n_steps;
    /* owned; an array, or NULL when not asked for */
    json_t *logprobs;
} cli_gen_result;

/* The session must hold the logits of its last token. Ctrl-C is a finish, not an error. */
int cli_generate(mote_model *model, mote_session *session, const mote_model_info *info,
                 const cli_gen_params *params, cli_gen_result *result, mote_err *err);
void cli_gen_result_deinit(cli_gen_result *result);

/* Feed ids with progress on the terminal; *seconds (may be NULL) and *scratch_peak (may be NULL;
 * the largest scratch seen between chunks) are added to. */
int cli_feed(mote_model *model, mote_session *session, const int32_t *ids, size_t n,
             mote_logits_rows rows, const char *what, double *seconds, size_t *scratch_peak,
             mote_err *err);

/* {weights, kv_..., scratch, other, total, peak, rss, peak_rss, scratch_peak} */
json_t *cli_memory_json(const mote_memory *m, size_t scratch_peak);
/* {main_codes, main_scales, index_codes, index_scales, total}, or key_... and value_...: bytes per
 * token */
json_t *cli_kv_json(const mote_session *session);
void cli_print_cache(FILE *f, const mote_session *session, const char *kv);
void cli_print_memory(FILE *f, const mote_memory *m, size_t scratch_peak);
/* Where the matrices that every token uses lie: "copy", "map", or "mixed". */
const char *cli_weights_word(const mote_model_info *info);
/* The same by group, with bytes in the files: one line, or {group: {bytes, placed}}. */
void cli_print_placed(FILE *f, const mote_model_info *info);
json_t *cli_placed_json(const mote_model_info *info);

/* A seed nobody chose. */
uint64_t cli_random_seed(void);

/* Shared rows of sampling options; cli_sampling_option handles one of them (1) or says it is not
 * one (0). */
enum { CLI_O_TEMP = 1100, CLI_O_TOP_P, CLI_O_TOP_K, CLI_O_MIN_P, CLI_O_SEED };
#define CLI_ROWS_SAMPLING                                                                    \
    { CLI_O_TEMP, "temp", "T",                                                               \
      "temperature: logits are divided by it; 0 = greedy, the smallest id wins ties.\n"      \
      "Default: the model's generation_config.json, else 1" },                               \
        { CLI_O_TOP_P, "top-p", "P",                                                         \
          "keep the most likely tokens whose probabilities add up to P; 1 = all, 0 = one.\n" \
          "Default: the model's generation_config.json, else 1" },                           \
        { CLI_O_TOP_K, "top-k", "N",                                                         \
          "keep the N most likely tokens; 0 = all. Default: the model's file, else 0" },     \
        { CLI_O_MIN_P, "min-p", "P",                                                         \
          "keep tokens at least P times as likely as the likeliest; 0 = all.\n"              \
          "Default: the model's file, else 0" },                                             \
    {                                                                                        \
        CLI_O_SEED, "seed", "N",                                                             \
            "seed of the sampler; the same seed gives the same text. Default: a random one"  \
    }
typedef struct cli_sampling {
    double temp, top_p, min_p;
    int top_k;
    uint64_t seed;
    int has_seed;
} cli_sampling;
#define CLI_SAMPLING_INIT    \
    {                        \
        -1, -1, -1, -1, 0, 0 \
    }
int cli_sampling_option(cli_sampling *s, const cli_args *a, int id);
/* Defaults from the model, and a seed where none was given. Checked, so that a bad value is told
 * before a prompt is read; so is what the model's files ask for in vain. */
int cli_sampling_finish(cli_sampling *s, const mote_model_info *info, mote_sample_params *params,
                        mote_err *err);

#endif
