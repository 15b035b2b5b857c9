// The left operands of tile.h in registers: of an attention tile, of a chunk of the delta rule.
//
//   Panel<T, M> p                M x 16 elements of T (act) over the lanes; M as in Tile<M, N>
//   panel_load(p, at, ld, lane)  from device memory, where blocks of 8 x 16 elements lie in the order of
//                                the lanes, block r at `at + r * ld`: one wide load a lane and block
//   panel_at(row, col)           place of an element in such a block of PANEL elements
//   panel_write(at, lane, a, b, c, d)   a lane's elements of a block: (row, col), (row, col + 1),
//                                (row, col + 8), (row, col + 9) at row = panel_row(lane), col =
//                                panel_col(lane)
//   tile_at<M, N>(r, n)          accumulators of a lane in the 8 x 8 block (r, n) of a Tile<M, N>: this and the next
//   panel_from(p, t, n)          columns 16 n to 16 n + 15 of a Tile<M, N>, rounded to T
//   panel_mma_nn(t, p, b, ldb)   t += P[M, 16] B[16, N]; B in threadgroup memory as for tile.h
//   panel_mma_nt(t, p, b, ldb)   t += P[M, 16] B[N, 16]^T
//   panel_mma_np(t, p, b, ld, lane)  the same with B as blocks in device memory
#if LILY_TILE == 2
#undef LILY_TILE
#define LILY_TILE 1
#endif
#include "tile.h"

constant constexpr uint PANEL = 128;

// For loops whose full unrolling would make the compiler load every operand at once.
#if defined(LILY_CUDA) || defined(LILY_SIM)
#define LILY_UNROLL_4 _Pragma("unroll 4")
#else
#define LILY_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#endif

// Four neighbouring elements in one access.
inline void panel_read(device const float* at, thread float* x) {
    const float4 v = *(device const float4*)at;
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
}
inline void panel_write(device float* at, float a, float b, float c, float d) {
    *(device float4*)at = make_float4(a, b, c, d);
}
inline uint bfloat_pair(float a, float b) {
    return uint(as_type<ushort>(bfloat(a))) | uint(as_type<ushort>(bfloat(b))) << 16;
}
inline void panel_write(device bfloat* at, float a, float b, float c, float d) {
    *(device uint2*)at = make_uint2(bfloat_pair(a, b), bfloat_pair(c, d));
}

#if LILY_TILE == 3

inline uint panel_row(uint lane) { return lane / 4; }
inline uint panel_col(uint lane) { return lane % 4 * 2; }
inline uint panel_at(uint row, uint col) { return row % 8 * 16 + col % 8 / 2 * 4 + col % 16 / 8 * 2 + col % 2; }

template <uint M, uint N> inline uint tile_at(uint r, uint n) { return (r / 2 * (N / 8) + n) * 4 + r % 2 * 2; }

template <typename T, uint M> struct Panel;
// The registers of m16n8k16: columns below 8 of the rows below 8, of the others, then the columns from 8.
template <uint M> struct Panel<bfloat, M> { uint v[M / 16][4]; };
// The same places as pairs of floats.
template <uint M> struct Panel<float, M> { float v[M / 16][4][2]; };

template <uint M> inline void panel_load(thread Panel<bfloat, M>& p, device const bfloat* at, ulong ld, uint lane) {
    LILY_UNROLL for (uint r = 0; r < M / 8; ++r) {
        const uint2 x = *(device const uint2*)(at + r * ld + lane * 4);
        p.v[r / 2][r % 2] = x.x;
        p.v[r / 2][r % 2 + 2] = x.y;
    }
}
template <uint M> inline void panel_load(thread Panel<float, M>& p, device const float* at, ulong ld, uint lane) {
    LILY_UNROLL for (uint r = 0; r < M / 8; ++r) {
        float x[4];
        panel_read(at + r * ld + lane * 4, x);
        LILY_UNROLL for (uint i = 0; i < 4; ++i) { p.v[r / 2][r % 2 + i / 2 * 2][i % 2] = x[i]; }
    }
}
template <uint M, uint N> inline void panel_from(thread Panel<bfloat, M>& p, thread const Tile<M, N>& t, uint n) {
    LILY_UNROLL for (uint m = 0; m < M / 16; ++m) {
        LILY_UNROLL for (uint i = 0; i < 4; ++i) {
            thread const float* x = t.v[m][2 * n + i / 2] + i % 2 * 2;
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p.v[m][i]) : "f"(x[1]), "f"(x[0]));
        }
    }
}
template <uint M, uint N> inline void panel_from(thread Panel<float, M>& p, thread const Tile<M, N>& t, uint n) {
    LILY_UNROLL for (uint i = 0; i < M / 2; ++i) {
        p.v[i / 8][i / 2 % 4][i % 2] = t.v[i / 8][2 * n + i / 4 % 2][i % 4];
    }
}

