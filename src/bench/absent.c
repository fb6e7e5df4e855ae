/* In place of bench/ in a build without it (meson -Dbench=disabled). */
#include "base/err.h"
#include "bench/run.h"

int mote_bench_json(char **json, const mote_bench_params *params, mote_err *err)
{
    *json = NULL;
    return mote__fail(err, MOTE_EUNSUPPORTED,
                      "this mote was built without its bench (meson -Dbench=enabled builds it)");
}

const char *mote_bench_part(size_t i, const char **summary) { return NULL; }
