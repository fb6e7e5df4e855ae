/* lab/profile: a profile file. What is accepted is what the rest of the program relies on. */
#include <assert.h>
#include <string.h>

#include "lab/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lab_profile p;
    mote_err err = { 0 };
    int rc = lab_profile_parse(&p, "fuzzed", (const char *)data, size, &err);
    if (rc)
        assert(rc == err.code && err.message[0] && !p.root);
    else
        assert(p.root && strlen(p.fingerprint) == 64 && p.kv[0] && strlen(p.kv) < sizeof p.kv);
    lab_profile_free(&p);
    return 0;
}
