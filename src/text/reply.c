#include "text/reply.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"

#define DSML "｜DSML｜"
static const char end_think[] = "</think>", calls_tag[] = "<" DSML " calls>";

void mote__reply_init(mote__reply *r, int thinking)
{
    *r = (mote__reply){
        .thinking = thinking, .in_reasoning = thinking, .content_end = SIZE_MAX, .calls = SIZE_MAX
    };
    mote__buf_init(&r->text, NULL, MOTE_MEM_OTHER);
}

void mote__reply_deinit(mote__reply *r) { mote__buf_deinit(&r->text); }

int mote__reply_is_tag(const char *bytes, size_t n)
{
    static const char *const tags[] = { "<think>",
                                        end_think,
                                        calls_tag,
                                        "</" DSML " calls>",
                                        "<" DSML " invoke name=\"",
                                        "</" DSML " invoke>",
                                        "<" DSML " parameter name=\"",
                                        "</" DSML " parameter>" };
    for (size_t i = 0; n && i < sizeof tags / sizeof *tags; i++)
        if (memmem(tags[i], strlen(tags[i]), bytes, n))
            return 1;
    return 0;
}

/* Where `tag` begins, from r->searched on; SIZE_MAX if it does not, and then r->searched moves on.
 */
static size_t find(mote__reply *r, const char *tag)
{
    size_t n = strlen(tag), size = r->text.size;
    const char *text = r->text.data,
               *hit = size > r->searched ? memmem(text + r->searched, size - r->searched, tag, n)
                                         : NULL;
    if (hit)
        return (size_t)(hit - text);
    if (size >= n && size - n + 1 > r->searched)
        r->searched = size - n + 1;
    return SIZE_MAX;
}

/* How many bytes at the end of the text may be the beginning of `tag`, not before `from`. */
static size_t may_begin(const mote__reply *r, const char *tag, size_t from)
{
    size_t n = strlen(tag) - 1, have = r->text.size - from;
    for (n = n < have ? n : have; n; n--)
        if (!memcmp((const char *)r->text.data + r->text.size - n, tag, n))
            break;
    return n;
}

int mote__reply_push(mote__reply *r, const char *text, size_t n)
{
    size_t at;
    if (mote__buf_append(&r->text, text, n))
        return MOTE_ENOMEM;
    if (r->in_reasoning && (at = find(r, end_think)) != SIZE_MAX) {
        r->in_reasoning = 0;
        r->reasoning_end = at;
        r->content = r->searched = at + strlen(end_think);
    }
    if (!r->in_reasoning && r->calls == SIZE_MAX && (at = find(r, calls_tag)) != SIZE_MAX) {
        int apart = at - r->content >= 2 && !memcmp((const char *)r->text.data + at - 2, "\n\n", 2);
        r->calls = at;
        r->content_end = at - (apart ? 2 : 0);
    }
    return MOTE_OK;
}

int mote__reply_next(mote__reply *r, mote_reply_part *part, const char **text, size_t *n)
{
    size_t end = r->text.size;
    *part = r->shown < r->reasoning_end || r->in_reasoning ? MOTE_REPLY_REASONING
                                                           : MOTE_REPLY_CONTENT;
    if (*part == MOTE_REPLY_CONTENT && r->shown < r->content)
        r->shown = r->content;
    if (*part == MOTE_REPLY_REASONING)
        end = !r->in_reasoning ? r->reasoning_end
                               : end - (r->ended ? 0 : may_begin(r, end_think, r->shown));
    else if (r->calls != SIZE_MAX)
        end = r->content_end;
    else if (!r->ended) {
        size_t close = may_begin(r, calls_tag, r->shown),
               apart = may_begin(r, "\n\n<" DSML " calls>", r->shown);
        end -= close > apart ? close : apart;
    }
    *text = (const char *)r->text.data + r->shown;
    *n = end > r->shown ? end - r->shown : 0;
    r->shown += *n;
    return *n > 0;
}

/* ---- calls ---- */

typedef struct cursor {
    const char *at, *end;
} cursor;

static int take(cursor *c, const char *tag)
{
    size_t n = strlen(tag);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, tag, n))
        return 0;
    c->at += n;
    return 1;
}

static void blank(cursor *c)
{
    while (c->at < c->end && strchr(" \t\r\n", *c->at) && *c->at)
        c->at++;
}

/* Up to `tag`, which is passed. */
static int until(cursor *c, const char *tag, const char **text, size_t *n)
{
    const char *hit = memmem(c->at, (size_t)(c->end - c->at), tag, strlen(tag));
    if (!hit)
        return 0;
    *text = c->at;
    *n = (size_t)(hit - c->at);
    c->at = hit + strlen(tag);
    return 1;
}

static int put(mote__buf *out, const char *s) { return mote__buf_append(out, s, strlen(s)); }

