#include "store/url.h"

#include <string.h>
#include <strings.h>

static const char scheme[] = "redis://";

static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static int is_digit(char c) { return c >= '0' && c <= '9'; }

/* Where the servers begin: the first comma that a word and "://" follow. NULL: there are none. */
static const char *find_servers(const char *text)
{
    for (const char *p = text; (p = strchr(p, ',')) != NULL;) {
        const char *word = ++p;
        while (is_letter(*p))
            p++;
        if (p > word && !strncmp(p, "://", 3))
            return word;
    }
    return NULL;
}

static int hex(char c)
{
    return is_digit(c)            ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* text[n] with each %XX as the byte it means. -1: too long, a bad escape, or a byte 0. */
static int unescape(char dst[MOTE_URL_SECRET], const char *text, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)text[i];
        if (c == '%') {
            int high = n - i > 2 ? hex(text[i + 1]) : -1, low = n - i > 2 ? hex(text[i + 2]) : -1;
            if (high < 0 || low < 0)
                return -1;
            c = high << 4 | low;
            i += 2;
        }
        if (c == 0 || k + 1 >= MOTE_URL_SECRET)
            return -1;
        dst[k++] = (char)c;
    }
    dst[k] = 0;
    return 0;
}

static int number(unsigned *v, const char *text, size_t n, unsigned low, unsigned high)
{
    *v = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(text[i]) || *v > high)
            return -1;
        *v = *v * 10 + (unsigned)(text[i] - '0');
    }
    return n == 0 || *v < low || *v > high ? -1 : 0;
}

/* host[:port], the host perhaps in brackets. NULL, or what is wrong. */
static const char *parse_address(mote__server *s, const char *text, size_t n)
{
    const char *host = text, *end;
    size_t n_host;
    if (n && *text == '[') {
        end = memchr(text, ']', n);
        if (!end)
            return "a host that begins with '[' ends with ']'";
        host++;
        n_host = (size_t)(end++ - host);
    } else {
        end = memchr(text, ':', n);
        end = end ? end : text + n;
        n_host = (size_t)(end - host);
    }
    if (n_host == 0 || n_host >= MOTE_URL_HOST)
        return "a host must have 1 to 255 letters";
    for (size_t i = 0; i < n_host; i++)
        if (!is_letter(host[i]) && !is_digit(host[i]) &&
            !strchr(host == text ? "-._" : ":.", host[i]))
            return "a host has letters, digits, '-', '.' and '_' (an IPv6 address is written in "
                   "brackets)";
    memcpy(s->host, host, n_host);
    if (end == text + n)
        return NULL;
    return *end != ':' || number(&s->port, end + 1, (size_t)(text + n - end) - 1, 1, 65535)
               ? "a port is a number from 1 to 65535"
               : NULL;
}

static const char *parse_server(mote__server *s, const char *text, size_t n)
{
    *s = (mote__server){ .port = 6379 };
    if (n >= 9 && !strncmp(text, "rediss://", 9))
        return "rediss:// (TLS) is not supported: use redis:// through a tunnel (stunnel, ssh -L, "
               "WireGuard)";
    if (n < strlen(scheme) || strncmp(text, scheme, strlen(scheme)))
        return "it must begin with redis:// (a comma inside a password is written %2C)";
    text += strlen(scheme);
    n -= strlen(scheme);
    const char *at = memrchr(text, '@', n);
    if (at) {
        size_t n_login = (size_t)(at - text);
        const char *colon = memchr(text, ':', n_login);
        size_t n_user = colon ? (size_t)(colon - text) : n_login;
        if (unescape(s->user, text, n_user) ||
            (colon && unescape(s->password, colon + 1, n_login - n_user - 1)))
            return "user and password have at most 255 bytes, and '%' begins two hexadecimal "
                   "digits";
        text = at + 1;
        n -= n_login + 1;
    }
    const char *slash = memchr(text, '/', n);
    size_t n_address = slash ? (size_t)(slash - text) : n;
    const char *why = parse_address(s, text, n_address);
    if (why)
        return why;
    if (slash && n_address + 1 < n && number(&s->db, slash + 1, n - n_address - 1, 0, 1 << 20))
        return "behind the host's '/' there is the number of a database";
    return NULL;
}

/* What is wrong with a directory's name, or NULL. What may be a server that was written wrongly is
 * refused, not made a directory of: its name would be printed, and with it a password. A path that
 * begins with '/' or './' may have logins' characters in it. */
static const char *judge_dir(const char *text, size_t n, int servers_follow)
{
    const char *end = text + n;
    for (const char *p = text; p < end; p++)
        if (end - p >= 3 && !strncmp(p, "://", 3))
            return "it begins with a directory, and servers follow it: DIR,redis://HOST";
    for (const char *p = text; p < end;
         p = memchr(p, ',', (size_t)(end - p)), p = p ? p + 1 : end) {
        while (p < end && *p == ' ')
            p++;
        const char *word = p;
        while (p < end && is_letter(*p))
            p++;
        size_t k = (size_t)(p - word);
        int redis = (k == 5 && !strncasecmp(word, "redis", 5)) ||
                    (k == 6 && !strncasecmp(word, "rediss", 6));
        if (p < end && *p == ':' && (redis || (k > 1 && p + 1 < end && p[1] == '/')))
            return "a server is written redis://HOST behind the directory and a comma, a directory "
                   "without a scheme";
    }
    int is_path = (n > 1 && text[0] == '.' && text[1] == '/') ||
                  (n && text[0] == '/' && !(n > 1 && text[1] == '/'));
    for (const char *p = text, *colon = NULL; p < end && !is_path; p++) {
        colon = *p == ':' ? p : *p == '/' ? NULL : colon;
        if (*p == '@' && colon)
            return "it looks like a login; a directory of such a name is written ./NAME";
    }
    if (n && text[0] == '~')
        return "'~' is written out here, or ./~ for a directory of that name";
    if (n && end[-1] == ',')
        return servers_follow ? "there is nothing between two commas"
                              : "there is nothing behind the comma";
    return NULL;
}

int mote_store_check_place(const char *place, mote_err *err)
{
    mote__server servers[MOTE_URL_SERVERS];
    size_t n_dir, n;
    int rc = mote__store_url_parse(place, &n_dir, servers, &n, err);
    return !rc && n_dir == 0 ? mote__fail(err, MOTE_EINVAL, "an empty directory name") : rc;
}

int mote__store_url_parse(const char *text, size_t *n_dir, mote__server servers[MOTE_URL_SERVERS],
                          size_t *n_servers, mote_err *err)
{
    const char *p = find_servers(text);
    *n_servers = 0;
    *n_dir = p ? (size_t)(p - text) - 1 : strlen(text);
    const char *wrong = judge_dir(text, *n_dir, p != NULL);
    if (wrong)
        return mote__fail(err, MOTE_EINVAL, "the place of a store: %s", wrong);
    while (p) {
        size_t n = strcspn(p, ",");
        if (*n_servers == MOTE_URL_SERVERS)
            return mote__fail(err, MOTE_EINVAL, "a store has at most %d servers", MOTE_URL_SERVERS);
        const char *why = parse_server(&servers[*n_servers], p, n);
        ++*n_servers;
        if (why)
            return mote__fail(err, MOTE_EINVAL, "server %zu of the store: %s", *n_servers, why);
        p = p[n] ? p + n + 1 : NULL;
    }
    return 0;
}
