/* mote_doctor_json: what mote finds out about the machine. Nothing is changed; unknown values are
 * null. Linux only: reads /proc, /sys and makes a few system calls. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <jansson.h>
#include <openssl/crypto.h>
#include <pcre2.h>
#include <sqlite3.h>
#include <utf8proc.h>

#include "base/cpu.h"
#include "base/err.h"
#include "base/limit.h"
#include "base/json_put.h"
#include "base/json_string.h"
#include "kern/kern.h"
#include "store/tier.h"
#include "base/proc.h"

/* The value of the first line "key : value" as a JSON string; null if there is none. */
static json_t *line_value(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, key, n) || !strchr(" \t:", line[n]))
            continue;
        const char *colon = strchr(line, ':');
        if (!colon)
            break;
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        json_t *s = mote__json_bytes(value, strcspn(value, "\n"));
        return s ? s : json_null();
    }
    return json_null();
}

/* ---- processor ---- */

/* Names of instruction sets in the result and in /proc/cpuinfo. */
static const struct {
    const char *name, *flag;
} sets[] = {
    { "avx2", "avx2" },
    { "fma", "fma" },
    { "f16c", "f16c" },
    { "avx512f", "avx512f" },
    { "avx512bw", "avx512bw" },
    { "avx512vl", "avx512vl" },
    { "avx512dq", "avx512dq" },
    { "avx512vbmi", "avx512vbmi" },
    { "avx512vnni", "avx512_vnni" },
    { "avx512bf16", "avx512_bf16" },
    { "avx_vnni", "avx_vnni" },
    { "amx_tile", "amx_tile" },
    { "amx_int8", "amx_int8" },
    { "amx_bf16", "amx_bf16" },
};

static int has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; at && (at = strstr(at, word)) != NULL; at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return 1;
    return 0;
}

static size_t affinity_cores(void)
{
    for (int max = 1024; max <= 1 << 20; max *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)max);
        size_t size = CPU_ALLOC_SIZE((size_t)max), n = 0;
        int failed = !set || sched_getaffinity(0, size, set);
        if (!failed)
            n = (size_t)CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (!failed || errno != EINVAL)
            return n;
    }
    return 0;
}

