/* The conversation in a file (--history): messages, the system text and the session's exact token ids, so that another process
 * goes on from the very tokens that were generated, which encoding their text again could split differently.
 *
 *     {"version": 1, "system": TEXT|null, "messages": [{role, content, ...}], "ids": [...], "mark": N,
 *      "prefill": MODE, "origins": [AT_MARK, AT_END], "exact": BOOL}
 *
 * ids are what the session held at the end of the last turn, mark how many of them lie before the piece that opens its reply. Origins
 * (mote_session_origin) let a session of the same mode be as it was; exact as in the JSON of chat. */
#include "cli/chat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json_text.h"
#include "cli/out.h"

enum { HISTORY_VERSION = 1 };

int cli_chat_save_ids(chat *c, mote_err *err)
{
    size_t n = mote_session_length(c->session);
    int32_t *ids = realloc(c->saved_ids, (n ? n : 1) * sizeof *ids);
    if (!ids)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu token ids", n);
    if (n)
        memcpy(ids, mote_session_tokens(c->session), n * sizeof *ids);
    c->saved_ids = ids;
    c->n_saved = n;
    c->saved_mark = c->mark_tokens;
    c->saved_mark_origin = c->mark_origin;
    c->saved_origin = mote_session_origin(c->session);
    c->saved_approximate = c->approximate;
    return MOTE_OK;
}

/* ---- reading ---- */
/* Without a word about it, or of another mode, windows begin as in one step over all of it. */
static void take_origins(chat *c, const json_t *root)
{
    const json_t *origins = json_object_get(root, "origins");
    const char *mode = json_string_value(json_object_get(root, "prefill"));
    json_int_t at[2] = { (json_int_t)c->n_saved, (json_int_t)c->n_saved };
    for (size_t i = 0; i < 2 && mode && !strcmp(mode, cli_prefill_names[c->a->prefill]); i++)
        if (json_integer_value(json_array_get(origins, i)) > 0)
            at[i] = json_integer_value(json_array_get(origins, i));
        else if (json_is_integer(json_array_get(origins, i)))
            at[i] = 0;
    c->saved_mark_origin = (size_t)at[0];
    c->saved_origin = (size_t)at[1];
    c->saved_approximate = json_is_false(json_object_get(root, "exact"));
}

static int take_ids(chat *c, const json_t *ids, json_int_t mark, mote_err *err)
{
    size_t n = json_array_size(ids);
    c->saved_ids = malloc((n ? n : 1) * sizeof *c->saved_ids);
    if (!c->saved_ids)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu token ids", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return mote__fail(err, MOTE_EFORMAT, "%s: ids[%zu]: not a token id", c->history, i);
        c->saved_ids[i] = (int32_t)json_integer_value(id);
    }
    c->n_saved = n;
    c->saved_mark = mark > 0 && (size_t)mark <= n ? (size_t)mark : 0;
    return MOTE_OK;
}

static int take(chat *c, json_t *root, mote_err *err)
{
    const json_t *version = json_object_get(root, "version"), *system = json_object_get(root, "system");
    json_t *messages = json_object_get(root, "messages"), *ids = json_object_get(root, "ids");
    if (!json_is_integer(version))
        return mote__fail(err, MOTE_EFORMAT, "%s: version: missing, so this is no history of a chat", c->history);
    if (json_integer_value(version) != HISTORY_VERSION)
        return mote__fail(err, MOTE_EVERSION, "%s: version %lld, known is %d", c->history, (long long)json_integer_value(version),
                          HISTORY_VERSION);
    if (!json_is_array(messages))
        return mote__fail(err, MOTE_EFORMAT, "%s: messages: not a list", c->history);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!role || (strcmp(role, "user") && strcmp(role, "assistant")) || !json_is_string(json_object_get(m, "content")))
            return mote__fail(err, MOTE_EFORMAT, "%s: messages[%zu]: needs a role (user, assistant) and a content", c->history, i);
    }
    if (system && !json_is_null(system) && !json_is_string(system))
        return mote__fail(err, MOTE_EFORMAT, "%s: system: not a text", c->history);
    if (ids && !json_is_array(ids))
        return mote__fail(err, MOTE_EFORMAT, "%s: ids: not a list", c->history);
    int rc = take_ids(c, ids, json_integer_value(json_object_get(root, "mark")), err);
    if (rc)
        return rc;
    take_origins(c, root);
    json_array_extend(c->messages, messages);
    if (!c->system && json_is_string(system) && !(c->system = strdup(json_string_value(system))))
        return mote__fail(err, MOTE_ENOMEM, "out of memory");
    return MOTE_OK;
}

int cli_chat_load_history(chat *c, mote_err *err)
{
    char *data;
    size_t n;
    struct stat st;
    if (stat(c->history, &st) && errno == ENOENT)
        return MOTE_OK;
    int rc = cli_read_file(c->history, &data, &n, err);
    if (rc)
        return rc;
    json_error_t why = { .text = "out of memory" };
    mote__json_text fit;
    json_t *root = NULL;
    if (!mote__json_text_init(&fit, data, n, NULL))
        root = json_loadb(fit.text, fit.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    mote__json_text_deinit(&fit);
    rc = root ? take(c, root, err) : mote__fail(err, MOTE_EFORMAT, "%s: line %d: %s", c->history, why.line, why.text);
    json_decref(root);
    free(data);
    return rc;
}

/* ---- writing ---- */
static json_t *history_json(const chat *c)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < c->n_saved; i++)
        json_array_append_new(ids, json_integer(c->saved_ids[i]));
    json_t *o = json_pack("{s:i, s:o, s:O, s:o, s:I, s:s, s:[I, I], s:b}", "version", HISTORY_VERSION,
                          "system", c->system ? json_string(c->system) : json_null(),
                          "messages", c->messages, "ids", ids, "mark", (json_int_t)c->saved_mark,
                          "prefill", cli_prefill_names[c->a->prefill], "origins",
                          (json_int_t)c->saved_mark_origin, (json_int_t)c->saved_origin,
                          "exact", !c->saved_approximate);
    return o && json_array_size(ids) == c->n_saved ? o : (json_decref(o), NULL);
}

/* The old file or the new one, whole, whatever happens; mkstemp makes it 0600. */
int cli_chat_save_history(const chat *c, mote_err *err)
{
    size_t n = strlen(c->history);
    char *temporary = malloc(n + sizeof ".XXXXXX");
    json_t *root = history_json(c);
    char *data = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    int rc = MOTE_OK, fd = -1;
    FILE *f = NULL;
    if (!temporary || !data) {
        rc = mote__fail(err, MOTE_ENOMEM, "%s: out of memory", c->history);
        goto out;
    }
    memcpy(temporary, c->history, n);
    memcpy(temporary + n, ".XXXXXX", sizeof ".XXXXXX");
    fd = mkstemp(temporary);
    f = fd >= 0 ? fdopen(fd, "w") : NULL;
    int good = f && fputs(data, f) >= 0 && fputc('\n', f) != EOF && !fflush(f) && !fsync(fd);
    int why = errno;
    if (f ? fclose(f) : fd >= 0 && close(fd)) {
        why = good ? errno : why;
        good = 0;
    }
    if (good && rename(temporary, c->history)) {
        why = errno;
        good = 0;
    }
    if (!good) {
        rc = mote__fail(err, MOTE_EIO, "%s: cannot write: %s", c->history, strerror(why));
        if (fd >= 0)
            unlink(temporary);
    }
out:
    free(data);
    free(temporary);
    return rc;
}
