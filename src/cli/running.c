#include "cli/running.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "lab/profile.h"
#include "base/clock.h"

int cli_profile_load(cli_args *a, const char *path, mote_err *err)
{
    char *text = NULL;
    size_t n = 0;
    lab_profile profile = { 0 };
    if (!a->profile)
        return MOTE_OK;
    int rc = cli_read_file(a->profile, &text, &n, err);
    if (!rc)
        rc = lab_profile_parse(&profile, a->profile, text, n, err);
    if (!rc && path)
        rc = lab_profile_check(&profile, a->profile, path, err);
    if (!rc) {
        _Static_assert(sizeof a->profile_kv >= sizeof profile.kv, "room for its formats");
        memcpy(a->profile_kv, profile.kv, sizeof profile.kv);
        a->kv = a->profile_kv;
    }
    lab_profile_free(&profile);
    free(text);
    return rc;
}

int cli_model_open(mote_model **model, mote_model_info *info, const char *path, cli_args *a,
                   int ids_only, mote_err *err)
{
    mote_model_params params = { .n_threads = a->n_threads,
                                 .math = a->math,
                                 .weights = a->weights,
                                 .expert_ram = a->expert_ram,
                                 .tokenizer_optional = ids_only,
                                 .progress = cli_progress_open };
    memcpy(params.place, a->place, sizeof a->place);
    cli_signals_catch();
    int rc = cli_profile_load(a, path, err);
    if (rc)
        return rc;
    rc = mote_model_open(model, path, &params, err);
    cli_progress_clear();
    if (!rc)
        mote_model_get_info(*model, info);
    return rc;
}

void cli_kv_error(const char *option, const cli_args *a, int *status, mote_err *err)
{
    static const char lead[] = "kv formats: ";
    char message[sizeof err->message];
    if (strncmp(err->message, lead, strlen(lead)))
        return;
    memcpy(message, err->message, sizeof message);
    int by_profile = a->profile && a->kv == a->profile_kv;
    if (err->code == MOTE_EINVAL && !by_profile)
        *status = CLI_USAGE;
    mote__fail(err, err->code, "%s: %s", by_profile ? a->profile : option,
               message + (by_profile ? 0 : strlen(lead)));
}

int cli_session_create(mote_session **session, mote_model *model, const cli_args *a,
                       size_t max_context, int *status, mote_err *err)
{
    mote_session_params params = { .kv = a->kv, .prefill = a->prefill, .max_context = max_context };
    int rc = mote_session_create(session, model, &params, err);
    if (rc && a->kv)
        cli_kv_error("--kv", a, status, err);
    return rc;
}

int cli_feed(mote_model *model, mote_session *session, const int32_t *ids, size_t n,
             mote_logits_rows rows, const char *what, double *seconds, size_t *scratch_peak,
             mote_err *err)
{
    mote_feed feed = { .session = session, .ids = ids, .n_ids = n, .logits = rows };
    cli_step_ctx ctx = { what, scratch_peak ? model : NULL, 0 };
    double t0 = mote__clock_s();
    int rc = mote_run(model, &feed, 1, cli_progress_step, &ctx, err);
    if (seconds)
        *seconds += mote__clock_s() - t0;
    if (scratch_peak && ctx.scratch_peak > *scratch_peak)
        *scratch_peak = ctx.scratch_peak;
    cli_progress_clear();
    return rc;
}

/* ---- memory ---- */
json_t *cli_memory_json(const mote_memory *m, size_t scratch_peak)
{
    json_t *o = json_object();
    for (int c = 0; c < MOTE_MEM_CLASSES; c++)
        json_object_set_new(o, mote_memory_class_name((mote_mem_class)c),
                            json_integer((json_int_t)m->bytes[c]));
    size_t scratch = m->bytes[MOTE_MEM_SCRATCH];
    json_object_set_new(o, "scratch_peak",
                        json_integer(
                            (json_int_t)(scratch > scratch_peak ? scratch : scratch_peak)));
    json_object_set_new(o, "total", json_integer((json_int_t)m->total));
    json_object_set_new(o, "peak", json_integer((json_int_t)m->peak));
    json_object_set_new(o, "rss", json_integer((json_int_t)m->rss));
    json_object_set_new(o, "peak_rss", json_integer((json_int_t)m->peak_rss));
    return o;
}

