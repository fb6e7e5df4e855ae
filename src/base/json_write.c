/* JSON output identical to Python's json.dumps, with its digits of reals and its escapes. */
#include "base/json_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int put(mote__buf *out, const char *s) { return mote__buf_append(out, s, strlen(s)); }

int mote__json_write_string(mote__buf *out, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef", from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    int rc = put(out, "\"");
    for (size_t i = 0, plain = 0; i <= n && !rc; i++) {
        unsigned char c = i < n ? (unsigned char)s[i] : 0;
        if (i < n && c >= 0x20 && c != '"' && c != '\\')
            continue;
        const char *short_form = c ? strchr(from, c) : NULL;
        char pair[2] = { '\\', short_form ? to[short_form - from] : 0 };
        char code[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
        rc = mote__buf_append(out, s + plain, i - plain);
        if (!rc && i < n)
            rc = short_form ? mote__buf_append(out, pair, 2) : mote__buf_append(out, code, 6);
        plain = i + 1;
    }
    return rc ? rc : put(out, "\"");
}

/* Copy the digits of "%.*e" output without its decimal point, which depends on the locale; returns
 * the exponent. */
static int take_digits(char *digits, const char *text)
{
    const char *e = strchr(text, 'e');
    size_t n = 0;
    for (const char *p = text; p < e; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    digits[n] = 0;
    return atoi(e + 1);
}

/* Add one unit in the last place of "%.*e" output. Returns 0 for 9.99...: then fewer digits would
 * have read back. */
static int next_up(char *text)
{
    char *p = strchr(text, 'e') - 1;
    for (; p >= text; p--) {
        if (*p < '0' || *p > '9')
            continue;
        if (*p < '9') {
            ++*p;
            return 1;
        }
        *p = '0';
    }
    return 0;
}

int mote__json_write_real(mote__buf *out, double v)
{
    char text[48], digits[24];
    const char *sign = __builtin_signbit(v) ? "-" : "";
    v = v < 0 ? -v : v;
    /* Try 1 to 17 digits: the nearest decimal first, then the next one up. At a power of two the
     * doubles below are closer together than those above, and there the next one up may be the only
     * decimal of that length that reads back. */
    for (int n = 0; n < 17; n++) {
        snprintf(text, sizeof text, "%.*e", n, v);
        if (strtod(text, NULL) == v || (next_up(text) && strtod(text, NULL) == v))
            break;
        snprintf(text, sizeof text, "%.*e", n, v);
    }
    int point = take_digits(digits, text) + 1; /* digits before the decimal point */
    int n = (int)strlen(digits);
    while (n > 1 && digits[n - 1] == '0')
        digits[--n] = 0;
    if (point > 16 || point < -3)
        snprintf(text, sizeof text, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "",
                 digits + 1, point > 0 ? '+' : '-', abs(point - 1));
    else if (point <= 0)
        snprintf(text, sizeof text, "%s0.%.*s%s", sign, -point, "000", digits);
    else
        snprintf(text, sizeof text, "%s%.*s%.*s.%s", sign, point, digits, point > n ? point - n : 0,
                 "0000000000000000", n > point ? digits + point : "0");
    return put(out, text);
}

int mote__json_write_key(mote__buf *out, const char *key)
{
    int rc = MOTE_OK;
    for (; *key && !rc; key++) { /* undo the key escapes of base/json_text.h */
        char c = *key;
        if (c == 1)
            c = (char)(*++key - '0');
        rc = mote__buf_append(out, &c, 1);
    }
    return rc;
}

static int write_member(mote__buf *out, const char *key, const json_t *value, const mote__buf *kept)
{
    mote__buf plain;
    mote__buf_init(&plain, NULL, MOTE_MEM_OTHER);
    int rc = mote__json_write_key(&plain, key);
    if (!rc)
        rc = mote__json_write_string(out, plain.data, plain.size);
    mote__buf_deinit(&plain);
    return rc || (rc = put(out, ": ")) ? rc : mote__json_write(out, value, kept);
}

int mote__json_write(mote__buf *out, const json_t *value, const mote__buf *kept)
{
    size_t i = 0;
    const char *key;
    json_t *item;
    int rc = MOTE_OK;
    char text[40];
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        rc = put(out, "{");
        json_object_foreach((json_t *)value, key, item)
        {
            if (rc || (i++ && (rc = put(out, ", "))) || (rc = write_member(out, key, item, kept)))
                return rc;
        }
        return rc ? rc : put(out, "}");
    case JSON_ARRAY:
        rc = put(out, "[");
        json_array_foreach(value, i, item)
        {
            if (rc || (i && (rc = put(out, ", "))) || (rc = mote__json_write(out, item, kept)))
                return rc;
        }
        return rc ? rc : put(out, "]");
    case JSON_STRING:
        return mote__json_write_string(out, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
        if (json_integer_value(value) <= MOTE_JSON_KEPT)
            return put(out,
                       (const char *)kept->data + (MOTE_JSON_KEPT - json_integer_value(value)));
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        return put(out, text);
    case JSON_REAL: return mote__json_write_real(out, json_real_value(value));
    case JSON_TRUE: return put(out, "true");
    case JSON_FALSE: return put(out, "false");
    case JSON_NULL: return put(out, "null");
    }
    return rc;
}
