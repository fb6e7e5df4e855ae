/* Error messages, names and default sentences; all derive from MOTE_ERRORS in the public header. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

int mote__fail(mote_err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->message, sizeof err->message, fmt, ap);
        va_end(ap);
        for (char *p = err->message; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f)
                *p = '?';
        err->code = code;
    }
    return code;
}

const char *mote_error_name(int code)
{
    switch (code) {
    case MOTE_OK: return "ok";
#define X(name, number, sentence) \
    case name: return #name;
        MOTE_ERRORS(X)
#undef X
    }
    return "MOTE_EUNKNOWN";
}

const char *mote_error_sentence(int code)
{
    switch (code) {
    case MOTE_OK: return "no error";
#define X(name, number, sentence) \
    case name: return sentence;
        MOTE_ERRORS(X)
#undef X
    }
    return "unknown error";
}

int mote__check_reserved(const uint64_t *reserved, size_t n, const char *what, mote_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (reserved[i])
            return mote__fail(err, MOTE_EUNSUPPORTED,
                              "%s: a field is set that mote " MOTE_VERSION
                              " does not know (reserved[%zu])",
                              what, i);
    return MOTE_OK;
}
