// y_m[t, r] (+)= sum_k W_m[r, k] * f(x)[t, k]    few vectors, up to four matrices of one format side by side
//
// f, by INPUT:  0  x                                          x f32 [T, COLS]
//               1  x * gain * rsqrt(mean(x^2) + RMS_EPS)      the norm costs no dispatch of its own: the
//                  scale is applied to the sums, as it is common to all columns
//               2  o * rsqrt(mean(o^2 of its head) + RMS_EPS) * gain * silu(z), the delta rule's gated
//                  norm: `part` holds the sums of squares, [T, N_V_HEADS, SLICES]
// Threadgroups of 8 SIMD groups, for one vector each; a SIMD group handles ROWS rows of one matrix ("a
// task").
// ACCUMULATE adds to y_0 (the residual stream).
#include "gemv.h"

struct GemvParams { uint rows0; uint rows1; uint rows2; uint rows3; };

kernel void gemv(device const float*   x    [[buffer(0)]],
                 device const float*   gain [[buffer(1)]],
                 device const float*   z    [[buffer(2)]],
                 device const float*   part [[buffer(3)]],
                 device const code_t*  w0   [[buffer(4)]],
                 device const scale_t* s0   [[buffer(5)]],
                 device const scale_t* b0   [[buffer(6)]],
                 device const code_t*  w1   [[buffer(7)]],
                 device const scale_t* s1   [[buffer(8)]],
                 device const scale_t* b1   [[buffer(9)]],
                 device const code_t*  w2   [[buffer(10)]],
                 device const scale_t* s2   [[buffer(11)]],
                 device const scale_t* b2   [[buffer(12)]],
                 device const code_t*  w3   [[buffer(13)]],
                 device const scale_t* s3   [[buffer(14)]],
                 device const scale_t* b3   [[buffer(15)]],
                 device float*         y0   [[buffer(16)]],
                 device float*         y1   [[buffer(17)]],
                 device float*         y2   [[buffer(18)]],
                 device float*         y3   [[buffer(19)]],
                 constant GemvParams&  p    [[buffer(20)]],
                 uint3 tg   [[threadgroup_position_in_grid]],
                 uint  tid  [[thread_index_in_threadgroup]],
                 uint  sg   [[simdgroup_index_in_threadgroup]],
                 uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup float4 xs[STAGED_LEN(COLS)];
    threadgroup float partial[8];
    threadgroup float* flat = (threadgroup float*)xs;
    float squares = 0.0f;
    const ulong t = tg.y;
    for (uint k = tid; k < COLS; k += 256) {
        float v = x[t * COLS + k];
#if INPUT == 1
        squares = fma(v, v, squares);
        v *= gain[k];
#elif INPUT == 2
        const uint head = k / V_HEAD_DIM;
        float sum = 0.0f;
        for (uint i = 0; i < SLICES; ++i) { sum += part[(t * (COLS / V_HEAD_DIM) + head) * SLICES + i]; }
        v *= rsqrt(sum / float(V_HEAD_DIM) + RMS_EPS) * gain[k % V_HEAD_DIM] * silu(z[t * COLS + k]);
#endif
        flat[staged_at(k)] = v;
    }
    float scale = 1.0f;
#if INPUT == 1
    squares = simd_sum(squares);
    if (lane == 0) { partial[sg] = squares; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = 0.0f;
    for (uint i = 0; i < 8; ++i) { total += partial[i]; }
    scale = rsqrt(total / float(COLS) + RMS_EPS);
#else
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif

    uint task = tg.x * 8 + sg;
    uint rows = p.rows0;
    device const code_t* w = w0;
    device const scale_t* s = s0;
    device const scale_t* b = b0;
    device float* y = y0;
    if (task >= (rows + ROWS - 1) / ROWS) {
        task -= (rows + ROWS - 1) / ROWS;
        rows = p.rows1; w = w1; s = s1; b = b1; y = y1;
        if (task >= (rows + ROWS - 1) / ROWS) {
            task -= (rows + ROWS - 1) / ROWS;
            rows = p.rows2; w = w2; s = s2; b = b2; y = y2;
            if (task >= (rows + ROWS - 1) / ROWS) {
                task -= (rows + ROWS - 1) / ROWS;
                rows = p.rows3; w = w3; s = s3; b = b3; y = y3;
            }
        }
    }
    const uint row0 = task * ROWS;
    if (row0 < rows) {                                       // the same for all lanes of a SIMD group
        float acc[ROWS];
        LILY_UNROLL for (uint r = 0; r < ROWS; ++r) { acc[r] = 0.0f; }
        dot_rows<ROWS, W_BITS, W_GROUP, W_SCALE>(xs, COLS, w, s, b, row0, rows - 1, lane, acc);
        LILY_UNROLL for (uint r = 0; r < ROWS; ++r) {
            const float sum = simd_sum(acc[r]) * scale;
            if (lane == 0 && row0 + r < rows) {
#if ACCUMULATE
                y[t * rows + row0 + r] += sum;
#else
                y[t * rows + row0 + r] = sum;
#endif
            }
        }
    }
}
