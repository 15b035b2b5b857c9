// The kernels as a Mac sees them, for a C++ compiler that only checks: address spaces are real, so a
// missing or wrong `device`, `constant` or `threadgroup` does not compile, nor does a float that
// becomes a bfloat without being asked (-Werror=implicit-float-conversion). This stands in for
// <metal_stdlib>; the declarations follow the Metal Shading Language Specification 3.2.
#pragma once
#define LILY_TYPECHECK 1

#define kernel
#define thread
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define LILY_THREADGROUP_ARRAY static __attribute__((address_space(3)))
#define INFINITY __builtin_inff()

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;
typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef uint uint2 __attribute__((ext_vector_type(2)));
typedef uint uint3 __attribute__((ext_vector_type(3)));
typedef uint uint4 __attribute__((ext_vector_type(4)));
// Constructors of vectors are Metal's own.
inline float2 make_float2(float x, float y) { return float2{x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
inline uint2 make_uint2(uint x, uint y) { return uint2{x, y}; }
inline uint4 make_uint4(uint x, uint y, uint z, uint w) { return uint4{x, y, z, w}; }
struct ulong2 {
    ulong x, y;
    ulong2(ulong both) : x(both), y(both) {}
    ulong2(ulong x, ulong y) : x(x), y(y) {}
};

namespace metal {
template <typename T, typename U> inline T as_type(U x) {
    static_assert(sizeof(T) == sizeof(U), "as_type keeps the size");
    return __builtin_bit_cast(T, x);
}
// One type for both arguments, or the call is ambiguous, as on a Mac.
float min(float, float); uint min(uint, uint); int min(int, int); ulong min(ulong, ulong); long min(long, long);
float max(float, float); uint max(uint, uint); int max(int, int); ulong max(ulong, ulong); long max(long, long);
float exp(float); float exp2(float); float log(float); float sqrt(float); float rsqrt(float); float cos(float);
float sin(float); float fabs(float); float fma(float, float, float);

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
float simd_sum(float); uint simd_sum(uint); float simd_max(float); uint simd_max(uint); float simd_min(float); uint simd_min(uint);
uint simd_prefix_exclusive_sum(uint);
template <typename T> T simd_shuffle(T, ushort);
template <typename T> T simd_broadcast(T, ushort);
template <typename T> T simd_shuffle_xor(T, ushort);
bool simd_any(bool); bool simd_all(bool);

enum memory_order { memory_order_relaxed };
struct atomic_uint { uint value; };
uint atomic_load_explicit(device const atomic_uint*, memory_order);
uint atomic_load_explicit(threadgroup const atomic_uint*, memory_order);
void atomic_store_explicit(device atomic_uint*, uint, memory_order);
void atomic_store_explicit(threadgroup atomic_uint*, uint, memory_order);
uint atomic_fetch_add_explicit(device atomic_uint*, uint, memory_order);
uint atomic_fetch_add_explicit(threadgroup atomic_uint*, uint, memory_order);

template <typename T> struct pair_of { T v[2]; T& operator[](uint i) { return v[i]; } };
template <typename T, int COLS, int ROWS> struct simdgroup_matrix {
    static_assert(COLS == 8 && ROWS == 8, "matrices are 8 x 8");
    pair_of<T>& thread_elements();
};
template <typename T, int COLS, int ROWS> simdgroup_matrix<T, COLS, ROWS> make_filled_simdgroup_matrix(T);
template <typename T> void simdgroup_load(simdgroup_matrix<T, 8, 8>&, device const T*, ulong = 8, ulong2 = 0, bool = false);
template <typename T> void simdgroup_load(simdgroup_matrix<T, 8, 8>&, threadgroup const T*, ulong = 8, ulong2 = 0, bool = false);
template <typename T> void simdgroup_store(simdgroup_matrix<T, 8, 8>, device T*, ulong = 8, ulong2 = 0, bool = false);
template <typename T> void simdgroup_store(simdgroup_matrix<T, 8, 8>, threadgroup T*, ulong = 8, ulong2 = 0, bool = false);
template <typename D, typename A, typename B, typename C>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>&, simdgroup_matrix<A, 8, 8>, simdgroup_matrix<B, 8, 8>, simdgroup_matrix<C, 8, 8>);
} // namespace metal
