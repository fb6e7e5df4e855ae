#include "lab/svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* Contrast of text on its ground is at least 4.5 : 1 in both schemes. */
const char lab_svg_style[] =
    ".bg{fill:#fff}.fg{fill:#1b1f24}.dim{fill:#57606a}.grid{stroke:#d8dee4;stroke-width:1}.axis{"
    "stroke:#57606a;stroke-width:1}"
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
    "Sans',sans-serif}.t{font-size:15px;font-weight:600}"
    ".c0{fill:#1f6feb;stroke:#1f6feb}.c1{fill:#cf3d4f;stroke:#cf3d4f}.c2{fill:#218a4f;stroke:#"
    "218a4f}.c3{fill:#b26a00;stroke:#b26a00}"
    ".c4{fill:#7b4fd6;stroke:#7b4fd6}.c5{fill:#0f8588;stroke:#0f8588}.c6{fill:#b83a80;stroke:#"
    "b83a80}.c7{fill:#6b7280;stroke:#6b7280}"
    ".line{fill:none;stroke-width:2}.bar{stroke:none}.err{stroke-width:1.5}"
    "@media "
    "(prefers-color-scheme:dark){.bg{fill:#0f1419}.fg{fill:#e6edf3}.dim{fill:#9aa5b1}.grid{stroke:#"
    "2b333c}.axis{stroke:#9aa5b1}"
    ".c0{fill:#58a6ff;stroke:#58a6ff}.c1{fill:#ff7b87;stroke:#ff7b87}.c2{fill:#4cc27f;stroke:#"
    "4cc27f}.c3{fill:#e0a030;stroke:#e0a030}"
    ".c4{fill:#b392f0;stroke:#b392f0}.c5{fill:#3fc4c8;stroke:#3fc4c8}.c6{fill:#f07fb4;stroke:#"
    "f07fb4}.c7{fill:#a0a8b3;stroke:#a0a8b3}"
    ".line{fill:none}.bar{stroke:none}}";

void lab_svg_escaped(FILE *f, const char *s)
{
    size_t left = s ? strlen(s) : 0;
    while (left) {
        uint32_t cp = 0;
        int step = mote__utf8_step((const uint8_t *)s, left, &cp);
        size_t n = step > 0 ? (size_t)step : step < 0 ? (size_t)-step : left;
        switch (cp) {
        case '&': fputs("&amp;", f); break;
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '"': fputs("&quot;", f); break;
        default:
            /* a page must be valid UTF-8, an SVG valid XML */
            if (step <= 0 || cp == 0xFFFE || cp == 0xFFFF)
                fputs("\xEF\xBF\xBD", f);
            else if (cp < 0x20)
                fputc(' ', f);
            else
                fwrite(s, 1, n, f);
        }
        s += n;
        left -= n;
    }
}

void lab_bytes_text(char out[24], double bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    int u = 0;
    for (; fabs(bytes) >= 1024 && u < 6; u++)
        bytes /= 1024;
    int digits = u == 0 && bytes == floor(bytes) ? 0 : bytes < 10 ? 2 : 1;
    snprintf(out, 24, fabs(bytes) < 1e6 ? "%.*f %s" : "%.*e %s", digits, bytes, units[u]);
}

void lab_thousands_text(char out[24], double v, const char *unit)
{
    static const char *const steps[] = { "", "K", "M", "G", "T", "P", "E" };
    int u = 0;
    for (; v >= 999.95 && u < 6; u++)
        v /= 1000;
    snprintf(out, 24, u || v != floor(v) ? "%.1f %s%.8s" : "%.0f %s%.8s", fmin(v, 1e9), steps[u],
             unit);
}

void lab_parameters_text(char out[24], double v)
{
    lab_thousands_text(out, v, "");
    char *giga = strchr(out, 'G');
    if (giga)
        *giga = 'B';
}

void lab_count_text(char out[40], double v)
{
    if (v != floor(v) || v < 1000 || v >= 1e15) {
        snprintf(out, 40, "%.7g", v);
        return;
    }
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%.0f", v);
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = 0;
}

/* anchor: start, middle, end */
static void text(FILE *f, double x, double y, const char *anchor, const char *cls, const char *s)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor, cls);
    lab_svg_escaped(f, s);
    fputs("</text>\n", f);
}

static void line(FILE *f, double x1, double y1, double x2, double y2, const char *cls)
{
    fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2,
            y2, cls);
}

