/* Whether the servers of a place can be used: what a store behind them would do, once, told in
 * words. Nothing here opens a store. */
#include <string.h>

#include "base/json_put.h"
#include "base/json_string.h"
#include "store/impl.h"

int mote__tier_missing(mote_err *err)
{
    return mote__fail(err, MOTE_EUNSUPPORTED,
                      "this mote was built without its remote tier (-Dremote=disabled): a store's "
                      "place is a directory alone");
}

static json_t *found_json(const mote__tier_found *f)
{
    json_t *o = json_object();
    json_object_set_new(o, "server", mote__json_string(f->name));
    json_object_set_new(o, "ok", json_boolean(!*f->failure));
    json_object_set_new(o, "version", *f->version ? mote__json_string(f->version) : json_null());
    json_object_set_new(o, "mode", *f->mode ? mote__json_string(f->mode) : json_null());
    json_object_set_new(o, "servers_known", json_integer(f->n_known));
    json_object_set_new(o, "round_trip_ms",
                        f->round_trip_ms > 0 ? json_real(f->round_trip_ms) : json_null());
    json_object_set_new(o, "failure", *f->failure ? mote__json_string(f->failure) : json_null());
    return o;
}

int mote_store_check_json(const char *place, int timeout_ms, char **text, mote_err *err)
{
    char alone[4096];
    mote__server servers[MOTE_URL_SERVERS];
    size_t n_dir, n, failures = 0;
    if (!strncmp(place, "redis://", 8) ||
        !strncmp(place, "rediss://", 9)) { /* servers without a directory before them */
        if (snprintf(alone, sizeof alone, ",%s", place) >= (int)sizeof alone)
            return mote__fail(err, MOTE_EINVAL, "the place is too long");
        place = alone;
    }
    int rc = mote__store_url_parse(place, &n_dir, servers, &n, err);
    if (!rc && n == 0)
        rc = mote__fail(err, MOTE_EINVAL,
                        "there is no server in this place: give DIR,redis://host or redis://host");
    if (!rc && !mote__tier_remote)
        rc = mote__tier_missing(err);
    json_t *list = rc ? NULL : json_array();
    for (size_t i = 0; i < n && !rc; i++) {
        mote__tier_found f;
        mote__tier_remote->check(&f, &servers[i], timeout_ms);
        failures += *f.failure != 0;
        json_array_append_new(list, found_json(&f));
    }
    explicit_bzero(servers, sizeof servers);
    explicit_bzero(alone, sizeof alone);
    if (rc)
        return rc;
    json_t *o = json_object();
    mote__json_put_u64(o, "failed", failures);
    json_object_set_new(o, "servers", list);
    return mote__store_json(o, text, err);
}
