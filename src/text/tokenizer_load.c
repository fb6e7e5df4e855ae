/* Owns reading tokenizer.json: which members it may have, with which values, and what is refused
 * (docs/tokenizer.md has the list). An unknown member is refused unless it is null, because it
 * could change the meaning of the file. */
#include "text/tokenizer_impl.h"

#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

uint32_t mote__byte_letter(uint8_t b)
{
    if ((b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD))
        return b;
    /* 0x00-0x20 are the first 33, 0x7F-0xA0 the next 34, 0xAD the last */
    return b <= 0x20 ? 0x100u + b : b == 0xAD ? 0x143 : 0x100u + 33 + (b - 0x7Fu);
}

int mote__letter_byte(uint32_t cp)
{
    if (cp < 0x100)
        return mote__byte_letter((uint8_t)cp) == cp ? (int)cp : -1;
    if (cp > 0x143)
        return -1;
    return cp <= 0x120 ? (int)cp - 0x100 : cp == 0x143 ? 0xAD : (int)cp - 0x100 - 33 + 0x7F;
}

typedef struct loader {
    mote__tokenizer *tok;
    const char *what;
    mote_err *err;
    mote__buf bytes[2]; /* bytes of a token, or of both sides of a merge */
} loader;

#define REFUSE(l, ...) mote__fail((l)->err, MOTE_EUNSUPPORTED, __VA_ARGS__)
#define BROKEN(l, ...) mote__fail((l)->err, MOTE_EFORMAT, __VA_ARGS__)

static int no_memory(const loader *l)
{
    return mote__fail(l->err, MOTE_ENOMEM, "%s: out of memory", l->what);
}

/* ---- small checks ---- */

static int listed(const char *key, const char *const *keys)
{
    while (*keys && strcmp(key, *keys))
        keys++;
    return *keys != NULL;
}

/* Refuse every non-null member of `object` that is not in the NULL-ended list. */
static int only_keys(const loader *l, json_t *object, const char *place, const char *const *keys)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key,
                        value) if (!json_is_null(value) &&
                                   !listed(key,
                                           keys)) return REFUSE(l, "%s: %s: '%s' is not supported",
                                                                l->what, place, key);
    return MOTE_OK;
}

/* A boolean member must be `wanted`; absent or null counts as `if_absent`. */
static int need_flag(const loader *l, json_t *object, const char *place, const char *key,
                     int wanted, int if_absent)
{
    char where[300];
    snprintf(where, sizeof where, "%s: %s", l->what, place);
    json_t *v;
    int rc = mote__json_get(&v, object, key, JSON_TRUE, where, l->err);
    if (!rc && (v ? json_is_true(v) : if_absent) != wanted)
        rc = REFUSE(l, "%s: %s: '%s' other than %s is not supported", l->what, place, key,
                    wanted ? "true" : "false");
    return rc;
}

static int get_type(const loader *l, json_t *object, const char *place, const char **type)
{
    char where[300];
    snprintf(where, sizeof where, "%s: %s", l->what, place);
    json_t *v;
    int rc = mote__json_need(&v, object, "type", JSON_STRING, where, l->err);
    *type = rc ? NULL : json_string_value(v);
    return rc;
}

/* ---- the parts around the model ---- */

static int check_normalizer(const loader *l, json_t *root)
{
    json_t *n, *list;
    const char *type;
    int rc = mote__json_get(&n, root, "normalizer", JSON_OBJECT, l->what, l->err);
    if (rc || !n)
        return rc;
    if ((rc = get_type(l, n, "normalizer", &type)))
        return rc;
    if (strcmp(type, "Sequence"))
        return REFUSE(l, "%s: normalizer: type '%s' is not supported", l->what, type);
    static const char *const keys[] = { "type", "normalizers", NULL };
    if ((rc = only_keys(l, n, "normalizer", keys)) ||
        (rc = mote__json_need(&list, n, "normalizers", JSON_ARRAY, l->what, l->err)))
        return rc;
    if (!json_array_size(list))
        return MOTE_OK;
    if ((rc = get_type(l, json_array_get(list, 0), "normalizer: normalizers[0]", &type)))
        return rc;
    return REFUSE(l, "%s: normalizer: type '%s' is not supported", l->what, type);
}