template <bool B_T, uint M, uint N>
inline void panel_mma(thread Tile<M, N>& t, thread const Panel<bfloat, M>& p, threadgroup const bfloat* b, uint ldb) {
    const uint lane = threadIdx.x % 32;
    LILY_UNROLL for (uint n = 0; n < N / 16; ++n) {
        uint bf[4];
        if (B_T) { load_matrices(b + (n * 16 + lane % 8 + lane / 16 * 8) * ldb + lane / 8 % 2 * 8, bf); }
        else { load_matrices_transposed(b + (lane % 8 + lane / 8 % 2 * 8) * ldb + n * 16 + lane / 16 * 8, bf); }
        LILY_UNROLL for (uint m = 0; m < M / 16; ++m) {
            mma_16_8_16(t.v[m][2 * n], p.v[m], bf[0], bf[1]);
            mma_16_8_16(t.v[m][2 * n + 1], p.v[m], bf[2], bf[3]);
        }
    }
}
template <uint M, uint N>
inline void panel_mma_np(thread Tile<M, N>& t, thread const Panel<bfloat, M>& p, device const bfloat* b, ulong ld, uint lane) {
    LILY_UNROLL for (uint n = 0; n < N / 8; ++n) {
        const uint2 x = *(device const uint2*)(b + n * ld + lane * 4);
        LILY_UNROLL for (uint m = 0; m < M / 16; ++m) { mma_16_8_16(t.v[m][n], p.v[m], x.x, x.y); }
    }
}
// The exact mode: a row of P comes from the four lanes that have it.
template <uint M> inline void panel_column(thread const Panel<float, M>& p, uint k, thread float* x) {
    const uint from = (threadIdx.x % 32 & ~3u) + k % 8 / 2;
    LILY_UNROLL for (uint r = 0; r < M / 8; ++r) { x[r] = simd_shuffle(p.v[r / 2][r % 2 + k / 8 * 2][k % 2], from); }
}
template <uint M, uint N> inline void add_outer(thread Tile<M, N>& t, thread const float* x, uint n, float y0, float y1) {
    LILY_UNROLL for (uint r = 0; r < M / 8; ++r) {
        thread float* c = t.v[r / 2][n] + r % 2 * 2;
        c[0] = fma(x[r], y0, c[0]);
        c[1] = fma(x[r], y1, c[1]);
    }
}
template <bool B_T, uint M, uint N>
inline void panel_mma(thread Tile<M, N>& t, thread const Panel<float, M>& p, threadgroup const float* b, uint ldb) {
    LILY_UNROLL for (uint k = 0; k < 16; ++k) {
        float x[M / 8];
        panel_column(p, k, x);
        LILY_UNROLL for (uint n = 0; n < N / 8; ++n) {
            const uint col = n * 8 + threadIdx.x % 4 * 2;
            add_outer(t, x, n, B_T ? b[col * ldb + k] : b[k * ldb + col], B_T ? b[(col + 1) * ldb + k] : b[k * ldb + col + 1]);
        }
    }
}
template <uint M, uint N>
inline void panel_mma_np(thread Tile<M, N>& t, thread const Panel<float, M>& p, device const float* b, ulong ld, uint lane) {
    LILY_UNROLL for (uint k = 0; k < 16; ++k) {
        float x[M / 8];
        panel_column(p, k, x);
        LILY_UNROLL for (uint n = 0; n < N / 8; ++n) {
            const uint col = lane % 4 * 2;
            add_outer(t, x, n, b[n * ld + panel_at(col, k)], b[n * ld + panel_at(col + 1, k)]);
        }
    }
}

#else

