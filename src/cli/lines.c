#include "cli/lines.h"

#include <stdlib.h>
#include <string.h>

static const char quotes[] = "\"\"\"";
enum { QUOTES = sizeof quotes - 1 };

static int add(cli_lines *l, const char *bytes, size_t n)
{
    if (l->capacity - l->n < n + 1) {
        size_t capacity = 2 * (l->n + n) + 256;
        char *text = realloc(l->text, capacity);
        if (!text)
            return -1;
        l->text = text;
        l->capacity = capacity;
    }
    if (n)
        memcpy(l->text + l->n, bytes, n);
    l->n += n;
    l->text[l->n] = 0;
    return 0;
}

static int begins(const char *line, size_t n)
{
    return n >= QUOTES && !memcmp(line, quotes, QUOTES);
}
static int ends(const char *line, size_t n)
{
    return n >= QUOTES && !memcmp(line + n - QUOTES, quotes, QUOTES);
}

void cli_lines_drop(cli_lines *l)
{
    l->n = l->n_lines = 0;
    l->in_block = l->open = l->quoted = 0;
}

void cli_lines_deinit(cli_lines *l)
{
    free(l->text);
    *l = (cli_lines){ 0 };
}

/* A line of a block; the line ends next to the quotation marks are not its text. */
static cli_lines_state add_block(cli_lines *l, const char *line, size_t n, int first)
{
    int last = ends(line, n);
    if (last)
        n -= QUOTES;
    if (first && n && line[0] == '\n') { /* pasted */
        line++;
        n--;
    }
    if (last && n && line[n - 1] == '\n')
        n--;
    if (n || !(first || last)) {
        if ((l->n_lines && add(l, "\n", 1)) || add(l, line, n))
            return CLI_LINES_NO_MEMORY;
        l->n_lines++;
    }
    l->open = l->in_block = !last;
    return last ? CLI_LINES_MESSAGE : CLI_LINES_MORE;
}

cli_lines_state cli_lines_add(cli_lines *l, const char *line, size_t n)
{
    if (!l->open)
        cli_lines_drop(l);
    if (l->in_block)
        return add_block(l, line, n, 0);
    if (!l->open && begins(line, n)) {
        l->quoted = 1;
        return add(l, "", 0) ? CLI_LINES_NO_MEMORY : add_block(l, line + QUOTES, n - QUOTES, 1);
    }
    size_t slashes = 0;
    while (slashes < n && line[n - 1 - slashes] == '\\')
        slashes++;
    int more = slashes & 1;
    if (add(l, line, n - (size_t)more) || (more && add(l, "\n", 1)))
        return CLI_LINES_NO_MEMORY;
    l->open = more;
    return more ? CLI_LINES_MORE : CLI_LINES_MESSAGE;
}

cli_lines_state cli_lines_end(cli_lines *l)
{
    if (!l->open)
        return CLI_LINES_MORE;
    if (!l->in_block && l->n && l->text[l->n - 1] == '\n') /* the next line never came */
        l->text[--l->n] = 0;
    l->open = l->in_block = 0;
    return CLI_LINES_MESSAGE;
}
