// The vocabulary of the kernels. Everything that depends on the hardware is here, in tile.h, or in
// the shims (shim/cuda.h, shim/sim.h), which supply the same names where there is no Metal:
//
//   types     uint int ushort short uchar char ulong long half bfloat float, and float2 float4
//             uint2 uint4 uint3 with members x y z w; made by make_float4(...) and so on, never by
//             a constructor; no swizzles, no operators on vectors
//   convert   float(x) bfloat(x) half(x) uint(x) int(x); as_type<T>(x) for bits
//   maths     exp log sqrt rsqrt cos sin fabs min max fma (f32; `metal::` is used, not written)
//   lanes     simd_sum simd_max simd_min (float, uint), simd_shuffle(x, lane),
//             simd_shuffle_xor(x, mask), simd_broadcast(x, lane),
//             simd_prefix_exclusive_sum(uint): all 32 lanes must arrive
//   barriers  threadgroup_barrier(mem_flags::mem_threadgroup): all threads must arrive;
//             simdgroup_barrier(mem_flags::mem_threadgroup)
//   atomics   atomic_uint in device or threadgroup memory; atomic_load_explicit,
//             atomic_store_explicit, atomic_fetch_add_explicit, with memory_order_relaxed
//   words     kernel device constant threadgroup thread
#if defined(LILY_CUDA) || defined(LILY_SIM)
#define LILY_UNROLL _Pragma("unroll")
#ifndef INFINITY
#define INFINITY as_type<float>(0x7f800000u)
#endif
#else
#include <metal_stdlib>
using namespace metal;
#define LILY_UNROLL _Pragma("clang loop unroll(full)")
inline float2 make_float2(float x, float y) { return float2(x, y); }
inline float4 make_float4(float x, float y, float z, float w) { return float4(x, y, z, w); }
inline uint2 make_uint2(uint x, uint y) { return uint2(x, y); }
inline uint4 make_uint4(uint x, uint y, uint z, uint w) { return uint4(x, y, z, w); }
#endif

// Activations between kernels, and rows of the KV cache: float in the exact mode, else bfloat.
#ifndef LILY_ACT
#define LILY_ACT float
#endif
typedef LILY_ACT act;

inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
inline float silu(float x) { return x / (1.0f + exp(-x)); }
// log(1 + exp(x)) without overflow.
inline float softplus(float x) { return max(x, 0.0f) + log(1.0f + exp(-fabs(x))); }

// N neighbouring activations as f32, in one load where there are 8 bfloats (16 bytes, aligned).
template <uint N> inline void load_acts(device const float* x, thread float* out) {
    LILY_UNROLL for (uint i = 0; i < N; ++i) { out[i] = x[i]; }
}
template <uint N> inline void load_acts(device const bfloat* x, thread float* out) {
    if (N == 8) {
        const uint4 v = *(device const uint4*)x;
        out[0] = as_type<float>(v.x << 16);
        out[1] = as_type<float>(v.x & 0xffff0000u);
        out[2] = as_type<float>(v.y << 16);
        out[3] = as_type<float>(v.y & 0xffff0000u);
        out[4] = as_type<float>(v.z << 16);
        out[5] = as_type<float>(v.z & 0xffff0000u);
        out[6] = as_type<float>(v.w << 16);
        out[7] = as_type<float>(v.w & 0xffff0000u);
    } else {
        LILY_UNROLL for (uint i = 0; i < N; ++i) { out[i] = float(x[i]); }
    }
}
