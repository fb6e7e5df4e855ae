/* Reads the RoPE fields of config.json for all families and forms. Files use several names; the
 * precedence is that of the reference library (docs/config.md, "RoPE"). A key that would change
 * results but is not applied is refused by name. */
#include "file/config_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(mote__config, member)
#define MASK(rule) (1u << (rule))
enum {
    PLAIN = MASK(MOTE_ROPE_PLAIN),
    LINEAR = MASK(MOTE_ROPE_LINEAR),
    LLAMA3 = MASK(MOTE_ROPE_LLAMA3),
    YARN = MASK(MOTE_ROPE_YARN),
    /* V4.1 does not scale cos and sin */
    ALL = PLAIN | LINEAR | LLAMA3 | YARN,
    DENSE_ONLY = 1 << 8
};
enum { NEVER = -1, HARMLESS = -2 };

static const struct {
    const char *name;
    mote__rope_rule rule;
} types[] = {
    { "default", MOTE_ROPE_PLAIN },
    { "linear", MOTE_ROPE_LINEAR },
    { "llama3", MOTE_ROPE_LLAMA3 },
    { "yarn", MOTE_ROPE_YARN },
};

/* Keys of a rope object. `rules` is the set of rules that use the key. For other rules, `neutral`
 * is the value without effect (null and false never have one). NEVER: no such value; HARMLESS: the
 * key has no effect by itself. */
static const struct key {
    field f;
    unsigned rules;
    double neutral;
} keys[] = {
    { { "rope_type", NULL, SIZE, 0, 0, 0, 1, 0 }, ALL, 0 },
    { { "type", NULL, SIZE, 0, 0, 0, 1, 0 }, ALL, 0 },
    { { "rope_theta", NULL, F64, AT(rope_theta), 1.001, 1e12, 1, 0 }, ALL, 0 },
    { { "factor", NULL, F64, AT(rope_factor), 1, 1e6, 0, 0 }, LINEAR | LLAMA3 | YARN, 1 },
    { { "high_freq_factor", NULL, F64, AT(rope_beta_fast), 1e-3, 1e6, 0, 0 }, LLAMA3, NEVER },
    { { "low_freq_factor", NULL, F64, AT(rope_beta_slow), 1e-3, 1e6, 0, 0 }, LLAMA3, NEVER },
    { { "beta_fast", NULL, F64, AT(rope_beta_fast), 1e-3, 1e6, 1, 32 }, YARN, NEVER },
    { { "beta_slow", NULL, F64, AT(rope_beta_slow), 1e-3, 1e6, 1, 1 }, YARN, NEVER },
    { { "original_max_position_embeddings", NULL, SIZE, AT(rope_original), 1, 1 << 30, 1, 0 },
      LLAMA3 | YARN,
      HARMLESS },
    { { "attention_factor", NULL, F64, AT(rope_attention), 1e-3, 1e3, 1, 0 },
      YARN | DENSE_ONLY,
      1 },
    { { "mscale", NULL, F64, 0, 0, 0, 1, 0 }, YARN | DENSE_ONLY, 0 },
    { { "mscale_all_dim", NULL, F64, 0, 0, 0, 1, 0 }, YARN | DENSE_ONLY, 0 },
    { { "truncate", NULL, FLAG, 0, 0, 0, 1, 0 }, 0, NEVER },
    { { "partial_rotary_factor", NULL, F64, 0, 0, 0, 1, 0 }, 0, NEVER },
    { { "finetuned", NULL, FLAG, 0, 0, 0, 1, 0 }, 0, HARMLESS },
};
enum { N_KEYS = sizeof keys / sizeof *keys };

/* The YaRN keys of the flat form; without original_seq_len there is no YaRN. */
static const field flat_fields[] = {
    { "factor", "rope_factor", F64, AT(rope_factor), 1, 1e6, 0, 0 },
    { "beta_fast", "beta_fast", F64, AT(rope_beta_fast), 1e-3, 1e6, 1, 32 },
    { "beta_slow", "beta_slow", F64, AT(rope_beta_slow), 1e-3, 1e6, 1, 1 },
};

