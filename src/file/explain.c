/* Owns the messages for paths that are not a checkpoint: which kinds of files and folders are
 * recognised, and the text for each. */
#include "file/explain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "base/path.h"

#define WANTED "mote reads a folder with config.json, safetensors files and tokenizer.json"

/* Kinds of files, recognised by the end of the name; GGUF also by its first bytes. */
static const struct {
    const char *end, *what;
} kinds[] = {
    { ".gguf", "a GGUF file; " WANTED ": give the folder of the checkpoint it was made from" },
    { ".ggml", "a GGML file; " WANTED ": give the folder of the checkpoint it was made from" },
    { ".safetensors", "a weights file; give the folder that holds it" },
    { ".bin", "PyTorch weights; " WANTED ": convert them to safetensors" },
    { ".pt", "PyTorch weights; " WANTED ": convert them to safetensors" },
    { ".pth", "PyTorch weights; " WANTED ": convert them to safetensors" },
    { ".onnx", "an ONNX file; " WANTED },
    /* must be last: not used with takes_config */
    { "config.json", "a configuration; give the folder that holds it" },
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static int ends(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static int is_gguf(const char *path)
{
    char magic[4] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int yes = fd >= 0 && read(fd, magic, sizeof magic) == sizeof magic &&
              !memcmp(magic, "GGUF", sizeof magic);
    if (fd >= 0)
        close(fd);
    return yes;
}

int mote__explain_file(const char *path, int takes_config, mote_err *err)
{
    size_t i = 0, n = N_KINDS - (takes_config != 0);
    if (!is_gguf(path))
        while (i < n && !ends(path, kinds[i].end))
            i++;
    return i < n ? mote__fail(err, MOTE_EUNSUPPORTED, "%s: this is %s", path, kinds[i].what)
                 : MOTE_OK;
}

/* Whether `path` looks like "organisation/model" on a hub: one slash, and nothing that only a path
 * has. */
static int is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    return slash && slash > path && slash[1] && !strchr(slash + 1, '/') && path[0] != '.' &&
           path[0] != '~' &&
           path[strspn(path,
                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/")] == 0;
}

/* Copy the name of the first file in the folder that ends in `end` to `name`; "" if there is
 * none. */
static void find_ending(const char *folder, const char *end, char name[256])
{
    DIR *d = opendir(folder);
    name[0] = 0;
    for (struct dirent *e; d && !*name && (e = readdir(d));)
        if (ends(e->d_name, end))
            snprintf(name, 256, "%s", e->d_name);
    if (d)
        closedir(d);
}

int mote__explain_weights(const char *folder, mote_err *err)
{
    char name[256], hub[MOTE_PATH_ROOM];
    static const char *const others[] = {
        ".gguf", ".bin", ".pth", ".pt", ".h5", ".msgpack", ".onnx"
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        find_ending(folder, others[i], name);
        if (*name)
            return mote__fail(err, MOTE_EUNSUPPORTED,
                              "%s: holds weights in another form (%s); " WANTED, folder, name);
    }
    mote__path_join(hub, folder, "snapshots");
    if (mote__file_is_there(hub))
        return mote__fail(err, MOTE_EIO,
                          "%s: a hub's cache: give the folder with config.json below %s", folder,
                          hub);
    return mote__fail(err, MOTE_EIO,
                      "%s: holds neither model.safetensors.index.json nor model.safetensors",
                      folder);
}

int mote__explain_folder(const char *path, const char *needed, mote_err *err)
{
    struct stat st;
    char file[4400];
    if (stat(path, &st)) {
        int why = errno;
        if (why == ENOENT && is_hub_name(path))
            return mote__fail(err, MOTE_EIO,
                              "%s: no such folder; if that is the name of a model on a hub, "
                              "download it first and give the folder: "
                              "mote fetches nothing",
                              path);
        return mote__fail(err, MOTE_EIO, "%s: cannot open: %s", path, strerror(why));
    }
    if (!S_ISDIR(st.st_mode)) {
        int rc = S_ISREG(st.st_mode) ? mote__explain_file(path, 0, err) : MOTE_OK;
        return rc ? rc : mote__fail(err, MOTE_EIO, "%s: not a folder; " WANTED, path);
    }
    snprintf(file, sizeof file, "%s/%s", path, needed ? needed : "");
    if (!needed || mote__file_is_there(file))
        return MOTE_OK;
    char name[256];
    find_ending(path, ".gguf", name);
    if (*name)
        return mote__explain_weights(path, err);
    snprintf(file, sizeof file, "%s/snapshots", path);
    if (mote__file_is_there(file))
        return mote__explain_weights(path, err);
    return mote__fail(err, MOTE_EIO, "%s: there is no %s; " WANTED, path, needed);
}
