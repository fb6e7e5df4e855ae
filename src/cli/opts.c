#include "cli/opts.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/replace.h"
#include "cli/cli.h"
#include "cli/out.h"

const char *const cli_prefill_names[] = { "bounded", "exact", "full", NULL };
const char *const cli_math_names[] = { "fp32", "published", NULL };
/* as mote_weights */
const char *const cli_weights_names[] = { "auto", "copy", "map", "stream", NULL };
const char *const cli_replay_names[] = { "bounded", "exact", NULL };

/* The end of a command line that asks for nothing to be run. */
static _Noreturn void leave(int status) { exit(status); }

void cli_usage_error(const cli_args *a, const char *fmt, ...)
{
    char message[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    cli_say("mote %s: %s (see 'mote %s --help')", a->usage->command, message, a->usage->command);
    leave(CLI_USAGE);
}

static void print_help(const cli_usage *u)
{
    printf("usage: mote %s %s%s[OPTIONS]\n\n%s\n\n", u->command, u->operands,
           u->operands[0] ? " " : "", u->about);
    for (const cli_opt *o = u->opts; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%s--%s%s%s",
                 o->id < 256 ? (char[]){ '-', (char)o->id, ',', ' ', 0 } : "    ", o->name,
                 o->arg ? " " : "", o->arg ? o->arg : "");
        const char *line = o->help;
        for (int first = 1; *line; first = 0) {
            size_t n = strcspn(line, "\n");
            /* a long name gets a line of its own */
            if (first && strlen(left) > 22)
                printf("  %s\n", left);
            printf("  %-22s  %.*s\n", first && strlen(left) <= 22 ? left : "", (int)n, line);
            line += n + (line[n] == '\n');
        }
    }
    if (u->notes)
        printf("\n%s\n", u->notes);
}

void cli_args_init(cli_args *a, const cli_usage *usage, int argc, char **argv)
{
    *a = (cli_args){ .usage = usage, .argc = argc, .argv = argv };
    optind = 1;
    opterr = 0;
}

static const cli_opt *find(const cli_usage *u, int id)
{
    for (const cli_opt *o = u->opts; o->name; o++)
        if (o->id == id)
            return o;
    return NULL;
}

static void bad_option(const cli_args *a, int missing_value)
{
    char shown[64];
    const cli_opt *o = optopt ? find(a->usage, optopt) : NULL;
    if (o)
        snprintf(shown, sizeof shown, "--%s", o->name);
    else if (optopt)
        snprintf(shown, sizeof shown, "-%c", isprint(optopt) ? optopt : '?');
    else
        snprintf(shown, sizeof shown, "%s", a->argv[optind - 1]);
    if (missing_value)
        cli_usage_error(a, "option '%s' needs a value", shown);
    if (o)
        cli_usage_error(a, "option '%s' takes no value", shown);
    cli_usage_error(a, "unknown option '%s'", shown);
}

/* A picture among the result's lines would help nobody. */
static const char *picture_file(const cli_args *a)
{
    if (!*a->value)
        cli_usage_error(a, "%s: an empty file name", a->name);
    if (mote__replace_is_stdout(a->value))
        cli_usage_error(a, "%s: standard output carries the result; name another file", a->name);
    return a->value;
}

/* GROUP=MODE,... */
static void read_places(cli_args *a)
{
    const char *at = a->value;
    for (size_t n; *at || at == a->value; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        const char *mode = memchr(at, '=', n);
        size_t n_name = mode ? (size_t)(mode - at) : n, g = 0;
        const char *name = "";
        for (; g < MOTE_WEIGHT_GROUPS; g++) {
            name = mote_weight_group_name((mote_weight_group)g);
            if (strlen(name) == n_name && !memcmp(name, at, n_name))
                break;
        }
        if (g == MOTE_WEIGHT_GROUPS)
            cli_usage_error(a,
                            "%s: '%.*s' is no group of weights: dense, shared, head, experts, "
                            "embed, engram",
                            a->name, (int)n_name, at);
        int m = 0;
        while (cli_weights_names[m] && (!mode || strlen(cli_weights_names[m]) != n - n_name - 1 ||
                                        memcmp(cli_weights_names[m], mode + 1, n - n_name - 1)))
            m++;
        if (!cli_weights_names[m])
            cli_usage_error(a, "%s: '%.*s': expected %s=auto, copy, map or stream", a->name, (int)n,
                            at, name);
        a->place[g] = (mote_weights)m;
        if (at[n] == ',' && !at[n + 1])
            cli_usage_error(a, "%s: nothing follows the last comma", a->name);
    }
}

