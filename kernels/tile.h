// Matrix tiles: the multiply-accumulate units of the hardware behind one set of names.
//
// A SIMD group owns an accumulator of M x N f32, `Tile<M, N>`, M and N multiples of 16. Operands
// come from threadgroup memory as `elem`: TILE_ELEM if a kernel defines it, else `act`. Leading
// dimensions are in elements. All 32 lanes call every function below together.
//
//   tile_zero(c)                        C = 0
//   tile_mma<K>(c, a, lda, b, ldb)      C += A[M, K] B[N, K]^T     A as [M, lda], B as [N, ldb]
//   tile_mma_kn<K>(c, a, lda, b, ldb)   C += A[M, K] B[K, N]       A as [M, lda], B as [K, ldb]
//   tile_mma_tn<K>(c, a, lda, b, ldb)   C += A[K, M]^T B[K, N]     A as [K, lda], B as [K, ldb]
//   tile_store(c, out, ld)              out[M, ld] = C, threadgroup f32 or elem
//   tile_load(c, in, ld)                C = in[M, ld], threadgroup f32
//   tile_scale_rows(c, s)               C[i, :] *= s[i], threadgroup f32
//   C's own elements: `c.get(i)`, `c.set(i, v)` for i < Tile<M, N>::LEN, at `c.row(i, lane)`,
//   `c.col(i, lane)`. i must be known at compile time (an unrolled loop). Elements 2i and 2i + 1
//   are neighbours in a row.
//
// K is a multiple of 16. Rows of A and B must be aligned to 16 bytes: bases and leading dimensions
// are multiples of 8 elements (elem float: 4). A leading dimension of 8 (float: 4) more than a
// multiple of 32 elements avoids bank conflicts. With A or B just written: a barrier first.
//
// Bodies, by LILY_TILE: 1 simdgroup_matrix 8 x 8 (M1 to M4), 2 Metal 4 tensor operations (M5 and
// later), 3 mma.sync m16n8k16 (NVIDIA). Where elem is float, products are exact f32 fused
// multiply-adds: body 2 uses body 1, body 3 plain fma.
#include "lily.h"
#ifndef TILE_ELEM
#define TILE_ELEM LILY_ACT
#endif
typedef TILE_ELEM elem;

// TILE_EXACT: whether elem is float.
#define TILE_IS_float 1
#define TILE_PASTE(a, b) a##b
#define TILE_IS(type) TILE_PASTE(TILE_IS_, type)
#if TILE_IS(TILE_ELEM)
#define TILE_EXACT 1
#else
#define TILE_EXACT 0
#endif
#ifndef LILY_TILE
#define LILY_TILE 1
#endif
#if LILY_TILE == 3
#define TILE_BODY 3
#elif LILY_TILE == 2 && !TILE_EXACT
#define TILE_BODY 2
#else
#define TILE_BODY 1
#endif

#if TILE_BODY == 1

template <uint M, uint N> struct Tile {
    enum : uint { LEN = M * N / 32, ROWS = M, COLS = N };
    simdgroup_matrix<float, 8, 8> m[M / 8][N / 8];
    // Fragment i / 2, row by row; within it, the layout that MLX relies on as well.
    float get(uint i) const thread { return m[i / 2 / (N / 8)][i / 2 % (N / 8)].thread_elements()[i % 2]; }
    void set(uint i, float v) thread { m[i / 2 / (N / 8)][i / 2 % (N / 8)].thread_elements()[i % 2] = v; }
    uint row(uint i, uint lane) const thread { return i / 2 / (N / 8) * 8 + (lane / 16) * 4 + (lane / 2) % 4; }
    uint col(uint i, uint lane) const thread {
        return i / 2 % (N / 8) * 8 + (lane / 8 % 2) * 4 + lane % 2 * 2 + i % 2;
    }
};

template <uint M, uint N> inline void tile_zero(thread Tile<M, N>& c) {
    LILY_UNROLL for (uint i = 0; i < M / 8; ++i) {
        LILY_UNROLL for (uint j = 0; j < N / 8; ++j) { c.m[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); }
    }
}

// Which operand lies the other way round.
template <uint K, bool A_T, bool B_T, uint M, uint N>
inline void tile_mma_8x8(thread Tile<M, N>& c, threadgroup const elem* a, uint lda, threadgroup const elem* b,
                         uint ldb, uint live)
{
    LILY_UNROLL for (uint k = 0; k < K; k += 8) {
        simdgroup_matrix<elem, 8, 8> bf[N / 8];
        LILY_UNROLL for (uint j = 0; j < N / 8; ++j) {
            simdgroup_load(bf[j], B_T ? b + j * 8 * ldb + k : b + k * ldb + j * 8, ldb, ulong2(0, 0), B_T);
        }
        LILY_UNROLL for (uint i = 0; i < M / 8; ++i) {
            if (i * 8 < live) {
                simdgroup_matrix<elem, 8, 8> af;
                simdgroup_load(af, A_T ? a + k * lda + i * 8 : a + i * 8 * lda + k, lda, ulong2(0, 0), A_T);
                LILY_UNROLL for (uint j = 0; j < N / 8; ++j) {
                    simdgroup_multiply_accumulate(c.m[i][j], af, bf[j], c.m[i][j]);
                }
            }
        }
    }
}