static int check_byte_level(const loader *l, json_t *p, const char *place)
{
    static const char *const keys[] = { "type", "add_prefix_space", "trim_offsets", "use_regex",
                                        NULL };
    const char *type;
    int rc = get_type(l, p, place, &type);
    if (!rc && strcmp(type, "ByteLevel"))
        rc = REFUSE(l, "%s: %s: type '%s' is not supported", l->what, place, type);
    return rc ? rc : only_keys(l, p, place, keys);
}

static int check_decoder(const loader *l, json_t *root)
{
    json_t *p;
    int rc = mote__json_need(&p, root, "decoder", JSON_OBJECT, l->what, l->err);
    return rc ? rc : check_byte_level(l, p, "decoder");
}

/* The token id of a special token of a template, given by its name in the template. */
static int template_id(const loader *l, json_t *tokens, json_t *special, const char *place,
                       int32_t *id)
{
    const char *name = json_string_value(json_object_get(special, "id"));
    json_t *ids = json_object_get(json_object_get(tokens, name ? name : ""), "ids"),
           *first = json_array_get(ids, 0);
    if (!name || !json_is_integer(first))
        return BROKEN(l, "%s: %s: special token '%.100s' has no ids", l->what, place,
                      name ? name : "?");
    if (json_array_size(ids) != 1)
        return REFUSE(l, "%s: %s: special token '%.100s' of %zu ids is not supported", l->what,
                      place, name, json_array_size(ids));
    json_int_t v = json_integer_value(first);
    if (v < 0 || (uint64_t)v >= l->tok->bpe.n_ids || !l->tok->bpe.flags[v])
        return BROKEN(l,
                      "%s: %s: special token '%.100s' has id %lld, which is not in the vocabulary",
                      l->what, place, name, (long long)v);
    *id = (int32_t)v;
    return MOTE_OK;
}

/* TemplateProcessing: at most one token before and one after the text. The part for pairs of texts
 * is not used. */
static int read_template(const loader *l, json_t *p, const char *place)
{
    static const char *const keys[] = { "type", "single", "pair", "special_tokens", NULL };
    char where[300];
    snprintf(where, sizeof where, "%s: %s", l->what, place);
    json_t *single, *tokens, *part;
    size_t i;
    int texts = 0, rc = only_keys(l, p, place, keys);
    if (rc || (rc = mote__json_need(&single, p, "single", JSON_ARRAY, where, l->err)) ||
        (rc = mote__json_get(&tokens, p, "special_tokens", JSON_OBJECT, where, l->err)))
        return rc;
    if (l->tok->has_template)
        return REFUSE(l, "%s: %s: a second template is not supported", l->what, place);
    l->tok->has_template = 1;
    json_array_foreach(single, i, part)
    {
        json_t *special = json_object_get(part, "SpecialToken");
        int32_t *to = texts ? &l->tok->back : &l->tok->front;
        if (json_is_object(json_object_get(part, "Sequence"))) {
            texts++;
            continue;
        }
        if (!json_is_object(special) || *to >= 0)
            return REFUSE(l,
                          "%s: %s: 'single' other than a text with one token before and behind it "
                          "is not supported",
                          l->what, place);
        if ((rc = template_id(l, tokens, special, place, to)))
            return rc;
    }
    return texts == 1 ? MOTE_OK : REFUSE(l, "%s: %s: 'single' has %d texts", l->what, place, texts);
}

/* The post-processor: absent, ByteLevel (which changes offsets only), a template, or a Sequence of
 * these. Read after the vocabulary. */
static int read_post_processor(const loader *l, json_t *root)
{
    static const char *const keys[] = { "type", "processors", NULL };
    json_t *p, *list, *one;
    const char *type;
    char place[60];
    size_t i;
    int rc = mote__json_get(&p, root, "post_processor", JSON_OBJECT, l->what, l->err);
    if (rc || !p || (rc = get_type(l, p, "post_processor", &type)))
        return rc;
    if (!strcmp(type, "TemplateProcessing"))
        return read_template(l, p, "post_processor");
    if (strcmp(type, "Sequence"))
        return check_byte_level(l, p, "post_processor");
    if ((rc = only_keys(l, p, "post_processor", keys)) ||
        (rc = mote__json_need(&list, p, "processors", JSON_ARRAY, l->what, l->err)))
        return rc;
    json_array_foreach(list, i, one)
    {
        snprintf(place, sizeof place, "post_processor: processors[%zu]", i);
        if ((rc = get_type(l, one, place, &type)) ||
            (rc = strcmp(type, "TemplateProcessing") ? check_byte_level(l, one, place)
                                                     : read_template(l, one, place)))
            return rc;
    }
    return MOTE_OK;
}

