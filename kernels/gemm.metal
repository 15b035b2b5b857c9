// y[t, n] (+)= sum_k x[t, k] W[n, k]        T tokens through one matrix of any format
//
// A threadgroup of WM x WN SIMD groups makes a tile of BM tokens by BN rows of W, in slabs of BK
// columns: activations are copied, weights decoded once for BM tokens, into threadgroup memory. x is
// act [T, COLS], y OUT_T [T, rows]; ACCUMULATE adds to y (the residual stream).
//
//   gemm        as above
//   gate_up     a = silu(x G^T) * (x U^T): rows n of gate and up side by side, act [.., rows]; with
//               ROUTED the tokens of one expert are gathered (see moe_prefill.metal), without it
//               (the shared expert) they are all tokens in order
//   expert_down y[pair] = a[sorted] D_e^T, scattered back to (token, slot) pairs
#include "quant.h"
#include "tile.h"

#define THREADS (WM * WN * 32)
#define LD (BK + 8)

// The slab [k0, k0 + BK) of row `row` of x: 8 elements at column `c`.
inline void copy_acts(device const float* x, threadgroup float* to) {
    LILY_UNROLL for (uint i = 0; i < 8; ++i) { to[i] = x[i]; }
}
inline void copy_acts(device const bfloat* x, threadgroup bfloat* to) {
    *(threadgroup uint4*)to = *(device const uint4*)x;
}

// 16 decoded weights of row `row`.
inline void stage_unit(device const code_t* w, device const scale_t* s, device const scale_t* b, ulong row, uint unit,
                       threadgroup act* to)
{
    float v[UNIT];
    load_unit(w + row * row_codes(COLS), unit, v);
    if (W_BITS < 16) {
        const ulong g = row * (COLS / W_GROUP) + unit * UNIT / W_GROUP;
        const float scale = float(s[g]);
        const float bias = float(b[g]);
        LILY_UNROLL for (uint i = 0; i < UNIT; ++i) { to[i] = act(scale * v[i] + bias); }
    } else {
        LILY_UNROLL for (uint i = 0; i < UNIT; ++i) { to[i] = act(v[i]); }
    }
}

struct GemmParams { uint n_tokens; uint rows; };

kernel void gemm(device const act*     x [[buffer(0)]],
                 device const code_t*  w [[buffer(1)]],
                 device const scale_t* s [[buffer(2)]],
                 device const scale_t* b [[buffer(3)]],
                 device OUT_T*         y [[buffer(4)]],
                 constant GemmParams&  p [[buffer(5)]],
                 uint3 tg   [[threadgroup_position_in_grid]],
                 uint  tid  [[thread_index_in_threadgroup]],
                 uint  sg   [[simdgroup_index_in_threadgroup]],
                 uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup act as[BM * LD];
    threadgroup act bs[BN * LD];
    const uint t0 = tg.y * BM;
    const uint n0 = tg.x * BN;
    Tile<BM / WM, BN / WN> acc;
    tile_zero(acc);
    for (uint k0 = 0; k0 < COLS; k0 += BK) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = tid; i < BM * BK / 8; i += THREADS) {
            const uint row = i / (BK / 8);
            const uint c = i % (BK / 8) * 8;
            // Rows past the last are read as the last and not stored.
            copy_acts(x + ulong(min(t0 + row, p.n_tokens - 1)) * COLS + k0 + c, as + row * LD + c);
        }
        for (uint i = tid; i < BN * BK / UNIT; i += THREADS) {
            const uint row = i / (BK / UNIT);
            const uint unit = i % (BK / UNIT);
            stage_unit(w, s, b, min(n0 + row, p.rows - 1), k0 / UNIT + unit, bs + row * LD + unit * UNIT);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile_mma_nt<BK>(acc, as + sg / WN * (BM / WM) * LD, LD, bs + sg % WN * (BN / WN) * LD, LD);
    }
    LILY_UNROLL for (uint i = 0; i < tile_count(acc); ++i) {
        if (!tile_valid(acc, i)) { continue; }
        const uint t = t0 + sg / WN * (BM / WM) + tile_row(acc, i, lane);
        const uint n = n0 + sg % WN * (BN / WN) + tile_col(acc, i, lane);
        if (t < p.n_tokens && n < p.rows) {
            const ulong at = ulong(t) * p.rows + n;
#if ACCUMULATE
            y[at] += tile_get(acc, i);
#else
            y[at] = OUT_T(tile_get(acc, i));
#endif
        }
    }
}

struct GateUpParams { uint n_tokens; uint rows; uint gate_stride; uint up_stride; };