/* Columns of UTF-8 text, about: enough to keep labels apart. */
static double width_of(const char *s)
{
    double n = 0;
    for (; s && *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return 6.9 * n;
}

/* Text of at most `most` units, cut where it would be longer. */
static void fitted(FILE *f, double x, double y, const char *anchor, const char *cls, const char *s,
                   double most)
{
    char cut[256];
    size_t n = 0;
    double w = 0;
    if (width_of(s) <= most) {
        text(f, x, y, anchor, cls, s);
        return;
    }
    for (const char *at = s; *at && n < sizeof cut - 8; n++, at++) {
        w += ((unsigned char)*at & 0xC0) != 0x80 ? width_of("x") : 0;
        if (w > most - width_of("x"))
            break;
        cut[n] = *at;
    }
    strcpy(cut + n, "\xE2\x80\xA6"); /* an ellipsis, after whole characters */
    text(f, x, y, anchor, cls, cut);
}

/* 15 px and bold: about a third wider. */
static void title(FILE *f, const char *s)
{
    fitted(f, 12, 22, "start", "fg t", s, (LAB_WIDTH - 24) / 1.35);
}

/* Names with their colours, in lines under the title; the y below them. */
static double legend(FILE *f, double y, const char *const *names, size_t n)
{
    double x = 12;
    for (size_t i = 0; i < n; i++) {
        double w = fmin(18 + width_of(names[i]) + 16, LAB_WIDTH - 12);
        if (x + w > LAB_WIDTH && x > 12) {
            x = 12;
            y += 18;
        }
        fprintf(f,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" rx=\"2\" class=\"bar "
                "c%zu\"/>\n",
                x, y - 10, i % LAB_COLOURS);
        fitted(f, x + 18, y, "start", "fg", names[i], LAB_WIDTH - 30 - x);
        x += w;
    }
    return y + 12;
}

/* 1, 2 or 5 times a power of ten, so that `span` has at most `n` of them. */
static double tick_step(double span, int n)
{
    double rough = span / n, power = pow(10, floor(log10(rough)));
    return rough <= power       ? power
           : rough <= 2 * power ? 2 * power
           : rough <= 5 * power ? 5 * power
                                : 10 * power;
}

static void number_text(char out[24], double v, double step)
{
    int digits = step > 0 && step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    snprintf(out, 24, fabs(v) < 1e7 && digits <= 8 ? "%.*f" : "%.*g",
             digits > 8 || fabs(v) >= 1e7 ? 3 : digits, fabs(v) < step * 1e-6 ? 0 : v);
}

static void count_text(char out[24], double v)
{
    if (v >= 1e10)
        snprintf(out, 24, "%.3g", v);
    else if (v >= 1024 && fmod(v, 1024) == 0)
        snprintf(out, 24, v >= 1048576 && fmod(v, 1048576) == 0 ? "%.0fM" : "%.0fK",
                 v >= 1048576 && fmod(v, 1048576) == 0 ? v / 1048576 : v / 1024);
    else
        snprintf(out, 24, "%.6g", v);
}

/* ---- chart ---- */

typedef struct frame {
    double left, right, top, bottom, x0, x1, y0, y1;
    int x_log2;
} frame;
static double fx(const frame *p, double x)
{
    double a = p->x_log2 ? log2(x) : x;
    return p->left + (a - p->x0) / (p->x1 - p->x0) * (p->right - p->left);
}
static double fy(const frame *p, double y)
{
    return p->bottom - (y - p->y0) / (p->y1 - p->y0) * (p->bottom - p->top);
}

static int usable(const lab_chart *c, const lab_mark *m)
{
    return fabs(m->x) < 1e300 && fabs(m->y) < 1e300 && !(c->x_log2 && m->x <= 0);
}

/* An error bar's half; 0: none. */
static double error_of(const lab_mark *m)
{
    return m->error > 0 && m->error < 1e300 ? m->error : 0;
}

static int extent(const lab_chart *c, frame *p)
{
    p->x0 = p->y0 = INFINITY;
    p->x1 = p->y1 = -INFINITY;
    for (size_t s = 0; s < c->n_series; s++)
        for (size_t i = 0; i < c->series[s].n; i++) {
            const lab_mark *m = &c->series[s].marks[i];
            if (!usable(c, m))
                continue;
            double x = c->x_log2 ? log2(m->x) : m->x, e = error_of(m);
            p->x0 = fmin(p->x0, x), p->x1 = fmax(p->x1, x);
            p->y0 = fmin(p->y0, m->y - e), p->y1 = fmax(p->y1, m->y + e);
        }
    if (!isfinite(p->x0))
        return 0;
    double dx = p->x1 - p->x0, dy = p->y1 - p->y0;
    /* points that differ by less than doubles can step over are one */
    dx = dx > 1e-9 * fabs(p->x1) ? dx : fmax(1, 0.1 * fabs(p->x1));
    dy = dy > 1e-9 * fabs(p->y1) ? dy : fabs(p->y1) > 0 ? 0.1 * fabs(p->y1) : 1;
    p->x0 -= 0.05 * dx, p->x1 += 0.12 * dx; /* labels stand right of their marks */
    p->y0 -= 0.08 * dy, p->y1 += 0.08 * dy;
    p->x_log2 = c->x_log2;
    return 1;
}

static void axes(FILE *f, const lab_chart *c, const frame *p)
{
    char s[32];
    double step = tick_step(p->y1 - p->y0, 6);
    for (double v = ceil(p->y0 / step) * step; v <= p->y1; v += step) {
        line(f, p->left, fy(p, v), p->right, fy(p, v), "grid");
        number_text(s, v, step);
        text(f, p->left - 8, fy(p, v) + 4, "end", "dim", s);
    }
    /* doublings; halves of them where there are few */
    double x_step = p->x_log2 ? p->x1 - p->x0 < 3 ? 0.5 : fmax(1, ceil((p->x1 - p->x0) / 8))
                              : tick_step(p->x1 - p->x0, 8);
    for (double v = ceil(p->x0 / x_step) * x_step; v <= p->x1; v += x_step) {
        double x = p->x_log2 ? exp2(v) : v,
               at = p->left + (v - p->x0) / (p->x1 - p->x0) * (p->right - p->left);
        line(f, at, p->bottom, at, p->bottom + 5, "axis");
        if (p->x_log2)
            count_text(s, v == floor(v) ? x : floor(x + 0.5));
        else
            number_text(s, x, x_step);
        text(f, at, p->bottom + 19, "middle", "dim", s);
    }
    line(f, p->left, p->bottom, p->right, p->bottom, "axis");
    text(f, (p->left + p->right) / 2, p->bottom + 38, "middle", "fg", c->x_label);
    text(f, 12, p->top - 10, "start", "fg", c->y_label);
}

typedef struct box {
    double x, y, w, h;
} box;

/* Put a label near a mark where no other label, mark or error bar is; those of marks come first in
 * `taken`. */
static void place(FILE *f, const frame *p, box *taken, size_t *n, double x, double y,
                  const char *label)
{
    static const double places[][2] = { { 9, 4 },    { 9, -9 },  { 9, 17 },  { -9, 4 },  { -9, -9 },
                                        { -9, 17 },  { 0, -14 }, { 0, 23 },  { 9, -22 }, { 9, 30 },
                                        { -9, -22 }, { -9, 30 }, { 9, -35 }, { 9, 43 } };
    double w = width_of(label);
    for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
        double dx = places[k][0];
        box b = { dx > 0 ? x + dx : dx < 0 ? x + dx - w : x - w / 2, y + places[k][1] - 11, w, 13 };
        int bad = b.x < p->left || b.x + b.w > LAB_WIDTH - 4 || b.y < p->top - 4 ||
                  b.y + b.h > p->bottom;
        for (size_t i = 0; i < *n && !bad; i++)
            bad = b.x < taken[i].x + taken[i].w && taken[i].x < b.x + b.w &&
                  b.y < taken[i].y + taken[i].h && taken[i].y < b.y + b.h;
        if (bad)
            continue;
        taken[(*n)++] = b;
        text(f, b.x, y + places[k][1], "start", "fg", label);
        return;
    }
}
/* no room: the table beside the picture has it */