// A lane's two elements of an 8 x 8 matrix, as in tile.h.
inline uint panel_row(uint lane) { return (lane / 4 & 4) + lane / 2 % 4; }
inline uint panel_col(uint lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }
inline uint panel_at(uint row, uint col) {
    const uint lane = row % 8 / 4 * 16 + col % 8 / 4 * 8 + row % 4 * 2 + col % 4 / 2;
    return lane * 4 + col % 16 / 8 * 2 + col % 2;
}
inline void panel_read(device const bfloat* at, thread float* x) {
    const uint2 v = *(device const uint2*)at;
    x[0] = as_type<float>(v.x << 16);
    x[1] = as_type<float>(v.x & 0xffff0000u);
    x[2] = as_type<float>(v.y << 16);
    x[3] = as_type<float>(v.y & 0xffff0000u);
}

template <uint M, uint N> inline uint tile_at(uint r, uint n) { return (r * (N / 8) + n) * 2; }

template <typename T, uint M> struct Panel { simdgroup_matrix<T, 8, 8> v[M / 8][2]; };

template <typename T, uint M> inline void panel_load(thread Panel<T, M>& p, device const T* at, ulong ld, uint lane) {
    LILY_UNROLL for (uint r = 0; r < M / 8; ++r) {
        float x[4];
        panel_read(at + r * ld + lane * 4, x);
        LILY_UNROLL for (uint i = 0; i < 4; ++i) { p.v[r][i / 2].thread_elements()[i % 2] = T(x[i]); }
    }
}
template <typename T, uint M, uint N> inline void panel_from(thread Panel<T, M>& p, thread Tile<M, N>& t, uint n) {
    LILY_UNROLL for (uint r = 0; r < M / 8; ++r) {
        LILY_UNROLL for (uint i = 0; i < 4; ++i) {
            p.v[r][i / 2].thread_elements()[i % 2] = T(t.v[r][2 * n + i / 2].thread_elements()[i % 2]);
        }
    }
}
template <bool B_T, typename T, uint M, uint N>
inline void panel_mma(thread Tile<M, N>& t, thread const Panel<T, M>& p, threadgroup const T* b, uint ldb) {
    LILY_UNROLL for (uint n = 0; n < N / 8; ++n) {
        LILY_UNROLL for (uint k = 0; k < 2; ++k) {
            simdgroup_matrix<T, 8, 8> bf;
            simdgroup_load(bf, B_T ? b + n * 8 * ldb + k * 8 : b + k * 8 * ldb + n * 8, ldb, ulong2(0, 0), B_T);
            LILY_UNROLL for (uint m = 0; m < M / 8; ++m) {
                simdgroup_multiply_accumulate(t.v[m][n], p.v[m][k], bf, t.v[m][n]);
            }
        }
    }
}
// The blocks hold B^T, so a lane's elements are apart.
template <typename T, uint M, uint N>
inline void panel_mma_np(thread Tile<M, N>& t, thread const Panel<T, M>& p, device const T* b, ulong ld, uint lane) {
    LILY_UNROLL for (uint n = 0; n < N / 8; ++n) {
        LILY_UNROLL for (uint k = 0; k < 2; ++k) {
            simdgroup_matrix<T, 8, 8> bf;
            LILY_UNROLL for (uint i = 0; i < 2; ++i) {
                bf.thread_elements()[i] = b[n * ld + panel_at(panel_col(lane) + i, k * 8 + panel_row(lane))];
            }
            LILY_UNROLL for (uint m = 0; m < M / 8; ++m) {
                simdgroup_multiply_accumulate(t.v[m][n], p.v[m][k], bf, t.v[m][n]);
            }
        }
    }
}
#endif

template <typename T, uint M, uint N>
inline void panel_mma_nn(thread Tile<M, N>& t, thread const Panel<T, M>& p, threadgroup const T* b, uint ldb) {
    panel_mma<false>(t, p, b, ldb);
}
template <typename T, uint M, uint N>
inline void panel_mma_nt(thread Tile<M, N>& t, thread const Panel<T, M>& p, threadgroup const T* b, uint ldb) {
    panel_mma<true>(t, p, b, ldb);
}
// Lanes that share a row of a tile: 4, which differ in these bits.
inline float row_sum(float x) {
    x += simd_shuffle_xor(x, 1);
    return x + simd_shuffle_xor(x, LILY_TILE == 3 ? 2 : 8);
}
inline float row_max(float x) {
    x = max(x, simd_shuffle_xor(x, 1));
    return max(x, simd_shuffle_xor(x, LILY_TILE == 3 ? 2 : 8));
}
