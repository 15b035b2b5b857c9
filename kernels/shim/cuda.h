// The vocabulary of lily.h for CUDA C++, put in front of every kernel that NVRTC compiles. It
// includes nothing, so that no CUDA headers are needed where Lily runs; NVRTC itself knows float4,
// make_float4, blockIdx, expf and the like. The words kernel, device, threadgroup, thread and
// constant are taken out of the text before (crates/device/src/cuda/rewrite.rs): as macros they
// would also rewrite the inside of __device__ and __shared__.
#define LILY_CUDA 1
#define LILY_FN __device__ __forceinline__

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long long ulong;

#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)

// For `using namespace metal`.
namespace metal {}

// 16-bit floats convert to float by themselves and from float only when asked, as in Metal; all
// arithmetic on them is in float.
struct __align__(2) bfloat {
    ushort bits;
    bfloat() = default;
    LILY_FN explicit bfloat(float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    LILY_FN operator float() const { return __uint_as_float(uint(bits) << 16); }
};
struct __align__(2) half {
    ushort bits;
    half() = default;
    LILY_FN explicit half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    LILY_FN operator float() const {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
    }
};

// The same bits as another type.
template <typename T, typename U> LILY_FN T as_type(U x) {
    static_assert(sizeof(T) == sizeof(U), "as_type keeps the size");
    T out;
    memcpy(&out, &x, sizeof(T));
    return out;
}

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
LILY_FN constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
LILY_FN void threadgroup_barrier(mem_flags) { __syncthreads(); }
LILY_FN void simdgroup_barrier(mem_flags) { __syncwarp(); }

#define LILY_ALL_LANES 0xffffffffu
template <typename T> LILY_FN T simd_shuffle(T x, ushort lane) { return __shfl_sync(LILY_ALL_LANES, x, lane); }
template <typename T> LILY_FN T simd_broadcast(T x, ushort lane) { return __shfl_sync(LILY_ALL_LANES, x, lane); }
template <typename T> LILY_FN T simd_shuffle_xor(T x, ushort mask) { return __shfl_xor_sync(LILY_ALL_LANES, x, mask); }
LILY_FN bfloat simd_shuffle(bfloat x, ushort lane) {
    x.bits = ushort(__shfl_sync(LILY_ALL_LANES, uint(x.bits), lane));
    return x;
}
LILY_FN half simd_shuffle(half x, ushort lane) {
    x.bits = ushort(__shfl_sync(LILY_ALL_LANES, uint(x.bits), lane));
    return x;
}

// A butterfly: one fixed order of additions, and every lane gets the same bits.
LILY_FN float simd_sum(float x) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) { x += __shfl_xor_sync(LILY_ALL_LANES, x, mask); }
    return x;
}
LILY_FN float simd_max(float x) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) { x = fmaxf(x, __shfl_xor_sync(LILY_ALL_LANES, x, mask)); }
    return x;
}
LILY_FN float simd_min(float x) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) { x = fminf(x, __shfl_xor_sync(LILY_ALL_LANES, x, mask)); }
    return x;
}
LILY_FN uint simd_sum(uint x) { return __reduce_add_sync(LILY_ALL_LANES, x); }
LILY_FN uint simd_max(uint x) { return __reduce_max_sync(LILY_ALL_LANES, x); }
LILY_FN uint simd_min(uint x) { return __reduce_min_sync(LILY_ALL_LANES, x); }
LILY_FN uint simd_prefix_exclusive_sum(uint x) {
    const uint lane = threadIdx.x % 32;
    uint sum = x;
#pragma unroll
    for (uint step = 1; step < 32; step *= 2) {
        const uint below = __shfl_up_sync(LILY_ALL_LANES, sum, step);
        if (lane >= step) { sum += below; }
    }
    return sum - x;
}

// Relaxed: other threadgroups see the value, but nothing else is ordered by it.
enum memory_order { memory_order_relaxed };
struct atomic_uint {
    uint value;
};
LILY_FN uint atomic_load_explicit(const atomic_uint* a, memory_order) { return *(const volatile uint*)&a->value; }
LILY_FN void atomic_store_explicit(atomic_uint* a, uint x, memory_order) { *(volatile uint*)&a->value = x; }
LILY_FN uint atomic_fetch_add_explicit(atomic_uint* a, uint x, memory_order) { return atomicAdd(&a->value, x); }
