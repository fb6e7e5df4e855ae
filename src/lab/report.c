#include "lab/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/replace.h"

struct lab_report {
    char *title, *subtitle;
    FILE *html, *svg; /* bodies, in memory */
    char *html_text, *svg_text;
    size_t html_bytes, svg_bytes;
    int height, failed; /* of the SVG so far */
};

static const char page_style[] =
    "body{margin:0 auto;max-width:1040px;padding:24px 16px "
    "64px;background:#fff;color:#1b1f24;font:15px/1.5 system-ui,-apple-system,'Segoe "
    "UI',Roboto,'DejaVu Sans',sans-serif}"
    "h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:32px 0 8px}p{margin:8px "
    "0}.sub{color:#57606a}"
    "figure{margin:16px 0;overflow-x:auto}svg{max-width:100%;height:auto;display:block}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:"
    "tabular-nums}"
    "th,td{padding:4px 10px;border-bottom:1px solid "
    "#d8dee4;text-align:left;white-space:nowrap}th{border-bottom:2px solid "
    "#57606a}.r{text-align:right}"
    "@media "
    "(prefers-color-scheme:dark){body{background:#0f1419;color:#e6edf3}.sub{color:#9aa5b1}th,td{"
    "border-color:#2b333c}th{border-color:#9aa5b1}}";

lab_report *lab_report_create(const char *title, const char *subtitle)
{
    lab_report *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->title = strdup(title);
    r->subtitle = strdup(subtitle);
    r->html = open_memstream(&r->html_text, &r->html_bytes);
    r->svg = open_memstream(&r->svg_text, &r->svg_bytes);
    r->failed = !r->title || !r->subtitle || !r->html || !r->svg;
    r->height = 8;
    return r;
}

void lab_report_destroy(lab_report *r)
{
    if (!r)
        return;
    if (r->html)
        fclose(r->html);
    if (r->svg)
        fclose(r->svg);
    free(r->html_text);
    free(r->svg_text);
    free(r->title);
    free(r->subtitle);
    free(r);
}

static void element(lab_report *r, const char *tag, const char *text)
{
    if (!r || r->failed)
        return;
    fprintf(r->html, "<%s>", tag);
    lab_svg_escaped(r->html, text);
    fprintf(r->html, "</%s>\n", tag);
}

void lab_report_heading(lab_report *r, const char *text) { element(r, "h2", text); }
void lab_report_text(lab_report *r, const char *text) { element(r, "p", text); }

void lab_report_table(lab_report *r, const char *const *headings, size_t n_columns,
                      const char *const *cells, size_t n_cells)
{
    if (!r || r->failed)
        return;
    fputs("<div class=\"wide\"><table>\n<tr>", r->html);
    for (size_t c = 0; c < n_columns; c++) {
        int right = headings[c][0] == '>';
        fprintf(r->html, "<th%s>", right ? " class=\"r\"" : "");
        lab_svg_escaped(r->html, headings[c] + right);
        fputs("</th>", r->html);
    }
    for (size_t i = 0; i < n_cells; i++) {
        if (i % n_columns == 0)
            fputs("</tr>\n<tr>", r->html);
        fprintf(r->html, "<td%s>", headings[i % n_columns][0] == '>' ? " class=\"r\"" : "");
        lab_svg_escaped(r->html, cells[i] ? cells[i] : "");
        fputs("</td>", r->html);
    }
    fputs("</tr>\n</table></div>\n", r->html);
}

/* Draw once, use twice. */
static void figure(lab_report *r, int (*draw)(FILE *, const void *), const void *what)
{
    if (!r || r->failed)
        return;
    char *body = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&body, &n);
    if (!f) {
        r->failed = 1;
        return;
    }
    int height = draw(f, what);
    if (fclose(f)) {
        r->failed = 1;
    } else {
        fprintf(r->html,
                "<figure><svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                "width=\"%d\" height=\"%d\" role=\"img\">\n%s</svg></figure>\n",
                LAB_WIDTH, height, LAB_WIDTH, height, body);
        fprintf(r->svg, "<g transform=\"translate(0 %d)\">\n%s</g>\n", r->height, body);
        r->height += height + 16;
    }
    free(body);
}

static int draw_chart(FILE *f, const void *p) { return lab_svg_chart(f, p); }
static int draw_map(FILE *f, const void *p) { return lab_svg_map(f, p); }
static int draw_stacks(FILE *f, const void *p) { return lab_svg_stacks(f, p); }
static int draw_bars(FILE *f, const void *p) { return lab_svg_bars(f, p); }
void lab_report_chart(lab_report *r, const lab_chart *c) { figure(r, draw_chart, c); }
void lab_report_map(lab_report *r, const lab_map *m) { figure(r, draw_map, m); }
void lab_report_stacks(lab_report *r, const lab_stacks *s) { figure(r, draw_stacks, s); }
void lab_report_bars(lab_report *r, const lab_bars *b) { figure(r, draw_bars, b); }

static int write_file(const char *path, void (*body)(FILE *, const lab_report *),
                      const lab_report *r, mote_err *err)
{
    mote__replace out;
    int rc = mote__replace_begin(&out, path, 0666, err);
    if (rc)
        return rc;
    body(out.file, r);
    return mote__replace_commit(&out, err);
}

static void svg_body(FILE *f, const lab_report *r)
{
    fprintf(f,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
            "viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n<title>",
            LAB_WIDTH, r->height, LAB_WIDTH, r->height);
    lab_svg_escaped(f, r->title);
    fprintf(f,
            "</title>\n<style>%s</style>\n<rect width=\"100%%\" height=\"100%%\" "
            "class=\"bg\"/>\n%s</svg>\n",
            lab_svg_style, r->svg_text);
}

static void html_body(FILE *f, const lab_report *r)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta "
          "name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>",
          f);
    lab_svg_escaped(f, r->title);
    fprintf(f, "</title>\n<style>%s%s</style></head>\n<body>\n<h1>", page_style, lab_svg_style);
    lab_svg_escaped(f, r->title);
    fputs("</h1>\n<p class=\"sub\">", f);
    lab_svg_escaped(f, r->subtitle);
    fprintf(f, "</p>\n%s</body></html>\n", r->html_text);
}

int lab_report_write(lab_report *r, const char *svg, const char *html, mote_err *err)
{
    if (!r || r->failed || fflush(r->html) || fflush(r->svg))
        return mote__fail(err, MOTE_ENOMEM, "out of memory for the report");
    int rc = svg ? write_file(svg, svg_body, r, err) : MOTE_OK;
    return !rc && html ? write_file(html, html_body, r, err) : rc;
}
