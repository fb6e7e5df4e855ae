/* Many prompts in one process, for tests/text/chat_talks.py: records on stdin, results on stdout.
 *
 *   P THINKING EFFORT MESSAGES TOOLS FORMAT\n and the three texts (sizes in bytes; -1: none)
 *     -> RC PROMPT SAME\n, then the prompt or the error's sentence (PROMPT bytes)
 *   E BYTES\n and the text of an encoding file
 *     -> RC N0 N1 N2\n, then its constants (sizes in bytes; -1: missing)
 *
 * SAME: encoding the messages gives the tokens of the prompt's text (0 if a message contains text
 * that looks like a token). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mote/mote.h>

#include "text/wording.h"

static char *take(long n)
{
    char *s = malloc((size_t)(n < 0 ? 0 : n) + 1);
    if (!s || (n > 0 && fread(s, 1, (size_t)n, stdin) != (size_t)n))
        exit(3);
    s[n < 0 ? 0 : n] = 0;
    return s;
}

static void answer_prompt(const mote_model *model, int thinking, int effort, const long n[3])
{
    char *text[3], *prompt;
    mote_err err = { 0 };
    int32_t *a = NULL, *b = NULL;
    size_t n_prompt, n_a = 0, n_b = 0;
    for (int i = 0; i < 3; i++)
        text[i] = take(n[i]);
    mote_chat_params p = { .thinking = thinking,
                           .reasoning_effort = effort,
                           .tools_json = n[1] < 0 ? NULL : text[1],
                           .response_format_json = n[2] < 0 ? NULL : text[2] };
    int rc = mote_chat_prompt(model, text[0], &p, &prompt, &n_prompt, &err), same = 0;
    if (!rc && !mote_chat_encode(model, text[0], &p, 0, SIZE_MAX, &a, &n_a, &err) &&
        !mote_encode(model, prompt, n_prompt, 0, &b, &n_b, &err))
        same = n_a == n_b && !memcmp(a, b, n_a * sizeof *a);
    const char *out = rc ? err.message : prompt;
    printf("%d %zu %d\n", rc, rc ? strlen(out) : n_prompt, same);
    fwrite(out, 1, rc ? strlen(out) : n_prompt, stdout);
    mote_free(prompt);
    mote_free(a);
    mote_free(b);
    for (int i = 0; i < 3; i++)
        free(text[i]);
}

static void answer_encoding(long n)
{
    char *text = take(n);
    mote_err err = { 0 };
    mote__wording w;
    int rc = mote__wording_parse(&w, text, (size_t)n, "encoding.py", &err);
    printf("%d", rc);
    for (int i = 0; i < MOTE_WORDS; i++)
        printf(" %ld", rc                ? i ? -1 : (long)strlen(err.message)
                                      : w.words[i].text ? (long)w.words[i].n
                                         : -1);
    printf("\n");
    if (rc)
        fputs(err.message, stdout);
    for (int i = 0; i < MOTE_WORDS && !rc; i++)
        if (w.words[i].text)
            fwrite(w.words[i].text, 1, w.words[i].n, stdout);
    mote__wording_deinit(&w);
    free(text);
}

int main(int argc, char **argv)
{
    mote_model *model = NULL;
    mote_model_params params = { .tokenizer_only = 1, .n_threads = 1 };
    mote_err err = { 0 };
    if (argc < 2 || mote_model_open(&model, argv[1], &params, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    for (int kind; (kind = getchar()) != EOF;) {
        int thinking, effort;
        long n[3];
        if (kind == 'P' &&
            scanf("%d %d %ld %ld %ld", &thinking, &effort, &n[0], &n[1], &n[2]) == 5 &&
            getchar() == '\n')
            answer_prompt(model, thinking, effort, n);
        else if (kind == 'E' && scanf("%ld", &n[0]) == 1 && getchar() == '\n')
            answer_encoding(n[0]);
        else
            return 3;
    }
    mote_model_close(model);
    return 0;
}
