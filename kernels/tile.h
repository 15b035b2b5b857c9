// Matrix tiles: one SIMD group multiplies small matrices that lie in threadgroup memory.
//
//   Tile<M, N> t           f32 accumulators, M x N, spread over the lanes; M a multiple of 16, N of 8
//                          (of 16 for the products below)
//   tile_zero(t)
//   tile_mma_nt<K>(t, a, lda, b, ldb)    t += A[M, K] B[N, K]^T
//   tile_mma_nn<K>(t, a, lda, b, ldb)    t += A[M, K] B[K, N]
//   tile_mma_tn<K>(t, a, lda, b, ldb)    t += A[K, M]^T B[K, N]
//   tile_count(t), tile_valid(t, i)      accumulators of a lane, and whether the i-th is one
//   tile_row(t, i, lane), tile_col(t, i, lane), tile_get(t, i), tile_set(t, i, x)
//                          the i-th of them. Except for the second body they are TILE_COUNT(M, N),
//                          all valid
//   tile_store(t, out, ldo, lane)        to threadgroup memory, f32
//
// A and B are threadgroup arrays of act (float in the exact mode, else bfloat), row-major, ld elements
// a row. ld is a multiple of 8 and rows begin on 16 bytes; an odd multiple of 8 keeps the rows of a
// tile on different banks. K is a multiple of 16. All 32 lanes arrive at every call but the accessors;
// the caller puts barriers around writes of A and B.
//
// Three bodies, by LILY_TILE: 1 Apple's simdgroup_matrix, 2 Metal 4 tensor operations (macOS 26, M5 and
// later; tile_mma_nt only), 3 NVIDIA's mma.sync. A file that keeps operands in registers (panel.h) knows
// where their elements are, so it takes the first body instead of the second.
#include "lily.h"

#define TILE_COUNT(M, N) ((M) * (N) / 32)

#if LILY_TILE == 3
// ---------------------------------------------------------------- NVIDIA: m16n8k16, bf16 in, f32 out

template <uint M, uint N> struct Tile { float v[M / 16][N / 8][4]; };

template <uint M, uint N> inline float tile_get(thread Tile<M, N>& t, uint i) {
    return t.v[i / (N / 2)][i / 4 % (N / 8)][i % 4];
}
template <uint M, uint N> inline void tile_set(thread Tile<M, N>& t, uint i, float x) {
    t.v[i / (N / 2)][i / 4 % (N / 8)][i % 4] = x;
}
template <uint M, uint N> inline uint tile_row(thread const Tile<M, N>& t, uint i, uint lane) {
    return i / (N / 2) * 16 + i % 4 / 2 * 8 + lane / 4;
}
template <uint M, uint N> inline uint tile_col(thread const Tile<M, N>& t, uint i, uint lane) {
    return i / 4 % (N / 8) * 8 + lane % 4 * 2 + i % 2;
}

inline void mma_16_8_16(thread float* d, thread const uint* a, uint b0, uint b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
inline void load_matrices(threadgroup const bfloat* row, thread uint* out) {
    const uint at = uint(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at));
}
inline void load_matrices_transposed(threadgroup const bfloat* row, thread uint* out) {
    const uint at = uint(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at));
}

