// Small kernels that use every word of the dialect.
#include "lily.h"

struct ScaleParams { uint n; float factor; int shift; };
constant constexpr float TABLE[4] = {1.0f, 2.0f, 4.0f, 8.0f};

// y[i] = x[i] * factor + shift + TABLE[i % 4], and i where x ends early.
kernel void scale(device const float* x [[buffer(0)]], // comments, with commas
                  device float* y [[buffer(1)]],
                  constant ScaleParams& p [[buffer(2)]],
                  uint3 tg [[threadgroup_position_in_grid]],
                  uint tid [[thread_index_in_threadgroup]])
{
    const uint i = tg.x * 64 + tid;
    if (i < p.n) { y[i] = fma(x[i], p.factor, float(p.shift)) + TABLE[i % 4]; }
}

// Where each thread is: 6 numbers a thread.
kernel void where(device uint* y [[buffer(0)]],
                  uint3 tg [[threadgroup_position_in_grid]],
                  uint tid [[thread_index_in_threadgroup]],
                  uint sg [[simdgroup_index_in_threadgroup]],
                  uint lane [[thread_index_in_simdgroup]])
{
    device uint* at = y + ((tg.z * 3 + tg.y) * 2 + tg.x) * 96 * 6 + tid * 6;
    at[0] = tg.x; at[1] = tg.y; at[2] = tg.z; at[3] = tid; at[4] = sg; at[5] = lane;
}

// Reverses a row through threadgroup memory, twice.
kernel void reverse(device const float* x [[buffer(0)]],
                    device float* y [[buffer(1)]],
                    uint tid [[thread_index_in_threadgroup]])
{
    threadgroup float a[256];
    threadgroup float b[16][16];
    a[tid] = x[tid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    b[tid / 16][tid % 16] = a[255 - tid] + 1.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[tid] = b[(255 - tid) / 16][(255 - tid) % 16];
}

// 16 numbers a lane, for 64 threads.
kernel void lanes(device const float* x [[buffer(0)]],
                  device const uint* n [[buffer(1)]],
                  device float* fy [[buffer(2)]],
                  device uint* uy [[buffer(3)]],
                  uint tid [[thread_index_in_threadgroup]],
                  uint lane [[thread_index_in_simdgroup]])
{
    fy[tid * 8 + 0] = simd_sum(x[tid]);
    fy[tid * 8 + 1] = simd_max(x[tid]);
    fy[tid * 8 + 2] = simd_min(x[tid]);
    fy[tid * 8 + 3] = simd_shuffle(x[tid], (lane * 5 + 3) % 32);
    fy[tid * 8 + 4] = simd_shuffle_xor(x[tid], 9);
    fy[tid * 8 + 5] = simd_broadcast(x[tid], 17);
    fy[tid * 8 + 6] = float(simd_shuffle(bfloat(x[tid]), 31 - lane));
    fy[tid * 8 + 7] = x[tid];
    uy[tid * 8 + 0] = simd_sum(n[tid]);
    uy[tid * 8 + 1] = simd_max(n[tid]);
    uy[tid * 8 + 2] = simd_min(n[tid]);
    uy[tid * 8 + 3] = simd_shuffle(n[tid], (lane * 5 + 3) % 32);
    uy[tid * 8 + 4] = simd_shuffle_xor(n[tid], 9);
    uy[tid * 8 + 5] = simd_broadcast(n[tid], 17);
    uy[tid * 8 + 6] = simd_prefix_exclusive_sum(n[tid]);
    uy[tid * 8 + 7] = n[tid];
}

// Bits of f32 to bits of bfloat and half, and back to the bits of f32.
kernel void convert(device const uint* x [[buffer(0)]],
                    device ushort* b [[buffer(1)]],
                    device ushort* h [[buffer(2)]],
                    device uint* back [[buffer(3)]],
                    uint3 tg [[threadgroup_position_in_grid]],
                    uint tid [[thread_index_in_threadgroup]])
{
    const uint i = tg.x * 64 + tid;
    const float value = as_type<float>(x[i]);
    b[i] = as_type<ushort>(bfloat(value));
    h[i] = as_type<ushort>(half(value));
    back[2 * i] = as_type<uint>(float(as_type<bfloat>(ushort(x[i] & 0xffffu))));
    back[2 * i + 1] = as_type<uint>(float(as_type<half>(ushort(x[i] & 0xffffu))));
}

// Vectors and the functions of f32: 16 numbers.
kernel void maths(device const float4* x [[buffer(0)]],
                  device float4* y [[buffer(1)]],
                  uint tid [[thread_index_in_threadgroup]])
{
    if (tid == 0) {
        const float4 v = x[0];
        const float2 pair = make_float2(v.x, v.y);
        const uint4 whole = make_uint4(1, 2, 3, 4);
        const uint2 two = make_uint2(whole.w, whole.z);
        y[0] = make_float4(exp(v.x), log(v.y), sqrt(v.z), rsqrt(v.w));
        y[1] = make_float4(cos(v.x), sin(v.y), fabs(-v.z), fma(v.x, v.y, v.z));
        y[2] = make_float4(min(pair.x, pair.y), max(pair.x, pair.y), float(min(two.x, two.y)),
                           float(max(-1, 1)));
        y[3] = make_float4(sigmoid(v.x), silu(v.y), softplus(v.z), float(ulong(whole.x) << 40));
    }
}

// Counts by atomics in device and threadgroup memory, over all threadgroups.
kernel void count(device atomic_uint* total [[buffer(0)]],
                  device uint* first [[buffer(1)]],
                  uint3 tg [[threadgroup_position_in_grid]],
                  uint tid [[thread_index_in_threadgroup]])
{
    threadgroup atomic_uint here[1];
    if (tid == 0) { atomic_store_explicit(&here[0], 0, memory_order_relaxed); }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&here[0], tid, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid == 0) {
        const uint n = atomic_load_explicit(&here[0], memory_order_relaxed);
        atomic_fetch_add_explicit(total, n, memory_order_relaxed);
        first[tg.x] = n;
    }
}

// A constant array through a pointer.
constant constexpr uint PRIMES[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__attribute__((noinline)) uint pick(constant uint* from, uint i) { return from[i]; }
kernel void constants(device uint* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]])
{
    y[tid] = pick(PRIMES, tid % 8) + pick(&PRIMES[tid % 4], 4);
}