/* Keys outside rope objects. A value other than the one given here (or null, false, an empty list)
 * requires a RoPE that mote does not compute, and is refused. Unknown names that begin with rope_
 * or rotary are refused too. */
static const struct {
    const char *key;
    double dense, v41, flat;
} around[] = {
    { "rope_theta", HARMLESS, HARMLESS, HARMLESS },
    { "rope_scaling", HARMLESS, HARMLESS, HARMLESS },
    { "rope_parameters", HARMLESS, HARMLESS, HARMLESS },
    { "rope_factor", NEVER, NEVER, HARMLESS },
    { "rope_head_dim", NEVER, NEVER, HARMLESS },
    { "rope_interleave", NEVER, 1, 1 },
    { "rope_interleaved", NEVER, 1, 1 },
    { "rotary_pct", 1, NEVER, NEVER },
    { "no_rope_layers", NEVER, NEVER, NEVER },
    { "no_rope_layer_interval", NEVER, NEVER, NEVER },
    { "use_mrope", NEVER, NEVER, NEVER },
    { "mscale", NEVER, NEVER, NEVER },
    { "mscale_all_dim", NEVER, NEVER, NEVER },
};
enum { N_AROUND = sizeof around / sizeof *around };

static int is_dense(const reader *r) { return r->config->arch == MOTE_ARCH_DENSE; }
static int same(double a, double b) { return !(a < b) && !(a > b); }

static int is_unset(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v));
}

static double value_of(const json_t *v)
{
    return json_is_true(v) ? 1 : json_is_number(v) ? json_number_value(v) : NAN;
}

/* Whether the key agrees with the rotated part of a head, which follows from head_dim or
 * qk_rope_head_dim. */
static int partial_fits(const reader *r, const json_t *v)
{
    const mote__config *c = r->config;
    return json_is_number(v) &&
           same(floor(json_number_value(v) * (double)c->head_dim + 1e-6), (double)c->rope_dim);
}

static int read_type(const reader *r, const json_t *object, const char *where,
                     mote__rope_rule *rule)
{
    json_t *type, *old;
    int rc = mote__json_get(&type, object, "rope_type", JSON_STRING, where, r->err);
    if (!rc)
        rc = mote__json_get(&old, object, "type", JSON_STRING, where, r->err);
    if (rc)
        return rc;
    if (type && old && strcmp(json_string_value(type), json_string_value(old)))
        return mote__fail(r->err, MOTE_EFORMAT, "%s: 'rope_type' is '%.40s' and 'type' is '%.40s'",
                          where, json_string_value(type), json_string_value(old));
    type = type ? type : old;
    *rule = MOTE_ROPE_PLAIN;
    if (!type && json_object_get(object, "factor"))
        return mote__fail(r->err, MOTE_EFORMAT, "%s: 'rope_type' is missing", where);
    size_t i = 0, n = sizeof types / sizeof *types;
    while (type && i < n && strcmp(types[i].name, json_string_value(type)))
        i++;
    if (i < n)
        *rule = types[i].rule;
    if (i == n || (!is_dense(r) && (*rule == MOTE_ROPE_LINEAR || *rule == MOTE_ROPE_LLAMA3)))
        return mote__fail(r->err, MOTE_EUNSUPPORTED, "%s: 'rope_type' is '%.40s'; known are %s",
                          where, json_string_value(type),
                          is_dense(r) ? "default, linear, llama3, yarn" : "default, yarn");
    return MOTE_OK;
}

