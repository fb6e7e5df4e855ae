/* Command-line options: a table of rows per command makes both the parser (getopt_long) and the
 * help; helpers read numbers, sizes and lists. Anything wrong ends the process with status 2 and
 * one line that names the option, and --help ends it too: in one place (opts.c, `leave`), and
 * before anything was opened, so there is nothing to clean up. No file is read here. */
#ifndef MOTE_CLI_OPTS_H
#define MOTE_CLI_OPTS_H

#include <stddef.h>
#include <stdint.h>

#include <mote/mote.h>

typedef struct cli_opt {
    int id;           /* the short letter, or 256 and more where there is none */
    const char *name; /* long name, without dashes */
    const char *arg;  /* what it takes (for the help), or NULL */
    const char *help; /* unit, default and formula; '\n' starts a new line */
} cli_opt;

typedef struct cli_usage {
    const char *command, *operands, *about;
    const cli_opt *opts; /* ends with a row whose name is NULL */
    const char *notes;   /* after the options: formulas, examples; may be NULL */
    int many_kv;         /* 1: --kv may be given more than once, and beside --profile */
} cli_usage;

/* Options that several commands have; cli_next stores them in cli_args. */
enum {
    CLI_O_JSON = 1000,
    CLI_O_KV,
    CLI_O_MATH,
    CLI_O_PREFILL,
    CLI_O_PROFILE,
    CLI_O_SVG,
    CLI_O_HTML,
    CLI_O_WEIGHTS,
    CLI_O_PLACE,
    CLI_O_EXPERT_RAM
};
#define CLI_ROW_HELP                                  \
    {                                                 \
        'h', "help", NULL, "print this help and exit" \
    }
#define CLI_ROW_JSON                                                                           \
    {                                                                                          \
        CLI_O_JSON, "json", NULL, "print the result as JSON on stdout, and nothing else there" \
    }
#define CLI_ROW_THREADS                                                                      \
    {                                                                                        \
        't', "threads", "N",                                                                 \
            "threads to compute with, results do not depend on it; default: MOTE_THREADS,\n" \
            "else one per core this process may use"                                         \
    }
#define CLI_ROW_KV                                                                             \
    {                                                                                          \
        CLI_O_KV, "kv", "SPEC",                                                                \
            "formats of the cache, default main=fp4,index=mxfp4,window=fp8. One word is the\n" \
            "main format; main.8=fp8 sets the source layer 8 alone.\n"                         \
            "Llama-style models: key=FORMAT,value=FORMAT, one word is both, key.3=bf16 sets\n" \
            "layer 3 alone; default bf16, as they were not trained for less.\n" CLI_KV_FORMATS \
    }
#define CLI_ROW_PROFILE                                                                      \
    {                                                                                        \
        CLI_O_PROFILE, "profile", "FILE",                                                    \
            "formats of the cache from a profile that 'mote tune' wrote for this very model" \
    }
#define CLI_ROWS_PICTURES                                                                         \
    { CLI_O_SVG, "svg", "FILE", "write the pictures of the result there, as one SVG" },           \
    {                                                                                             \
        CLI_O_HTML, "html", "FILE", "write tables and pictures there, as one self-contained page" \
    }
#define CLI_KV_FORMATS                                                                   \
    "Formats: fp4 (E2M1 by 16, E4M3 scales), mxfp4 (E2M1 by 32, E8M0 scales), fp4-32,\n" \
    "fp4-64, fp4-128, fp8, bf16, f32; every part takes each of them"
#define CLI_ROW_MATH                                                                        \
    {                                                                                       \
        CLI_O_MATH, "math", "MODE",                                                         \
            "fp32 (default): activations in FP32, the same bits for any threads and CPU;\n" \
            "published: rounded to BF16 and FP8 where the published inference rounds"       \
    }
