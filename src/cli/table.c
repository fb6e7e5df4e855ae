/* Tables and JSON for people's eyes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "cli/out.h"

struct cli_table {
    size_t n_columns, n_cells, capacity;
    const char *const *headings;
    char **cells;
};

size_t cli_columns(const char *text)
{
    size_t columns = 0;
    mbstate_t state = { 0 };
    for (size_t left = strlen(text); left;) {
        wchar_t c;
        size_t n = mbrtowc(&c, text, left, &state);
        if (n == (size_t)-1 || n == (size_t)-2 || n == 0) {
            memset(&state, 0, sizeof state);
            n = 1;
            columns++;
        } else {
            int w = wcwidth(c);
            columns += w > 0 ? (size_t)w : 0;
        }
        text += n;
        left -= n;
    }
    return columns;
}

cli_table *cli_table_create(size_t n_columns, const char *const *headings)
{
    cli_table *t = calloc(1, sizeof *t);
    if (t)
        *t = (cli_table){ .n_columns = n_columns, .headings = headings };
    return t;
}

void cli_table_add(cli_table *t, const char *cell)
{
    if (!t)
        return;
    if (t->n_cells == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 64;
        char **cells = realloc(t->cells, capacity * sizeof *cells);
        if (!cells)
            return;
        t->cells = cells;
        t->capacity = capacity;
    }
    t->cells[t->n_cells++] = strdup(cell ? cell : "");
}

static void put(FILE *f, const char *text, size_t width, int right, int last)
{
    size_t n = cli_columns(text);
    int pad = width > n ? (int)(width - n) : 0;
    if (right)
        fprintf(f, "%*s", pad, "");
    fputs(text, f);
    if (!right && !last)
        fprintf(f, "%*s", pad, "");
    fputs(last ? "\n" : "  ", f);
}

void cli_table_print(cli_table *t, FILE *f, int indent)
{
    if (!t)
        return;
    size_t *width = calloc(t->n_columns, sizeof *width);
    if (width && f) {
        for (size_t c = 0; c < t->n_columns; c++)
            width[c] = cli_columns(t->headings[c] + (t->headings[c][0] == '>'));
        for (size_t i = 0; i < t->n_cells; i++) {
            size_t n = cli_columns(t->cells[i] ? t->cells[i] : "");
            if (n > width[i % t->n_columns])
                width[i % t->n_columns] = n;
        }
        fprintf(f, "%*s", indent, "");
        for (size_t c = 0; c < t->n_columns; c++) {
            int right = t->headings[c][0] == '>';
            put(f, t->headings[c] + right, width[c], right, c + 1 == t->n_columns);
        }
        for (size_t i = 0; i < t->n_cells; i++) {
            size_t c = i % t->n_columns;
            if (c == 0)
                fprintf(f, "%*s", indent, "");
            put(f, t->cells[i] ? t->cells[i] : "?", width[c], t->headings[c][0] == '>',
                c + 1 == t->n_columns || i + 1 == t->n_cells);
        }
    }
    free(width);
    for (size_t i = 0; i < t->n_cells; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

/* ---- JSON ---- */

/* A scalar, or a list of scalars, in one line; names that speak of bytes get units. malloc'd. */
static char *scalar_text(const char *key, const json_t *v)
{
    if (json_is_string(v))
        return strdup(json_string_value(v));
    if (json_is_integer(v)) {
        json_int_t n = json_integer_value(v);
        size_t len = strlen(key);
        if (n >= 10240 && len >= 5 && (strstr(key, "bytes") || !strcmp(key, "rss"))) {
            char text[140];
            snprintf(text, sizeof text, "%s (%s)", cli_count((uint64_t)n).s,
                     cli_bytes((double)n).s);
            return strdup(text);
        }
        if (n >= 0)
            return strdup(cli_count((uint64_t)n).s);
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)n);
        return strdup(text);
    }
    if (json_is_real(v)) {
        char text[32];
        snprintf(text, sizeof text, "%.6g", json_real_value(v));
        return strdup(text);
    }
    if (json_is_boolean(v))
        return strdup(json_is_true(v) ? "yes" : "no");
    if (json_is_array(v)) {
        char *all = NULL;
        size_t n = 0;
        FILE *m = open_memstream(&all, &n);
        if (!m)
            return NULL;
        for (size_t i = 0; i < json_array_size(v); i++) {
            char *one = scalar_text("", json_array_get(v, i));
            fprintf(m, "%s%s", i ? ", " : "", one ? one : "?");
            free(one);
        }
        fclose(m);
        return all;
    }
    return strdup(json_is_null(v) ? "-" : "...");
}

