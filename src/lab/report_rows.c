#include "lab/report_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double lab_rows_number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

const char *lab_rows_string(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void cell_text(char out[LAB_CELL], const json_t *o, const lab_column *c)
{
    double v = lab_rows_number(o, c->key);
    out[0] = 0;
    if (c->as == LAB_WORD)
        snprintf(out, LAB_CELL, "%s", lab_rows_string(o, c->key));
    else if (c->as == LAB_YES)
        snprintf(out, LAB_CELL, "%s", json_is_true(json_object_get(o, c->key)) ? c->true_word : "");
    else if (!isfinite(v))
        snprintf(out, LAB_CELL, "-");
    else if (c->as == LAB_COUNT)
        lab_count_text(out, v);
    else if (c->as == LAB_BYTES)
        lab_bytes_text(out, v);
    else if (c->as == LAB_FLOPS)
        lab_thousands_text(out, v, "FLOP");
    else
        snprintf(out, LAB_CELL, c->as == LAB_SIGNED ? "%+.*f" : "%.*f", c->digits,
                 c->as == LAB_PERCENT ? 100 * v : v);
}

void lab_rows_table(lab_report *r, const json_t *rows, const lab_column *columns, size_t n)
{
    const char *headings[24];
    size_t count = json_array_size(rows), i;
    if (!count || n > 24)
        return;
    char(*text)[LAB_CELL] = calloc(count * n, LAB_CELL);
    const char **cells = calloc(count * n, sizeof *cells);
    const json_t *o;
    for (size_t c = 0; c < n; c++)
        headings[c] = columns[c].heading;
    if (text && cells) {
        json_array_foreach(rows, i, o) for (size_t c = 0; c < n; c++)
        {
            cell_text(text[i * n + c], o, &columns[c]);
            cells[i * n + c] = text[i * n + c];
        }
        lab_report_table(r, headings, n, cells, count * n);
    }
    free(cells);
    free(text);
}
void lab_rows_context(char out[16], double ctx)
{
    if (ctx >= 1048576 && fmod(ctx, 1048576) == 0)
        snprintf(out, 16, "%.0fM", ctx / 1048576);
    else if (ctx >= 1024 && fmod(ctx, 1024) == 0)
        snprintf(out, 16, "%.0fK", ctx / 1024);
    else
        snprintf(out, 16, "%.0f", ctx);
}
