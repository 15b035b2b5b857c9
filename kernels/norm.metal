// out[t] = x[t] * rsqrt(mean(x[t]^2) + RMS_EPS) * gain                     x f32 [T, HIDDEN]
// One threadgroup of 256 threads a row. Sums in f32: 8 partial sums a thread at most, then lanes,
// then SIMD groups, in a fixed order.
#include "lily.h"

kernel void rms_norm(device const float* x    [[buffer(0)]],   // [T, HIDDEN]
                     device const float* gain [[buffer(1)]],   // [HIDDEN], 1 + w folded in
                     device act*         out  [[buffer(2)]],   // [T, HIDDEN]
                     uint3 tg   [[threadgroup_position_in_grid]],
                     uint  tid  [[thread_index_in_threadgroup]],
                     uint  sg   [[simdgroup_index_in_threadgroup]],
                     uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup float partial[8];
    const ulong row = ulong(tg.x) * HIDDEN;
    float sum = 0.0f;
    for (uint i = tid; i < HIDDEN; i += 256) { sum = fma(x[row + i], x[row + i], sum); }
    sum = simd_sum(sum);
    if (lane == 0) { partial[sg] = sum; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = 0.0f;
    for (uint i = 0; i < 8; ++i) { total += partial[i]; }
    const float scale = rsqrt(total / float(HIDDEN) + RMS_EPS);
    for (uint i = tid; i < HIDDEN; i += 256) { out[row + i] = act(x[row + i] * scale * gain[i]); }
}
