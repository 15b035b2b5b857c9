// One kind of operation, many times.
#include "lily.h"

struct Count { uint n; };

kernel void sums(device float* y [[buffer(0)]], constant Count& p [[buffer(1)]],
                 uint3 tg [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    float x = float(tid);
    for (uint i = 0; i < p.n; ++i) { x = simd_sum(x) * 0.03125f; }
    y[tg.x * 256 + tid] = x;
}
kernel void barriers(device float* y [[buffer(0)]], constant Count& p [[buffer(1)]],
                     uint3 tg [[threadgroup_position_in_grid]],
                     uint tid [[thread_index_in_threadgroup]])
{
    for (uint i = 0; i < p.n; ++i) { threadgroup_barrier(mem_flags::mem_threadgroup); }
    y[tg.x * 256 + tid] = 0.0f;
}
kernel void matrices(device float* y [[buffer(0)]], constant Count& p [[buffer(1)]],
                     uint3 tg [[threadgroup_position_in_grid]],
                     uint sg [[simdgroup_index_in_threadgroup]])
{
    simdgroup_matrix<float, 8, 8> a = make_filled_simdgroup_matrix<float, 8, 8>(0.5f), c = a;
    for (uint i = 0; i < p.n; ++i) { simdgroup_multiply_accumulate(c, a, a, c); }
    simdgroup_store(c, y + tg.x * 512 + sg * 64, 8);
}
// Reads and writes of one's own bytes: device memory, then threadgroup memory.
kernel void own(device float* y [[buffer(0)]], constant Count& p [[buffer(1)]],
                uint3 tg [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
    y[tg.x * 256 + tid] = 0.0f;
    for (uint i = 0; i < p.n; ++i) { y[tg.x * 256 + (tid ^ (i & 0))] += 1.0f; }
}
kernel void shared(device float* y [[buffer(0)]], constant Count& p [[buffer(1)]],
                   uint3 tg [[threadgroup_position_in_grid]],
                   uint tid [[thread_index_in_threadgroup]])
{
    threadgroup float t[256];
    t[tid] = 0.0f;
    for (uint i = 0; i < p.n; ++i) { t[(tid + (i & 0)) % 256] += 1.0f; }
    y[tg.x * 256 + tid] = t[tid];
}
kernel void nothing(device float* y [[buffer(0)]], constant Count& p [[buffer(1)]],
                    uint3 tg [[threadgroup_position_in_grid]],
                    uint tid [[thread_index_in_threadgroup]])
{
    y[tg.x * 256 + tid] = float(p.n);
}
