/* The report of plan: the same numbers, words and formats as its text, and figures of the cache. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/report_rows.h"

#define TABLE(r, rows, ...)                                      \
    lab_rows_table(r, rows, (const lab_column[]){ __VA_ARGS__ }, \
                   sizeof((const lab_column[]){ __VA_ARGS__ }) / sizeof(lab_column))

/* "main" or "key", "index" or "value", and what follows; `.s` is good until the end of the
 * expression */
typedef struct key_text {
    char s[64];
} key_text;
static key_text part_key(const json_t *plan, size_t i, const char *rest)
{
    key_text key;
    const char *name = json_string_value(json_array_get(json_object_get(plan, "part_names"), i));
    snprintf(key.s, sizeof key.s, "%s_%s", name ? name : "?", rest);
    return key;
}

static int has_keys(const json_t *plan)
{
    const char *name = json_string_value(json_array_get(json_object_get(plan, "part_names"), 0));
    return name && !strcmp(name, "key");
}

static void cache(lab_report *r, const json_t *plan)
{
    double filling = lab_rows_number(plan, "window_bytes_per_token"),
           windows = lab_rows_number(plan, "window_bytes_per_sequence");
    char each[40], rest[40], tokens[40], whole[24], line[480];
    lab_count_text(each, lab_rows_number(plan, "bytes_per_token"));
    lab_count_text(rest, lab_rows_number(plan, "global_bytes_per_token"));
    lab_count_text(tokens, lab_rows_number(plan, "window_tokens"));
    lab_bytes_text(whole, windows);
    if (filling > 0)
        snprintf(
            line, sizeof line,
            "%s bytes per token up to %s tokens; then the windows are full (%s), and %s (%.120s).",
            each, tokens, whole,
            lab_rows_number(plan, "global_bytes_per_token") > 0 ? rest : "nothing more",
            lab_rows_string(plan, "kv"));
    else if (windows > 0)
        snprintf(line, sizeof line,
                 "%s bytes per token (%.120s); windows: %s a sequence, whatever its length.", each,
                 lab_rows_string(plan, "kv"), whole);
    else
        snprintf(line, sizeof line, "%s bytes per token (%.120s).", each,
                 lab_rows_string(plan, "kv"));
    lab_report_text(r, line);
}

/* Entries by part, and windows, at each context. */
static void stacks(lab_report *r, const json_t *plan)
{
    enum { MOST = 64 };
    const json_t *contexts = json_object_get(plan, "contexts"), *o;
    const char *parts[3], *columns[MOST];
    key_text keys[3];
    char column_text[MOST][16];
    double values[MOST * 3];
    size_t n = 0, n_parts = 0, i;
    for (size_t k = 0; k < 3; k++) {
        static const char *const names[2][3] = { { "main KV", "indexer keys", "windows" },
                                                 { "keys", "values", "windows" } };
        key_text key = k < 2 ? part_key(plan, k, "bytes") : (key_text){ "window_bytes" };
        double all = 0;
        json_array_foreach(contexts, i, o) all += lab_rows_number(o, key.s);
        if (!(all > 0))
            continue;
        parts[n_parts] = names[has_keys(plan)][k];
        keys[n_parts++] = key;
    }
    json_array_foreach(contexts, i, o)
    {
        if (n == MOST)
            break;
        for (size_t k = 0; k < n_parts; k++)
            values[n * n_parts + k] = lab_rows_number(o, keys[k].s);
        lab_rows_context(column_text[n], lab_rows_number(o, "ctx"));
        columns[n] = column_text[n];
        n++;
    }
    if (n && n_parts)
        lab_report_stacks(r, &(lab_stacks){ "Cache by part against context", "context, tokens",
                                            columns, parts, n, n_parts, values });
}

/* "748.5 B parameters: 551.6 B backbone + 196.9 B Engram" */
static void parameters_line(lab_report *r, const json_t *plan)
{
    const json_t *p = json_object_get(plan, "parameters");
    char all[24], backbone[24], engram[24], line[160];
    if (!json_is_object(p))
        return;
    lab_parameters_text(all, lab_rows_number(plan, "n_parameters"));
    lab_parameters_text(backbone,
                        lab_rows_number(p, "dense") + lab_rows_number(p, "routed_experts"));
    lab_parameters_text(engram, lab_rows_number(p, "engram"));
    if (lab_rows_number(p, "engram") > 0)
        snprintf(line, sizeof line, "%s parameters: %s backbone + %s Engram", all, backbone,
                 engram);
    else
        snprintf(line, sizeof line, "%s parameters", all);
    lab_report_text(r, line);
}