// A_T: A is [K, M]. B_T: B is [N, K].
template <uint K, bool A_T, bool B_T, uint M, uint N>
inline void tile_mma(thread Tile<M, N>& t, threadgroup const bfloat* a, uint lda, threadgroup const bfloat* b, uint ldb)
{
    const uint lane = threadIdx.x % 32;
    // Rows and columns of the four matrices that a lane addresses, in a 16 x 16 block.
    const uint low = lane % 8 + lane / 8 % 2 * 8;
    const uint high = lane / 16 * 8;
    const uint low2 = lane % 8 + lane / 16 * 8;
    const uint high2 = lane / 8 % 2 * 8;
    LILY_UNROLL for (uint k = 0; k < K; k += 16) {
        uint af[M / 16][4];
        LILY_UNROLL for (uint m = 0; m < M / 16; ++m) {
            if (A_T) { load_matrices_transposed(a + (k + low2) * lda + m * 16 + high2, af[m]); }
            else { load_matrices(a + (m * 16 + low) * lda + k + high, af[m]); }
        }
        LILY_UNROLL for (uint n = 0; n < N / 16; ++n) {
            uint bf[4];
            if (B_T) { load_matrices(b + (n * 16 + low2) * ldb + k + high2, bf); }
            else { load_matrices_transposed(b + (k + low) * ldb + n * 16 + high, bf); }
            LILY_UNROLL for (uint m = 0; m < M / 16; ++m) {
                mma_16_8_16(t.v[m][2 * n], af[m], bf[0], bf[1]);
                mma_16_8_16(t.v[m][2 * n + 1], af[m], bf[2], bf[3]);
            }
        }
    }
}
// The exact mode: the same places, by plain multiplication.
template <uint K, bool A_T, bool B_T, uint M, uint N>
inline void tile_mma(thread Tile<M, N>& t, threadgroup const float* a, uint lda, threadgroup const float* b, uint ldb)
{
    const uint lane = threadIdx.x % 32;
    for (uint k = 0; k < K; ++k) {
        LILY_UNROLL for (uint i = 0; i < TILE_COUNT(M, N); ++i) {
            const uint row = tile_row(t, i, lane);
            const uint col = tile_col(t, i, lane);
            const float x = A_T ? a[k * lda + row] : a[row * lda + k];
            const float y = B_T ? b[col * ldb + k] : b[k * ldb + col];
            tile_set(t, i, fma(x, y, tile_get(t, i)));
        }
    }
}

#elif LILY_TILE == 2
// ---------------------------------------------------------------- Apple: tensor operations
// As Apple's headers and their published users have it (no compiler of Apple's has read this yet):
// extents and strides of a tensor begin with the fastest; a destination is spread over the SIMD group in
// a way of its own, so an index is asked for its place, column first; run() adds to it.
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace mpp::tensor_ops;

typedef tensor<threadgroup act, dextents<int32_t, 2>, tensor_inline> TileOperand;

// The length of the sums is that of the operands. Nothing is relaxed.
template <uint M, uint N> inline auto tile_destination() {
    constexpr auto what = matmul2d_descriptor(M, N, dynamic_length_v<int>, false, true, false, matmul2d_descriptor::mode::multiply_accumulate);
    matmul2d<what, execution_simdgroup> op;
    return op.template get_destination_cooperative_tensor<TileOperand, TileOperand, float>();
}
template <uint M, uint N> struct Tile { decltype(tile_destination<M, N>()) v; };

template <uint M, uint N> inline uint tile_count(thread Tile<M, N>& t) { return t.v.get_capacity(); }
template <uint M, uint N> inline bool tile_valid(thread Tile<M, N>& t, uint i) { return t.v.is_valid_element(i); }
template <uint M, uint N> inline float tile_get(thread Tile<M, N>& t, uint i) { return t.v[i]; }
template <uint M, uint N> inline void tile_set(thread Tile<M, N>& t, uint i, float x) { t.v[i] = x; }
template <uint M, uint N> inline uint tile_row(thread Tile<M, N>& t, uint i, uint) { return t.v.get_multidimensional_index(i)[1]; }
template <uint M, uint N> inline uint tile_col(thread Tile<M, N>& t, uint i, uint) { return t.v.get_multidimensional_index(i)[0]; }

// Tensors do not take pointers to const.
template <uint K, uint M, uint N>
inline void tile_mma_nt(thread Tile<M, N>& t, threadgroup act* a, uint lda, threadgroup act* b, uint ldb) {
    constexpr auto what = matmul2d_descriptor(M, N, dynamic_length_v<int>, false, true, false, matmul2d_descriptor::mode::multiply_accumulate);
    matmul2d<what, execution_simdgroup> op;
    TileOperand left(a, dextents<int32_t, 2>(K, M), array<int32_t, 2>{1, int32_t(lda)});
    TileOperand right(b, dextents<int32_t, 2>(K, N), array<int32_t, 2>{1, int32_t(ldb)});
    op.run(left, right, t.v);
}

