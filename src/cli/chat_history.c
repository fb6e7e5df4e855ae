/* The conversation in a file (--history): messages, the system text and the session's exact token
 * ids, so that another process goes on from the very tokens that were generated, which encoding
 * their text again could split differently.
 *
 *     {"version": 1, "system": TEXT|null, "messages": [{role, content, ...}], "ids": [...], "mark":
 * N, "turns": N, "prefill": MODE, "origins": [AT_MARK, AT_END], "exact": BOOL}
 *
 * ids are what the session held at the end of the last turn, mark how many of them lie before the
 * piece that opens its reply; turns counts the replies so far, those that /regen replaced too: it
 * is what the seed of the next one depends on. Origins (mote_session_origin) let a session of the
 * same mode be as it was; exact as in the JSON of chat.
 *
 * Two chats may name one file. Each remembers the state of the file that it last read or wrote; one
 * that finds another state there when it writes has been overtaken, says so and goes on in a file
 * of its own, so no turn of either is lost. */
#include "cli/cmd_chat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json_string.h"
#include "base/json_text.h"
#include "base/replace.h"
#include "cli/out.h"

enum { HISTORY_VERSION = 1 };

/* ---- reading ---- */
/* Without a word about it, or of another mode, windows begin as in one step over all of it. */
static void take_origins(chat *c, const json_t *root)
{
    const json_t *origins = json_object_get(root, "origins");
    const char *mode = json_string_value(json_object_get(root, "prefill"));
    json_int_t at[2] = { (json_int_t)c->talk.saved.n, (json_int_t)c->talk.saved.n };
    for (size_t i = 0; i < 2 && mode && !strcmp(mode, cli_prefill_names[c->a->prefill]); i++)
        if (json_integer_value(json_array_get(origins, i)) > 0)
            at[i] = json_integer_value(json_array_get(origins, i));
        else if (json_is_integer(json_array_get(origins, i)))
            at[i] = 0;
    c->talk.saved.mark_origin = (size_t)at[0];
    c->talk.saved.origin = (size_t)at[1];
    c->talk.saved.approximate = json_is_false(json_object_get(root, "exact"));
}

static int take_ids(chat *c, const json_t *ids, json_int_t mark, mote_err *err)
{
    size_t n = json_array_size(ids);
    c->talk.saved.ids = malloc((n ? n : 1) * sizeof *c->talk.saved.ids);
    if (!c->talk.saved.ids)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu token ids", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return mote__fail(err, MOTE_EFORMAT, "%s: ids[%zu]: not a token id", c->history, i);
        c->talk.saved.ids[i] = (int32_t)json_integer_value(id);
    }
    c->talk.saved.n = n;
    c->talk.saved.mark = mark > 0 && (size_t)mark <= n ? (size_t)mark : 0;
    return MOTE_OK;
}

static int take(chat *c, json_t *root, mote_err *err)
{
    const json_t *version = json_object_get(root, "version"),
                 *turns = json_object_get(root, "turns");
    json_t *messages = json_object_get(root, "messages"), *ids = json_object_get(root, "ids"),
           *system = json_object_get(root, "system");
    if (!json_is_integer(version))
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: version: missing, so this is no history of a chat", c->history);
    if (json_integer_value(version) != HISTORY_VERSION)
        return mote__fail(err, MOTE_EVERSION, "%s: version %lld, known is %d", c->history,
                          (long long)json_integer_value(version), HISTORY_VERSION);
    if (!json_is_array(messages))
        return mote__fail(err, MOTE_EFORMAT, "%s: messages: not a list", c->history);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!role || (strcmp(role, "user") && strcmp(role, "assistant")) ||
            !json_is_string(json_object_get(m, "content")))
            return mote__fail(err, MOTE_EFORMAT,
                              "%s: messages[%zu]: needs a role (user, assistant) and a content",
                              c->history, i);
    }
    if (system && !json_is_null(system) && !json_is_string(system))
        return mote__fail(err, MOTE_EFORMAT, "%s: system: not a text", c->history);
    if (ids && !json_is_array(ids))
        return mote__fail(err, MOTE_EFORMAT, "%s: ids: not a list", c->history);
    if (turns && (!json_is_integer(turns) || json_integer_value(turns) < 0))
        return mote__fail(err, MOTE_EFORMAT, "%s: turns: not a count", c->history);
    int rc = take_ids(c, ids, json_integer_value(json_object_get(root, "mark")), err);
    if (rc)
        return rc;
    take_origins(c, root);
    size_t replies = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        replies += !strcmp(json_string_value(json_object_get(json_array_get(messages, i), "role")),
                           "assistant");
    c->n_turns = turns ? (size_t)json_integer_value(turns) : replies;
    if (json_array_extend(c->messages, messages))
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", c->history);
    if (!c->system && json_is_string(system))
        c->system = json_incref(system);
    return MOTE_OK;
}

