/* mote experts: policies of an expert cache replayed on recorded or generated routing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/cmd_eval.h"
#include "cli/opts.h"
#include "cli/out.h"
#include "lab/expert_replay.h"

enum { O_SLOTS = 1200, O_GENERATE, O_SEQUENCES, O_PROMPT, O_DECODE, O_HALF_LIFE, O_SEED };

static const cli_usage usage = {
    .command = "experts",
    .operands = "TRACE | --generate",
    .about = "Which experts should stay in memory: replays a cache of expert slots on a trace of "
             "routing, under several policies.\n"
             "TRACE is a file that 'mote run --experts-trace' wrote (docs/format-trace.md).",
    .opts =
        (const cli_opt[]){
            CLI_ROW_HELP,
            { O_GENERATE, "generate", NULL,
              "in place of TRACE: routing of the published model's sizes, made by a generator that "
              "is fitted to public\n"
              "hit rates (docs/results/experts.md)" },
            { O_SEQUENCES, "sequences", "N", "to generate; default 50" },
            { O_PROMPT, "prompt", "N",
              "prompt tokens of a generated sequence, read in one sweep; default 0" },
            { O_DECODE, "decode", "N", "generated tokens behind them; default 215" },
            { O_SLOTS, "slots", "LIST",
              "experts that the cache holds, all layers together; default "
              "700,1600,2500,3000,4000,5000,6000" },
            { O_HALF_LIFE, "half-life", "X",
              "of the score, in decoded tokens; default: 2.5 x slots / experts of a token - 1.5" },
            { O_SEED, "seed", "N", "of the generator and the draws; default 1" },
            CLI_ROW_JSON,
            CLI_ROW_END,
        },
    .notes =
        "Policies: lru; lru-random = a random one of the 8 % unused for longest gives way; "
        "score = uses decayed over tokens, the\n"
        "lowest of 32 draws gives way, an expert of a prompt enters only in place of a lower "
        "score; optimum = the fewest misses\n"
        "in decode that are possible, by one that knows what comes. hit, misses and bytes are "
        "of decode, per decoded token; an\n"
        "expert counts once in a layer of a pass. prompt hit: of what prompts used.\n"
        "\n"
        "JSON: trace {layers, experts, experts_per_token, expert_bytes, prompt_tokens, "
        "decode_tokens, cut_bytes},\n"
        "rows[] {slots, policy, hit, misses_per_token, bytes_per_token, prompt_hit, "
        "decode_uses, decode_misses, prompt_uses,\n"
        "prompt_misses}; what does not exist is null.\n"
        "\n"
        "examples:\n"
        "  mote run models/nano -f chapter.txt --experts-trace t.trace && mote experts t.trace "
        "--slots 24,48\n"
        "  mote experts --generate --prompt 512 --decode 128 --slots 2500 --json",
};

typedef struct request {
    uint64_t *slots;
    size_t n_slots;
    int generate, shaped;
    double half_life;
    lab_trace_shape shape;
} request;

static void parse(cli_args *a, request *q)
{
    *q = (request){ .shape = lab_trace_published() };
    int id;
    while ((id = cli_next(a)) != CLI_END)
        switch (id) {
        case O_GENERATE: q->generate = 1; break;
        case O_SEQUENCES:
            q->shape.n_sequences = (uint32_t)cli_uint(a, 1, 100000);
            q->shaped = 1;
            break;
        case O_PROMPT:
            q->shape.prompt_tokens = (uint32_t)cli_uint(a, 0, 1 << 20);
            q->shaped = 1;
            break;
        case O_DECODE:
            q->shape.decode_tokens = (uint32_t)cli_uint(a, 1, 1 << 20);
            q->shaped = 1;
            break;
        case O_SLOTS:
            free(q->slots);
            q->slots = cli_sizes(a, &q->n_slots);
            for (size_t i = 0; i < q->n_slots; i++)
                if (q->slots[i] < 1 || q->slots[i] > 1 << 24)
                    cli_usage_error(a, "--slots: expected 1 to 16777216");
            break;
        case O_HALF_LIFE: q->half_life = cli_real(a, 0.01, 1e9); break;
        case O_SEED: q->shape.seed = cli_uint(a, 0, INT64_MAX); break;
        }
    if (!q->generate)
        cli_operand(a, 0, "TRACE");
    cli_no_more_operands(a, q->generate ? 0 : 1);
    if (q->shaped && !q->generate)
        cli_usage_error(a, "--sequences, --prompt and --decode need --generate");
}

static int load(lab_trace *t, const request *q, const char *path, mote_err *err)
{
    if (q->generate)
        return lab_trace_generate(t, &q->shape, err);
    char *bytes = NULL;
    size_t n = 0;
    int rc = cli_read_file(path, &bytes, &n, err);
    if (!rc)
        rc = lab_trace_parse(t, path, (const uint8_t *)bytes, n, err);
    free(bytes);
    if (!rc && t->cut_bytes)
        cli_say("mote: note: %s: %zu bytes of a cut record at the end are left out", path,
                t->cut_bytes);
    return rc;
}

static json_t *share(size_t part, size_t whole)
{
    return whole ? cli_json_real((double)part / (double)whole) : json_null();
}

static json_t *row_json(const lab_trace *t, size_t slots, lab_policy policy,
                        const lab_replay_result *r)
{
    json_t *misses = share(r->decode_misses, r->decode_tokens);
    double bytes = json_number_value(misses) * (double)t->expert_bytes;
    return json_pack("{s:I, s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "slots",
                     (json_int_t)slots, "policy", lab_policy_names[policy], "hit",
                     share(r->decode_uses - r->decode_misses, r->decode_uses), "misses_per_token",
                     misses, "bytes_per_token",
                     r->decode_tokens ? cli_json_real(bytes) : json_null(), "prompt_hit",
                     share(r->prompt_uses - r->prompt_misses, r->prompt_uses), "decode_uses",
                     (json_int_t)r->decode_uses, "decode_misses", (json_int_t)r->decode_misses,
                     "prompt_uses", (json_int_t)r->prompt_uses, "prompt_misses",
                     (json_int_t)r->prompt_misses);
}

static int replay_all(json_t **result, const lab_trace *t, const request *q, mote_err *err)
{
    static const uint64_t usual[] = { 700, 1600, 2500, 3000, 4000, 5000, 6000 };
    const uint64_t *slots = q->slots ? q->slots : usual;
    size_t n = q->slots ? q->n_slots : sizeof usual / sizeof *usual;
    json_t *rows = json_array();
    lab_replay_result r = { 0 };
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++)
        for (int p = 0; !rc && p < LAB_POLICIES; p++) {
            lab_replay_params params = { slots[i], q->half_life, q->shape.seed };
            if (cli_interrupted())
                rc = mote__fail(err, MOTE_ECANCELED, "interrupted");
            if (!rc)
                rc = lab_replay(&r, t, (lab_policy)p, &params, err);
            if (!rc)
                json_array_append_new(rows, row_json(t, slots[i], (lab_policy)p, &r));
        }
    if (rc) {
        json_decref(rows);
        return rc;
    }
    *result = json_pack("{s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:o}", "trace", "layers",
                        (json_int_t)t->n_layers, "experts", (json_int_t)t->n_experts,
                        "experts_per_token", (json_int_t)t->n_per_token, "expert_bytes",
                        (json_int_t)t->expert_bytes, "prompt_tokens", (json_int_t)r.prompt_tokens,
                        "decode_tokens", (json_int_t)r.decode_tokens, "cut_bytes",
                        (json_int_t)t->cut_bytes, "rows", rows);
    return *result ? 0 : mote__fail(err, MOTE_ENOMEM, "out of memory");
}

static double number_or_nan(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void print_rows(const json_t *result)
{
    static const char *const headings[] = { ">slots",        "policy",       ">hit",
                                            ">misses/token", ">bytes/token", ">prompt hit" };
    const json_t *trace = json_object_get(result, "trace"), *row;
    size_t i;
    printf("%s prompt and %s decoded tokens, %s layers of %s experts\n",
           cli_count((uint64_t)cli_number(trace, "prompt_tokens")).s,
           cli_count((uint64_t)cli_number(trace, "decode_tokens")).s,
           cli_count((uint64_t)cli_number(trace, "layers")).s,
           cli_count((uint64_t)cli_number(trace, "experts")).s);
    cli_table *table = cli_table_create(sizeof headings / sizeof *headings, headings);
    json_array_foreach(json_object_get(result, "rows"), i, row)
    {
        double bytes = number_or_nan(row, "bytes_per_token");
        cli_table_add(table, cli_count((uint64_t)cli_number(row, "slots")).s);
        cli_table_add(table, json_string_value(json_object_get(row, "policy")));
        cli_table_add(table, cli_fixed(number_or_nan(row, "hit"), 4).s);
        cli_table_add(table, cli_fixed(number_or_nan(row, "misses_per_token"), 2).s);
        cli_table_add(table, bytes >= 0 ? cli_bytes(bytes).s : "-");
        cli_table_add(table, cli_fixed(number_or_nan(row, "prompt_hit"), 4).s);
    }
    cli_table_print(table, stdout, 0);
}

int cli_experts(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    request q;
    parse(&a, &q);
    cli_signals_catch();
    mote_err err = { 0 };
    lab_trace trace = { 0 };
    json_t *result = NULL;
    int rc = load(&trace, &q, a.operands[0], &err), status;
    if (!rc)
        rc = replay_all(&result, &trace, &q, &err);
    if (rc) {
        status = cli_report(&err);
    } else if (a.json) {
        status = cli_print_json(json_incref(result), JSON_INDENT(2));
    } else {
        print_rows(result);
        status = cli_flush();
    }
    json_decref(result);
    lab_trace_deinit(&trace);
    free(q.slots);
    return status;
}
