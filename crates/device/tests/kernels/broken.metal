// Deliberately wrong kernels, each beside one that does the same correctly (`BAD` is 1 or 0, a
// constant that the host defines). The simulator must refuse the first and run the second.
#include "lily.h"

struct Offset { int at; };

// Bounds of device memory: `at` is added to the index.
kernel void load(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                 constant Offset& p [[buffer(2)]], uint tid [[thread_index_in_threadgroup]])
{
    y[tid] = x[int(tid) + p.at];
}
kernel void store(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                  constant Offset& p [[buffer(2)]], uint tid [[thread_index_in_threadgroup]])
{
    y[int(tid) + p.at] = x[tid];
}
kernel void store_halves(device bfloat* y [[buffer(0)]], constant Offset& p [[buffer(1)]],
                         uint tid [[thread_index_in_threadgroup]])
{
    y[int(tid) + p.at] = bfloat(float(tid));
}
kernel void load_vector(device const float* x [[buffer(0)]], device float4* y [[buffer(1)]],
                        constant Offset& p [[buffer(2)]], uint tid [[thread_index_in_threadgroup]])
{
    if (tid == 0) { y[0] = *(device const float4*)(x + p.at); }
}
kernel void write_const(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                        uint tid [[thread_index_in_threadgroup]])
{
    y[tid] = x[tid];
    if (BAD && tid == 40) { ((device float*)x)[3] = 0.0f; }
}

// Bounds of threadgroup memory.
kernel void overrun(device float* y [[buffer(0)]], constant Offset& p [[buffer(1)]],
                    uint tid [[thread_index_in_threadgroup]])
{
    threadgroup float a[64];
    threadgroup float b[64];
    a[int(tid) + p.at] = 1.0f;
    b[tid] = 2.0f;
    y[tid] = a[int(tid) + p.at] + b[tid];
}
kernel void too_much(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]])
{
    threadgroup float small[64];
    threadgroup float large[8192 - 64 + BAD];
    small[tid] = float(tid);
    large[tid * 127] = small[tid];
    y[tid] = large[tid * 127];
}

// Meetings.
kernel void barrier_in_branch(device float* y [[buffer(0)]],
                              uint tid [[thread_index_in_threadgroup]])
{
    if (!BAD || tid < 100) { threadgroup_barrier(mem_flags::mem_threadgroup); }
    y[tid] = 1.0f;
}
kernel void two_barriers(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]])
{
    if (BAD && tid >= 64) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    } else {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (!BAD && tid >= 128) { threadgroup_barrier(mem_flags::mem_threadgroup); }
    y[tid] = 1.0f;
}
kernel void sum_in_branch(device float* y [[buffer(0)]],
                          uint tid [[thread_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]])
{
    float s = 0.0f;
    if (!BAD || lane < 16) { s = simd_sum(1.0f); }
    y[tid] = s;
}
kernel void sum_or_barrier(device float* y [[buffer(0)]],
                           uint tid [[thread_index_in_threadgroup]])
{
    if (BAD && tid == 5) { threadgroup_barrier(mem_flags::mem_threadgroup); }
    y[tid] = simd_sum(1.0f);
    if (!BAD || tid != 5) { threadgroup_barrier(mem_flags::mem_threadgroup); }
}
kernel void two_sums(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]])
{
    if (BAD && lane % 2 == 0) {
        y[tid] = simd_sum(1.0f);
    } else {
        y[tid] = simd_sum(2.0f);
    }
}

// Contents.
kernel void unwritten_threadgroup(device float* y [[buffer(0)]],
                                  uint tid [[thread_index_in_threadgroup]])
{
    threadgroup float t[128];
    if (!BAD || tid != 77) { t[tid] = float(tid); }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[tid] = t[127 - tid];
}
kernel void unwritten_halves(device float* y [[buffer(0)]],
                             uint tid [[thread_index_in_threadgroup]])
{
    threadgroup bfloat t[129];
    if (!BAD || tid != 77) { t[tid] = bfloat(float(tid)); }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[tid] = float(t[127 - tid]);
}
// What a threadgroup wrote, the next must not see.
kernel void leftover(device float* y [[buffer(0)]], uint3 tg [[threadgroup_position_in_grid]],
                     uint tid [[thread_index_in_threadgroup]])
{
    threadgroup float t[128];
    if (!BAD || tg.x == 0) { t[tid] = 1.0f; }
    y[tg.x * 128 + tid] = t[tid];
}
kernel void copy(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]],
                 uint tid [[thread_index_in_threadgroup]])
{
    y[tid] = x[tid];
}

// Order inside a threadgroup.
kernel void race_read(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]])
{
    threadgroup float t[128];
    t[tid] = 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    t[tid] = float(tid);
    if (BAD) { simdgroup_barrier(mem_flags::mem_threadgroup); }
    else { threadgroup_barrier(mem_flags::mem_threadgroup); }
    y[tid] = t[(tid + 33) % 128];
}
kernel void race_write(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]])
{
    threadgroup float t[128];
    t[tid] = float(tid);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float x = t[127 - tid];
    if (!BAD) { threadgroup_barrier(mem_flags::mem_threadgroup); }
    t[tid] = x;                             // while others still read
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[tid] = t[127 - tid];
}
kernel void race_both_write(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]])
{
    threadgroup float t[128];
    t[BAD ? tid / 2 : tid] = 1.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[tid] = t[tid / 2];
}
// Lanes of a SIMD group are ordered by its own barrier, and need one.
kernel void race_lanes(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]],
                       uint sg [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]])
{
    threadgroup bfloat t[128];
    t[tid] = bfloat(0.0f);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < 3; ++i) {
        t[tid] = bfloat(float(tid));
        if (!BAD) { simdgroup_barrier(mem_flags::mem_threadgroup); }
        y[tid] = float(t[sg * 32 + (lane + 2) % 32]);
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
}
// A barrier for threadgroup memory does not order device memory.
kernel void race_device(device float* y [[buffer(0)]], device float* z [[buffer(1)]],
                        uint tid [[thread_index_in_threadgroup]])
{
    z[tid] = float(tid);
    threadgroup_barrier(BAD ? mem_flags::mem_threadgroup : mem_flags::mem_device);
    y[tid] = z[127 - tid];
}

// Order between threadgroups.
kernel void race_groups(device float* y [[buffer(0)]], uint3 tg [[threadgroup_position_in_grid]],
                        uint tid [[thread_index_in_threadgroup]])
{
    y[tg.x * (64 - BAD) + tid] = 1.0f;
}
kernel void race_halo(device bfloat* y [[buffer(0)]], uint3 tg [[threadgroup_position_in_grid]],
                      uint tid [[thread_index_in_threadgroup]])
{
    const uint i = tg.x * 64 + tid, n = 64 * 8;
    const float left = BAD ? float(y[(i + n - 1) % n]) : 0.0f;
    y[i] = bfloat(float(y[i]) + left);
}

// Order between dispatches: `add` reads what `fill` wrote, in bytes that `at` chooses.
kernel void fill(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]])
{
    y[tid] = 1.0f;
}
kernel void add(device float* y [[buffer(0)]], constant Offset& p [[buffer(1)]],
                uint tid [[thread_index_in_threadgroup]])
{
    y[int(tid) + p.at] += 1.0f;
}
kernel void add_from(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                     uint tid [[thread_index_in_threadgroup]])
{
    y[tid] = x[tid] + 1.0f;
}