/* An object of sums by class, as rows. */
static void weights(lab_report *r, const json_t *plan)
{
    static const char *const classes[] = { "dense",  "routed_experts", "engram", "draft",
                                           "vision", "other",          "total" };
    const json_t *bytes = json_object_get(plan, "weights"),
                 *parameters = json_object_get(plan, "parameters");
    json_t *rows = json_array();
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const json_t *b = json_object_get(bytes, classes[i]),
                     *n = json_object_get(parameters, classes[i]);
        if (json_number_value(b) + json_number_value(n) <= 0)
            continue;
        json_array_append_new(rows, json_pack("{s:s, s:O?, s:O?, s:s}", "class", classes[i],
                                              "bytes", b, "parameters", n, "note",
                                              i >= 3 && i < 6 ? "not loaded" : ""));
    }
    if (json_array_size(rows)) {
        lab_report_heading(r, "Weights");
        parameters_line(r, plan);
    }
    TABLE(r, rows, { "class", "class", LAB_WORD, 0, 0 },
          { "parameters", ">parameters", LAB_COUNT, 0, 0 }, { "bytes", ">bytes", LAB_COUNT, 0, 0 },
          { "bytes", ">size", LAB_BYTES, 0, 0 }, { "note", "", LAB_WORD, 0, 0 });
    json_decref(rows);
    if (json_is_string(json_object_get(plan, "weights_note")))
        lab_report_text(r, lab_rows_string(plan, "weights_note"));
}

static void work(lab_report *r, const json_t *plan)
{
    static const char *const names[][2] = { { "prompt", "a prompt" }, { "answer", "the answer" } };
    const json_t *token = json_object_get(plan, "token");
    if (!json_is_object(token))
        return;
    json_t *rows = json_array();
    for (size_t i = 0; i < 2; i++) {
        json_t *row = json_deep_copy(json_object_get(token, names[i][0]));
        json_object_set_new(row, "what", json_string(names[i][1]));
        json_array_append_new(rows, row);
    }
    lab_report_heading(r, "What a token takes");
    TABLE(r, rows, { "what", "a token of", LAB_WORD, 0, 0 },
          { "active_parameters", ">parameters", LAB_COUNT, 0, 0 },
          { "weight_bytes", ">weights read", LAB_BYTES, 0, 0 },
          { "expert_bytes", ">experts", LAB_BYTES, 0, 0 },
          { "weight_flops", ">for them", LAB_FLOPS, 0, 0 });
    json_decref(rows);
    lab_report_text(r, "Tokens of a prompt that are computed together read the weights they share "
                       "once. Operations with attention:");
    TABLE(r, json_object_get(plan, "contexts"), { "ctx", ">context", LAB_COUNT, 0, 0 },
          { "prompt_flops", ">a prompt token", LAB_FLOPS, 0, 0 },
          { "answer_flops", ">an answer token", LAB_FLOPS, 0, 0 },
          { "answer_cache_read_bytes", ">cache it reads", LAB_BYTES, 0, 0 });
}

