/* Each file of a store in each wrong state, and then each thing that one does with a store: it ends
 * within seconds, what comes back is right, what can be served is served, nothing of somebody
 * else's is changed, and afterwards the store works.
 *
 * Each cell runs in a process of its own, which an alarm ends, and not as root, for whom nothing is
 * forbidden. */
#include <ftw.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "common.h"

enum {
    BYTES = 1000,
    BLOCKS = 4,
    PROMPTS = 3,
    N_IDS = BLOCKS * 256 + 9,
    NOBODY = 65534,
    SECONDS = 20
};
static int32_t ids[PROMPTS][N_IDS];
static char root[200], victim[300]; /* everything lies in root */
static const char precious[] = "what belongs to somebody else\n";

typedef enum damage {
    MISSING,
    EMPTY,
    CUT,
    FOREIGN,
    LINK,
    HARD_LINK,
    FIFO,
    SOCKET,
    DIRECTORY,
    READ_ONLY,
    UNREADABLE,
    N_DAMAGES
} damage;
static const char *const damage_names[] = { "missing",       "empty",     "cut",       "foreign",
                                            "symbolic link", "hard link", "fifo",      "socket",
                                            "directory",     "read-only", "unreadable" };
typedef enum op {
    OP_RUN,
    OP_VERIFY,
    OP_REBUILD,
    OP_GC,
    OP_RM,
    OP_EXPORT,
    OP_STAT,
    OP_LS,
    OP_LIVE,
    N_OPS
} op;
static const char *const op_names[] = { "run",  "verify",   "verify --rebuild",
                                        "gc",   "rm --all", "export",
                                        "stat", "ls",       "live" };
static const char *const files[] = {
    "index.db", "lock", "seg-00000001.mote", "SNAPSHOT",
    /* what should not be there, or does not matter: only some operations */
    "index.db-journal", "index.db-wal", "index.db-shm", "seg-00000002.mote", "seg-00000000.mote",
    "seg-ffffffff.mote", "index.new"
};
enum { N_FILES = sizeof files / sizeof *files, SEGMENT = 2, SNAPSHOT = 3 };
static int worth_it(int file, op o)
{
    return file <= SNAPSHOT || o == OP_RUN || o == OP_REBUILD || o == OP_RM || o == OP_LIVE;
}

static void fill(const char *path, size_t n)
{
    FILE *f = fopen(path, "w");
    for (size_t i = 0; f && i < n; i++)
        fputc((int)(i * 7 % 251), f);
    if (f)
        fclose(f);
}

static void make_victim(void)
{
    FILE *f = fopen(victim, "w");
    for (int i = 0; f && i < 400; i++)
        fputs(precious, f);
    if (f)
        fclose(f);
    chmod(victim, 0666);
}
static int victim_whole(void)
{
    char line[64];
    int n = 0;
    FILE *f = fopen(victim, "r");
    while (f && fgets(line, sizeof line, f) && !strcmp(line, precious))
        n++;
    if (f)
        fclose(f);
    return n == 400;
}

static void apply(const char *path, damage d)
{
    struct stat st = { .st_size = 20000 };
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int there = !lstat(path, &st);
    if (d != CUT && d != READ_ONLY && d != UNREADABLE && there)
        unlink(path);
    switch (d) {
    case EMPTY: fill(path, 0); break;
    case CUT:
        if (there)
            truncate(path, st.st_size / 2 - 100);
        else
            fill(path, 700);
        break;
    case FOREIGN: fill(path, (size_t)st.st_size); break;
    case LINK: symlink(victim, path); break;
    case HARD_LINK: link(victim, path); break;
    case FIFO: mkfifo(path, 0600); break;
    case SOCKET:
        snprintf(a.sun_path, sizeof a.sun_path, "%.100s", path);
        close(bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&a, sizeof a));
        break;
    case DIRECTORY: mkdir(path, 0700); break;
    case READ_ONLY:
    case UNREADABLE:
        if (!there)
            fill(path, 20000);
        chmod(path, d == READ_ONLY ? 0400 : 0);
        break;
    default: break;
    }
}

/* ---- in the child ---- */

#define die(...)                         \
    do {                                 \
        fprintf(stderr, __VA_ARGS__);    \
        fprintf(stderr, "\n%s", f->log); \
        _exit(1);                        \
    } while (0)

