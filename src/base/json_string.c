/* Strings for jansson's builders, repaired to valid UTF-8 first. */
#include "base/json_string.h"

#include <string.h>

#include "base/utf8.h"

json_t *mote__json_bytes(const char *bytes, size_t n)
{
    if (!n)
        return json_stringn("", 0);
    if (mote__utf8_valid((const uint8_t *)bytes, n) == n)
        return json_stringn(bytes, n);
    mote__buf repaired;
    mote__buf_init(&repaired, NULL, MOTE_MEM_OTHER);
    json_t *text = NULL;
    if (!mote__utf8_repair(&repaired, (const uint8_t *)bytes, n))
        text = json_stringn((const char *)repaired.data, repaired.size);
    mote__buf_deinit(&repaired);
    return text;
}

json_t *mote__json_string(const char *text)
{
    return text ? mote__json_bytes(text, strlen(text)) : json_null();
}