static void memory(lab_report *r, const json_t *plan)
{
    const json_t *ram = json_object_get(plan, "ram"), *resident = json_object_get(ram, "resident"),
                 *mapped = json_object_get(ram, "mapped");
    if (!json_is_object(ram))
        return;
    const char *source = lab_rows_string(ram, "source");
    char size[24], title[96];
    lab_bytes_text(size, lab_rows_number(ram, "bytes"));
    snprintf(title, sizeof title, "What fits in %s%s%.40s", size,
             strcmp(source, "given") ? " of this " : "", strcmp(source, "given") ? source : "");
    lab_report_heading(r, title);
    json_t *rows = json_array();
    if (json_is_object(resident))
        json_array_append(rows, (json_t *)resident);
    TABLE(r, rows, { "resident_weight_bytes", ">all weights in memory", LAB_BYTES, 0, 0 },
          { "left_bytes", ">left for caches", LAB_BYTES, 0, 0 },
          { "fits_ctx", ">context", LAB_COUNT, 0, 0 },
          { "sequences_at_max_context", ">sequences of the full context", LAB_COUNT, 0, 0 },
          { "limited_by", "limited by", LAB_WORD, 0, 0 });
    json_decref(rows);
    const json_t *contexts = json_object_get(mapped, "contexts");
    if (!json_array_size(contexts))
        return;
    lab_report_text(r, "Weights mapped, paged by the system; an estimate: every expert equally "
                       "likely, a token of the answer, and a chunk of "
                       "a prompt at most.");
    if (json_is_number(json_object_get(ram, "disk_bytes_per_second"))) {
        char rate[24], line[120];
        lab_bytes_text(rate, lab_rows_number(ram, "disk_bytes_per_second"));
        snprintf(line, sizeof line,
                 "Seconds at %s a second, as given; page faults rarely get a disk's full rate:",
                 rate);
        lab_report_text(r, line);
        TABLE(r, contexts, { "ctx", ">context", LAB_COUNT, 0, 0 },
              { "page_bytes", ">pages", LAB_BYTES, 0, 0 },
              { "experts_in_memory_bytes", ">experts", LAB_BYTES, 0, 0 },
              { "answer_disk_bytes", ">disk/token", LAB_BYTES, 0, 0 },
              { "answer_disk_seconds", ">s", LAB_FIXED, 2, 0 },
              { "prompt_chunk_disk_bytes", ">disk/chunk", LAB_BYTES, 0, 0 },
              { "prompt_chunk_disk_seconds", ">s", LAB_FIXED, 1, 0 });
    } else {
        TABLE(r, contexts, { "ctx", ">context", LAB_COUNT, 0, 0 },
              { "page_bytes", ">pages", LAB_BYTES, 0, 0 },
              { "experts_in_memory_bytes", ">experts", LAB_BYTES, 0, 0 },
              { "answer_disk_bytes", ">disk/token", LAB_BYTES, 0, 0 },
              { "prompt_chunk_disk_bytes", ">disk/chunk", LAB_BYTES, 0, 0 });
    }
}

static void comparisons(lab_report *r, const json_t *plan)
{
    enum { MOST = 64 };
    const json_t *references = json_object_get(plan, "references"), *o;
    const char *names[MOST] = { "this model", "this model, classical cache" };
    double bars[MOST] = { lab_rows_number(plan, "bytes_per_token"),
                          lab_rows_number(plan, "classical_bytes_per_token") };
    size_t count = 2, i;
    json_array_foreach(references, i, o) if (count < MOST)
    {
        names[count] = lab_rows_string(o, "name");
        bars[count++] = lab_rows_number(o, "global_bytes_per_token");
    }
    lab_report_heading(r, "Bytes per token across model generations");
    lab_report_bars(r,
                    &(lab_bars){ "Cache bytes per token", "bytes per token (a logarithmic scale)",
                                 names, bars, count, 0 });
    TABLE(r, references, { "name", "model", LAB_WORD, 0, 0 },
          { "global_bytes_per_token", ">bytes/token", LAB_COUNT, 0, 0 },
          { "times", ">times this one", LAB_FIXED, 3, 0 });
    lab_report_heading(r, "With other formats, bytes per token");
    TABLE(r, json_object_get(plan, "formats"), { "option", "--kv", LAB_WORD, 0, 0 },
          { part_key(plan, 0, "bytes_per_token").s, has_keys(plan) ? ">keys" : ">main KV",
            LAB_COUNT, 0, 0 },
          { part_key(plan, 1, "bytes_per_token").s, has_keys(plan) ? ">values" : ">index",
            LAB_COUNT, 0, 0 },
          { "bytes_per_token", ">together", LAB_COUNT, 0, 0 },
          { "window_bytes_per_sequence", ">windows", LAB_BYTES, 0, 0 },
          { "classical_times", ">classical is, times", LAB_FIXED, 1, 0 });
}

void lab_report_plan(lab_report *r, const json_t *plan)
{
    lab_report_heading(r, "Memory of one sequence");
    cache(r, plan);
    stacks(r, plan);
    TABLE(r, json_object_get(plan, "contexts"), { "ctx", ">context", LAB_COUNT, 0, 0 },
          { "global_bytes", ">growing", LAB_BYTES, 0, 0 },
          { "window_bytes", ">windows", LAB_BYTES, 0, 0 },
          { "total_bytes", ">together", LAB_BYTES, 0, 0 },
          { "classical_bytes", ">classical", LAB_BYTES, 0, 0 });
    comparisons(r, plan);
    weights(r, plan);
    work(r, plan);
    memory(r, plan);
}
