/* mote tokenize: text to token ids and pieces, and back. Opens the tokenizer alone, no weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_string.h"
#include "cli/cli.h"
#include "cli/running.h"
#include "cli/opts.h"
#include "cli/out.h"

enum { O_DECODE = 1200, O_COUNT, O_BOS, O_PLAIN, O_IDS_ONLY };

static const cli_usage usage = {
    .command = "tokenize",
    .operands = "MODEL [-]",
    .about = "Show the tokens of a text, or the text of tokens. MODEL is a checkpoint folder or a\n"
             "tokenizer.json.\n"
             "The text comes from -p, from a file (-f), or from standard input (-, and where\n"
             "nothing else is given).",
    .opts =
        (const cli_opt[]){
            CLI_ROW_HELP,
            { 'p', "prompt", "TEXT", "the text" },
            { 'f', "file", "FILE", "read the text from FILE, byte for byte; - is standard input" },
            { O_DECODE, "decode", "LIST",
              "the other way: print the text of these ids, e.g. 35,3346,2603" },
            { O_COUNT, "count", NULL, "print only how many tokens there are" },
            { O_IDS_ONLY, "ids-only", NULL,
              "print only the ids, in one line, separated by commas" },
            { O_BOS, "bos", NULL,
              "put the beginning-of-sequence token in front, as run does: where the model has\n"
              "one and its tokenizer_config.json does not say otherwise (needs the model's\n"
              "folder)" },
            { O_PLAIN, "plain", NULL, "text that looks like a special token is ordinary text" },
            CLI_ROW_JSON,
            CLI_ROW_END,
        },
    .notes = "JSON: count, ids[], pieces[] (text of each token; U+FFFD where it is not whole\n"
             "characters); with --decode: text, ids[].\n"
             "\n"
             "examples:\n"
             "  mote tokenize models/nano -p 'It was a truth'\n"
             "  mote tokenize models/nano -f heldout.txt --count\n"
             "  mote tokenize models/nano --decode 35,3346,2603",
};

typedef struct request {
    const char *prompt, *file;
    int32_t *ids;
    size_t n_ids;
    int decode, count, ids_only, flags;
} request;

static void parse(cli_args *a, request *q)
{
    *q = (request){ 0 };
    int id;
    while ((id = cli_next(a)) != CLI_END)
        switch (id) {
        case 'p': q->prompt = a->value; break;
        case 'f': q->file = a->value; break;
        case O_DECODE:
            free(q->ids);
            q->ids = cli_ids(a, &q->n_ids);
            q->decode = 1;
            break;
        case O_COUNT: q->count = 1; break;
        case O_IDS_ONLY: q->ids_only = 1; break;
        case O_BOS: q->flags |= MOTE_ENCODE_BOS; break;
        case O_PLAIN: q->flags |= MOTE_ENCODE_PLAIN; break;
        }
    cli_operand(a, 0, "MODEL");
    int dash = a->n_operands > 1 && !strcmp(a->operands[1], "-");
    cli_no_more_operands(a, dash ? 2 : 1);
    int n_texts = !!q->prompt + !!q->file + dash + q->decode;
    if (n_texts > 1)
        cli_usage_error(a, "more than one text: give one of -p, -f, --decode and -");
    if (!n_texts || dash)
        q->file = "-";
    if (q->decode && (q->count || q->ids_only))
        cli_usage_error(a, "--decode prints text: %s does not go with it",
                        q->count ? "--count" : "--ids-only");
    if (q->count && q->ids_only)
        cli_usage_error(a, "--count and --ids-only exclude each other");
}

/* A token's bytes, or one U+FFFD where they are not whole characters. */
static json_t *piece(const mote_model *model, int32_t id)
{
    size_t n = 0;
    const char *bytes = mote_token_bytes(model, id, &n);
    /* jansson checks UTF-8 strictly */
    json_t *whole = bytes ? json_stringn(bytes, n) : NULL;
    return whole ? whole : json_string("\xef\xbf\xbd");
}

/* For a terminal line: white space and control characters made visible. malloc'd. */
static char *visible(const char *text, size_t n)
{
    char *out = malloc(4 * n + 3), *o = out;
    if (!out)
        return NULL;
    *o++ = '"';
    for (const char *end = text + n; text < end; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\n' || c == '\t' || c == '\r' || c == '"' || c == '\\') {
            *o++ = '\\';
            *o++ = c == '\n' ? 'n' : c == '\t' ? 't' : c == '\r' ? 'r' : (char)c;
        } else if (c < 0x20 || c == 0x7f)
            o += sprintf(o, "\\x%02x", c);
        else
            *o++ = (char)c;
    }
    *o++ = '"';
    *o = 0;
    return out;
}