static json_t *cpu_json(void)
{
    json_t *o = json_object(), *flags = json_object();
    char *info = mote__proc_text("/proc/cpuinfo");
    json_t *words = line_value(info, "flags");
    mote__json_put(o, "model", line_value(info, "model name"));
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        mote__json_put(flags, sets[i].name,
                       json_is_string(words)
                           ? json_boolean(has_word(json_string_value(words), sets[i].flag))
                           : json_null());
    json_decref(words);
    free(info);
    mote__json_put(o, "instruction_sets", flags);
    mote__json_put(o, "cores_online", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    mote__json_put(o, "cores_allowed", json_integer((json_int_t)affinity_cores()));
    return o;
}

static json_t *environment(const char *name) { return mote__json_string(getenv(name)); }

static json_t *kernels_json(void)
{
    json_t *o = json_object();
    mote_err err = { 0 };
    int rc = mote__kern_init(&err);
    mote__json_put(o, "level", json_string(mote__kern()->name));
    mote__json_put(o, "best_of_cpu", json_string(mote__cpu_level_name[mote__cpu_detect()]));
    mote__json_put(o, "MOTE_CPU_MASK", environment("MOTE_CPU_MASK"));
    mote__json_put(o, "MOTE_THREADS", environment("MOTE_THREADS"));
    json_t *why = rc ? mote__json_string(err.message) : NULL;
    mote__json_put(o, "error", why ? why : json_null());
    return o;
}

/* ---- memory ---- */

static json_t *meminfo(const char *key)
{
    uint64_t kib;
    return mote__proc_number("", "/proc/meminfo", key, &kib) ? json_integer((json_int_t)kib * 1024)
                                                             : json_null();
}

static json_t *memory_json(void)
{
    json_t *o = json_object();
    const mote__ram ram = mote__ram_of("");
    char *thp = mote__proc_text("/sys/kernel/mm/transparent_hugepage/enabled");
    mote__json_put(o, "total_bytes", meminfo("MemTotal:"));
    mote__json_put(o, "available_bytes", meminfo("MemAvailable:"));
    /* of the control group, if it has one */
    mote__json_put(o, "limit_bytes",
                   ram.limited < UINT64_MAX ? json_integer((json_int_t)ram.limited) : json_null());
    mote__json_put(o, "page_bytes", json_integer(sysconf(_SC_PAGESIZE)));
    const char *open = thp ? strchr(thp, '[') : NULL; /* "always [madvise] never" */
    mote__json_put(o, "transparent_huge_pages",
                   open && strchr(open, ']') ? mote__json_bytes(open + 1, strcspn(open + 1, "]"))
                                             : json_null());
    free(thp);
    return o;
}

/* ---- system and libraries ---- */

/* Creates the smallest ring and closes it. Sandboxes often refuse the call, so it must be tried. */
static json_t *io_uring_json(void)
{
    json_t *o = json_object();
#ifdef SYS_io_uring_setup
    /* struct io_uring_params has 120 bytes */
    unsigned char params[256] = { 0 };
    long fd = syscall(SYS_io_uring_setup, 1u, params);
    int failure = fd < 0 ? errno : 0;
    if (fd >= 0)
        close((int)fd);
#else
    int failure = ENOSYS;
#endif
    mote__json_put(o, "available", json_boolean(!failure));
    mote__json_put(o, "errno", failure ? json_integer(failure) : json_null());
    mote__json_put(o, "reason", failure ? mote__json_string(strerror(failure)) : json_null());
    return o;
}

static json_t *system_json(void)
{
    json_t *o = json_object();
    struct utsname u;
    int known = !uname(&u);
    mote__json_put(o, "kernel", known ? mote__json_string(u.release) : json_null());
    mote__json_put(o, "machine", known ? json_string(u.machine) : json_null());
    mote__json_put(o, "libc", json_sprintf("glibc %s", gnu_get_libc_version()));
#if defined(__clang__)
    mote__json_put(o, "compiler", json_string("clang " __clang_version__));
#else
    mote__json_put(o, "compiler", json_string("gcc " __VERSION__));
#endif
    mote__json_put(o, "io_uring", io_uring_json());
    return o;
}

static json_t *libraries_json(void)
{
    json_t *o = json_object();
    char pcre2[64] = "";
    uint32_t jit = 0;
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    pcre2_config(PCRE2_CONFIG_JIT, &jit);
    mote__json_put(o, "jansson", json_string(jansson_version_str()));
    mote__json_put(o, "pcre2", json_string(pcre2));
    mote__json_put(o, "pcre2_jit", json_boolean(jit != 0));
    mote__json_put(o, "sqlite", json_string(sqlite3_libversion()));
    mote__json_put(o, "libcrypto", json_string(OpenSSL_version(OPENSSL_FULL_VERSION_STRING)));
    /* these two have no version at run time */
    mote__json_put(o, "liburing", json_string(LIBURING_VERSION));
    mote__json_put(o, "hiredis",
                   mote__tier_remote ? json_string(mote__tier_remote->library) : NULL);
    mote__json_put(o, "utf8proc", json_string(utf8proc_version()));
    mote__json_put(o, "utf8proc_unicode", json_string(utf8proc_unicode_version()));
    return o;
}

int mote_doctor_json(char **json, mote_err *err)
{
    json_t *o = json_object();
    mote__json_put(o, "mote", json_string(MOTE_VERSION));
    mote__json_put(o, "cpu", cpu_json());
    mote__json_put(o, "kernels", kernels_json());
    mote__json_put(o, "memory", memory_json());
    mote__json_put(o, "system", system_json());
    mote__json_put(o, "libraries", libraries_json());
    *json = json_dumps(o, JSON_INDENT(2));
    json_decref(o);
    return *json ? MOTE_OK : mote__fail(err, MOTE_ENOMEM, "doctor: out of memory");
}