static int read_split(const loader *l, json_t *split, const char *place, const char **pattern)
{
    char where[300];
    snprintf(where, sizeof where, "%s: %s", l->what, place);
    static const char *const keys[] = { "type", "pattern", "behavior", "invert", NULL };
    static const char *const pattern_keys[] = { "Regex", NULL };
    json_t *p, *behavior, *regex;
    int rc = only_keys(l, split, place, keys);
    if (rc || (rc = mote__json_need(&p, split, "pattern", JSON_OBJECT, where, l->err)) ||
        (rc = only_keys(l, p, place, pattern_keys)) ||
        (rc = mote__json_need(&regex, p, "Regex", JSON_STRING, where, l->err)) ||
        (rc = mote__json_need(&behavior, split, "behavior", JSON_STRING, where, l->err)) ||
        (rc = need_flag(l, split, place, "invert", 0, 0)))
        return rc;
    if (strcmp(json_string_value(behavior), "Isolated"))
        return REFUSE(l, "%s: behavior '%s' is not supported", where, json_string_value(behavior));
    *pattern = json_string_value(regex);
    return MOTE_OK;
}

/* The pre-tokenizer: a Sequence of Splits that ends in ByteLevel, or ByteLevel alone. */
static int read_pre_tokenizer(loader *l, json_t *root)
{
    json_t *p, *list = NULL;
    const char *type, *patterns[MOTE_MAX_PATTERNS];
    size_t n_patterns = 0;
    int rc = mote__json_need(&p, root, "pre_tokenizer", JSON_OBJECT, l->what, l->err);
    if (rc || (rc = get_type(l, p, "pre_tokenizer", &type)))
        return rc;
    if (!strcmp(type, "Sequence")) {
        static const char *const keys[] = { "type", "pretokenizers", NULL };
        if ((rc = only_keys(l, p, "pre_tokenizer", keys)) ||
            (rc = mote__json_need(&list, p, "pretokenizers", JSON_ARRAY, l->what, l->err)))
            return rc;
    }
    size_t n = list ? json_array_size(list) : 1;
    for (size_t i = 0; i < n; i++) {
        char place[100];
        snprintf(place, sizeof place, list ? "pre_tokenizer: pretokenizers[%zu]" : "pre_tokenizer",
                 i);
        json_t *step = list ? json_array_get(list, i) : p;
        if ((rc = get_type(l, step, place, &type)))
            return rc;
        if (!strcmp(type, "ByteLevel")) {
            static const char *const keys[] = { "type", "add_prefix_space", "trim_offsets",
                                                "use_regex", NULL };
            if ((rc = only_keys(l, step, place, keys)) ||
                (rc = need_flag(l, step, place, "add_prefix_space", 0, 1)) ||
                (rc = need_flag(l, step, place, "use_regex", 0, 1)))
                return rc;
            if (i + 1 < n)
                return REFUSE(l, "%s: %s: ByteLevel anywhere but last is not supported", l->what,
                              place);
            return mote__pretok_create(&l->tok->pretok, patterns, n_patterns, l->what, l->err);
        }
        if (strcmp(type, "Split") || !list)
            return REFUSE(l, "%s: %s: type '%s' is not supported", l->what, place, type);
        if (n_patterns == MOTE_MAX_PATTERNS)
            return REFUSE(l, "%s: pre_tokenizer: more than %d Split steps are not supported",
                          l->what, MOTE_MAX_PATTERNS);
        if ((rc = read_split(l, step, place, &patterns[n_patterns++])))
            return rc;
    }
    return REFUSE(l, "%s: pre_tokenizer: one that does not end in ByteLevel is not supported",
                  l->what);
}

/* ---- vocabulary and merges ---- */

/* Append the bytes of a token spelled in the byte alphabet. 1; 0: a character is not in the
 * alphabet; -1: out of memory. */
