/* Owns mote's wording, the loading of the model's, and the walk over a template. */
#include "text/wording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/map.h"
#include "text/py_constants.h"

enum { MAX_FILE_BYTES = 4 << 20 };

#define CALLS "{dsml_token}{tc_block_name}"
#define INVOKE "{dsml_token}{tool_call_tag_name}"
#define PARAMETER "{dsml_token}{tool_parameter_tag_name}"

static const struct {
    const char *constant, *ours;
} templates[MOTE_WORDS] = {
    [MOTE_WORDS_TOOLS] = { "TOOLS_TEMPLATE",
                           "## Tools\n\nYou can call the functions listed below. To call one or "
                           "more of them, end the reply with a block of this form:\n\n"
                           "<" CALLS ">\n<" INVOKE " name=\"FUNCTION\">\n<" PARAMETER
                           " name=\"PARAMETER\" string=\"true|false\">VALUE</" PARAMETER ">\n"
                           "</" INVOKE ">\n</" CALLS
                           ">\n\nWith string=\"true\" VALUE is the text itself, with "
                           "string=\"false\" it is JSON. Each result comes back as "
                           "<tool_result>RESULT</tool_result>, in the order of the calls.\n\nThe "
                           "functions, one JSON object a line:\n\n{tool_schemas}" },
    [MOTE_WORDS_FORMAT] = { "response_format_template", "## Response format\n\nAnswer with JSON "
                                                        "alone, as this says:\n\n{schema}" },
    [MOTE_WORDS_EFFORT] = { "REASONING_EFFORT_TEMPLATE",
                            "Reasoning Effort: {budget} (range 1-100, the higher the value, the "
                            "more thorough the reasoning)\n\n" },
};

static const struct {
    const char *name;
    mote__slot slot;
    mote__words of;
} slots[] = {
    { "tool_schemas", MOTE_SLOT_SCHEMAS, MOTE_WORDS_TOOLS },
    { "dsml_token", MOTE_SLOT_DSML, MOTE_WORDS_TOOLS },
    { "tc_block_name", MOTE_SLOT_CALLS, MOTE_WORDS_TOOLS },
    { "tool_call_tag_name", MOTE_SLOT_INVOKE, MOTE_WORDS_TOOLS },
    { "tool_parameter_tag_name", MOTE_SLOT_PARAMETER, MOTE_WORDS_TOOLS },
    { "thinking_start_token", MOTE_SLOT_THINK, MOTE_WORDS_TOOLS },
    { "thinking_end_token", MOTE_SLOT_END_THINK, MOTE_WORDS_TOOLS },
    { "schema", MOTE_SLOT_SCHEMA, MOTE_WORDS_FORMAT },
    { "budget", MOTE_SLOT_BUDGET, MOTE_WORDS_EFFORT },
};

int mote__words_begin(mote__words_walk *walk, const mote__wording *w, mote__words which,
                      mote_err *err)
{
    const char *file = w ? w->path : NULL,
               *text = file ? w->words[which].text : templates[which].ours;
    if (file && !text)
        return mote__fail(err, MOTE_EFORMAT, "%s: '%s' is missing, and this prompt needs it", file,
                          templates[which].constant);
    *walk = (mote__words_walk){ text, text + (file ? w->words[which].n : strlen(text)), which };
    return MOTE_OK;
}

int mote__words_next(mote__words_walk *walk, mote__slot *slot, const char **text, size_t *n)
{
    const char *at = walk->at, *end = walk->end, *p = at;
    *slot = MOTE_SLOT_TEXT;
    *text = at;
    *n = 0;
    if (at == end)
        return 0;
    while (p < end && *p != '{' && *p != '}')
        p++;
    if (p == at && end - p > 1 && p[1] == *p) { /* {{ and }} */
        *n = 1;
        walk->at = at + 2;
        return 1;
    }
    if (p > at) {
        *n = (size_t)(p - at);
        walk->at = p;
        return 1;
    }
    const char *close = *p == '{' ? memchr(p, '}', (size_t)(end - p)) : NULL;
    *n = close ? (size_t)(close - p) + 1 : (size_t)(end - p);
    for (size_t i = 0; close && i < sizeof slots / sizeof *slots; i++)
        if (slots[i].of == walk->which && strlen(slots[i].name) == *n - 2 &&
            !memcmp(slots[i].name, p + 1, *n - 2)) {
            *slot = slots[i].slot;
            walk->at = close + 1;
            return 1;
        }
    return -1;
}