json_t *cli_kv_json(const mote_session *session)
{
    double parts[4], total = mote_session_kv_bytes_per_token(session, parts);
    json_t *o = json_object();
    for (int i = 0; i < 4; i++)
        json_object_set_new(o, mote_session_kv_part_name(session, i), json_real(parts[i]));
    json_object_set_new(o, "total", json_real(total));
    return o;
}

void cli_print_cache(FILE *f, const mote_session *session, const char *kv)
{
    double parts[4], total = mote_session_kv_bytes_per_token(session, parts);
    fprintf(f, "cache       %g bytes a token:", total);
    for (int i = 0; i < 4; i += 2) {
        const char *name = mote_session_kv_part_name(session, i); /* "main_codes" */
        fprintf(f, "%s %.*s %g codes + %g scales", i ? "," : "", (int)strcspn(name, "_"), name,
                parts[i], parts[i + 1]);
    }
    fprintf(f, " (%s)\n", kv);
    if (mote_session_window_bytes(session))
        fprintf(f, "windows     %s a sequence, whatever its length\n",
                cli_bytes((double)mote_session_window_bytes(session)).s);
}

const char *cli_weights_word(const mote_model_info *info)
{
    unsigned seen = 0;
    for (int g = 0; g < MOTE_GROUP_EMBED; g++)
        if (info->group_bytes[g])
            seen |= 1u << info->placed[g];
    return seen & (seen - 1) ? "mixed" : cli_weights_names[info->placed[MOTE_GROUP_DENSE]];
}

void cli_print_placed(FILE *f, const mote_model_info *info)
{
    static const char *const words[] = { NULL, "copied", "mapped", "streamed" };
    const char *before = "weights     ";
    for (int how = MOTE_WEIGHTS_COPY; how <= MOTE_WEIGHTS_STREAM; how++) {
        const char *lead = words[how];
        for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++) {
            if (!info->group_bytes[g] || info->placed[g] != (mote_weights)how)
                continue;
            fprintf(f, "%s%s%s %s %s", before, lead, *lead ? ":" : "",
                    mote_weight_group_name((mote_weight_group)g),
                    cli_bytes((double)info->group_bytes[g]).s);
            before = ",";
            lead = "";
        }
        before = lead == words[how] ? before : "; ";
    }
    fprintf(f, "\n");
}

void cli_print_streamed(FILE *f, const mote_model *model)
{
    mote_model_stats s;
    mote_model_get_stats(model, &s);
    if (!s.expert_slots)
        return;
    double wanted = s.experts_wanted ? (double)s.experts_wanted : 1,
           read = (double)(s.expert_read_bytes + s.expert_guess_bytes);
    fprintf(f, "experts     %s slots of %s; hit %s %%, guessed %s %%; read %s at %s/s (%s)",
            cli_count(s.expert_slots).s, cli_bytes((double)s.expert_slot_bytes).s,
            cli_fixed(100 * (double)s.experts_hits / wanted, 1).s,
            cli_fixed(100 * (double)s.experts_guessed / wanted, 1).s, cli_bytes(read).s,
            s.expert_busy_s > 0 ? cli_bytes(read / s.expert_busy_s).s : "-",
            s.experts_direct ? "direct" : "through the page cache");
    fprintf(f, "; waited %s of %s s\n", cli_fixed(s.expert_wait_s, 2).s, cli_fixed(s.step_s, 2).s);
}