static int spell(mote__buf *out, const char *s, size_t n)
{
    if (mote__buf_reserve(out, n))
        return -1;
    uint8_t *bytes = out->data;
    out->size = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int step = mote__utf8_step((const uint8_t *)s + i, n - i, &cp),
            byte = step > 0 ? mote__letter_byte(cp) : -1;
        if (byte < 0)
            return 0;
        bytes[out->size++] = (uint8_t)byte;
        i += (size_t)step;
    }
    return 1;
}

static int check_id(const loader *l, json_t *value, const char *place, const char *content)
{
    if (!json_is_integer(value))
        return BROKEN(l, "%s: %s: the id of '%.100s' is %s, expected an integer", l->what, place,
                      content, mote__json_kind(value));
    json_int_t id = json_integer_value(value);
    if (id < 0 || id >= MOTE_MAX_TOKEN_IDS)
        return BROKEN(l, "%s: %s: the id of '%.100s' is %lld, expected 0 to %d", l->what, place,
                      content, (long long)id, MOTE_MAX_TOKEN_IDS - 1);
    return MOTE_OK;
}

static int read_vocab(loader *l, json_t *vocab)
{
    const char *key;
    size_t n;
    json_t *value;
    json_object_keylen_foreach(vocab, key, n, value)
    {
        int rc = check_id(l, value, "model: vocab", key);
        if (rc)
            return rc;
        if (!n || n > MOTE_MAX_TOKEN_BYTES)
            return BROKEN(l, "%s: model: vocab: a token of %zu bytes, expected 1 to %d", l->what, n,
                          MOTE_MAX_TOKEN_BYTES);
        int spelled = spell(&l->bytes[0], key, n);
        if (spelled < 0)
            return no_memory(l);
        uint32_t id = (uint32_t)json_integer_value(value);
        if (l->tok->bpe.flags[id])
            return BROKEN(l, "%s: model: vocab: id %u is given twice, again by '%.100s'", l->what,
                          id, key);
        rc = spelled ? mote__bpe_add_token(&l->tok->bpe, id, l->bytes[0].data, l->bytes[0].size,
                                           MOTE_TOKEN_BYTES)
                     : mote__bpe_add_token(&l->tok->bpe, id, key, n, 0);
        if (rc)
            return no_memory(l);
    }
    int missing = mote__bpe_finish(&l->tok->bpe);
    if (missing >= 0)
        return REFUSE(l,
                      "%s: model: vocab: no token for byte 0x%02x: a vocabulary without all bytes "
                      "is not supported",
                      l->what, missing);
    return MOTE_OK;
}

/* Get both sides of merge `no`, written "left right" or ["left", "right"]. */
static int merge_sides(const loader *l, json_t *merge, size_t no, const char *side[2],
                       size_t length[2])
{
    if (json_is_array(merge)) {
        if (json_array_size(merge) == 2 && json_is_string(json_array_get(merge, 0)) &&
            json_is_string(json_array_get(merge, 1))) {
            for (size_t i = 0; i < 2; i++) {
                side[i] = json_string_value(json_array_get(merge, i));
                length[i] = json_string_length(json_array_get(merge, i));
            }
            return MOTE_OK;
        }
    } else if (json_is_string(merge)) {
        const char *s = json_string_value(merge), *space = strchr(s, ' ');
        if (space && !strchr(space + 1, ' ')) {
            side[0] = s;
            length[0] = (size_t)(space - s);
            side[1] = space + 1;
            length[1] = json_string_length(merge) - length[0] - 1;
            return MOTE_OK;
        }
    }
    return BROKEN(l, "%s: model: merges[%zu] is not a pair of tokens", l->what, no);
}