static size_t served(fixture *f, int p)
{
    mote__kv_block *blocks[BLOCKS];
    mote__chain chain = { 0 }, at = { 0 };
    size_t n = mote__store_match(f->store, &f->context, NULL, ids[p], N_IDS, &f->pool, blocks,
                                 &chain);
    for (size_t i = 0; i < n; i++) {
        at = mote__chain_next(&f->context, &at, ids[p] + i * 256, 1);
        if (!is_content(mote__kv_block_here(blocks[i]), BYTES, at.id))
            die("a wrong block was served");
        mote__kv_block_unref(&f->pool, blocks[i]);
    }
    return n;
}

static void put(fixture *f, int p)
{
    mote__chain chain = { 0 };
    put_blocks(f, &f->context, &f->pool, &chain, ids[p], BLOCKS, BLOCKS);
    if (p == 0)
        mote__store_put_snapshot(f->store, &f->context, &chain, ids[0], N_IDS, 1, "the windows",
                                 12);
    mote__store_flush(f->store, NULL);
}

static int find_windows(fixture *f)
{
    mote__snapshot s;
    int found = mote__store_find_snapshot(f->store, &f->context, ids[0], N_IDS, 1, &s);
    if (found && strcmp(s.blob, "the windows"))
        die("a wrong snapshot was served");
    mote__snapshot_free(&s);
    return found;
}

static void start(fixture *f, const char *dir)
{
    *f = (fixture){ .now = 1000000 };
    pthread_mutex_init(&f->log_mutex, NULL);
    snprintf(f->dir, sizeof f->dir, "%.255s", dir);
    fixture_pool(f, BYTES);
}

static size_t lines(const fixture *f)
{
    size_t n = 0;
    for (const char *p = f->log; *p; p++)
        n += *p == '\n';
    return n;
}

/* What a run does: look, store what is missing. */
static void do_run(fixture *f, size_t found[PROMPTS])
{
    for (int p = 0; p < 2; p++)
        found[p] = served(f, p);
    find_windows(f);
    for (int p = 0; p < PROMPTS; p++)
        put(f, p);
}

static void operate(fixture *f, op o, const char *path, damage d, size_t found[PROMPTS])
{
    char *text = NULL, out[300];
    mote_err err = { 0 };
    snprintf(out, sizeof out, "%s/out.kvx", root);
    f->params.must_exist = o != OP_RUN && o != OP_LIVE;
    f->params.read_only = o == OP_EXPORT || o == OP_STAT || o == OP_LS;
    if (o == OP_LIVE) {
        if (fixture_open(f))
            die("the store does not open");
        served(f, 0);
        apply(path, d);
    } else if (fixture_open(f)) {
        f->params = (mote_store_params){ 0 };
        return;
    }
    switch (o) {
    case OP_RUN: do_run(f, found); break;
    case OP_LIVE:
        do_run(f, found);
        mote_store_verify_json(f->store, 0, &text, &err);
        break;
    case OP_VERIFY: mote_store_verify_json(f->store, 0, &text, &err); break;
    case OP_REBUILD: mote_store_verify_json(f->store, 1, &text, &err); break;
    case OP_GC: mote_store_gc_json(f->store, &text, &err); break;
    case OP_RM: mote_store_rm_json(f->store, NULL, 0, &text, &err); break;
    case OP_EXPORT: mote_store_export_json(f->store, out, &text, &err); break;
    case OP_STAT: mote_store_stat_json(f->store, &text, &err); break;
    default: mote_store_ls_json(f->store, &text, &err); break;
    }
    mote_free(text);
    mote_store_close(f->store);
    f->store = NULL;
    f->params = (mote_store_params){ 0 };
    unlink(out);
}

/* Two runs with nothing in their way: everything is stored then. */
static void must_work(fixture *f)
{
    size_t found[PROMPTS];
    f->log[0] = 0;
    if (fixture_open(f))
        die("the store does not open afterwards");
    do_run(f, found);
    mote_store_close(f->store);
    if (fixture_open(f))
        die("the store does not open the second time");
    for (int p = 0; p < PROMPTS; p++)
        if (served(f, p) != BLOCKS)
            die("prompt %d is not stored again", p);
    if (!find_windows(f))
        die("the snapshot is not stored again");
    char *text = NULL;
    mote_err err = { 0 };
    int rc = mote_store_verify_json(f->store, 0, &text, &err);
    json_t *o = rc ? NULL : json_loads(text, 0, NULL);
    if (rc || json_integer_value(json_object_get(o, "damaged")) != 0)
        die("verify afterwards: %s%s", rc ? err.message : text, rc ? "" : " is not sound");
    json_decref(o);
    mote_free(text);
    mote_store_close(f->store);
    f->store = NULL;
}

