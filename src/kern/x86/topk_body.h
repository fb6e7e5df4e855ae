/* The passes of top-k (kern/topk.c); included once per instruction set. Lanes that pass are packed
 * to the front and a whole vector is stored; the next store overwrites the surplus lanes. */

static size_t count_above(const float *x, size_t n, float t)
{
    vf limit = vf_set(t);
    size_t count = 0, i = 0;
    for (; i + 4 * VN <= n; i += 4 * VN)
        UNROLL for (int k = 0; k < 4; k++)
            count += (size_t)__builtin_popcount(vf_less_mask(limit, vf_load(x + i + k * VN)));
    for (; i < n; i++)
        count += x[i] > t;
    return count;
}

static size_t range_above(const float *x, size_t n, float t, float *low, float *high)
{
    vf limit = vf_set(t), inf = vf_set(INFINITY), least = inf, most = vf_neg(inf);
    size_t count = 0, i = 0;
    for (; i + VN <= n; i += VN) {
        vf v = vf_load(x + i);
        count += (size_t)__builtin_popcount(vf_less_mask(limit, v));
        least = vf_min(vf_if_less(limit, v, v, inf), least);
        most = vf_max(vf_if_less(limit, v, v, vf_neg(inf)), most);
    }
    float a[2 * VN], lo = INFINITY, hi = -INFINITY;
    vf_store(a, least);
    vf_store(a + VN, most);
    for (int k = 0; k < VN; k++) {
        lo = a[k] < lo ? a[k] : lo;
        hi = a[VN + k] > hi ? a[VN + k] : hi;
    }
    for (; i < n; i++)
        if (x[i] > t) {
            count++;
            lo = x[i] < lo ? x[i] : lo;
            hi = x[i] > hi ? x[i] : hi;
        }
    *low = lo + 0.f;
    *high = hi + 0.f;
    return count;
}

/* First the numbers of the vectors in which a lane passes are collected without a branch, then
 * these vectors are packed: if few lanes pass, a branch per vector is hard to predict. */
enum { NOTED = 64 };
static size_t take_above(float *score, uint32_t *index, const float *x, size_t n, uint32_t first,
                         float t)
{
    vf limit = vf_set(t);
    size_t held = 0, i = 0;
    while (i + VN <= n) {
        size_t vectors = (n - i) / VN < NOTED ? (n - i) / VN : NOTED, n_noted = 0;
        uint8_t noted[NOTED];
        for (size_t k = 0; k < vectors; k++) {
            noted[n_noted] = (uint8_t)k;
            n_noted += vf_less_mask(limit, vf_load(x + i + k * VN)) != 0;
        }
        for (size_t k = 0; k < n_noted; k++) {
            size_t at = i + (size_t)noted[k] * VN;
            vf v = vf_load(x + at);
            unsigned mask = vf_less_mask(limit, v);
            vf_store(score + held, vf_pack(v, mask));
            vi_store(index + held, vi_bits(vf_pack(vf_bits(vi_count(first + (uint32_t)at)), mask)));
            held += (size_t)__builtin_popcount(mask);
        }
        i += vectors * VN;
    }
    for (; i < n; i++) {
        score[held] = x[i];
        index[held] = first + (uint32_t)i;
        held += x[i] > t;
    }
    return held;
}

static size_t keep_above(float *score, uint32_t *index, size_t n, float t, size_t n_equal)
{
    vf limit = vf_set(t);
    size_t kept = 0, i = 0;
    for (; i + VN <= n; i += VN) {
        vf v = vf_load(score + i);
        vi at = vi_load(index + i);
        unsigned mask = vf_less_mask(limit, v);
        if (n_equal) {
            unsigned equal = vf_equal_mask(limit, v);
            for (unsigned rest = equal; rest; rest &= rest - 1) {
                n_equal--;
                mask |= rest & -rest;
                if (!n_equal)
                    break;
            }
        }
        vf_store(score + kept, vf_pack(v, mask));
        vi_store(index + kept, vi_bits(vf_pack(vf_bits(at), mask)));
        kept += (size_t)__builtin_popcount(mask);
    }
    for (; i < n; i++) {
        float v = score[i];
        int equal = v == t && n_equal > 0;
        n_equal -= (size_t)equal;
        uint32_t at = index[i];
        score[kept] = v;
        index[kept] = at;
        kept += v > t || equal;
    }
    return kept;
}

/* The maxima of x[0..7] and of x[8..15]. If the first operand of max is NaN the result is the
 * second, so NaN is ignored. */
INLINE void maxima_of_8(float out[2], const float *x)
{
    const __m256 none = _mm256_set1_ps(-INFINITY);
    __m256 a = _mm256_max_ps(_mm256_loadu_ps(x), none),
           b = _mm256_max_ps(_mm256_loadu_ps(x + 8), none);
    /* a, b, a, b in each half */
    __m256 both = _mm256_max_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
    m = _mm_add_ps(_mm_max_ps(m, _mm_movehl_ps(m, m)), _mm_setzero_ps());
    _mm_storel_pi((__m64 *)(void *)out, m);
}

static void block_maxima(float *most, const float *x, size_t n, size_t width)
{
    size_t b = 0;
    if (width == 8)
        for (; (b + 2) * 8 <= n; b += 2)
            maxima_of_8(most + b, x + b * 8);
    for (; b * width < n; b++) {
        float top = -INFINITY;
        for (size_t i = b * width; i < n && i < (b + 1) * width; i++)
            top = x[i] > top ? x[i] : top;
        most[b] = top + 0.f;
    }
}
