// Stands in for <metal_stdlib> when `cargo xtask typecheck` reads a kernel with plain clang.
//
// Address spaces are real here: a wrong or missing qualifier, and a pointer that changes its space,
// do not compile. The words are those of lily.h and of tile.h, in Metal's own form, plus the names
// that `using namespace metal` would bring into conflict with ours. Nothing is defined: the text is
// never run.
//
// Declarations follow the Metal Shading Language Specification 3.2. Stricter than Metal on purpose:
// half and bfloat convert only when told to (compilers disagree about the rest) and have no
// arithmetic; structs in another space are read member by member. What no declaration can express,
// such as a pointer without any qualifier, is found by rules of xtask.
#pragma clang system_header

#define kernel
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread
// Written in place of `threadgroup` before an array in a kernel body.
#define LILY_THREADGROUP_ARRAY static __attribute__((address_space(3)))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

// Scalars as far as loads, stores and arrays in any space go; no implicit conversion either way.
enum class half : ushort {};
enum class bfloat : ushort {};
enum class atomic_uint : uint {};
enum class atomic_int : int {};

typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef uint uint2 __attribute__((ext_vector_type(2)));
typedef uint uint3 __attribute__((ext_vector_type(3)));
typedef uint uint4 __attribute__((ext_vector_type(4)));
typedef ulong ulong2 __attribute__((ext_vector_type(2)));

// Metal's vector constructors, which clang's vectors lack; the names stay types everywhere else.
template <typename V> V typecheck_vector();
template <typename V, typename... T> inline V typecheck_vector(T... x) {
    return V{static_cast<decltype(V{}.x)>(x)...};
}
#define float2(...) typecheck_vector<float2>(__VA_ARGS__)
#define float4(...) typecheck_vector<float4>(__VA_ARGS__)
#define uint2(...) typecheck_vector<uint2>(__VA_ARGS__)
#define uint3(...) typecheck_vector<uint3>(__VA_ARGS__)
#define uint4(...) typecheck_vector<uint4>(__VA_ARGS__)
#define ulong2(...) typecheck_vector<ulong2>(__VA_ARGS__)

template <typename T, typename U> inline T as_type(U x) {
    static_assert(sizeof(T) == sizeof(U), "as_type between types of different size");
    return __builtin_bit_cast(T, x);
}

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define FLT_EPSILON 0x1p-23f
#define UINT_MAX 0xffffffffu
#define INT_MAX 2147483647
#define M_PI_F 3.14159265358979323846f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.693147180559945309417f

