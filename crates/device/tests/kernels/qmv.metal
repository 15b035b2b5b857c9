// y[n] = sum_k (scale[n,g] * q[n,k] + bias[n,g]) * x[k], g = k / 64: MLX affine 4-bit, 8 nibbles per uint, low first.
// Grid: one threadgroup of 2 SIMD groups per 8 rows; 4 rows per SIMD group share each lane's 32 activations.
#include "lily.h"

struct QmvParams { uint n; uint k; };

constant constexpr uint ROWS = 4;

kernel void qmv_q4(device const uint*   w      [[buffer(0)]],
                   device const bfloat* scales [[buffer(1)]],
                   device const bfloat* biases [[buffer(2)]],
                   device const float*  x      [[buffer(3)]],
                   device float*        y      [[buffer(4)]],
                   constant QmvParams&  p      [[buffer(5)]],
                   uint3 tg   [[threadgroup_position_in_grid]],
                   uint  sg   [[simdgroup_index_in_threadgroup]],
                   uint  lane [[thread_index_in_simdgroup]])
{
    const uint row0 = (tg.x * 2 + sg) * ROWS;
    float acc[ROWS] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (uint b = lane; b < p.k / 32; b += 32) {
        float xv[32];
        float xs = 0.0f;
        for (uint i = 0; i < 32; ++i) { xv[i] = x[b * 32 + i]; xs += xv[i]; }
        for (uint r = 0; r < ROWS; ++r) {
            const uint row = min(row0 + r, p.n - 1);
            device const uint* q = w + (ulong(row) * (p.k / 8) + b * 4);
            float d = 0.0f;
            for (uint j = 0; j < 4; ++j) {
                const uint v = q[j];
                for (uint i = 0; i < 8; ++i) { d += xv[8 * j + i] * float((v >> (4 * i)) & 15u); }
            }
            const ulong g = ulong(row) * (p.k / 64) + b / 2;
            acc[r] += float(scales[g]) * d + float(biases[g]) * xs;
        }
    }
    for (uint r = 0; r < ROWS; ++r) {
        const float s = simd_sum(acc[r]);
        if (lane == 0 && row0 + r < p.n) { y[row0 + r] = s; }
    }
}