#else
// ---------------------------------------------------------------- Apple: 8 x 8 matrices

template <uint M, uint N> struct Tile { simdgroup_matrix<float, 8, 8> v[M / 8][N / 8]; };

template <uint M, uint N> inline float tile_get(thread Tile<M, N>& t, uint i) {
    return t.v[i / (N / 4)][i / 2 % (N / 8)].thread_elements()[i % 2];
}
template <uint M, uint N> inline void tile_set(thread Tile<M, N>& t, uint i, float x) {
    t.v[i / (N / 4)][i / 2 % (N / 8)].thread_elements()[i % 2] = x;
}
// The layout of an 8 x 8 matrix is not documented by Apple; MLX relies on it too (BaseMMAFrag), and
// `lily doctor` checks it.
template <uint M, uint N> inline uint tile_row(thread const Tile<M, N>& t, uint i, uint lane) {
    return i / (N / 4) * 8 + (lane / 4 & 4) + lane / 2 % 4;
}
template <uint M, uint N> inline uint tile_col(thread const Tile<M, N>& t, uint i, uint lane) {
    return i / 2 % (N / 8) * 8 + (lane / 4 & 2) * 2 + lane % 2 * 2 + i % 2;
}

template <uint K, bool A_T, bool B_T, uint M, uint N, typename T>
inline void tile_mma(thread Tile<M, N>& t, threadgroup const T* a, uint lda, threadgroup const T* b, uint ldb)
{
    LILY_UNROLL for (uint k = 0; k < K; k += 8) {
        simdgroup_matrix<T, 8, 8> af[M / 8];
        LILY_UNROLL for (uint m = 0; m < M / 8; ++m) {
            simdgroup_load(af[m], A_T ? a + k * lda + m * 8 : a + m * 8 * lda + k, lda, ulong2(0, 0), A_T);
        }
        LILY_UNROLL for (uint n = 0; n < N / 8; ++n) {
            simdgroup_matrix<T, 8, 8> bf;
            simdgroup_load(bf, B_T ? b + n * 8 * ldb + k : b + k * ldb + n * 8, ldb, ulong2(0, 0), B_T);
            LILY_UNROLL for (uint m = 0; m < M / 8; ++m) {
                simdgroup_multiply_accumulate(t.v[m][n], af[m], bf, t.v[m][n]);
            }
        }
    }
}
#endif

#if LILY_TILE != 2
template <uint M, uint N> inline uint tile_count(thread const Tile<M, N>&) { return TILE_COUNT(M, N); }
template <uint M, uint N> inline bool tile_valid(thread const Tile<M, N>&, uint) { return true; }
#endif
template <uint M, uint N> inline void tile_zero(thread Tile<M, N>& t) {
    LILY_UNROLL for (uint i = 0; i < tile_count(t); ++i) { tile_set(t, i, 0.0f); }
}
template <uint M, uint N> inline void tile_store(thread Tile<M, N>& t, threadgroup float* out, uint ldo, uint lane) {
    LILY_UNROLL for (uint i = 0; i < tile_count(t); ++i) {
        if (tile_valid(t, i)) { out[tile_row(t, i, lane) * ldo + tile_col(t, i, lane)] = tile_get(t, i); }
    }
}
#if LILY_TILE != 2
template <uint K, uint M, uint N, typename T>
inline void tile_mma_nt(thread Tile<M, N>& t, threadgroup const T* a, uint lda, threadgroup const T* b, uint ldb) {
    tile_mma<K, false, true>(t, a, lda, b, ldb);
}
template <uint K, uint M, uint N, typename T>
inline void tile_mma_nn(thread Tile<M, N>& t, threadgroup const T* a, uint lda, threadgroup const T* b, uint ldb) {
    tile_mma<K, false, false>(t, a, lda, b, ldb);
}
template <uint K, uint M, uint N, typename T>
inline void tile_mma_tn(thread Tile<M, N>& t, threadgroup const T* a, uint lda, threadgroup const T* b, uint ldb) {
    tile_mma<K, true, false>(t, a, lda, b, ldb);
}
#endif