int lab_svg_chart(FILE *f, const lab_chart *c)
{
    const char *names[64];
    size_t n = c->n_series < 64 ? c->n_series : 64, all = 0;
    for (size_t s = 0; s < n; s++) {
        names[s] = c->series[s].name;
        all += c->series[s].n;
    }
    title(f, c->title);
    double y = n > 1 ? legend(f, 44, names, n) : 32;
    frame p = { .left = 74, .right = LAB_WIDTH - 20, .top = y + 26, .bottom = y + 306 };
    box *taken = calloc(3 * all + 1, sizeof *taken);
    size_t n_taken = 0;
    if (!taken || !extent(c, &p)) {
        free(taken);
        text(f, 12, y + 20, "start", "dim", "nothing was measured");
        return (int)y + 40;
    }
    axes(f, c, &p);
    for (size_t s = 0; s < n; s++) {
        const lab_series *one = &c->series[s];
        if (one->line) {
            fprintf(f, "<polyline class=\"c%zu line\" points=\"", s % LAB_COLOURS);
            for (size_t i = 0; i < one->n; i++)
                if (usable(c, &one->marks[i]))
                    fprintf(f, "%.1f,%.1f ", fx(&p, one->marks[i].x), fy(&p, one->marks[i].y));
            fputs("\"/>\n", f);
        }
        for (size_t i = 0; i < one->n; i++) {
            const lab_mark *m = &one->marks[i];
            if (!usable(c, m))
                continue;
            double x = fx(&p, m->x), my = fy(&p, m->y);
            char cls[16];
            snprintf(cls, sizeof cls, "c%zu err", s % LAB_COLOURS);
            if (error_of(m) > 0) {
                double top = fy(&p, m->y + error_of(m)), low = fy(&p, m->y - error_of(m));
                line(f, x, low, x, top, cls);
                taken[n_taken++] = (box){ x - 2, top, 4, low - top };
            }
            if (!one->line || one->n <= 24)
                fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" class=\"c%zu\"/>\n", x, my,
                        s % LAB_COLOURS);
            taken[n_taken++] = (box){ x - 5, my - 5, 10, 10 };
        }
    }
    for (size_t s = 0; s < n; s++)
        for (size_t i = 0; i < c->series[s].n; i++) {
            const lab_mark *m = &c->series[s].marks[i];
            if (m->label && usable(c, m))
                place(f, &p, taken, &n_taken, fx(&p, m->x), fy(&p, m->y), m->label);
        }
    free(taken);
    return (int)p.bottom + 52;
}

