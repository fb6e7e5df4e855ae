/* The formats by themselves: checksum, identities, and that no byte of a slot, a segment header or
 * a snapshot can change unseen. */
#include "base/crc32c.h"
#include "base/map.h"
#include "common.h"
#include "store/port.h"
#include "store/slot.h"

static void crc(void **state)
{
    assert_int_equal(mote__crc32c(0, "123456789", 9), 0xE3069283u);
    assert_int_equal(mote__crc32c_table(0, "123456789", 9), 0xE3069283u);
    /* RFC 3720, B.4: 32 bytes of zeros, of ones, rising, falling */
    uint8_t b[32];
    static const uint32_t want[4] = { 0x8A9136AAu, 0x62A8AB43u, 0x46DD794Eu, 0x113FDB5Cu };
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < 32; i++)
            b[i] = (uint8_t)(k == 0 ? 0 : k == 1 ? 255 : k == 2 ? i : 31 - i);
        assert_int_equal(mote__crc32c(0, b, 32), want[k]);
        assert_int_equal(mote__crc32c_table(0, b, 32), want[k]);
    }
    rnd r = { 3 };
    static uint8_t data[60007];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)rnd_u64(&r);
    for (int k = 0; k < 2000; k++) {
        size_t at = rnd_below(&r, 17), n = rnd_below(&r, k < 1000 ? 40 : sizeof data - 17),
               cut = rnd_below(&r, n + 1);
        uint32_t start = (uint32_t)rnd_u64(&r), whole = mote__crc32c(start, data + at, n);
        assert_int_equal(whole, mote__crc32c_table(start, data + at, n));
        assert_int_equal(whole, mote__crc32c(mote__crc32c(start, data + at, cut), data + at + cut,
                                             n - cut));
    }
}

/* Everything that a context is made of changes every identity. */
static void contexts(void **state)
{
    uint8_t fp[32] = { 9 }, fp2[32] = { 9, 0, 0, 1 };
    const mote__store_context_desc base = { .fingerprint = fp,
                                            .kv = "main=fp4",
                                            .math = "fp32",
                                            .name_space = "a",
                                            .block_bytes = 1000,
                                            .block_tokens = 256,
                                            .geometry = "2/2" };
    mote__store_context_desc d[9];
    for (int i = 0; i < 9; i++)
        d[i] = base;
    d[1].fingerprint = fp2;
    d[2].kv = "main=fp8";
    d[3].math = "published";
    d[4].name_space = "b";
    d[5].block_bytes = 1001;
    d[6].geometry = "2/1";
    /* lengths are part of it: text cannot move from one field to the next */
    d[7].kv = "main=fp4f";
    d[7].math = "p32";
    d[8].name_space = "";
    int32_t ids[256] = { 5 };
    mote__chain root = { 0 }, next[9];
    for (int i = 0; i < 9; i++) {
        mote__store_context c;
        assert_int_equal(mote__store_context_init(&c, &d[i], NULL), 0);
        next[i] = mote__chain_next(&c, &root, ids, 1);
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(next[k].id, next[i].id, 16);
    }
    mote__store_context c;
    assert_int_equal(mote__store_context_init(&c, &base, NULL), 0);
    mote__chain a = mote__chain_next(&c, &root, ids, 1), b = mote__chain_next(&c, &root, ids, 0);
    assert_memory_equal(a.id, next[0].id, 16);
    assert_memory_not_equal(a.id, b.id, 16);
    assert_true(mote__chain_exact(&a) && !mote__chain_exact(&b));
    mote__chain b1 = mote__chain_next(&c, &b, ids, 1), b0 = mote__chain_next(&c, &b, ids, 0);
    assert_memory_equal(b1.id, b0.id, 16); /* below an approximate block all is approximate */
    ids[255] = 1;
    b = mote__chain_next(&c, &root, ids, 1);
    assert_memory_not_equal(a.id, b.id, 16);
    mote_err err;
    mote__store_context_desc bad = base;
    bad.block_bytes = 0;
    assert_int_equal(mote__store_context_init(&c, &bad, &err), MOTE_EINVAL);
    bad.block_bytes = ((size_t)1 << 30) + 1;
    assert_int_equal(mote__store_context_init(&c, &bad, &err), MOTE_EINVAL);
    bad = base;
    bad.block_tokens = 128;
    assert_int_equal(mote__store_context_init(&c, &bad, &err), MOTE_EINVAL);
}

enum { PAYLOAD = 1000, SLOT = 4096 };
static void make_slot(uint8_t image[SLOT], mote__slot *s)
{
    mote__store_context c;
    make_context(&c, PAYLOAD, "flip");
    int32_t ids[256];
    uint8_t bytes[MOTE_SLOT_IDS];
    make_ids(ids, 256, 4, 0);
    mote__put_ids(bytes, ids, 256);
    memset(image, 0, SLOT);
    *s = (mote__slot){ .slot_bytes = SLOT,
                       .payload_bytes = PAYLOAD,
                       .created = 1234567,
                       .n_blocks = 2,
                       .parent = { 7 } };
    memcpy(s->context, c.hash, 32);
    memcpy(s->label, c.label, sizeof s->label);
    mote__block_identity(s->id, s->context, 0, s->parent, bytes);
    content(image + MOTE_SLOT_HEAD, PAYLOAD, s->id);
    mote__slot_write(image, s, bytes);
    mote__slot_seal(image, 5, image + MOTE_SLOT_HEAD, PAYLOAD, SLOT);
    s->generation = 5;
}