static int holds_objects(const json_t *v)
{
    return json_is_array(v) && json_array_size(v) && json_is_object(json_array_get(v, 0));
}

/* Names to leave out, and what has nothing to say. */
static int skipped(const char *const *skip, const char *key, const json_t *v)
{
    if (json_is_null(v) || (json_is_array(v) && !json_array_size(v)) ||
        (json_is_object(v) && !json_object_size(v)))
        return 1;
    for (; skip && *skip; skip++)
        if (!strcmp(*skip, key))
            return 1;
    return 0;
}

/* An array of objects: columns are the names that occur, in order of appearance. */
static void view_rows(FILE *f, const json_t *rows, int indent)
{
    enum { MAX = 24 };
    const char *keys[MAX];
    char *headings[MAX];
    size_t n = 0, r;
    const json_t *row;
    json_array_foreach(rows, r, row)
    {
        const char *key;
        json_t *v;
        json_object_foreach((json_t *)row, key, v)
        {
            size_t k = 0;
            while (k < n && strcmp(keys[k], key))
                k++;
            if (k < n || n == MAX || json_is_object(v) || holds_objects(v))
                continue;
            size_t len = strlen(key);
            headings[n] = malloc(len + 2);
            if (!headings[n])
                break;
            int right = json_is_number(v);
            if (right)
                headings[n][0] = '>';
            memcpy(headings[n] + right, key, len + 1);
            keys[n++] = key;
        }
    }
    cli_table *t = n ? cli_table_create(n, (const char *const *)headings) : NULL;
    json_array_foreach(rows, r, row)
    {
        for (size_t k = 0; k < n; k++) {
            const json_t *v = json_object_get(row, keys[k]);
            char *text = v ? scalar_text(keys[k], v) : NULL;
            cli_table_add(t, text ? text : "");
            free(text);
        }
    }
    cli_table_print(t, f, indent);
    for (size_t k = 0; k < n; k++)
        free(headings[k]);
}

void cli_view_json(FILE *f, const json_t *value, int indent, const char *const *skip)
{
    if (holds_objects(value)) {
        view_rows(f, value, indent);
        return;
    }
    if (!json_is_object(value)) {
        char *text = scalar_text("", value);
        fprintf(f, "%*s%s\n", indent, "", text ? text : "");
        free(text);
        return;
    }
    size_t width = 0;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)value, key, v) if (!json_is_object(v) && !holds_objects(v) &&
                                                     !skipped(skip, key, v) && strlen(key) > width)
        width = strlen(key);
    json_object_foreach((json_t *)value, key, v)
    {
        if (skipped(skip, key, v) || json_is_object(v) || holds_objects(v))
            continue;
        char *text = scalar_text(key, v);
        fprintf(f, "%*s%-*s  %s\n", indent, "", (int)width, key, text ? text : "");
        free(text);
    }
    json_object_foreach((json_t *)value, key, v)
    {
        if (skipped(skip, key, v) || (!json_is_object(v) && !holds_objects(v)))
            continue;
        fprintf(f, "%*s%s\n", indent, "", key);
        cli_view_json(f, v, indent + 2, NULL);
    }
}