static int check_template(const mote__wording *w, mote__words which, mote_err *err)
{
    mote__words_walk walk;
    mote__slot slot;
    const char *text;
    size_t n;
    int more = 1;
    if (!w->words[which].text)
        return MOTE_OK;
    int rc = mote__words_begin(&walk, w, which, err);
    while (!rc && more > 0)
        more = mote__words_next(&walk, &slot, &text, &n);
    if (!rc && more < 0)
        rc = mote__fail(err, MOTE_EFORMAT, "%s: '%s': '%.*s' is no placeholder that is known here",
                        w->path, templates[which].constant, (int)(n > 60 ? 60 : n), text);
    return rc;
}

int mote__wording_parse(mote__wording *w, const char *text, size_t n, const char *path,
                        mote_err *err)
{
    mote__py_constant c[MOTE_WORDS] = { 0 };
    *w = (mote__wording){ .path = strdup(path) };
    for (int i = 0; i < MOTE_WORDS; i++)
        c[i].name = templates[i].constant;
    int rc = w->path ? mote__py_constants(c, MOTE_WORDS, text, n, path, err)
                     : mote__fail(err, MOTE_ENOMEM, "%s: out of memory", path);
    for (int i = 0; i < MOTE_WORDS && !rc; i++) {
        if (!c[i].found)
            continue;
        w->words[i].n = c[i].value.size;
        w->words[i].text = malloc(c[i].value.size + 1);
        if (!w->words[i].text)
            rc = mote__fail(err, MOTE_ENOMEM, "%s: out of memory", path);
        else if (c[i].value.size)
            memcpy(w->words[i].text, c[i].value.data, c[i].value.size);
    }
    mote__py_constants_deinit(c, w->path ? MOTE_WORDS : 0);
    for (int i = 0; i < MOTE_WORDS && !rc; i++)
        rc = check_template(w, (mote__words)i, err);
    return rc;
}

int mote__wording_load(mote__wording *w, const char *folder, mote_err *err)
{
    mote__map map;
    struct stat st;
    char *path, *parent;
    *w = (mote__wording){ 0 };
    if (asprintf(&path, "%s/encoding/encoding.py", folder) < 0)
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", folder);
    /* a dangling link counts as a file that cannot be read, not as a missing file */
    int there = mote__file_is_there(path);
    if (!there && (parent = strndup(path, strlen(path) - strlen("/encoding.py")))) {
        there = lstat(parent, &st) == 0 && stat(parent, &st) != 0;
        free(parent);
    }
    mote_err why = { 0 };
    int rc = there ? mote__map_open(&map, path, &why) : MOTE_OK;
    if (there && !rc) {
        if (map.size > MAX_FILE_BYTES)
            rc = mote__fail(&why, MOTE_EFORMAT,
                            "%s: %zu bytes, more than the %d allowed for this file", path, map.size,
                            MAX_FILE_BYTES);
        else
            rc = mote__wording_parse(w, (const char *)map.data, map.size, path, &why);
        mote__map_close(&map);
    }
    if (rc) {
        mote__wording_deinit(w);
        w->path = path;
        w->error = why;
    } else
        free(path);
    return rc == MOTE_ENOMEM ? mote__fail(err, rc, "%s", why.message) : MOTE_OK;
}

void mote__wording_deinit(mote__wording *w)
{
    free(w->path);
    for (int i = 0; i < MOTE_WORDS; i++)
        free(w->words[i].text);
    *w = (mote__wording){ 0 };
}
