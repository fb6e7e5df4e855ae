/* A reply: the first byte says thinking or not and how the rest is cut. Checked: the parts do not
 * depend on the cuts, they are pieces of the reply in their order, and the message is JSON that
 * holds them and that the chat format takes. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat.h"
#include "text/reply.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz/reply: %s\n", what);
        abort();
    }
}

/* The parts, each behind the other, in `shown`, cut after `step` bytes; the message in `json`. */
static size_t run(const char *text, size_t n, int thinking, size_t step, char *shown,
                  mote__buf *json)
{
    mote__reply r;
    size_t n_shown = 0;
    mote__reply_init(&r, thinking);
    for (size_t at = 0; at <= n; at += step) {
        size_t len = step < n - at ? step : n - at, piece;
        mote_reply_part part;
        const char *out;
        check(!(at < n ? mote__reply_push(&r, text + at, len) : mote__reply_end(&r)), "no memory");
        for (int last = -1; mote__reply_next(&r, &part, &out, &piece); last = (int)part) {
            check((int)part >= last, "reasoning after content");
            memcpy(shown + n_shown, out, piece);
            n_shown += piece;
        }
        if (at < n && at + step > n)
            at = n - step;
    }
    check(!mote__reply_message(&r, json) && !mote__buf_append(json, "", 1), "no memory");
    mote__reply_deinit(&r);
    return n_shown;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || mote__utf8_valid(data + 1, size - 1) < size - 1)
        return 0;
    const char *text = (const char *)data + 1;
    size_t n = size - 1, step = 1 + (data[0] >> 1);
    char *a = malloc(n), *b = malloc(n);
    mote__buf json, again;
    mote__buf_init(&json, NULL, MOTE_MEM_OTHER);
    mote__buf_init(&again, NULL, MOTE_MEM_OTHER);
    check(a && b, "no memory");
    size_t n_a = run(text, n, data[0] & 1, step, a, &json),
           n_b = run(text, n, data[0] & 1, n, b, &again);
    check(n_a == n_b && !memcmp(a, b, n_a) && json.size == again.size &&
              !memcmp(json.data, again.data, json.size),
          "the cuts are seen");
    json_t *m = json_loads(json.data, JSON_ALLOW_NUL, NULL);
    check(m != NULL, "the message is no JSON");
    size_t n_reasoning = json_string_length(json_object_get(m, "reasoning_content")),
           n_content = json_string_length(json_object_get(m, "content"));
    check(n_reasoning + n_content == n_a &&
              !memcmp(a,
                      n_reasoning ? json_string_value(json_object_get(m, "reasoning_content")) : "",
                      n_reasoning) &&
              !memcmp(a + n_reasoning, json_string_value(json_object_get(m, "content")), n_content),
          "the message says something else");
    char *messages, *prompt;
    size_t n_prompt;
    check(asprintf(&messages, "[%s]", (char *)json.data) > 0, "no memory");
    check(!mote__chat_format(&prompt, &n_prompt, NULL, messages, NULL, NULL),
          "the message is refused");
    free(prompt);
    free(messages);
    json_decref(m);
    mote__buf_deinit(&json);
    mote__buf_deinit(&again);
    free(a);
    free(b);
    return 0;
}