int cli_next(cli_args *a)
{
    struct option longs[CLI_MAX_OPTS + 1];
    char shorts[2 * CLI_MAX_OPTS + 2] = ":", *s = shorts + 1;
    size_t n = 0;
    for (const cli_opt *o = a->usage->opts; o->name; o++) {
        if (n == CLI_MAX_OPTS) { /* a fault of ours, which any use of the command shows */
            cli_say("mote %s: more than %d options", a->usage->command, CLI_MAX_OPTS);
            leave(CLI_FAILED);
        }
        longs[n++] = (struct option){ o->name, o->arg ? required_argument : no_argument, NULL,
                                      o->id };
        if (o->id < 256) {
            *s++ = (char)o->id;
            if (o->arg)
                *s++ = ':';
        }
    }
    longs[n] = (struct option){ 0 };
    *s = 0;

    for (;;) {
        int id = getopt_long(a->argc, a->argv, shorts, longs, NULL);
        if (id == -1)
            break;
        if (id == '?' || id == ':')
            bad_option(a, id == ':');
        const cli_opt *o = find(a->usage, id);
        snprintf(a->name, sizeof a->name, "--%s", o->name);
        a->value = optarg;
        switch (id) {
        case 'h': print_help(a->usage); leave(cli_flush());
        case 't': a->n_threads = (int)cli_uint(a, 1, 4096); break;
        case CLI_O_JSON: a->json = 1; break;
        case CLI_O_WEIGHTS: a->weights = (mote_weights)cli_choice(a, cli_weights_names); break;
        case CLI_O_PLACE: read_places(a); break;
        case CLI_O_EXPERT_RAM: a->expert_ram = cli_size(a); break;
        case CLI_O_MATH: a->math = (mote_math)cli_choice(a, cli_math_names); break;
        case CLI_O_PREFILL: a->prefill = (mote_prefill)cli_choice(a, cli_prefill_names); break;
        case CLI_O_KV:
            if (!*a->value)
                cli_usage_error(a, "%s: an empty format", a->name);
            a->kv = a->value;
            a->has_kv = 1;
            return CLI_O_KV; /* eval collects several */
        case CLI_O_SVG: a->svg = picture_file(a); break;
        case CLI_O_HTML: a->html = picture_file(a); break;
        case CLI_O_PROFILE:
            if (a->profile)
                cli_usage_error(a, "--profile: more than one");
            a->profile = a->value;
            break;
        default: return id;
        }
    }
    if (a->profile && a->has_kv && !a->usage->many_kv)
        cli_usage_error(a, "--kv and --profile both say the formats: give one of them");
    for (; optind < a->argc; optind++) {
        if (a->n_operands == CLI_MAX_OPERANDS)
            cli_usage_error(a, "unexpected argument '%s'", a->argv[optind]);
        a->operands[a->n_operands++] = a->argv[optind];
    }
    return CLI_END;
}

char *cli_operand(const cli_args *a, int i, const char *name)
{
    if (i >= a->n_operands)
        cli_usage_error(a, "%s is missing", name);
    return a->operands[i];
}

void cli_no_more_operands(const cli_args *a, int n)
{
    if (a->n_operands > n)
        cli_usage_error(a, "unexpected argument '%s'", a->operands[n]);
}

uint64_t cli_uint(const cli_args *a, uint64_t min, uint64_t max)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(a->value, &end, 10);
    if (!isdigit((unsigned char)a->value[0]) || *end)
        cli_usage_error(a, "%s: '%s' is not a whole number", a->name, a->value);
    if (errno || v < min || v > max)
        cli_usage_error(a, "%s: %s is outside %llu ... %llu", a->name, a->value,
                        (unsigned long long)min, (unsigned long long)max);
    return v;
}

double cli_real(const cli_args *a, double min, double max)
{
    char *end;
    double v = strtod(a->value, &end);
    if (end == a->value || *end || !isfinite(v) || isspace((unsigned char)a->value[0]))
        cli_usage_error(a, "%s: '%s' is not a number", a->name, a->value);
    if (v < min || v > max)
        cli_usage_error(a, "%s: %s is outside %g ... %g", a->name, a->value, min, max);
    return v;
}