kernel void gate_up(device const act*     x      [[buffer(0)]],    // [T, COLS]
                    device const code_t*  gw     [[buffer(1)]],
                    device const scale_t* gs     [[buffer(2)]],
                    device const scale_t* gb     [[buffer(3)]],
                    device const code_t*  uw     [[buffer(4)]],
                    device const scale_t* us     [[buffer(5)]],
                    device const scale_t* ub     [[buffer(6)]],
                    device const uint*    tiles  [[buffer(7)]],    // [.., 3]: expert, first pair, pairs
                    device const uint*    sorted [[buffer(8)]],    // [T * TOP_K] pairs, by expert
                    device act*           a      [[buffer(9)]],    // [T * TOP_K or T, rows]
                    constant GateUpParams& p     [[buffer(10)]],
                    uint3 tg   [[threadgroup_position_in_grid]],
                    uint  tid  [[thread_index_in_threadgroup]],
                    uint  sg   [[simdgroup_index_in_threadgroup]],
                    uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup act as[BM * LD];
    threadgroup act bs[BN * LD];                               // BN / 2 rows of gate, BN / 2 of up
    threadgroup uint from[BM];                                 // the token of each row
#if ROUTED
    const uint expert = tiles[tg.y * 3];
    const uint first = tiles[tg.y * 3 + 1];
    const uint count = tiles[tg.y * 3 + 2];                    // 0 past the last tile
#else
    const uint expert = 0;
    const uint first = tg.y * BM;
    const uint count = min(p.n_tokens - first, uint(BM));
#endif
    const uint n0 = tg.x * (BN / 2);
    Tile<BM / WM, BN / 2 / WN> gate;
    Tile<BM / WM, BN / 2 / WN> up;
    tile_zero(gate);
    tile_zero(up);
    if (count > 0) {                                           // the same for the whole threadgroup
        for (uint row = tid; row < BM; row += THREADS) {
#if ROUTED
            from[row] = sorted[first + min(row, count - 1)] / TOP_K;
#else
            from[row] = first + min(row, count - 1);
#endif
        }
        const ulong g0 = ulong(expert) * p.gate_stride;
        const ulong u0 = ulong(expert) * p.up_stride;
        for (uint k0 = 0; k0 < COLS; k0 += BK) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint i = tid; i < BM * BK / 8; i += THREADS) {
                const uint row = i / (BK / 8);
                const uint c = i % (BK / 8) * 8;
                copy_acts(x + ulong(from[row]) * COLS + k0 + c, as + row * LD + c);
            }
            for (uint i = tid; i < BN / 2 * BK / UNIT; i += THREADS) {
                const uint row = i / (BK / UNIT);
                const uint unit = i % (BK / UNIT);
                const uint n = min(n0 + row, p.rows - 1);
                stage_unit(gw, gs, gb, g0 + n, k0 / UNIT + unit, bs + row * LD + unit * UNIT);
                stage_unit(uw, us, ub, u0 + n, k0 / UNIT + unit, bs + (BN / 2 + row) * LD + unit * UNIT);
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            threadgroup act* rows = as + sg / WN * (BM / WM) * LD;
            tile_mma_nt<BK>(gate, rows, LD, bs + sg % WN * (BN / 2 / WN) * LD, LD);
            tile_mma_nt<BK>(up, rows, LD, bs + (BN / 2 + sg % WN * (BN / 2 / WN)) * LD, LD);
        }
    }
    LILY_UNROLL for (uint i = 0; i < tile_count(gate); ++i) {
        if (!tile_valid(gate, i)) { continue; }
        const uint row = sg / WN * (BM / WM) + tile_row(gate, i, lane);
        const uint n = n0 + sg % WN * (BN / 2 / WN) + tile_col(gate, i, lane);
        if (row < count && n < p.rows) {
            a[ulong(first + row) * p.rows + n] = act(silu(tile_get(gate, i)) * tile_get(up, i));
        }
    }
}

struct ExpertDownParams { uint rows; uint stride; };

kernel void expert_down(device const act*     a      [[buffer(0)]],   // [T * TOP_K, COLS], sorted
                        device const code_t*  w      [[buffer(1)]],
                        device const scale_t* s      [[buffer(2)]],
                        device const scale_t* b      [[buffer(3)]],
                        device const uint*    tiles  [[buffer(4)]],
                        device const uint*    sorted [[buffer(5)]],
                        device act*           y      [[buffer(6)]],   // [T * TOP_K, rows], by pair
                        constant ExpertDownParams& p [[buffer(7)]],
                        uint3 tg   [[threadgroup_position_in_grid]],
                        uint  tid  [[thread_index_in_threadgroup]],
                        uint  sg   [[simdgroup_index_in_threadgroup]],
                        uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup act as[BM * LD];
    threadgroup act bs[BN * LD];
    const uint expert = tiles[tg.y * 3];
    const uint first = tiles[tg.y * 3 + 1];
    const uint count = tiles[tg.y * 3 + 2];
    const uint n0 = tg.x * BN;
    const ulong w0 = ulong(expert) * p.stride;
    Tile<BM / WM, BN / WN> acc;
    tile_zero(acc);
    if (count > 0) {                                           // the same for the whole threadgroup
        for (uint k0 = 0; k0 < COLS; k0 += BK) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint i = tid; i < BM * BK / 8; i += THREADS) {
                const uint row = i / (BK / 8);
                const uint c = i % (BK / 8) * 8;
                copy_acts(a + ulong(first + min(row, count - 1)) * COLS + k0 + c, as + row * LD + c);
            }
            for (uint i = tid; i < BN * BK / UNIT; i += THREADS) {
                const uint row = i / (BK / UNIT);
                const uint unit = i % (BK / UNIT);
                stage_unit(w, s, b, w0 + min(n0 + row, p.rows - 1), k0 / UNIT + unit, bs + row * LD + unit * UNIT);
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            tile_mma_nt<BK>(acc, as + sg / WN * (BM / WM) * LD, LD, bs + sg % WN * (BN / WN) * LD, LD);
        }
    }
    LILY_UNROLL for (uint i = 0; i < tile_count(acc); ++i) {
        if (!tile_valid(acc, i)) { continue; }
        const uint row = sg / WN * (BM / WM) + tile_row(acc, i, lane);
        const uint n = n0 + sg % WN * (BN / WN) + tile_col(acc, i, lane);
        if (row < count && n < p.rows) {
            y[ulong(sorted[first + row]) * p.rows + n] = act(tile_get(acc, i));
        }
    }
}
