/* Pictures: four kinds of figures as SVG, drawn to a stream as a group of LAB_WIDTH units; each
 * returns its height. Colours are classes of lab_svg_style, which knows light and dark. No fonts,
 * scripts or images from elsewhere; text is escaped. */
#ifndef MOTE_LAB_SVG_H
#define MOTE_LAB_SVG_H

#include <stddef.h>
#include <stdio.h>

enum { LAB_WIDTH = 760, LAB_COLOURS = 8 };
extern const char lab_svg_style[]; /* for a style element */
/* as XML character data or attribute value; control characters become blanks */
void lab_svg_escaped(FILE *f, const char *text);

/* Points with error bars and labels against two axes. */
/* error 0 or NaN: no bar; label may be NULL */
typedef struct lab_mark {
    double x, y, error;
    const char *label;
} lab_mark;
typedef struct lab_series {
    const char *name;
    const lab_mark *marks;
    size_t n;
    int line;
} lab_series;
typedef struct lab_chart {
    const char *title, *x_label, *y_label;
    const lab_series *series;
    size_t n_series;
    int x_log2; /* 1: doublings are equally wide */
} lab_chart;
int lab_svg_chart(FILE *f, const lab_chart *c);

/* A cell per row and column: a shade for the value between low and high, and its text. NaN cells
 * stay empty. */
typedef struct lab_map {
    const char *title, *x_label;
    const char *const *rows, *const *columns;
    size_t n_rows, n_columns;
    const double *values; /* [n_rows][n_columns] */
    double low, high;
    int digits;
} lab_map;
int lab_svg_map(FILE *f, const lab_map *m);

/* A bar per column, made of parts; values are bytes. */
typedef struct lab_stacks {
    const char *title, *x_label;
    const char *const *columns, *const *parts;
    size_t n_columns, n_parts;
    const double *values; /* [n_columns][n_parts] */
} lab_stacks;
int lab_svg_stacks(FILE *f, const lab_stacks *s);

/* Lying bars on a logarithmic scale, one of them of another colour. */
typedef struct lab_bars {
    const char *title, *unit;
    const char *const *names;
    const double *values; /* what is not above 0 has a name, its text and no bar */
    size_t n, highlight;  /* highlight >= n: none */
} lab_bars;
int lab_svg_bars(FILE *f, const lab_bars *b);

/* "1.50 MiB"; "5,242,880", or "3514.25" where it is not whole; "17.4 GFLOP" and "748.5 B" (of
 * parameters) in steps of a thousand: for axes and cells, and for the tables of text. */
void lab_bytes_text(char out[24], double bytes);
void lab_count_text(char out[40], double v);
void lab_thousands_text(char out[24], double v, const char *unit);
void lab_parameters_text(char out[24], double v);

#endif
