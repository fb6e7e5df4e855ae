/* Any bytes as what the remote tier hears. The first byte chooses: the place of a store in words, a
 * redirection, a value that arrives for a block, or what a server says to CLUSTER SLOTS and a
 * GETRANGE. */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/le.h"
#include "store/remote/remote.h"

/* No redirection leads out of here. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **list)
{
    return EAI_FAIL;
}

static void place(const char *text)
{
    mote__server s[MOTE_URL_SERVERS];
    mote_err err = { 0 };
    size_t n_dir = 0, n = 0;
    if (mote__store_url_parse(text, &n_dir, s, &n, &err)) {
        if (!*err.message || strchr(err.message, '\n'))
            abort();
        return;
    }
    if (n_dir > strlen(text) || n > MOTE_URL_SERVERS)
        abort();
    for (size_t i = 0; i < n; i++)
        if (!*s[i].host || s[i].port < 1 || s[i].port > 65535 ||
            !memchr(s[i].user, 0, sizeof s[i].user) ||
            !memchr(s[i].password, 0, sizeof s[i].password))
            abort();
}

static void redirection(const char *text, size_t n)
{
    mote__server to;
    int is_ask;
    unsigned slot;
    if (!mote__redirection_read(text, n, &is_ask, &slot, &to) &&
        (slot >= MOTE_SLOTS || to.port < 1 || to.port > 65535 || is_ask < 0 || is_ask > 1))
        abort();
    if (mote__key_slot(text, n) >= MOTE_SLOTS)
        abort();
}

/* The value must be the block that was asked for, byte for byte in what is compared; mended or not.
 */
static void value(const uint8_t *data, size_t size, int mend)
{
    enum { BYTES = 64 };
    static const uint8_t fingerprint[32] = { 1 };
    mote__store_context c;
    mote__store_context_desc d = { .fingerprint = fingerprint,
                                   .kv = "k",
                                   .math = "m",
                                   .block_bytes = BYTES,
                                   .block_tokens = MOTE_BLOCK_TOKENS,
                                   .geometry = "g" };
    mote__chain root = { 0 };
    int32_t ids[MOTE_BLOCK_TOKENS];
    for (int i = 0; i < MOTE_BLOCK_TOKENS; i++)
        ids[i] = i;
    mote__store_context_init(&c, &d, NULL);
    mote__chain chain = mote__chain_next(&c, &root, ids, 1);
    mote__slot slot, want;
    uint8_t head[MOTE_SLOT_HEAD], *image = calloc(1, size > 4096 ? size : 4096);
    const char *why = NULL;
    if (!image)
        return;
    memcpy(image, data, size);
    /* the right head, changed in as many places as there are bytes */
    if (mend) {
        size = 4096;
        mote__slot_describe(&want, head, &c, &root, &chain, ids, 7);
        for (int i = 0; i < MOTE_SLOT_HEAD; i++)
            image[i] ^= head[i];
        mote__slot_seal(image, 1, image + MOTE_SLOT_HEAD, BYTES, 4096);
    }
    int rc = mote__remote_check_value(&c, &chain, root.id, ids, image, size, &slot, &why);
    if (rc ? !why
           : size != 4096 || memcmp(slot.id, chain.id, MOTE_STORE_ID) || slot.n_blocks != 1 ||
                 slot.approximate)
        abort();
    free(image);
}

static void conversation(const uint8_t *data, size_t size)
{
    static mote__cluster k;
    mote__client c;
    mote__ask ask;
    mote__server server = { .host = "h", .port = 1 };
    int pair[2];
    memset(&k, 0, sizeof k);
    if (size > 100000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair))
        return;
    mote__cluster_init(&k, &server, 1, 1000);
    mote__client_init(&c, &k, 200);
    c.max_reply = 20000;
    c.connections[0] = mote__alloc(NULL, MOTE_MEM_OTHER, sizeof *c.connections[0]);
    mote__redis_attach(c.connections[0], pair[0], c.max_reply);
    mote__client_begin(&c);
    mote__redis_send_words(c.connections[0], 2, (const char *[]){ "CLUSTER", "SLOTS" },
                           MOTE_REDIS_SLOTS, NULL);
    mote__client_send(&c, &ask, 4, (const char *[]){ "GETRANGE", "key", "0", "9" },
                      (const size_t[]){ 8, 3, 1, 1 });
    if (send(pair[1], data, size, MSG_NOSIGNAL) < 0)
        abort();
    shutdown(pair[1], SHUT_WR);
    mote__client_wait(&c, &ask);
    if (ask.state == MOTE_ASK_WAITING || k.n_nodes > MOTE_NODES)
        abort();
    for (int i = 0; i < MOTE_SLOTS; i++)
        if (k.owner[i] < -1 || k.owner[i] >= (int)k.n_nodes)
            abort();
    mote__client_drop(&c, &ask);
    mote__client_deinit(&c);
    mote__cluster_deinit(&k);
    close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t kind = *data++;
    char *text = calloc(1, size);
    if (!text)
        return 0;
    memcpy(text, data, --size);
    switch (kind % 5) {
    case 0: place(text); break;
    case 1: redirection(text, size); break;
    case 2: value(data, size, 0); break;
    case 3: value(data, size, 1); break;
    case 4: conversation(data, size); break;
    }
    free(text);
    return 0;
}