json_t *cli_streamed_json(const mote_model *model)
{
    mote_model_stats s;
    mote_model_get_stats(model, &s);
    if (!s.expert_slots)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:b}", "slots",
                     (json_int_t)s.expert_slots, "slot_bytes", (json_int_t)s.expert_slot_bytes,
                     "wanted", (json_int_t)s.experts_wanted, "hits", (json_int_t)s.experts_hits,
                     "guessed", (json_int_t)s.experts_guessed, "read", (json_int_t)s.experts_read,
                     "guesses", (json_int_t)s.experts_guesses, "read_bytes",
                     (json_int_t)s.expert_read_bytes, "guess_bytes",
                     (json_int_t)s.expert_guess_bytes, "wait_s", s.expert_wait_s, "busy_s",
                     s.expert_busy_s, "step_s", s.step_s, "direct", s.experts_direct);
}

json_t *cli_placed_json(const mote_model_info *info)
{
    json_t *o = json_object();
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++)
        if (info->group_bytes[g])
            json_object_set_new(o, mote_weight_group_name((mote_weight_group)g),
                                json_pack("{s:I, s:s}", "bytes", (json_int_t)info->group_bytes[g],
                                          "placed", cli_weights_names[info->placed[g]]));
    return o;
}

void cli_print_memory(FILE *f, const mote_memory *m, size_t scratch_peak)
{
    static const char *const headings[] = { "memory", ">bytes", ">" };
    cli_table *t = cli_table_create(3, headings);
    /* a cache has one of the two pairs of parts */
    int keys = m->bytes[MOTE_MEM_KV_KEY_CODES] > 0;
    for (int c = 0; c < MOTE_MEM_CLASSES; c++) {
        if (keys ? c >= MOTE_MEM_KV_MAIN_CODES && c <= MOTE_MEM_KV_INDEX_SCALES
                 : c >= MOTE_MEM_KV_KEY_CODES && c <= MOTE_MEM_KV_VALUE_SCALES)
            continue;
        cli_table_add(t, mote_memory_class_name((mote_mem_class)c));
        cli_table_add(t, cli_count(m->bytes[c]).s);
        cli_table_add(t, cli_bytes((double)m->bytes[c]).s);
    }
    const struct {
        const char *name;
        size_t bytes;
    } more[] = {
        { "total", m->total }, { "peak", m->peak },         { "scratch_peak", scratch_peak },
        { "rss", m->rss },     { "peak_rss", m->peak_rss },
    };
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        cli_table_add(t, more[i].name);
        cli_table_add(t, cli_count(more[i].bytes).s);
        cli_table_add(t, cli_bytes((double)more[i].bytes).s);
    }
    cli_table_print(t, f, 0);
}

/* ---- sampling ---- */
uint64_t cli_random_seed(void)
{
    uint32_t seed; /* 32 bits: a number a person can copy */
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint32_t)time(NULL);
    return seed;
}

int cli_sampling_option(cli_sampling *s, const cli_args *a, int id)
{
    switch (id) {
    case CLI_O_TEMP: s->temp = cli_real(a, 0, 100); return 1;
    case CLI_O_TOP_P: s->top_p = cli_real(a, 0, 1); return 1;
    case CLI_O_TOP_K: s->top_k = (int)cli_uint(a, 0, INT32_MAX); return 1;
    case CLI_O_MIN_P: s->min_p = cli_real(a, 0, 1); return 1;
    case CLI_O_SEED:
        s->seed = cli_uint(a, 0, INT64_MAX);
        s->has_seed = 1;
        return 1;
    }
    return 0;
}

int cli_sampling_finish(cli_sampling *s, const mote_model_info *info, mote_sample_params *params,
                        mote_err *err)
{
    mote_sampler *sampler;
    if (!s->has_seed)
        s->seed = cli_random_seed();
    *params = (mote_sample_params){
        .temperature = s->temp < 0 ? info->temperature : (float)s->temp,
        .top_p = s->top_p < 0 ? info->top_p : (float)s->top_p,
        .min_p = s->min_p < 0 ? info->min_p : (float)s->min_p,
        .top_k = s->top_k < 0 ? info->top_k : s->top_k,
        .seed = s->seed,
    };
    int rc = mote_sampler_create(&sampler, params, err);
    mote_sampler_destroy(sampler);
    if (!rc && info->note)
        cli_say("mote: note: %s", info->note);
    return rc;
}