/* Check each member of a rope object: it is used, neutral, or refused. */
static int check_members(const reader *r, const json_t *object, const char *where,
                         mote__rope_rule rule)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)object, name, v)
    {
        size_t i = 0;
        while (i < N_KEYS && strcmp(keys[i].f.published, name))
            i++;
        if (is_unset(v) && !(i < N_KEYS && !strcmp(name, "truncate") && json_is_false(v)))
            continue;
        int ok = 0;
        if (i < N_KEYS && !strcmp(name, "truncate"))
            ok = json_is_true(v);
        else if (i < N_KEYS && !strcmp(name, "partial_rotary_factor"))
            ok = partial_fits(r, v);
        else if (i < N_KEYS)
            ok = (keys[i].rules & MASK(rule) && (is_dense(r) || !(keys[i].rules & DENSE_ONLY))) ||
                 same(keys[i].neutral, HARMLESS) ||
                 (keys[i].neutral >= 0 && same(value_of(v), keys[i].neutral));
        if (!ok)
            return mote__fail(r->err, MOTE_EUNSUPPORTED,
                              "%s: '%.60s' is not applied by this version (rope_type %s)", where,
                              name, types[rule].name);
    }
    return MOTE_OK;
}

static double yarn_scale(double factor, double mscale)
{
    return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

/* Read the factor by which YaRN multiplies cos and sin. */
static int read_attention(const reader *r, const json_t *object, const char *where)
{
    mote__config *c = r->config;
    const json_t *m = json_object_get(object, "mscale"),
                 *all = json_object_get(object, "mscale_all_dim");
    int given = c->rope_attention > 0, has = json_is_number(m) && json_number_value(m) > 0,
        has_all = json_is_number(all) && json_number_value(all) > 0;
    if (has != has_all || (has && given))
        return mote__fail(r->err, MOTE_EUNSUPPORTED, "%s: '%s' is not applied by this version %s",
                          where, has ? "mscale" : "mscale_all_dim",
                          given ? "beside 'attention_factor'"
                          : has ? "without 'mscale_all_dim'"
                                : "without 'mscale'");
    if (has)
        c->rope_attention = yarn_scale(c->rope_factor, json_number_value(m)) /
                            yarn_scale(c->rope_factor, json_number_value(all));
    else if (!given)
        c->rope_attention = yarn_scale(c->rope_factor, 1);
    return MOTE_OK;
}

/* Read one rope object into the configuration; theta: destination of its rope_theta. */
static int read_object(const reader *r, const json_t *object, const char *name, double *theta)
{
    mote__config *c = r->config;
    char where[400];
    snprintf(where, sizeof where, "%.300s: '%s'", r->what, name);
    mote__rope_rule rule = MOTE_ROPE_PLAIN;
    double outer = c->rope_theta;
    int rc = read_type(r, object, where, &rule);
    if (!rc)
        rc = check_members(r, object, where, rule);
    reader inner = *r;
    inner.what = where;
    inner.flat = 0;
    for (size_t i = 0; !rc && i < N_KEYS; i++)
        if (keys[i].f.max > 0 && keys[i].rules & MASK(rule) &&
            (is_dense(r) || !(keys[i].rules & DENSE_ONLY)))
            rc = mote__config_field(&inner, &keys[i].f, object);
    if (rc)
        return rc;
    double found = c->rope_theta; /* 0: not given */
    c->rope_theta = outer;
    if (found > 0)
        *theta = found;
    c->rope_rule = rule;
    if (rule != MOTE_ROPE_LLAMA3 && rule != MOTE_ROPE_YARN)
        return MOTE_OK;
    json_t *own;
    rc = mote__json_get(&own, r->text, "original_max_position_embeddings", JSON_REAL, r->what,
                        r->err);
    if (!rc && own)
        rc = mote__config_field(r,
                                &(field){ "original_max_position_embeddings", NULL, SIZE,
                                          AT(rope_original), 1, 1 << 30, 0, 0 },
                                r->text);
    if (rc)
        return rc;
    if (!c->rope_original)
        c->rope_original = c->max_context;
    if (rule == MOTE_ROPE_LLAMA3 ? c->rope_beta_fast <= c->rope_beta_slow
                                 : c->rope_beta_fast < c->rope_beta_slow)
        return mote__fail(r->err, MOTE_EFORMAT,
                          "%s: the fast bound (%g) is not above the slow one (%g)", where,
                          c->rope_beta_fast, c->rope_beta_slow);
    return rule == MOTE_ROPE_YARN && is_dense(r) ? read_attention(r, object, where) : MOTE_OK;
}

/* Read V4.1's two objects: main for windows, compress for layers with a ratio. Other members are
 * refused. */
static int read_pair(const reader *r, const json_t *object, const char *name)
{
    mote__config *c = r->config;
    json_t *part[2];
    static const char *const names[2] = { "main", "compress" };
    char where[400], inner[60];
    snprintf(where, sizeof where, "%.300s: '%s'", r->what, name);
    for (int i = 0; i < 2; i++) {
        int rc = mote__json_need(&part[i], object, names[i], JSON_OBJECT, where, r->err);
        snprintf(inner, sizeof inner, "%s.%s", name, names[i]);
        if (!rc)
            rc = read_object(r, part[i], inner, i ? &c->compress_rope_theta : &c->rope_theta);
        if (rc)
            return rc;
        if (!i && c->rope_rule != MOTE_ROPE_PLAIN)
            return mote__fail(r->err, MOTE_EUNSUPPORTED,
                              "%s: 'main' has rope_type '%s'; this version runs default there",
                              where, types[c->rope_rule].name);
    }
    const char *key;
    json_t *v;
    json_object_foreach(
        (json_t *)object, key,
        v) if (!is_unset(v) && strcmp(key, "main") &&
               strcmp(key,
                      "compress")) return mote__fail(r->err, MOTE_EUNSUPPORTED,
                                                     "%s: '%.60s' is not applied by this version",
                                                     where, key);
    return MOTE_OK;
}

static int read_either(const reader *r, const json_t *object, const char *name)
{
    if (!is_dense(r) && (json_object_get(object, "main") || json_object_get(object, "compress")))
        return read_pair(r, object, name);
    /* one object per type of layer: in dense models all layers have full attention */
    const json_t *full = is_dense(r) ? json_object_get(object, "full_attention") : NULL;
    char inner[60];
    snprintf(inner, sizeof inner, "%s.full_attention", name);
    return json_is_object(full) ? read_object(r, full, inner, &r->config->rope_theta)
                                : read_object(r, object, name, &r->config->rope_theta);
}

/* Read rope_scaling, or rope_parameters if it is absent; if both set a field they must agree. */
static int read_named(const reader *r)
{
    mote__config *c = r->config;
    json_t *scaling, *parameters;
    int rc = mote__json_get(&scaling, r->text, "rope_scaling", JSON_OBJECT, r->what, r->err);
    if (!rc)
        rc = mote__json_get(&parameters, r->text, "rope_parameters", JSON_OBJECT, r->what, r->err);
    if (rc)
        return rc;
    scaling = is_unset(scaling) ? NULL : scaling;
    parameters = is_unset(parameters) ? NULL : parameters;
    if (scaling && parameters) {
        mote__config other = *c;
        reader loser = *r;
        loser.config = &other;
        if ((rc = read_either(&loser, parameters, "rope_parameters")) ||
            (rc = read_either(r, scaling, "rope_scaling")))
            return rc;
        const char *differs = !same(other.rope_theta, c->rope_theta) &&
                                      json_object_get(parameters, "rope_theta")
                                  ? "rope_theta"
                              : other.rope_rule == MOTE_ROPE_PLAIN       ? NULL
                              : other.rope_rule != c->rope_rule          ? "rope_type"
                              : !same(other.rope_factor, c->rope_factor) ? "factor"
                              : other.rope_original != c->rope_original
                                  ? "original_max_position_embeddings"
                              : !same(other.rope_beta_fast, c->rope_beta_fast) ||
                                      !same(other.rope_beta_slow, c->rope_beta_slow)
                                  ? "beta_fast, beta_slow"
                              : !same(other.rope_attention, c->rope_attention) ? "attention_factor"
                                                                               : NULL;
        if (differs)
            return mote__fail(
                r->err, MOTE_EFORMAT,
                "%s: 'rope_scaling' and 'rope_parameters' say different things about '%s'", r->what,
                differs);
        return MOTE_OK;
    }
    if (scaling)
        return read_either(r, scaling, "rope_scaling");
    return parameters ? read_either(r, parameters, "rope_parameters") : MOTE_OK;
}

static int read_flat(const reader *r)
{
    static const char *const nested[] = { "rope_scaling", "rope_parameters" };
    for (size_t i = 0; i < 2; i++)
        if (!is_unset(json_object_get(r->text, nested[i])))
            return mote__fail(
                r->err, MOTE_EUNSUPPORTED,
                "%s: '%s' is not applied in this form: 'original_seq_len' and 'rope_factor' are",
                r->what, nested[i]);
    int rc = mote__config_field(
        r, &(field){ "", "original_seq_len", SIZE, AT(rope_original), 0, 1 << 30, 1, 0 }, r->text);
    if (rc || !r->config->rope_original)
        return rc;
    for (size_t i = 0; !rc && i < sizeof flat_fields / sizeof *flat_fields; i++)
        rc = mote__config_field(r, &flat_fields[i], r->text);
    r->config->rope_rule = MOTE_ROPE_YARN;
    if (!rc && r->config->rope_beta_fast < r->config->rope_beta_slow)
        rc = mote__fail(r->err, MOTE_EFORMAT, "%s: 'beta_fast' is smaller than 'beta_slow'",
                        r->what);
    return rc;
}

/* Check keys outside the rope objects, and rope objects at places that are not read. */
static int check_around(const reader *r)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)r->text, name, v)
    {
        size_t i = 0;
        while (i < N_AROUND && strcmp(around[i].key, name))
            i++;
        int partial = !strcmp(name, "partial_rotary_factor");
        if (is_unset(v) ||
            (i == N_AROUND && !partial && strncmp(name, "rope_", 5) && strncmp(name, "rotary", 6)))
            continue;
        double neutral = i == N_AROUND ? NEVER
                         : is_dense(r) ? around[i].dense
                         : r->flat     ? around[i].flat
                                       : around[i].v41;
        if (partial ? partial_fits(r, v)
                    : same(neutral, HARMLESS) || (neutral >= 0 && same(value_of(v), neutral)))
            continue;
        return mote__fail(r->err, MOTE_EUNSUPPORTED,
                          "%s: '%.60s' asks for a variant of '%s' that this version does not run",
                          r->what, name, r->config->family);
    }
    static const char *const inside[] = { "rope_scaling", "rope_parameters", "rope_theta",
                                          "compress_rope_theta" };
    for (size_t i = 0; r->root != r->text && i < sizeof inside / sizeof *inside; i++) {
        v = json_object_get(r->root, inside[i]);
        if (!is_unset(v) && !json_equal(v, json_object_get(r->text, inside[i])))
            return mote__fail(r->err, MOTE_EFORMAT,
                              "%s: '%s' stands beside 'text_config' and not inside it", r->what,
                              inside[i]);
    }
    return MOTE_OK;
}

int mote__config_rope(const reader *r)
{
    mote__config *c = r->config;
    c->rope_rule = MOTE_ROPE_PLAIN;
    c->rope_attention = 1;
    if (is_dense(r) && same(c->rope_theta, 0))
        c->rope_theta = 10000; /* default of the reference library */
    int rc = check_around(r);
    if (!rc)
        rc = r->flat ? read_flat(r) : read_named(r);
    if (rc)
        return rc;
    if (same(c->rope_theta, 0))
        return mote__fail(r->err, MOTE_EFORMAT, "%s: 'rope_theta' is missing", r->what);
    if (!is_dense(r) && same(c->compress_rope_theta, 0))
        return mote__fail(r->err, MOTE_EFORMAT, "%s: 'compress_rope_theta' is missing", r->what);
    return MOTE_OK;
}
