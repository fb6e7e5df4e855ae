/* A build without the remote tier (-Dremote=disabled): a place with servers is refused in one
 * clear line, and nothing of it is made. */
#include <unistd.h>

#include "common.h"
#include "store/impl.h"

static void servers_are_refused(void **state)
{
    char dir[256];
    mote_err err = { 0 };
    mote_store *s;
    char place[512], *json = NULL;
    scratch_dir(dir);
    snprintf(place, sizeof place, "%s,redis://user:secret@127.0.0.1:1", dir);
    assert_null(mote__tier_remote);
    assert_int_equal(mote_store_check_place(place, &err), 0); /* its form is right */
    assert_int_equal(mote_store_open(&s, place, NULL, &err), MOTE_EUNSUPPORTED);
    assert_null(s);
    assert_non_null(strstr(err.message, "without its remote tier"));
    assert_null(strstr(err.message, "secret"));
    assert_int_not_equal(access(dir, F_OK), 0);
    assert_int_equal(mote_store_check_json("redis://127.0.0.1:1", 100, &json, &err),
                     MOTE_EUNSUPPORTED);
    assert_null(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(servers_are_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