/* ---- the parent ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}
static void remove_all(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static void copy_store(const char *from, const char *to)
{
    mkdir(to, 0700);
    DIR *d = opendir(from);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char a[600], b[600], buffer[65536];
        snprintf(a, sizeof a, "%s/%s", from, e->d_name);
        snprintf(b, sizeof b, "%s/%s", to, e->d_name);
        int in = e->d_name[0] == '.' ? -1 : open(a, O_RDONLY),
            out = in < 0 ? -1 : open(b, O_WRONLY | O_CREAT, 0600);
        for (ssize_t n; in >= 0 && (n = read(in, buffer, sizeof buffer)) > 0;)
            assert_int_equal(write(out, buffer, (size_t)n), n);
        if (in >= 0)
            close(in);
        if (out >= 0)
            close(out);
    }
    if (d)
        closedir(d);
}

static void cell(const char *dir, const char *name, int file, damage d, op o)
{
    static fixture f;
    char path[500], aside[520];
    size_t found[PROMPTS] = { 0 };
    start(&f, dir);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (o != OP_LIVE)
        apply(path, d);
    operate(&f, o, path, d, found);
    fixture *p = &f;
    if (!victim_whole()) {
        fprintf(stderr, "somebody else's file was changed\n%s", p->log);
        _exit(1);
    }
    /* blocks are only gone where the segment is */
    size_t want = file == SEGMENT && d != READ_ONLY ? 0 : BLOCKS;
    if (o == OP_RUN && (found[0] < want || found[1] < want)) {
        fprintf(stderr, "%zu and %zu of %d blocks served\n%s", found[0], found[1], BLOCKS, p->log);
        _exit(1);
    }
    if (o == OP_RUN && lines(&f) > 3) {
        fprintf(stderr, "too many words\n%s", p->log);
        _exit(1);
    }
    /* a stray file is where it was or aside, as it was */
    snprintf(aside, sizeof aside, "%s.aside", path);
    struct stat st;
    if (d == FOREIGN && file > SNAPSHOT && strncmp(name, "index", 5) && lstat(path, &st) &&
        lstat(aside, &st)) {
        fprintf(stderr, "the stray file is gone\n%s", p->log);
        _exit(1);
    }
    /* whoever forbids to write must permit it */
    if ((d == READ_ONLY || d == UNREADABLE) &&
        (!strcmp(name, "lock") || !strncmp(name, "index.db", 8)))
        chmod(path, 0600);
    if (file == SEGMENT && d == UNREADABLE)
        operate(&f, OP_VERIFY, path, d, found); /* a run leaves alone what it may not read */
    must_work(&f);
    if (!victim_whole()) {
        fprintf(stderr, "somebody else's file was changed afterwards\n%s", p->log);
        _exit(1);
    }
    _exit(0);
}

static int in_child(void (*body)(const char *dir, const char *name, int file, damage d, op o),
                    const char *dir, const char *name, int file, damage d, op o)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(SECONDS);
        if (geteuid() == 0 && (setegid(NOBODY) || seteuid(NOBODY)))
            _exit(2);
        body(dir, name, file, d, o);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
}

static void own_by_nobody(const char *dir)
{
    if (geteuid())
        return;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (strcmp(e->d_name, ".."))
            assert_int_equal(lchown(path, NOBODY, NOBODY), 0);
    }
    if (d)
        closedir(d);
}

static char template_dir[300], snapshot_name[80];