/* JSON text as Python would write its value: 1, 0 if it is no JSON, MOTE_ENOMEM. */
static int rewrite(mote__buf *out, const char *text, size_t n)
{
    mote__buf kept;
    json_t *value;
    mote__buf_init(&kept, NULL, MOTE_MEM_OTHER);
    int rc = mote__json_parse_exact(&value, &kept, text, n, "a parameter", NULL);
    rc = rc == MOTE_ENOMEM || (!rc && mote__json_write(out, value, &kept)) ? MOTE_ENOMEM : !rc;
    json_decref(value);
    mote__buf_deinit(&kept);
    return rc;
}

/* A parameter's `"key": value`: 1, 0 if it is none, MOTE_ENOMEM. */
static int parameter(cursor *c, mote__buf *out)
{
    const char *key, *value;
    size_t n_key, n_value;
    if (!take(c, "<" DSML " parameter name=\"") || !until(c, "\" string=\"", &key, &n_key))
        return 0;
    int is_text = take(c, "true\">");
    if ((!is_text && !take(c, "false\">")) || !until(c, "</" DSML " parameter>", &value, &n_value))
        return 0;
    if (mote__json_write_string(out, key, n_key) || put(out, ": "))
        return MOTE_ENOMEM;
    if (is_text)
        return mote__json_write_string(out, value, n_value) ? MOTE_ENOMEM : 1;
    return rewrite(out, value, n_value);
}

/* One call, as an object of tool_calls: 1, 0 if it is none, MOTE_ENOMEM. */
static int invoke(cursor *c, size_t number, mote__buf *out)
{
    const char *name;
    size_t n_name, n = 0;
    char id[60];
    mote__buf given, arguments;
    if (!take(c, "<" DSML " invoke name=\"") || !until(c, "\">", &name, &n_name))
        return 0;
    mote__buf_init(&given, NULL, MOTE_MEM_OTHER);
    mote__buf_init(&arguments, NULL, MOTE_MEM_OTHER);
    int rc = put(&given, "{") ? MOTE_ENOMEM : 1;
    for (blank(c); rc > 0 && !take(c, "</" DSML " invoke>"); blank(c))
        rc = n++ && put(&given, ", ") ? MOTE_ENOMEM : parameter(c, &given);
    if (rc > 0) /* once more, as a whole: of equal names the last one counts */
        rc = put(&given, "}") ? MOTE_ENOMEM : rewrite(&arguments, given.data, given.size);
    snprintf(id, sizeof id, "%s{\"id\": \"call_%zu\"", number ? ", " : "", number);
    if (rc > 0 &&
        (put(out, id) || put(out, ", \"type\": \"function\", \"function\": {\"name\": ") ||
         mote__json_write_string(out, name, n_name) || put(out, ", \"arguments\": ") ||
         mote__json_write_string(out, arguments.data, arguments.size) || put(out, "}}")))
        rc = MOTE_ENOMEM;
    mote__buf_deinit(&given);
    mote__buf_deinit(&arguments);
    return rc;
}

/* The block of calls that ends the reply, as an array: 1, 0 if it is none, MOTE_ENOMEM. */
static int calls(const mote__reply *r, mote__buf *out)
{
    const char *text = r->text.data;
    cursor c = { text + r->calls, text + r->text.size };
    size_t n = 0;
    int rc = take(&c, calls_tag) ? put(out, "[") ? MOTE_ENOMEM : 1 : 0;
    for (blank(&c); rc > 0 && !take(&c, "</" DSML " calls>"); blank(&c))
        rc = invoke(&c, n++, out);
    blank(&c);
    return rc <= 0 ? rc : !n || c.at < c.end ? 0 : put(out, "]") ? MOTE_ENOMEM : 1;
}

int mote__reply_end(mote__reply *r)
{
    mote__buf list;
    r->ended = 1;
    if (r->in_reasoning)
        r->reasoning_end = r->content = r->text.size;
    if (r->calls == SIZE_MAX)
        return MOTE_OK;
    mote__buf_init(&list, NULL, MOTE_MEM_OTHER);
    int rc = calls(r, &list);
    mote__buf_deinit(&list);
    r->has_calls = rc > 0;
    if (!rc)
        r->calls = r->content_end = SIZE_MAX;
    return rc < 0 ? rc : MOTE_OK;
}

int mote__reply_message(const mote__reply *r, mote__buf *out)
{
    const char *text = r->text.data ? r->text.data : "";
    size_t end = r->has_calls ? r->content_end : r->text.size;
    if (put(out, "{\"role\": \"assistant\", \"content\": ") ||
        mote__json_write_string(out, text + r->content, end - r->content) ||
        (r->thinking && (put(out, ", \"reasoning_content\": ") ||
                         mote__json_write_string(out, text, r->reasoning_end))) ||
        (r->has_calls && (put(out, ", \"tool_calls\": ") || calls(r, out) < 0)) || put(out, "}"))
        return MOTE_ENOMEM;
    return MOTE_OK;
}