/* ---- map, stacks, bars ---- */

int lab_svg_map(FILE *f, const lab_map *m)
{
    double left = 60, h = 26;
    for (size_t r = 0; r < m->n_rows; r++)
        left = fmax(left, width_of(m->rows[r]) + 24);
    left = fmin(left, LAB_WIDTH * 0.45);
    double w = (LAB_WIDTH - 12 - left) / (double)(m->n_columns ? m->n_columns : 1), top = 70;
    title(f, m->title);
    text(f, left, 44, "start", "fg", m->x_label);
    for (size_t c = 0; c < m->n_columns; c++)
        fitted(f, left + w * ((double)c + 0.5), top - 4, "middle", "dim", m->columns[c],
               fmax(w - 4, 8));
    for (size_t r = 0; r < m->n_rows; r++) {
        double y = top + h * (double)r;
        fitted(f, left - 8, y + 17, "end", "fg", m->rows[r], left - 16);
        for (size_t c = 0; c < m->n_columns; c++) {
            double v = m->values[r * m->n_columns + c],
                   share = m->high > m->low ? (v - m->low) / (m->high - m->low) : 0;
            if (!isfinite(v))
                continue;
            share = share < 0 ? 0 : share > 1 ? 1 : share;
            fprintf(f,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" "
                    "class=\"bar c0\" fill-opacity=\"%.2f\"/>\n",
                    left + w * (double)c + 1, y + 1, w - 2, h - 2, 0.06 + 0.54 * share);
            char s[24];
            snprintf(s, sizeof s, fabs(v) < 1e9 ? "%.*f" : "%.*g", fabs(v) < 1e9 ? m->digits : 3,
                     v);
            fitted(f, left + w * ((double)c + 0.5), y + 17, "middle", "fg", s, fmax(w - 4, 8));
        }
    }
    return (int)(top + h * (double)m->n_rows) + 18;
}

/* What can be drawn: nothing below 0, no NaN, no infinity. */
static double drawable(double v) { return v > 0 ? fmin(v, 1e30) : 0; }

/* A scale of bytes: steps of 1, 2, 4 ... of a binary unit. */
static double bytes_step(double most, int n)
{
    double step = 1;
    while (step * n < most)
        step *= 2;
    return step;
}

/* The middle of a text of width `w` that should stand at x, and must stay in the picture. */
static double beside(double x, double w) { return fmax(4 + w / 2, fmin(x, LAB_WIDTH - 4 - w / 2)); }