static int read_merges(loader *l, json_t *merges)
{
    mote__bpe *b = &l->tok->bpe;
    size_t no;
    json_t *merge;
    json_array_foreach(merges, no, merge)
    {
        const char *side[2];
        size_t length[2];
        int rc = merge_sides(l, merge, no, side, length);
        if (rc)
            return rc;
        int32_t id[3];
        for (size_t i = 0; i < 2; i++) {
            int spelled = spell(&l->bytes[i], side[i], length[i]);
            if (spelled < 0)
                return no_memory(l);
            id[i] = spelled ? mote__bpe_find(b, l->bytes[i].data, l->bytes[i].size) : -1;
            if (id[i] < 0)
                return BROKEN(l, "%s: model: merges[%zu]: '%.*s' is not in the vocabulary", l->what,
                              no, (int)(length[i] > 100 ? 100 : length[i]), side[i]);
        }
        if (mote__buf_append(&l->bytes[0], l->bytes[1].data, l->bytes[1].size))
            return no_memory(l);
        id[2] = mote__bpe_find(b, l->bytes[0].data, l->bytes[0].size);
        if (id[2] < 0)
            return BROKEN(
                l, "%s: model: merges[%zu]: '%.*s' and '%.*s' joined are not in the vocabulary",
                l->what, no, (int)(length[0] > 100 ? 100 : length[0]), side[0],
                (int)(length[1] > 100 ? 100 : length[1]), side[1]);
        if (mote__bpe_add_merge(b, (uint32_t)id[0], (uint32_t)id[1], (uint32_t)id[2]))
            return BROKEN(l, "%s: model: merges[%zu] was given before", l->what, no);
    }
    return MOTE_OK;
}