namespace metal {

// Overloads as in Metal, where exp(1u) and min(uint, ulong) are ambiguous; _Float16 is the second
// overload that makes them so. Numbers without f are refused too: elsewhere they are doubles.
#define TYPECHECK_UNARY(f) float f(float); _Float16 f(_Float16);
TYPECHECK_UNARY(exp) TYPECHECK_UNARY(exp2) TYPECHECK_UNARY(exp10)
TYPECHECK_UNARY(log) TYPECHECK_UNARY(log2) TYPECHECK_UNARY(log10)
TYPECHECK_UNARY(sqrt) TYPECHECK_UNARY(rsqrt)
TYPECHECK_UNARY(sin) TYPECHECK_UNARY(cos) TYPECHECK_UNARY(tan) TYPECHECK_UNARY(tanh)
TYPECHECK_UNARY(fabs) TYPECHECK_UNARY(floor) TYPECHECK_UNARY(ceil) TYPECHECK_UNARY(trunc)
TYPECHECK_UNARY(round) TYPECHECK_UNARY(rint) TYPECHECK_UNARY(fract) TYPECHECK_UNARY(sign)
TYPECHECK_UNARY(saturate)
#undef TYPECHECK_UNARY
float fma(float, float, float); _Float16 fma(_Float16, _Float16, _Float16);
float pow(float, float); _Float16 pow(_Float16, _Float16);
float fmin(float, float); _Float16 fmin(_Float16, _Float16);
float fmax(float, float); _Float16 fmax(_Float16, _Float16);
float step(float, float); _Float16 step(_Float16, _Float16);
float mix(float, float, float); _Float16 mix(_Float16, _Float16, _Float16);
bool isnan(float); bool isinf(float); bool isfinite(float);
float dot(float2, float2); float dot(float4, float4);
float length(float2); float length(float4);
bool any(bool); bool all(bool);

#define TYPECHECK_ARITHMETIC(T) T min(T, T); T max(T, T); T clamp(T, T, T);
TYPECHECK_ARITHMETIC(char) TYPECHECK_ARITHMETIC(uchar) TYPECHECK_ARITHMETIC(short)
TYPECHECK_ARITHMETIC(ushort) TYPECHECK_ARITHMETIC(int) TYPECHECK_ARITHMETIC(uint)
TYPECHECK_ARITHMETIC(long) TYPECHECK_ARITHMETIC(ulong) TYPECHECK_ARITHMETIC(float)
TYPECHECK_ARITHMETIC(_Float16)
#undef TYPECHECK_ARITHMETIC

#define TYPECHECK_INTEGER(T) T abs(T); T popcount(T); T clz(T); T ctz(T); T mulhi(T, T);
TYPECHECK_INTEGER(int) TYPECHECK_INTEGER(uint) TYPECHECK_INTEGER(long) TYPECHECK_INTEGER(ulong)
#undef TYPECHECK_INTEGER

// The types that every GPU family shuffles: no 64-bit ones.
#define TYPECHECK_LANES(T)                                                                       \
    T simd_sum(T); T simd_max(T); T simd_min(T);                                                 \
    T simd_shuffle(T, ushort); T simd_shuffle_xor(T, ushort); T simd_broadcast(T, ushort);       \
    T simd_prefix_exclusive_sum(T); T simd_prefix_inclusive_sum(T);
TYPECHECK_LANES(short) TYPECHECK_LANES(ushort) TYPECHECK_LANES(int) TYPECHECK_LANES(uint)
TYPECHECK_LANES(float)
#undef TYPECHECK_LANES

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

enum memory_order { memory_order_relaxed = 0 };

#define TYPECHECK_ATOMIC(A, T, space)                                                            \
    T atomic_load_explicit(const volatile space A*, memory_order);                               \
    void atomic_store_explicit(volatile space A*, T, memory_order);                              \
    T atomic_exchange_explicit(volatile space A*, T, memory_order);                              \
    T atomic_fetch_add_explicit(volatile space A*, T, memory_order);                             \
    T atomic_fetch_sub_explicit(volatile space A*, T, memory_order);                             \
    T atomic_fetch_max_explicit(volatile space A*, T, memory_order);                             \
    T atomic_fetch_min_explicit(volatile space A*, T, memory_order);                             \
    T atomic_fetch_or_explicit(volatile space A*, T, memory_order);                              \
    T atomic_fetch_and_explicit(volatile space A*, T, memory_order);
TYPECHECK_ATOMIC(atomic_uint, uint, device) TYPECHECK_ATOMIC(atomic_uint, uint, threadgroup)
TYPECHECK_ATOMIC(atomic_int, int, device) TYPECHECK_ATOMIC(atomic_int, int, threadgroup)
#undef TYPECHECK_ATOMIC

// simdgroup_matrix: 8 x 8, of float, half or bfloat.
template <typename T> struct typecheck_pair {
    T x, y;
    T& operator[](uint);
    const T& operator[](uint) const;
};
template <typename T, int Cols, int Rows = Cols> struct simdgroup_matrix {
    static_assert(Cols == 8 && Rows == 8, "a simdgroup_matrix is 8 x 8");
    simdgroup_matrix();
    explicit simdgroup_matrix(T diagonal);
    typecheck_pair<T>& thread_elements();
    const typecheck_pair<T>& thread_elements() const;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <typename T, int Cols, int Rows> simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T);

#define TYPECHECK_MATRIX(space)                                                                  \
    template <typename T, int C, int R>                                                          \
    void simdgroup_load(simdgroup_matrix<T, C, R>&, const space T*, ulong elements_per_row = C,  \
                        ulong2 origin = 0, bool transpose = false);                              \
    template <typename T, int C, int R>                                                          \
    void simdgroup_store(const simdgroup_matrix<T, C, R>&, space T*, ulong elements_per_row = C, \
                         ulong2 origin = 0, bool transpose = false);
TYPECHECK_MATRIX(device) TYPECHECK_MATRIX(threadgroup)
#undef TYPECHECK_MATRIX

template <typename D, typename A, typename B>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                   const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<D, 8, 8>& c);
template <typename D, typename A, typename B>
void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                        const simdgroup_matrix<B, 8, 8>& b);

#ifdef TYPECHECK_METAL_4
// Tensors and their product (Metal 4), as <metal_tensor> and MetalPerformancePrimitives declare them, as far
// as tile.h uses them.
struct tensor_inline {};
template <typename T, int N> struct array {
    T at[N];
    T& operator[](uint);
    const T& operator[](uint) const;
};
template <typename T, int Rank> struct dextents {
    dextents(T, T);
};
template <typename T, typename Extents, typename Kind> struct tensor {
    tensor(T*, Extents, array<int, 2>);
};
template <typename T> constexpr T dynamic_length_v = T(-1);
struct execution_simdgroup {};
#endif

}  // namespace metal

#ifdef TYPECHECK_METAL_4
typedef int int32_t;
namespace mpp {
namespace tensor_ops {
struct matmul2d_descriptor {
    enum class mode { multiply, multiply_accumulate };
    int m, n, k;
    bool left, right, relaxed;
    mode what;
    constexpr matmul2d_descriptor(int m, int n, int k, bool left, bool right, bool relaxed, mode what)
        : m(m), n(n), k(k), left(left), right(right), relaxed(relaxed), what(what) {}
};
template <matmul2d_descriptor What, typename T> struct typecheck_destination {
    unsigned short get_capacity() const;
    bool is_valid_element(unsigned short) const;
    T& operator[](unsigned short);
    metal::array<int, 2> get_multidimensional_index(unsigned short) const;
};
template <matmul2d_descriptor What, typename Scope> struct matmul2d {
    template <typename A, typename B, typename T> typecheck_destination<What, T> get_destination_cooperative_tensor();
    template <typename A, typename B, typename T> void run(A&, B&, typecheck_destination<What, T>&);
};
}  // namespace tensor_ops
}  // namespace mpp
#endif

// Metal has none of these words, or uses them for something else.
#pragma clang poison double goto try catch throw new delete virtual dynamic_cast typeid asm
#pragma clang poison vertex fragment ray_data object_data visible thread_local
