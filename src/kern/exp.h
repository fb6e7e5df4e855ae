/* Constants of mote__exp_f32, shared by the scalar definition and the vector variants. Printed by
 * tools/exp_poly.py.
 *
 *   z = fma(x, log2(e), 1.5 * 2^23)
 *   n = z - 1.5 * 2^23                       the nearest integer; i = n
 *   r = fma(n, -ln2_hi, x)                   exact
 *   r = fma(n, -ln2_lo, r)
 *   q = q4; q = fma(q, r, q3) ... q0
 *   y = 1 + fma(q, r * r, r)
 *   exp = (y * 2^(i >> 1)) * 2^(i - (i >> 1))
 *
 * The first product of exp is exact; the second rounds once if the result is denormal.
 * x < -104 gives 0, x > 88.73 infinity, NaN gives NaN. */
#ifndef MOTE_KERN_EXP_H
#define MOTE_KERN_EXP_H

#define MOTE_EXP_LOG2E 0x1.715476p+0f
#define MOTE_EXP_MAGIC 0x1.8p23f
#define MOTE_EXP_LN2_HI 0x1.62e43p-1f
#define MOTE_EXP_LN2_LO -0x1.05c61p-29f
#define MOTE_EXP_Q0 0x1.fffffcp-2f
#define MOTE_EXP_Q1 0x1.55549p-3f
#define MOTE_EXP_Q2 0x1.5558f4p-5f
#define MOTE_EXP_Q3 0x1.123a6cp-7f
#define MOTE_EXP_Q4 0x1.6a2352p-10f
#define MOTE_EXP_LOW -104.f
#define MOTE_EXP_HIGH 88.73f

#endif