int lab_svg_stacks(FILE *f, const lab_stacks *s)
{
    title(f, s->title);
    double y = legend(f, 44, s->parts, s->n_parts), top = y + 24, bottom = top + 270, left = 78,
           right = LAB_WIDTH - 20, most = 1;
    for (size_t c = 0; c < s->n_columns; c++) {
        double sum = 0;
        for (size_t p = 0; p < s->n_parts; p++)
            sum += drawable(s->values[c * s->n_parts + p]);
        most = fmax(most, sum);
    }
    double step = bytes_step(most, 6), scale = (bottom - top) / (most * 1.08);
    char t[24];
    for (double v = 0; v <= most * 1.08; v += step) {
        line(f, left, bottom - v * scale, right, bottom - v * scale, "grid");
        lab_bytes_text(t, v);
        text(f, left - 8, bottom - v * scale + 4, "end", "dim", t);
    }
    double w = (right - left) / (double)(s->n_columns ? s->n_columns : 1), bar = fmin(w * 0.6, 90);
    size_t every = (size_t)ceil(76 / w); /* labels that would lie over each other are left out */
    for (size_t c = 0; c < s->n_columns; c++) {
        double x = left + w * ((double)c + 0.5), at = bottom, sum = 0;
        for (size_t p = 0; p < s->n_parts; p++) {
            double v = drawable(s->values[c * s->n_parts + p]), h = v * scale;
            sum += v;
            at -= h;
            if (h >= 0.3)
                fprintf(f,
                        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"bar "
                        "c%zu\"/>\n",
                        x - bar / 2, at, bar, h, p % LAB_COLOURS);
        }
        if (c % every)
            continue;
        lab_bytes_text(t, sum);
        text(f, beside(x, width_of(t)), at - 6, "middle", "fg", t);
        double room = w * (double)every;
        fitted(f, beside(x, fmin(width_of(s->columns[c]), room)), bottom + 18, "middle", "dim",
               s->columns[c], room);
    }
    line(f, left, bottom, right, bottom, "axis");
    text(f, (left + right) / 2, bottom + 38, "middle", "fg", s->x_label);
    return (int)bottom + 52;
}

/* A bar begins at the power of ten below the least positive value; what is 0 has a label and no
 * bar. */
int lab_svg_bars(FILE *f, const lab_bars *b)
{
    double left = 60, least = INFINITY, most = 0, h = 26, top = 40;
    title(f, b->title);
    for (size_t i = 0; i < b->n; i++) {
        double v = drawable(b->values[i]);
        left = fmax(left, width_of(b->names[i]) + 24);
        if (v > 0) {
            least = fmin(least, fmax(v, 1e-30));
            most = fmax(most, fmax(v, 1e-30));
        }
    }
    left = fmin(left, LAB_WIDTH * 0.5);
    if (!(most > 0))
        least = most = 1;
    double low = floor(log10(least)), high = ceil(log10(most * 1.0001)), right = LAB_WIDTH - 90,
           span = fmax(high - low, 1);
    double scale = (right - left) / span, step = fmax(1, ceil(span / 7)),
           bottom = top + h * (double)b->n + 4;
    char t[40];
    for (double d = low; d <= low + span; d += step) {
        double x = left + (d - low) * scale;
        line(f, x, top - 6, x, bottom, "grid");
        if (step > 1 || span > 5)
            snprintf(t, sizeof t, "1e%.0f", d);
        else
            lab_count_text(t, pow(10, d));
        text(f, x, bottom + 16, "middle", "dim", t);
    }
    for (size_t i = 0; i < b->n; i++) {
        double y = top + h * (double)i, v = drawable(b->values[i]),
               w = v > 0 ? fmax((log10(fmax(v, 1e-30)) - low) * scale, 2) : 0;
        if (v > 0)
            fprintf(f,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\" "
                    "class=\"bar %s\"/>\n",
                    left, y + 3, w, h - 8, i == b->highlight ? "c2" : "c0");
        fitted(f, left - 8, y + 17, "end", "fg", b->names[i], left - 16);
        if (v < 1e10)
            lab_count_text(t, v);
        else
            snprintf(t, sizeof t, "%.4g", v);
        text(f, left + w + 6, y + 17, "start", "fg", t);
    }
    text(f, (left + right) / 2, bottom + 34, "middle", "fg", b->unit);
    return (int)bottom + 48;
}