static uint64_t parse_size(const cli_args *a, const char *text, size_t n)
{
    char buf[40], *end;
    if (n >= sizeof buf)
        cli_usage_error(a, "%s: '%.60s' is not a size", a->name, text);
    memcpy(buf, text, n);
    buf[n] = 0;
    double v = strtod(buf, &end);
    static const char units[] = "KMGT";
    int shift = 0;
    const char *u = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (u) {
        shift = 10 * (int)(u - units + 1);
        end++;
        if (*end == 'i')
            end++;
        if (*end == 'B')
            end++;
    }
    if (!isdigit((unsigned char)buf[0]) || *end || strpbrk(buf, "xX"))
        cli_usage_error(a, "%s: '%s' is not a size (examples: 4096, 4K, 1.5M, 64G)", a->name, buf);
    v = ldexp(v, shift);
    if (!(v >= 1 && v < 9e18))
        cli_usage_error(a, "%s: '%s' is outside 1 ... 2^63", a->name, buf);
    return (uint64_t)v;
}

uint64_t cli_size(const cli_args *a) { return parse_size(a, a->value, strlen(a->value)); }

/* The list that is being read. A usage error leaves by exit; this keeps the list reachable for the
 * leak checker (volatile: nobody reads it). */
static void *volatile unfinished;

static void *grown(void *p, size_t n, size_t item)
{
    /* doubling at powers of two keeps long lists linear */
    if (n & (n - 1) && n)
        return p;
    p = realloc(p, (n ? 2 * n : 1) * item);
    if (!p) {
        cli_say("mote: out of memory");
        leave(CLI_FAILED);
    }
    return unfinished = p;
}

uint64_t *cli_sizes(const cli_args *a, size_t *n)
{
    uint64_t *list = NULL;
    *n = 0;
    for (const char *p = a->value;; p++) {
        size_t len = strcspn(p, ",");
        list = grown(list, *n, sizeof *list);
        list[(*n)++] = parse_size(a, p, len);
        p += len;
        if (!*p)
            return list;
    }
}

size_t cli_percents(const cli_args *a, double *shares, size_t most)
{
    size_t n = 0;
    for (const char *p = a->value;; p++) {
        char *end;
        double v = strtod(p, &end);
        if (end == p || (*end && *end != ',') || !(v >= 0 && v <= 100) ||
            isspace((unsigned char)*p))
            cli_usage_error(a, "%s: '%.*s' is not a percentage from 0 to 100", a->name,
                            (int)strcspn(p, ","), p);
        if (n == most)
            cli_usage_error(a, "%s: more than %zu", a->name, most);
        if (n && v / 100 < shares[n - 1])
            cli_usage_error(a, "%s: '%s' does not ascend", a->name, a->value);
        shares[n++] = v / 100;
        p = end;
        if (!*p)
            return n;
    }
}

int32_t *cli_ids(const cli_args *a, size_t *n)
{
    int32_t *list = grown(NULL, 0, sizeof *list);
    *n = 0;
    const char *p = a->value;
    p += strspn(p, " \t\r\n");
    while (*p) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < INT32_MIN || v > INT32_MAX ||
            (*end && !strchr(", \t\r\n", *end)))
            cli_usage_error(a, "%s: '%.*s' is not a token id", a->name, (int)strcspn(p, ", \t\r\n"),
                            p);
        list = grown(list, *n, sizeof *list);
        list[(*n)++] = (int32_t)v;
        p = end + strspn(end, " \t\r\n");
        if (*p == ',') {
            p++;
            p += strspn(p, " \t\r\n");
            if (!*p)
                cli_usage_error(a, "%s: a token id is missing after the last comma", a->name);
        }
    }
    return list;
}

int cli_choice(const cli_args *a, const char *const *names)
{
    char known[200] = "";
    for (int i = 0; names[i]; i++) {
        if (!strcmp(names[i], a->value))
            return i;
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", names[i]);
    }
    cli_usage_error(a, "%s: '%s' is none of: %s", a->name, a->value, known);
}

void cli_append(const char ***list, size_t *n, const char *value)
{
    *list = grown(*list, *n, sizeof **list);
    (*list)[(*n)++] = value;
}