static int print_tokens(const request *q, const cli_args *a, const mote_model *model)
{
    if (a->json) {
        json_t *ids = json_array(), *pieces = json_array();
        for (size_t i = 0; i < q->n_ids && !q->count; i++) {
            json_array_append_new(ids, json_integer(q->ids[i]));
            json_array_append_new(pieces, piece(model, q->ids[i]));
        }
        json_t *o = json_pack("{s:I}", "count", (json_int_t)q->n_ids);
        if (o && !q->count) {
            json_object_set(o, "ids", ids);
            if (!q->ids_only)
                json_object_set(o, "pieces", pieces);
        }
        json_decref(ids);
        json_decref(pieces);
        return cli_print_json(o, JSON_COMPACT);
    }
    if (q->count)
        printf("%zu\n", q->n_ids);
    else if (q->ids_only) {
        for (size_t i = 0; i < q->n_ids; i++)
            printf("%s%d", i ? "," : "", (int)q->ids[i]);
        printf("\n");
    } else
        for (size_t i = 0; i < q->n_ids; i++) {
            json_t *text = piece(model, q->ids[i]);
            char *shown = text ? visible(json_string_value(text), json_string_length(text)) : NULL;
            printf("%7d  %s\n", (int)q->ids[i], shown ? shown : "?");
            free(shown);
            json_decref(text);
        }
    return cli_flush();
}

/* Special tokens are written out here: the reader wants to see them. Bytes that are no whole
 * character in the end become U+FFFD, so the text is always UTF-8. */
static int print_text(const request *q, const cli_args *a, const mote_model *model,
                      const char *path, mote_err *err)
{
    mote_detok *detok = NULL;
    char *all = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&all, &size);
    int rc = f ? mote_detok_create(&detok, model, err)
               : mote__fail(err, MOTE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < q->n_ids; i++) {
        size_t n, n_text;
        const char *bytes = mote_token_bytes(model, q->ids[i], &n), *text;
        if (!bytes)
            rc = mote__fail(err, MOTE_EINVAL, "--decode: id %d is not in the vocabulary of %s",
                            (int)q->ids[i], path);
        else if (mote_token_is_special(model, q->ids[i])) {
            text = mote_detok_finish(detok, &n_text);
            fwrite(text, 1, n_text, f);
            fwrite(bytes, 1, n, f);
        } else if (!(rc = mote_detok_push(detok, q->ids[i], &text, &n_text, err)))
            fwrite(text, 1, n_text, f);
    }
    if (!rc) {
        size_t n_rest;
        const char *rest = mote_detok_finish(detok, &n_rest);
        fwrite(rest, 1, n_rest, f);
    }
    mote_detok_destroy(detok);
    if (f)
        fclose(f);
    int status = CLI_OK;
    if (rc)
        status = cli_report(err);
    else if (a->json) {
        json_t *ids = json_array();
        for (size_t i = 0; i < q->n_ids; i++)
            json_array_append_new(ids, json_integer(q->ids[i]));
        status = cli_print_json(
            json_pack("{s:o, s:o}", "text", mote__json_bytes(all, size), "ids", ids), JSON_COMPACT);
    } else {
        fwrite(all, 1, size, stdout);
        if (!size || all[size - 1] != '\n')
            putchar('\n');
        status = cli_flush();
    }
    free(all);
    return status;
}

int cli_tokenize(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    request q;
    parse(&a, &q);
    const char *path = a.operands[0];

    mote_err err = { 0 };
    mote_model *model = NULL;
    char *text = NULL;
    size_t n = 0;
    int status = CLI_FAILED;
    mote_model_params params = { .tokenizer_only = 1, .n_threads = 1 };
    int rc = mote_model_open(&model, path, &params, &err);
    if (!rc) {
        mote_model_info info;
        mote_model_get_info(model, &info);
        if (!info.has_tokenizer)
            rc = mote__fail(&err, MOTE_EIO, "%s: there is no tokenizer.json", path);
    }
    if (!rc && !q.decode) {
        if (q.file)
            rc = cli_read_file(q.file, &text, &n, &err);
        if (!rc)
            rc = mote_encode(model, q.file ? text : q.prompt, q.file ? n : strlen(q.prompt),
                             q.flags, &q.ids, &q.n_ids, &err);
    }
    if (rc)
        status = cli_report(&err);
    else
        status = q.decode ? print_text(&q, &a, model, path, &err) : print_tokens(&q, &a, model);
    if (q.decode)
        free(q.ids);
    else
        mote_free(q.ids);
    free(text);
    mote_model_close(model);
    return status;
}