/* ---- whose file it is ---- */
/* Each write makes a new inode; another program may write in place. Not the ctime: a link or chmod
 * is no change. */
static int same_state(const mote__file_id *a, const mote__file_id *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->mtime_ns == b->mtime_ns;
}

/* All zero: there is no file (yet), or it is none that could be compared. */
static mote__file_id state_of(const char *path)
{
    mote__file_id id = { 0 };
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode) || mote__file_id_get(&id, path, NULL))
        return (mote__file_id){ 0 };
    return id;
}

int cli_chat_load_history(chat *c, mote_err *err)
{
    char *data;
    size_t n;
    /* before it is read: what comes between counts as a change */
    c->history_state = state_of(c->history);
    struct stat st;
    if (stat(c->history, &st) && errno == ENOENT)
        return MOTE_OK;
    /* a device would never end, a pipe never begin */
    if (!stat(c->history, &st) && !S_ISREG(st.st_mode))
        return mote__fail(err, MOTE_EIO, "%s: not a regular file, so this is no history of a chat",
                          c->history);
    int rc = cli_read_file(c->history, &data, &n, err);
    if (rc)
        return rc;
    json_error_t why = { .text = "out of memory" };
    mote__json_text fit;
    json_t *root = NULL;
    if (!mote__json_text_init(&fit, data, n, NULL))
        root = json_loadb(fit.text, fit.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    mote__json_text_deinit(&fit);
    rc = root ? take(c, root, err)
              : mote__fail(err, MOTE_EFORMAT, "%s: line %d: %s", c->history, why.line, why.text);
    json_decref(root);
    free(data);
    return rc;
}

/* ---- writing ---- */
static json_t *history_json(const chat *c)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < c->talk.saved.n; i++)
        json_array_append_new(ids, json_integer(c->talk.saved.ids[i]));
    int whole = json_array_size(ids) == c->talk.saved.n;
    json_t *o = json_pack("{s:i, s:O?, s:O, s:o, s:I, s:I, s:s, s:[I, I], s:b}", "version",
                          HISTORY_VERSION, "system", c->system, "messages", c->messages, "ids", ids,
                          "mark", (json_int_t)c->talk.saved.mark, "turns", (json_int_t)c->n_turns,
                          "prefill", cli_prefill_names[c->a->prefill], "origins",
                          (json_int_t)c->talk.saved.mark_origin, (json_int_t)c->talk.saved.origin,
                          "exact", !c->talk.saved.approximate);
    return whole ? o : (json_decref(o), NULL);
}

/* Looking at the file and replacing it must be one step for all chats: a lock on its folder, which
 * leaves nothing behind. Where a folder cannot be locked (or somebody keeps it locked) the step is
 * short enough to go without. */
static int lock_folder(const char *path)
{
    char *real = realpath(path, NULL);
    const char *name = real ? real : path, *slash = strrchr(name, '/');
    char *folder = slash ? strndup(name, (size_t)(slash - name) + 1) : strdup(".");
    free(real);
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && i < 200; i++)
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    return fd;
}

/* FILE was overtaken: the first of FILE.2, FILE.3, ... that is not there. */
static int own_file(chat *c, mote_err *err)
{
    char *name = NULL;
    struct stat st;
    for (int i = 2; i < 1000; i++) {
        if (asprintf(&name, "%s.%d", c->history, i) < 0)
            return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", c->history);
        if (lstat(name, &st) && errno == ENOENT) {
            cli_say("mote: %s: another program has changed it since it was read here; this "
                    "conversation goes on in %s",
                    c->history, name);
            free(c->history);
            c->history = name;
            c->history_state = (mote__file_id){ 0 };
            return MOTE_OK;
        }
        free(name);
    }
    return mote__fail(err, MOTE_EIO,
                      "%s: another program has changed it since it was read here; not overwritten",
                      c->history);
}

int cli_chat_save_history(chat *c, mote_err *err)
{
    json_t *root = history_json(c);
    char *data = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!data)
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", c->history);
    int lock = lock_folder(c->history), rc = MOTE_OK;
    mote__file_id now = state_of(c->history);
    if (now.inode && !same_state(&now, &c->history_state))
        rc = own_file(c, err);
    mote__replace out;
    if (!rc)
        rc = mote__replace_begin(&out, c->history, 0600, err);
    if (!rc) {
        fputs(data, out.file);
        fputc('\n', out.file);
        rc = mote__replace_commit(&out, err);
    }
    if (!rc)
        c->history_state = state_of(c->history);
    if (lock >= 0)
        close(lock);
    free(data);
    return rc;
}