static void make_template(void)
{
    static fixture f;
    snprintf(template_dir, sizeof template_dir, "%s/template", root);
    start(&f, template_dir);
    must_open(&f);
    put(&f, 0);
    put(&f, 1);
    assert_int_equal(served(&f, 0), BLOCKS);
    mote_store_close(f.store);
    mote__kv_pool_deinit(&f.pool);
    DIR *d = opendir(template_dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (!strncmp(e->d_name, "snap-", 5))
            snprintf(snapshot_name, sizeof snapshot_name, "%.79s", e->d_name);
    closedir(d);
    assert_true(snapshot_name[0]);
}

static void each_file(void **state)
{
    (void)state;
    int n = 0, bad = 0;
    for (int file = 0; file < N_FILES; file++)
        for (damage d = 0; d < N_DAMAGES; d++)
            for (op o = 0; o < N_OPS; o++) {
                char dir[300];
                if (!worth_it(file, o))
                    continue;
                const char *name = file == SNAPSHOT ? snapshot_name : files[file];
                snprintf(dir, sizeof dir, "%s/mote-store-cell", root);
                copy_store(template_dir, dir);
                own_by_nobody(dir);
                make_victim();
                int status = in_child(cell, dir, name, file, d, o);
                if (status) {
                    fprintf(stderr, "%s, %s, %s: %s %d\n", files[file], damage_names[d],
                            op_names[o], WIFSIGNALED(status) ? "ended by signal" : "failed with",
                            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
                    bad++;
                }
                remove_all(dir);
                unlink(victim);
                n++;
            }
    printf("  %d files, %d damages, %d operations: %d cells\n", (int)N_FILES, (int)N_DAMAGES,
           (int)N_OPS, n);
    assert_int_equal(bad, 0);
}

/* ---- the directory itself ---- */

typedef enum dir_case {
    D_MISSING,
    D_EMPTY,
    D_FILE,
    D_LINK,
    D_DANGLING,
    D_FIFO,
    D_READ_ONLY,
    D_UNREADABLE,
    D_OPEN,
    D_GROUP,
    N_DIRS
} dir_case;

static void dir_cell(const char *dir, const char *name, int file, damage d, op o)
{
    static fixture f;
    (void)name;
    (void)d;
    size_t found[PROMPTS] = { 0 };
    start(&f, dir);
    operate(&f, o, dir, MISSING, found);
    int served_there = file == D_LINK || file == D_READ_ONLY || file == D_OPEN || file == D_GROUP;
    const char *wrong = o == OP_RUN && served_there && found[0] != BLOCKS ? "nothing is served"
                        : (file == D_OPEN || file == D_GROUP) !=
                                (strstr(f.log, "other users can write") != NULL)
                            ? "about the mode"
                        : o == OP_RUN && lines(&f) > 2 ? "too many words"
                                                       : NULL;
    if (wrong) {
        fprintf(stderr, "%s\n%s", wrong, f.log);
        _exit(1);
    }
    if (file == D_MISSING || file == D_EMPTY || file == D_LINK || file == D_OPEN || file == D_GROUP)
        must_work(&f);
    struct stat st;
    if (file == D_MISSING && (stat(dir, &st) || (st.st_mode & 07777) != 0700)) {
        fprintf(stderr, "mode of a new directory\n");
        _exit(1);
    }
}

static void directory(void **state)
{
    (void)state;
    static const char *const names[] = { "missing",       "empty", "file",      "link",
                                         "dangling link", "fifo",  "read-only", "unreadable",
                                         "0777",          "0770" };
    for (int k = 0; k < N_DIRS; k++)
        for (op o = 0; o < OP_LIVE; o++) {
            char dir[300], there[300];
            snprintf(dir, sizeof dir, "%s/mote-store-cell", root);
            snprintf(there, sizeof there, "%s/mote-store-there", root);
            if (k == D_LINK)
                copy_store(template_dir, there);
            if (k >= D_READ_ONLY)
                copy_store(template_dir, dir);
            if (k == D_LINK || k == D_DANGLING)
                assert_int_equal(symlink(there, dir), 0);
            if (k == D_FILE)
                fill(dir, 100);
            if (k == D_FIFO)
                mkfifo(dir, 0666);
            if (k == D_EMPTY)
                mkdir(dir, 0700);
            own_by_nobody(k == D_LINK ? there : dir);
            if (geteuid() == 0 && k >= D_READ_ONLY)
                assert_int_equal(chown(dir, NOBODY, NOBODY), 0);
            if (k >= D_READ_ONLY)
                chmod(dir, k == D_READ_ONLY    ? 0500
                           : k == D_UNREADABLE ? 0
                           : k == D_OPEN       ? 0777
                                               : 0770);
            int status = in_child(dir_cell, dir, "", k, 0, o);
            if (status)
                fail_msg("a directory that is %s, %s: status %x", names[k], op_names[o], status);
            chmod(dir, 0700);
            remove_all(dir);
            remove_all(there);
        }
}

int main(void)
{
    const char *base = !access("/dev/shm", W_OK) ? "/dev/shm"
                       : getenv("TMPDIR")        ? getenv("TMPDIR")
                                                 : "/tmp";
    snprintf(root, sizeof root, "%.150s/mote-matrix-XXXXXX", base);
    if (!mkdtemp(root))
        return 1;
    if (geteuid() == 0 && chown(root, NOBODY, NOBODY))
        return 1;
    snprintf(victim, sizeof victim, "%s/victim", root);
    for (int p = 0; p < PROMPTS; p++)
        make_ids(ids[p], N_IDS, (uint64_t)p + 900, 0);
    make_template();
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_file), cmocka_unit_test(directory) };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_all(root);
    return rc;
}
