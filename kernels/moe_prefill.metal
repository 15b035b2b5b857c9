// Many tokens to their experts: who goes where, in which order, and the sum at the end. The products
// between are in gemm.metal. A pair is token * TOP_K + slot.
//
//   route     one SIMD group a token: experts [T, TOP_K], weights [T, TOP_K]
//   count     one threadgroup an expert: how many pairs chose it
//   plan      one threadgroup: where each expert's pairs begin, and a list of tiles of at most
//             TILE_PAIRS pairs of one expert; entries past the last have no pairs
//   scatter   one threadgroup an expert: its pairs, in order
//   combine   x[t] += sum over slots, in order, of weight * y[pair] + sigmoid(shared_logit) * shared[t]
//
// Nothing depends on the order in which threads arrive: no atomics.
#include "route.h"

kernel void route(device const float* logits  [[buffer(0)]],   // [T, N_EXPERTS]
                  device uint*        experts [[buffer(1)]],
                  device float*       weights [[buffer(2)]],
                  uint3 tg   [[threadgroup_position_in_grid]],
                  uint  lane [[thread_index_in_simdgroup]])
{
    uint e[TOP_K];
    float w[TOP_K];
    choose(logits + ulong(tg.x) * N_EXPERTS, lane, e, w);
    if (lane == 0) {
        LILY_UNROLL for (uint k = 0; k < TOP_K; ++k) {
            experts[tg.x * TOP_K + k] = e[k];
            weights[tg.x * TOP_K + k] = w[k];
        }
    }
}

struct PairsParams { uint n_pairs; };

kernel void count(device const uint* experts [[buffer(0)]],
                  device uint*       counts  [[buffer(1)]],   // [N_EXPERTS]
                  constant PairsParams& p    [[buffer(2)]],
                  uint3 tg   [[threadgroup_position_in_grid]],
                  uint  tid  [[thread_index_in_threadgroup]],
                  uint  sg   [[simdgroup_index_in_threadgroup]],
                  uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup uint sums[8];
    uint n = 0;
    for (uint i = tid; i < p.n_pairs; i += 256) { n += experts[i] == tg.x ? 1u : 0u; }
    n = simd_sum(n);
    if (lane == 0) { sums[sg] = n; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid == 0) {
        uint total = 0;
        for (uint i = 0; i < 8; ++i) { total += sums[i]; }
        counts[tg.x] = total;
    }
}

struct PlanParams { uint n_tiles; };

kernel void plan(device const uint* counts  [[buffer(0)]],
                 device uint*       offsets [[buffer(1)]],   // [N_EXPERTS]
                 device uint*       tiles   [[buffer(2)]],   // [n_tiles, 3]: expert, first pair, pairs
                 constant PlanParams& p     [[buffer(3)]],
                 uint tid  [[thread_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]])
{
    threadgroup uint first_pair[N_EXPERTS];
    threadgroup uint first_tile[N_EXPERTS + 1];
    if (tid < 32) {                                            // one SIMD group
        uint pairs = 0;
        uint n_tiles = 0;
        for (uint e0 = 0; e0 < N_EXPERTS; e0 += 32) {
            const uint e = e0 + lane;
            const uint n = e < N_EXPERTS ? counts[e] : 0;
            const uint t = (n + TILE_PAIRS - 1) / TILE_PAIRS;
            const uint at = pairs + simd_prefix_exclusive_sum(n);
            const uint tile = n_tiles + simd_prefix_exclusive_sum(t);
            if (e < N_EXPERTS) {
                offsets[e] = at;
                first_pair[e] = at;
                first_tile[e] = tile;
            }
            pairs += simd_sum(n);
            n_tiles += simd_sum(t);
        }
        if (lane == 0) { first_tile[N_EXPERTS] = n_tiles; }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint e = tid; e < N_EXPERTS; e += 256) {
        const uint n = counts[e];
        for (uint t = first_tile[e]; t < first_tile[e + 1]; ++t) {
            const uint done = (t - first_tile[e]) * TILE_PAIRS;
            tiles[t * 3] = e;
            tiles[t * 3 + 1] = first_pair[e] + done;
            tiles[t * 3 + 2] = min(n - done, uint(TILE_PAIRS));
        }
    }
    for (uint t = first_tile[N_EXPERTS] + tid; t < p.n_tiles; t += 256) {
        tiles[t * 3] = 0;
        tiles[t * 3 + 1] = 0;
        tiles[t * 3 + 2] = 0;
    }
}

kernel void scatter(device const uint* experts [[buffer(0)]],
                    device const uint* offsets [[buffer(1)]],
                    device uint*       sorted  [[buffer(2)]],   // [n_pairs]
                    constant PairsParams& p    [[buffer(3)]],
                    uint3 tg   [[threadgroup_position_in_grid]],
                    uint  tid  [[thread_index_in_threadgroup]],
                    uint  sg   [[simdgroup_index_in_threadgroup]],
                    uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup uint sums[8];
    uint done = offsets[tg.x];
    for (uint i0 = 0; i0 < p.n_pairs; i0 += 256) {             // the same number of turns for all
        const uint i = i0 + tid;
        const uint mine = i < p.n_pairs && experts[i] == tg.x ? 1u : 0u;
        const uint before = simd_prefix_exclusive_sum(mine);
        const uint n = simd_sum(mine);
        threadgroup_barrier(mem_flags::mem_threadgroup);       // the last turn's sums were read
        if (lane == 0) { sums[sg] = n; }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        uint at = done;
        for (uint g = 0; g < 8; ++g) {
            if (g < sg) { at += sums[g]; }
            done += sums[g];
        }
        if (mine == 1) { sorted[at + before] = i; }
    }
}

kernel void combine(device const act*   y       [[buffer(0)]],   // [T * TOP_K, HIDDEN]
                    device const float* weights [[buffer(1)]],   // [T, TOP_K]
                    device const act*   shared  [[buffer(2)]],   // [T, HIDDEN]
                    device const float* logit   [[buffer(3)]],   // [T]
                    device float*       x       [[buffer(4)]],   // [T, HIDDEN]
                    uint3 tg  [[threadgroup_position_in_grid]],
                    uint  tid [[thread_index_in_threadgroup]])
{
    const ulong t = tg.x;
    const float shared_weight = sigmoid(logit[t]);
    for (uint i = tid; i < HIDDEN; i += 256) {
        float sum = 0.0f;
        LILY_UNROLL for (uint k = 0; k < TOP_K; ++k) {
            sum = fma(weights[t * TOP_K + k], float(y[(t * TOP_K + k) * HIDDEN + i]), sum);
        }
        x[t * HIDDEN + i] += fma(shared_weight, float(shared[t * HIDDEN + i]), sum);
    }
}
