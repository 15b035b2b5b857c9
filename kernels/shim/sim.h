// The vocabulary of lily.h for the simulator: types and functions with the meaning they have in
// Metal, as C++20 for g++ and clang++. Lanes, barriers and atomics are in sim_runtime.h.
#pragma once
#include "sim_api.h"

#define LILY_SIM 1

using uint = uint32_t;
using ushort = uint16_t;
using uchar = uint8_t;
using ulong = uint64_t;

template <class To, class From> inline To as_type(From x) {
    static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
    return __builtin_bit_cast(To, x);
}

// Upper half of an f32. Made explicitly, rounding to the nearest, ties to even.
struct bfloat {
    uint16_t bits;
    bfloat() = default;
    explicit inline bfloat(float x) {
        uint32_t u = __builtin_bit_cast(uint32_t, x);
        if ((u & 0x7fffffffu) > 0x7f800000u) {
            u |= 0x400000u; // a NaN stays one
        } else {
            u += 0x7fffu + (u >> 16 & 1);
        }
        bits = uint16_t(u >> 16);
    }
    inline operator float() const { return __builtin_bit_cast(float, uint32_t(bits) << 16); }
};

// IEEE binary16, in software, so that every compiler and machine gives the same bits.
struct half {
    uint16_t bits;
    half() = default;
    explicit inline half(float x) {
        const uint32_t u = __builtin_bit_cast(uint32_t, x);
        const uint32_t sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
        uint32_t h;
        if (magnitude > 0x7f800000u) {
            h = 0x7e00u | (magnitude >> 13 & 0x3ffu);
        } else if (magnitude >= 0x477ff000u) {
            h = 0x7c00u; // 65520 and more round to infinity
        } else if (magnitude >= 0x38800000u) {
            h = (magnitude + 0xfffu + (magnitude >> 13 & 1) - 0x38000000u) >> 13;
        } else {
            // Adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded by the hardware.
            const float sum = __builtin_bit_cast(float, magnitude) + 0.5f;
            h = __builtin_bit_cast(uint32_t, sum) - 0x3f000000u;
        }
        bits = uint16_t(sign | h);
    }
    inline operator float() const {
        const uint32_t sign = uint32_t(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
        if (rest >= 0x7c00u) {
            return __builtin_bit_cast(float, sign | 0x7f800000u | (rest & 0x3ffu) << 13);
        }
        if (rest >= 0x400u) return __builtin_bit_cast(float, sign | ((rest << 13) + 0x38000000u));
        const float small = float(rest) * 5.9604644775390625e-8f; // 2^-24
        return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, small));
    }
};

// Vectors have the alignment that they have in Metal.
template <class T, int N> struct vec;
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    T x, y;
    inline T& operator[](uint i) { return i == 0 ? x : y; }
    inline const T& operator[](uint i) const { return i == 0 ? x : y; }
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
    T x, y, z;
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    T x, y, z, w;
    inline T& operator[](uint i) { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
    inline const T& operator[](uint i) const { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
};
using float2 = vec<float, 2>;
using float4 = vec<float, 4>;
using uint2 = vec<uint, 2>;
using uint3 = vec<uint, 3>;
using uint4 = vec<uint, 4>;
inline float2 make_float2(float x, float y) { return float2{x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
inline uint2 make_uint2(uint x, uint y) { return uint2{x, y}; }
inline uint3 make_uint3(uint x, uint y, uint z) { return uint3{x, y, z}; }
inline uint4 make_uint4(uint x, uint y, uint z, uint w) { return uint4{x, y, z, w}; }

inline float exp(float x) { return __builtin_expf(x); }
inline float log(float x) { return __builtin_logf(x); }
inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
inline float cos(float x) { return __builtin_cosf(x); }
inline float sin(float x) { return __builtin_sinf(x); }
inline float fabs(float x) { return __builtin_fabsf(x); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// A NaN loses, as with fmin and fmax.
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline uint min(uint a, uint b) { return a < b ? a : b; }
inline uint max(uint a, uint b) { return a > b ? a : b; }
inline ulong min(ulong a, ulong b) { return a < b ? a : b; }
inline ulong max(ulong a, ulong b) { return a > b ? a : b; }

// The line of the call is a default argument: that tells one operation from another even where the
// compiler has duplicated it.
#define SIM_LINE uint sim_line = __builtin_LINE()
inline float simd_sum(float x, SIM_LINE) { return sim_sum_f32(x, sim_line); }
inline float simd_max(float x, SIM_LINE) { return sim_max_f32(x, sim_line); }
inline float simd_min(float x, SIM_LINE) { return sim_min_f32(x, sim_line); }
inline uint simd_sum(uint x, SIM_LINE) { return sim_sum_u32(x, sim_line); }
inline uint simd_max(uint x, SIM_LINE) { return sim_max_u32(x, sim_line); }
inline uint simd_min(uint x, SIM_LINE) { return sim_min_u32(x, sim_line); }
inline uint simd_prefix_exclusive_sum(uint x, SIM_LINE) {
    return sim_exclusive_sum_u32(x, sim_line);
}
// Any type of at most 32 bits.
template <class T> inline uint sim_bits(T x) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 2, "shuffles move 16 or 32 bits");
    if constexpr (sizeof(T) == 4) return as_type<uint>(x);
    else return as_type<ushort>(x);
}
template <class T> inline T sim_value(uint bits) {
    if constexpr (sizeof(T) == 4) return as_type<T>(bits);
    else return as_type<T>(ushort(bits));
}
template <class T> inline T simd_shuffle(T x, uint lane, SIM_LINE) {
    return sim_value<T>(sim_shuffle(sim_bits(x), lane, sim_line));
}
template <class T> inline T simd_shuffle_xor(T x, uint mask, SIM_LINE) {
    return sim_value<T>(sim_shuffle_xor(sim_bits(x), mask, sim_line));
}
template <class T> inline T simd_broadcast(T x, uint lane, SIM_LINE) {
    return sim_value<T>(sim_shuffle(sim_bits(x), lane, sim_line));
}

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
inline mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
inline void threadgroup_barrier(mem_flags flags, SIM_LINE) {
    sim_threadgroup_barrier(uint(flags), sim_line);
}
inline void simdgroup_barrier(mem_flags flags, SIM_LINE) {
    sim_simdgroup_barrier(uint(flags), sim_line);
}

struct atomic_uint {
    uint value;
};
enum memory_order { memory_order_relaxed };
inline uint atomic_load_explicit(const atomic_uint* p, memory_order) {
    return sim_atomic_load(reinterpret_cast<const uint*>(p));
}
inline void atomic_store_explicit(atomic_uint* p, uint x, memory_order) {
    sim_atomic_store(reinterpret_cast<uint*>(p), x);
}
inline uint atomic_fetch_add_explicit(atomic_uint* p, uint x, memory_order) {
    return sim_atomic_add(reinterpret_cast<uint*>(p), x);
}

#include "sim_simdgroup_matrix.h"
#include "sim_tensor.h"

#define kernel
#define device
#define constant const
#define threadgroup
#define thread
