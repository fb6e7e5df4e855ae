/* Chat messages: the first byte picks the mode; up to the first 0xFF byte the input is the
 * messages, up to the next (if any) the tools, the rest the response format. Checked: a refusal is
 * a sentence, the text is valid UTF-8, and exactly the format's own role tokens are tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    BOS = 256,
    EOS,
    USER,
    ASSISTANT,
    SYSTEM,
    THINK,
    END_THINK,
    REMINDER,
    N_ADDED = REMINDER + 1 - BOS
};

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz/chat: %s\n", what);
        abort();
    }
}

/* Bytes, the added tokens of the format, no merges. */
static mote__tokenizer *built_in(void)
{
    static const char *const added[] = { "<｜begin▁of▁sentence｜>",
                                         "<｜end▁of▁sentence｜>",
                                         "<｜User｜>",
                                         "<｜Assistant｜>",
                                         "<｜System｜>",
                                         "<think>",
                                         "</think>",
                                         "<｜latest_reminder｜>" };
    static mote__tokenizer *tok;
    static char s[20000];
    if (tok)
        return tok;
    char *p = s;
    p += sprintf(p, "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                    "\"use_regex\": false}, "
                    "\"decoder\": {\"type\": \"ByteLevel\"}, \"added_tokens\": [");
    for (int i = 0; i < N_ADDED; i++)
        p += sprintf(p, "%s{\"id\": %d, \"content\": \"%s\", \"normalized\": false}", i ? ", " : "",
                     BOS + i, added[i]);
    p += sprintf(p, "], \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
    for (unsigned b = 0, other = 0; b < 256; b++) {
        int itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        p += sprintf(p, "%s\"\\u%04x\": %u", b ? ", " : "", itself ? b : 0x100 + other++, b);
    }
    sprintf(p, "}}}");
    check(!mote__tokenizer_parse(&tok, s, strlen(s), "built-in", NULL),
          "the built-in tokenizer is refused");
    return tok;
}

static char *string_of(const uint8_t *p, size_t n)
{
    char *s = malloc(n + 1);
    check(s != NULL, "no memory");
    memcpy(s, p, n);
    s[n] = 0;
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const uint8_t *cut = memchr(data + 1, 0xFF, size - 1);
    size_t n_messages = (cut ? (size_t)(cut - data) : size) - 1;
    char *messages = string_of(data + 1, n_messages), *text;
    char *tools = cut ? string_of(cut + 1, size - n_messages - 2) : NULL,
         *format = tools ? strchr(tools, '\xff') : NULL;
    if (format)
        *format++ = 0;
    mote_chat_params p = { .thinking = data[0] & 1,
                           .reasoning_effort = data[0] >> 1,
                           .tools_json = tools,
                           .response_format_json = format };
    size_t n;
    mote_err err = { 0 };
    mote__tokenizer *tok = built_in();
    int rc = mote__chat_format(&text, &n, NULL, messages, &p, &err);
    if (rc)
        check(err.code == rc && *err.message && !text, "a refusal without a sentence");
    else {
        int32_t *ids;
        size_t n_ids, at = 0, length;
        check(mote__utf8_valid((const uint8_t *)text, n) == n, "the prompt is not valid UTF-8");
        check(!mote__chat_encode(tok, NULL, messages, &p, 0, SIZE_MAX, &ids, &n_ids, &err),
              "the prompt cannot be encoded");
        int open = 0; /* inside <think> */
        for (size_t i = 0; i < n_ids; i++, at += length) {
            const char *bytes = mote__tokenizer_bytes(tok, ids[i], &length);
            check(bytes && length <= n - at && !memcmp(text + at, bytes, length),
                  "ids spell another prompt");
            int after_assistant = i && ids[i - 1] == ASSISTANT;
            check((ids[i] == BOS) == (i == 0), "one BOS, in front");
            check(!after_assistant || ids[i] == THINK || ids[i] == END_THINK,
                  "a turn without a think token");
            check(ids[i] != THINK || after_assistant, "<think> inside text");
            check(!open || ids[i] < BOS || ids[i] == END_THINK || ids[i] == REMINDER,
                  "a token inside reasoning");
            open = ids[i] == THINK || (open && ids[i] != END_THINK && ids[i] != REMINDER);
        }
        check(at == n, "ids spell a part of the prompt");
        free(ids);
    }
    free(text);
    free(messages);
    free(tools);
    return 0;
}