static int read_slot(const uint8_t *image, mote__slot *s, const char **why)
{
    return mote__slot_read(s, image, image + MOTE_SLOT_HEAD, PAYLOAD,
                           image + MOTE_SLOT_HEAD + PAYLOAD, SLOT, why);
}

static void slot_flips(void **state)
{
    static uint8_t image[SLOT];
    mote__slot s, got;
    const char *why = NULL;
    make_slot(image, &s);
    assert_int_equal(mote__slot_bytes(PAYLOAD), SLOT);
    /* the published geometry: 896 bytes a token, no padding */
    assert_int_equal(mote__slot_bytes(227840), 229376);
    assert_int_equal(read_slot(image, &got, &why), 0);
    assert_int_equal(got.generation, 5);
    assert_int_equal(got.n_blocks, 2);
    assert_int_equal(got.created, 1234567);
    assert_string_equal(got.label, s.label);
    assert_memory_equal(got.id, s.id, 16);
    for (size_t i = 0; i < SLOT; i++)
        for (int bit = 0; bit < 9; bit++) {
            uint8_t was = image[i];
            image[i] = bit < 8 ? (uint8_t)(was ^ 1 << bit) : (uint8_t)~was;
            why = NULL;
            if (!read_slot(image, &got, &why) || !why)
                fail_msg("byte %zu, bit %d: not seen", i, bit);
            image[i] = was;
        }
    assert_int_equal(read_slot(image, &got, &why), 0);
    /* right checksum, wrong identity */
    mote__put_ids(image + MOTE_SLOT_HEADER, (const int32_t[]){ 3 }, 1);
    mote__slot_seal(image, 5, image + MOTE_SLOT_HEAD, PAYLOAD, SLOT);
    assert_int_equal(read_slot(image, &got, &why), MOTE_EFORMAT);
    assert_string_equal(why, "identity");
}

static void segment_flips(void **state)
{
    uint8_t page[MOTE_SEGMENT_HEADER];
    mote__segment_header h = { 12, SLOT, PAYLOAD }, got;
    const char *why;
    mote__segment_write(page, &h);
    assert_int_equal(mote__segment_read(&got, page, sizeof page, &why), 0);
    assert_memory_equal(&got, &h, sizeof h);
    assert_int_not_equal(mote__segment_read(&got, page, sizeof page - 1, &why), 0);
    for (size_t i = 0; i < sizeof page; i++) {
        page[i] ^= 0x10;
        if (!mote__segment_read(&got, page, sizeof page, &why))
            fail_msg("byte %zu: not seen", i);
        page[i] ^= 0x10;
    }
}

static void snapshot_flips(void **state)
{
    mote__snapfile s = { .chain = { .n_blocks = 3, .n_exact = 2, .id = { 4 } },
                         .approximate = 1,
                         .n_tail = 100,
                         .blob_bytes = 333,
                         .created = 99,
                         .tokens = { 8 },
                         .label = "a label" },
                   got;
    uint8_t tail[400], blob[333], file[512 + 400 + 333];
    const uint8_t *t, *b;
    const char *why;
    content(tail, sizeof tail, (const uint8_t *)"12345678");
    content(blob, sizeof blob, (const uint8_t *)"abcdefgh");
    mote__snapfile_key(&s, tail);
    assert_int_equal(mote__snapfile_bytes(&s), sizeof file);
    mote__snapfile_write(file, &s, tail, blob);
    assert_int_equal(mote__snapfile_read(&got, file, sizeof file, &t, &b, &why), 0);
    assert_memory_equal(b, blob, sizeof blob);
    assert_memory_equal(t, tail, sizeof tail);
    assert_int_equal(got.chain.n_exact, 2);
    assert_int_equal(got.chain.n_blocks, 3);
    assert_memory_equal(got.key, s.key, 16);
    for (size_t n = 0; n < sizeof file; n++)
        if (!mote__snapfile_read(&got, file, n, &t, &b, &why))
            fail_msg("cut at %zu: not seen", n);
    for (size_t i = 0; i < sizeof file; i++) {
        file[i] ^= 0x04;
        if (!mote__snapfile_read(&got, file, sizeof file, &t, &b, &why))
            fail_msg("byte %zu: not seen", i);
        file[i] ^= 0x04;
    }
}

static void port_flips(void **state)
{
    uint8_t head[MOTE_PORT_HEADER], rec[MOTE_PORT_RECORD];
    const char *why;
    mote__port_record r = { MOTE_PORT_BLOCK, 229376, 7 }, got;
    mote__port_header_write(head);
    mote__port_record_write(rec, &r);
    assert_int_equal(mote__port_header_read(head, sizeof head, &why), 0);
    assert_int_equal(mote__port_record_read(&got, rec, sizeof rec, &why), 0);
    assert_true(got.kind == r.kind && got.bytes == r.bytes && got.n_before == 7);
    for (size_t i = 0; i < 32; i++) {
        head[i] ^= 1;
        rec[i] ^= 1;
        assert_int_not_equal(mote__port_header_read(head, sizeof head, &why), 0);
        assert_int_not_equal(mote__port_record_read(&got, rec, sizeof rec, &why), 0);
        head[i] ^= 1;
        rec[i] ^= 1;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(crc),
                                        cmocka_unit_test(contexts),
                                        cmocka_unit_test(slot_flips),
                                        cmocka_unit_test(segment_flips),
                                        cmocka_unit_test(snapshot_flips),
                                        cmocka_unit_test(port_flips) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
