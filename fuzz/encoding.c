/* A checkpoint's encoding file. Checked: a refusal is a sentence that names the file; what is read
 * is valid UTF-8, and a prompt that needs every template can be written with it or says which one
 * is missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz/encoding: %s\n", what);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mote__wording w;
    mote_err err = { 0 };
    char *text;
    size_t n;
    int rc = mote__wording_parse(&w, size ? (const char *)data : "", size, "encoding.py", &err);
    if (rc)
        check(err.code == rc && !strncmp(err.message, "encoding.py: ", 13),
              "a refusal without the file's name");
    else {
        for (int i = 0; i < MOTE_WORDS; i++)
            check(!w.words[i].text || mote__utf8_valid((const uint8_t *)w.words[i].text,
                                                       w.words[i].n) == w.words[i].n,
                  "not UTF-8");
        mote_chat_params p = { .thinking = 1,
                               .tools_json = "[{\"name\": \"f\"}]",
                               .response_format_json = "{\"a\": 1}" };
        int all = w.words[0].text && w.words[1].text && w.words[2].text;
        rc = mote__chat_format(&text, &n, &w, "[{\"role\": \"user\", \"content\": \"x\"}]", &p,
                               &err);
        check(all ? !rc : rc == MOTE_EFORMAT && strstr(err.message, "is missing"),
              "templates that are there cannot be used");
        if (!rc)
            check(n > 20 && !memcmp(text + n - strlen("<｜User｜>x<｜Assistant｜><think>"),
                                    "<｜User｜>x<｜Assistant｜><think>",
                                    strlen("<｜User｜>x<｜Assistant｜><think>")),
                  "the prompt ends otherwise");
        free(text);
    }
    mote__wording_deinit(&w);
    return 0;
}