#define CLI_ROW_WEIGHTS                                                                          \
    { CLI_O_WEIGHTS, "weights", "MODE",                                                          \
      "where the matrices of the model lie; results do not depend on it:\n"                      \
      "copy: in huge pages, filled while opening; map: in the mapped files; stream: as\n"        \
      "auto, but experts are read from the files when a layer wants them;\n"                     \
      "auto (default): group by group, copy if that takes at most half of the free\n"            \
      "memory and at most 32 GiB, stream experts otherwise; embedding and Engram tables\n"       \
      "are streamed with them, else mapped" },                                                   \
        { CLI_O_PLACE, "place", "GROUP=MODE,...",                                                \
          "the same for single groups of weights: dense, shared (experts), head, experts\n"      \
          "(routed), embed, engram" },                                                           \
    {                                                                                            \
        CLI_O_EXPERT_RAM, "expert-ram", "SIZE",                                                  \
            "memory for streamed experts; default: what is free when the rest is loaded, less\n" \
            "4 GiB"                                                                              \
    }
#define CLI_ROW_PREFILL                                                                      \
    {                                                                                        \
        CLI_O_PREFILL, "prefill", "MODE",                                                    \
            "which prompt positions D decoder layers with a window of W run over:\n"         \
            "bounded (default): the last W, the model's own approximation;\n"                \
            "exact: the last W + (D - 2 - d)(W - 1) in decoder layer d, the smallest cone\n" \
            "that changes nothing;\n"                                                        \
            "full: all of them"                                                              \
    }
#define CLI_ROW_END         \
    {                       \
        0, NULL, NULL, NULL \
    }

enum { CLI_MAX_OPERANDS = 66, CLI_MAX_OPTS = 64, CLI_END = -1 };
typedef struct cli_args {
    const cli_usage *usage;
    int argc;
    char **argv;
    /* of the option that cli_next returned; name as the user may say it: "--temp" */
    const char *value;
    char name[64];
    int json, n_threads, has_kv;
    /* NULL: the default */
    const char *kv;
    /* the file of --profile, or NULL; its formats, once cli_profile_load has read it */
    const char *profile;
    char profile_kv[2048];
    /* NULL: not asked for */
    const char *svg, *html;
    mote_math math;
    mote_prefill prefill;
    mote_weights weights, place[MOTE_WEIGHT_GROUPS];
    uint64_t expert_ram;
    char *operands[CLI_MAX_OPERANDS];
    int n_operands;
} cli_args;

void cli_args_init(cli_args *a, const cli_usage *usage, int argc, char **argv);
/* The next option that is not a shared one, or CLI_END when all are read and the operands are in
 * place. */
int cli_next(cli_args *a);
_Noreturn void cli_usage_error(const cli_args *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The operand, or a usage error that names it when it is missing; and none may be left over. */
char *cli_operand(const cli_args *a, int i, const char *name);
void cli_no_more_operands(const cli_args *a, int n);

/* Values of the current option (a->value), range-checked. */
uint64_t cli_uint(const cli_args *a, uint64_t min, uint64_t max);
double cli_real(const cli_args *a, double min, double max);
/* "64G", "4K", "1.5M": powers of 1024; also "GiB", "GB" after the number. */
uint64_t cli_size(const cli_args *a);
/* "4K,64K,1M": malloc'd, at least one. */
uint64_t *cli_sizes(const cli_args *a, size_t *n);
/* "0,50,100": percents, ascending, as shares of 1, into room for `most`: how many. */
size_t cli_percents(const cli_args *a, double *shares, size_t most);
/* "1,2,3" (also separated by white space): malloc'd; may be empty. The range is the model's affair.
 */
int32_t *cli_ids(const cli_args *a, size_t *n);
/* One of `names` (NULL-terminated): its index. */
int cli_choice(const cli_args *a, const char *const *names);
/* Append a->value to a malloc'd, growing list of borrowed strings. */
void cli_append(const char ***list, size_t *n, const char *value);

extern const char *const cli_prefill_names[],
    *const cli_math_names[], *const cli_weights_names[], *const cli_replay_names[];

#endif