/* Members that must be absent, null, false or "" */
static int check_model_options(const loader *l, json_t *model)
{
    static const char *const keys[] = { "type",
                                        "vocab",
                                        "merges",
                                        "fuse_unk",
                                        "byte_fallback",
                                        "ignore_merges",
                                        "continuing_subword_prefix",
                                        "end_of_word_suffix",
                                        NULL };
    static const char *const flags[] = { "fuse_unk", "byte_fallback", "ignore_merges" };
    static const char *const strings[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    int rc = only_keys(l, model, "model", keys);
    for (size_t i = 0; i < 3 && !rc; i++)
        rc = need_flag(l, model, "model", flags[i], 0, 0);
    for (size_t i = 0; i < 2 && !rc; i++) {
        json_t *v;
        rc = mote__json_get(&v, model, strings[i], JSON_STRING, l->what, l->err);
        if (!rc && v && json_string_length(v))
            rc = REFUSE(l, "%s: model: '%s' is not supported", l->what, strings[i]);
    }
    return rc;
}

/* ---- added tokens ---- */

static int read_added(loader *l, json_t *list)
{
    size_t no;
    json_t *a;
    json_array_foreach(list, no, a)
    {
        static const char *const keys[] = { "id",     "content",    "single_word", "lstrip",
                                            "rstrip", "normalized", "special",     NULL };
        static const char *const plain[] = { "single_word", "lstrip", "rstrip" };
        char place[60], where[300];
        snprintf(place, sizeof place, "added_tokens[%zu]", no);
        snprintf(where, sizeof where, "%s: %s", l->what, place);
        json_t *content, *special, *normalized;
        int rc = mote__json_need(&content, a, "content", JSON_STRING, where, l->err);
        if (rc || (rc = only_keys(l, a, place, keys)) ||
            (rc = mote__json_get(&special, a, "special", JSON_TRUE, where, l->err)) ||
            (rc = mote__json_get(&normalized, a, "normalized", JSON_TRUE, where, l->err)))
            return rc;
        for (size_t i = 0; i < 3; i++)
            if ((rc = need_flag(l, a, place, plain[i], 0, 0)))
                return rc;
        const char *s = json_string_value(content);
        size_t n = json_string_length(content);
        if ((rc = check_id(l, json_object_get(a, "id"), place, s)))
            return rc;
        if (!n || n > MOTE_MAX_ADDED_BYTES)
            return REFUSE(l, "%s: a token of %zu bytes is not supported (1 to %d are)", where, n,
                          MOTE_MAX_ADDED_BYTES);
        uint32_t id = (uint32_t)json_integer_value(json_object_get(a, "id"));
        mote__bpe *b = &l->tok->bpe;
        rc = mote__bpe_add_token(
            b, id, s, n, MOTE_TOKEN_ADDED | (json_is_true(special) ? MOTE_TOKEN_SPECIAL : 0));
        if (rc == MOTE_EFORMAT)
            return BROKEN(l, "%s: id %u belongs to another token of the vocabulary than '%.100s'",
                          where, id, s);
        int32_t in_vocab = mote__bpe_find(b, (const uint8_t *)s, n);
        if (in_vocab >= 0 && (uint32_t)in_vocab != id)
            return BROKEN(l, "%s: '%.100s' has id %u here and %d in the vocabulary", where, s, id,
                          in_vocab);
        /* plain text must not produce this token: see MOTE_ENCODE_PLAIN */
        if (in_vocab >= 0 && !rc) {
            mote__bpe_scratch scratch = { 0 };
            l->bytes[0].size = 0;
            rc = mote__bpe_encode_word(b, &scratch, (const uint8_t *)s, n, &l->bytes[0]);
            mote__bpe_scratch_deinit(&scratch);
            if (!rc && l->bytes[0].size == sizeof(int32_t))
                return REFUSE(l, "%s: '%.100s' is also made by merges: that is not supported",
                              where, s);
        }
        /* if the member is missing, the default of the reference library is !special */
        int second = normalized ? json_is_true(normalized) : !json_is_true(special);
        if (!rc)
            rc = mote__added_insert(second ? &l->tok->second : &l->tok->first, s, n, (int32_t)id);
        if (rc == MOTE_EFORMAT)
            return BROKEN(l, "%s: '%.100s' was added before", where, s);
        if (rc)
            return no_memory(l);
    }
    return MOTE_OK;
}

/* ---- the whole file ---- */

/* Largest id + 1 over vocabulary and added tokens; ids are checked when they are read. */
static size_t count_ids(json_t *vocab, json_t *added)
{
    size_t n = 0, no;
    const char *key;
    json_t *v;
    json_object_foreach(vocab, key, v)
    {
        size_t id = (size_t)json_integer_value(v);
        n = id < MOTE_MAX_TOKEN_IDS && id >= n ? id + 1 : n;
    }
    json_array_foreach(added, no, v)
    {
        size_t id = (size_t)json_integer_value(json_object_get(v, "id"));
        n = id < MOTE_MAX_TOKEN_IDS && id >= n ? id + 1 : n;
    }
    return n;
}

static int read_root(loader *l, json_t *root)
{
    static const char *const keys[] = { "version",        "added_tokens",
                                        "normalizer",     "pre_tokenizer",
                                        "post_processor", "decoder",
                                        "model",          NULL };
    json_t *model, *vocab, *merges, *added;
    const char *type;
    char where[300];
    snprintf(where, sizeof where, "%s: model", l->what);
    int rc = only_keys(l, root, "top level", keys);
    if (rc || (rc = mote__json_need(&model, root, "model", JSON_OBJECT, l->what, l->err)) ||
        (rc = get_type(l, model, "model", &type)))
        return rc;
    if (strcmp(type, "BPE"))
        return REFUSE(l, "%s: model: type '%s' is not supported", l->what, type);
    if ((rc = check_model_options(l, model)) ||
        (rc = mote__json_need(&vocab, model, "vocab", JSON_OBJECT, where, l->err)) ||
        (rc = mote__json_need(&merges, model, "merges", JSON_ARRAY, where, l->err)) ||
        (rc = mote__json_get(&added, root, "added_tokens", JSON_ARRAY, l->what, l->err)) ||
        (rc = check_normalizer(l, root)) || (rc = check_decoder(l, root)) ||
        (rc = read_pre_tokenizer(l, root)))
        return rc;
    if (json_array_size(merges) > 2 * (size_t)MOTE_MAX_TOKEN_IDS)
        return REFUSE(l, "%s: model: %zu merges, more than supported", l->what,
                      json_array_size(merges));
    if (mote__bpe_init(&l->tok->bpe, count_ids(vocab, added), json_array_size(merges)))
        return no_memory(l);
    if ((rc = read_vocab(l, vocab)) || (rc = read_merges(l, merges)))
        return rc;
    return (rc = read_added(l, added)) ? rc : read_post_processor(l, root);
}

int mote__tokenizer_load(mote__tokenizer *tok, const char *text, size_t n, const char *what,
                         mote_err *err)
{
    loader l = { .tok = tok, .what = what, .err = err };
    json_t *root;
    int rc = mote__json_parse(&root, text, n, what, err);
    if (!rc && !json_is_object(root))
        rc = BROKEN(&l, "%s: the top level is %s, expected an object", what, mote__json_kind(root));
    if (!rc)
        rc = read_root(&l, root);
    mote__buf_deinit(&l.bytes[0]);
    mote__buf_deinit(&l.bytes[1]);
    json_decref(root);
    return rc;
}
