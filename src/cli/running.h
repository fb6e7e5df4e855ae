/* What the commands that run a model share: opening it with the common options, feeding a session
 * with progress, sampling options, and telling speeds and memory. */
#ifndef MOTE_CLI_RUNNING_H
#define MOTE_CLI_RUNNING_H

#include <jansson.h>
#include <mote/mote.h>

#include "cli/opts.h"

/* Read the file of --profile, if there is one: a->kv are its formats then. path: the model's
 * folder, which the profile must have been made for; NULL: not looked at. */
int cli_profile_load(cli_args *a, const char *path, mote_err *err);
/* Profile and model. ids_only: a tokenizer.json that cannot be used is as none. */
int cli_model_open(mote_model **model, mote_model_info *info, const char *path, cli_args *a,
                   int ids_only, mote_err *err);
/* An error about formats of the cache is one of the option (or of the profile) that gave them: says
 * so in *err, and makes *status CLI_USAGE where the option itself is wrong. Any other error stays
 * as it is. */
void cli_kv_error(const char *option, const cli_args *a, int *status, mote_err *err);
/* A session with the common options; max_context 0: the model's. Bad formats: cli_kv_error has been
 * called. */
int cli_session_create(mote_session **session, mote_model *model, const cli_args *a,
                       size_t max_context, int *status, mote_err *err);

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
/* Streamed experts: how often they were there, what was read, what waited; nothing without. */
void cli_print_streamed(FILE *f, const mote_model *model);
json_t *cli_streamed_json(const mote_model *model);

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
