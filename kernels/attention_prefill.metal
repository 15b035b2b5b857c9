// Gated attention of many tokens: norms, rotation and KV rows; attention by tiles; the merge of parts.
//
//   q = rope(norm(q) * q_gain) * HEAD_DIM^-0.5, k likewise without the last factor
//   out[t, h] = softmax(q_th K^T) V * sigmoid(gate_th) over the rows up to the token's own
//
// The rows of a tile are ROWS pairs (token, query head) of one KV head, token-major, so that all query heads
// share every key and value that is staged, and few tokens still fill a tile. A SIMD group has SG_ROWS of
// them from the first key to the last: scores, running maximum and sum, and the output in registers.
// Keys are staged KEYS at a time, then their values in the same place: at HEAD_DIM 256 no more fits.
// Queries come from device memory as the blocks of panel.h, since neither threadgroup memory nor
// registers have room for them beside the rest.
//
// With SPLIT the keys are cut into n_splits parts, so that few tokens behind a long context still fill the
// GPU, and attention_prefill_merge joins them. Largest tiles come first.
#include "panel.h"

#define GROUP (N_HEADS / N_KV_HEADS)
#define ROWS (SIMDGROUPS * SG_ROWS)
#define PITCH (HEAD_DIM + 8)
#define STAGE (KEYS * PITCH)
#define VECTOR (16 / ACT_BYTES)
#ifndef SIMDGROUPS
#define SIMDGROUPS 4
#define SG_ROWS 16
#define KEYS 16
#define SPLIT 0
#define ACT_BYTES 4
#endif

struct QkvParams { uint n_tokens; uint n_rows; uint capacity; };

// One SIMD group a head of a token, 4 a threadgroup: all query heads, padded to n_rows rows of each KV head
// with zeros, then the key and value heads.
kernel void qkv_prepare(device const act*   qg     [[buffer(0)]],   // [T, N_HEADS, 2, HEAD_DIM]
                        device const act*   k      [[buffer(1)]],   // [T, N_KV_HEADS, HEAD_DIM]
                        device const act*   v      [[buffer(2)]],   // [T, N_KV_HEADS, HEAD_DIM]
                        device const float* q_gain [[buffer(3)]],   // [HEAD_DIM], 1 + w folded in
                        device const float* k_gain [[buffer(4)]],   // [HEAD_DIM]
                        device const float* rope   [[buffer(5)]],   // [positions, 2, ROTARY_DIM / 2]
                        device const uint*  seq    [[buffer(6)]],   // [0]: position of token 0
                        device act*         q      [[buffer(7)]],   // [N_KV_HEADS, n_rows / 8, HEAD_DIM / 16, PANEL]
                        device act*         kc     [[buffer(8)]],   // [N_KV_HEADS, capacity, HEAD_DIM]
                        device act*         vc     [[buffer(9)]],
                        constant QkvParams& p      [[buffer(10)]],
                        uint3 tg   [[threadgroup_position_in_grid]],
                        uint  sg   [[simdgroup_index_in_threadgroup]],
                        uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup float heads[4][HEAD_DIM];
    threadgroup float* x = heads[sg];
    const uint item = tg.x * 4 + sg;
    const uint n_queries = (p.n_rows + GROUP - 1) / GROUP * N_HEADS;
    const uint n_keys = p.n_tokens * N_KV_HEADS;
    const uint position = seq[0];
    const bool is_query = item < n_queries;
    const bool is_key = !is_query && item < n_queries + n_keys;
    // Token and head of this SIMD group, in its own projection.
    const uint width = is_query ? N_HEADS : N_KV_HEADS;
    const uint at = is_query ? item : is_key ? item - n_queries : item - n_queries - n_keys;
    const uint t = at / width;
    const uint h = at % width;

    if (!is_query && !is_key) {
        if (t < p.n_tokens) {
            device act* row = vc + (ulong(h) * p.capacity + position + t) * HEAD_DIM;
            for (uint i = lane; i < HEAD_DIM; i += 32) { row[i] = v[ulong(at) * HEAD_DIM + i]; }
        }
        return;
    }
    device const act* from = is_query ? qg + ulong(at) * 2 * HEAD_DIM : k + ulong(at) * HEAD_DIM;
    device const float* gain = is_query ? q_gain : k_gain;
    if (t < p.n_tokens) {
        float squares = 0.0f;
        for (uint i = lane; i < HEAD_DIM; i += 32) {
            const float value = float(from[i]);
            x[i] = value;
            squares = fma(value, value, squares);
        }
        const float factor = is_query ? rsqrt(float(HEAD_DIM)) : 1.0f;
        const float scale = rsqrt(simd_sum(squares) / float(HEAD_DIM) + RMS_EPS) * factor;
        for (uint i = lane; i < HEAD_DIM; i += 32) { x[i] = x[i] * scale * gain[i]; }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        device const float* turn = rope + ulong(position + t) * ROTARY_DIM;
        for (uint j = lane; j < ROTARY_DIM / 2; j += 32) {
            const float c = turn[j];
            const float s = turn[ROTARY_DIM / 2 + j];
            const float first = x[j];
            const float second = x[ROTARY_DIM / 2 + j];
            x[j] = first * c - second * s;
            x[ROTARY_DIM / 2 + j] = second * c + first * s;
        }
    } else {
        for (uint i = lane; i < HEAD_DIM; i += 32) { x[i] = 0.0f; }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (is_key) {
        device act* row = kc + (ulong(h) * p.capacity + position + t) * HEAD_DIM;
        for (uint i = lane; i < HEAD_DIM; i += 32) { row[i] = act(x[i]); }
        return;
    }
    const uint row = t * GROUP + h % GROUP;
    if (row < p.n_rows) {
        device act* block = q + (ulong(h / GROUP) * (p.n_rows / 8) + row / 8) * (HEAD_DIM / 16) * PANEL;
        for (uint i = lane; i < HEAD_DIM / 4; i += 32) {
            const uint col = i / 4 * 16 + i % 4 * 2;
            panel_write(block + i / 4 * PANEL + panel_at(row, i % 4 * 2), x[col], x[col + 1], x[col + 8], x[col + 9]);
        }
    }
}

struct AttentionParams { uint n_tokens; uint n_rows; uint capacity; uint n_splits; };

// Rows first to first + KEYS - 1 of a cache; those from `end` on, which nobody may read, repeat the last.
inline void stage_rows(threadgroup act* rows, device const act* cache, uint first, uint end, uint tid) {
    LILY_UNROLL for (uint i = 0; i < KEYS * HEAD_DIM / VECTOR; i += SIMDGROUPS * 32) {
        const uint at = i + tid;
        if (KEYS * HEAD_DIM / VECTOR % (SIMDGROUPS * 32) == 0 || at < KEYS * HEAD_DIM / VECTOR) {
            const uint row = at / (HEAD_DIM / VECTOR);
            const uint col = at % (HEAD_DIM / VECTOR) * VECTOR;
            *(threadgroup uint4*)(rows + row * PITCH + col) =
                *(device const uint4*)(cache + ulong(min(first + row, end - 1)) * HEAD_DIM + col);
        }
    }
}

// Grid: tiles of rows, KV heads, parts of the keys.
kernel void attention_prefill(device const act*  q      [[buffer(0)]],   // as qkv_prepare leaves it
                              device const act*  kc     [[buffer(1)]],   // [N_KV_HEADS, capacity, HEAD_DIM]
                              device const act*  vc     [[buffer(2)]],
                              device const act*  qg     [[buffer(3)]],   // [T, N_HEADS, 2, HEAD_DIM]: the gates
                              device const uint* seq    [[buffer(4)]],   // [0]: position of token 0
                              device float*      part_o [[buffer(5)]],   // [n_splits, T, N_HEADS, HEAD_DIM]
                              device float*      part_m [[buffer(6)]],   // [n_splits, T, N_HEADS, 2]: maximum, sum
                              device act*        out    [[buffer(7)]],   // [T, N_HEADS, HEAD_DIM]
                              constant AttentionParams& p [[buffer(8)]],
                              uint3 tg   [[threadgroup_position_in_grid]],
                              uint  tid  [[thread_index_in_threadgroup]],
                              uint  sg   [[simdgroup_index_in_threadgroup]],
                              uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup act rows[STAGE];
    const uint kv = tg.y;
    const uint tile = p.n_rows / ROWS - 1 - tg.x;
    const uint row0 = tile * ROWS + sg * SG_ROWS;                  // of this SIMD group
    const uint position = seq[0];
    device const act* k_rows = kc + ulong(kv) * p.capacity * HEAD_DIM;
    device const act* v_rows = vc + ulong(kv) * p.capacity * HEAD_DIM;
    device const act* panels = q + (ulong(kv) * (p.n_rows / 8) + row0 / 8) * (HEAD_DIM / 16) * PANEL;

    // Keys that some row of the tile sees, and this part of them: whole stages, so that parts are even.
    const uint seen = position + min((tile * ROWS + ROWS - 1) / GROUP, p.n_tokens - 1) + 1;
    const uint chunk = ((seen + KEYS - 1) / KEYS + p.n_splits - 1) / p.n_splits * KEYS;
    const uint begin = min(tg.z * chunk, seen);
    const uint end = min(begin + chunk, seen);

    Tile<SG_ROWS, HEAD_DIM> o;
    tile_zero(o);
    float m[SG_ROWS / 8];
    float l[SG_ROWS / 8];                                          // of this lane's keys
    uint last[SG_ROWS / 8];                                        // key that the row sees last
    LILY_UNROLL for (uint r = 0; r < SG_ROWS / 8; ++r) {
        m[r] = -INFINITY;
        l[r] = 0.0f;
        last[r] = position + (row0 + r * 8 + panel_row(lane)) / GROUP;
    }
    for (uint key0 = begin; key0 < end; key0 += KEYS) {
        threadgroup_barrier(mem_flags::mem_threadgroup);           // the last values are used
        stage_rows(rows, k_rows, key0, end, tid);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        Tile<SG_ROWS, KEYS> s;
        tile_zero(s);
        LILY_UNROLL_4 for (uint k = 0; k < HEAD_DIM / 16; ++k) {
            Panel<act, SG_ROWS> a;
            panel_load(a, panels + k * PANEL, HEAD_DIM / 16 * PANEL, lane);
            panel_mma_nt(s, a, rows + k * 16, PITCH);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);           // the keys are used
        stage_rows(rows, v_rows, key0, end, tid);

        if (key0 + KEYS > end || key0 + KEYS - 1 > position + row0 / GROUP) {
            LILY_UNROLL for (uint i = 0; i < TILE_COUNT(SG_ROWS, KEYS); ++i) {
                const uint key = key0 + tile_col(s, i, lane);
                if (key > last[tile_row(s, i, lane) / 8] || key >= end) { tile_set(s, i, -INFINITY); }
            }
        }
        float top[SG_ROWS / 8];
        LILY_UNROLL for (uint r = 0; r < SG_ROWS / 8; ++r) { top[r] = -INFINITY; }
        LILY_UNROLL for (uint i = 0; i < TILE_COUNT(SG_ROWS, KEYS); ++i) {
            const uint r = tile_row(s, i, 0) / 8;
            top[r] = max(top[r], tile_get(s, i));
        }
        bool grows = false;
        float old[SG_ROWS / 8];
        LILY_UNROLL for (uint r = 0; r < SG_ROWS / 8; ++r) {
            top[r] = max(m[r], row_max(top[r]));
            grows = grows || top[r] > m[r];
            // A row that has seen no key yet has no maximum; 0 leaves its weights at exp(-inf).
            const float at = top[r] == -INFINITY ? 0.0f : top[r];
            old[r] = exp(m[r] - at);
            m[r] = top[r];
            top[r] = at;
            l[r] *= old[r];
        }
        LILY_UNROLL for (uint i = 0; i < TILE_COUNT(SG_ROWS, KEYS); ++i) {
            const uint r = tile_row(s, i, 0) / 8;
            const float weight = exp(tile_get(s, i) - top[r]);
            tile_set(s, i, weight);
            l[r] += weight;
        }
        // Maxima settle after the first keys: most tiles leave the sums as they are.
        if (simd_max(grows ? 1u : 0u) != 0) {
            LILY_UNROLL for (uint i = 0; i < TILE_COUNT(SG_ROWS, HEAD_DIM); ++i) {
                tile_set(o, i, tile_get(o, i) * old[tile_row(o, i, 0) / 8]);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        LILY_UNROLL for (uint k = 0; k < KEYS / 16; ++k) {
            Panel<act, SG_ROWS> a;
            panel_from(a, s, k);
            panel_mma_nn(o, a, rows + k * 16 * PITCH, PITCH);
        }
    }
    float scale[SG_ROWS / 8];
    LILY_UNROLL for (uint r = 0; r < SG_ROWS / 8; ++r) {
        l[r] = row_sum(l[r]);
        scale[r] = 1.0f / l[r];
    }

    LILY_UNROLL for (uint i = 0; i < TILE_COUNT(SG_ROWS, HEAD_DIM); ++i) {
        const uint r = tile_row(o, i, 0) / 8;
        const uint row = row0 + tile_row(o, i, lane);
        const uint col = tile_col(o, i, lane);
        const uint t = row / GROUP;
        if (t < p.n_tokens) {
            const ulong head = ulong(t) * N_HEADS + kv * GROUP + row % GROUP;
#if !SPLIT
            const float gate = sigmoid(float(qg[(head * 2 + 1) * HEAD_DIM + col]));
            out[head * HEAD_DIM + col] = act(tile_get(o, i) * scale[r] * gate);
#else
            const ulong at = ulong(tg.z) * p.n_tokens * N_HEADS + head;
            part_o[at * HEAD_DIM + col] = tile_get(o, i);
            if (col == 0) {
                part_m[at * 2] = m[r];
                part_m[at * 2 + 1] = l[r];
            }
#endif
        }
    }
}

// One SIMD group a head of a token, 4 a threadgroup.
kernel void attention_prefill_merge(device const act*   qg     [[buffer(0)]],
                                    device const float* part_o [[buffer(1)]],
                                    device const float* part_m [[buffer(2)]],
                                    device act*         out    [[buffer(3)]],
                                    constant AttentionParams& p [[buffer(4)]],
                                    uint3 tg   [[threadgroup_position_in_grid]],
                                    uint  sg   [[simdgroup_index_in_threadgroup]],
                                    uint  lane [[thread_index_in_simdgroup]])
{
    const uint n_heads = p.n_tokens * N_HEADS;
    const uint head = tg.x * 4 + sg;
    if (head >= n_heads) { return; }
    float top = -INFINITY;
    for (uint s = 0; s < p.n_splits; ++s) { top = max(top, part_m[(s * n_heads + head) * 2]); }
    float sum = 0.0f;
    float value[HEAD_DIM / 32];
    LILY_UNROLL for (uint i = 0; i < HEAD_DIM / 32; ++i) { value[i] = 0.0f; }
    for (uint s = 0; s < p.n_splits; ++s) {
        const uint part = s * n_heads + head;
        const float weight = exp(part_m[part * 2] - top);           // 0 for a part without keys
        sum = fma(weight, part_m[part * 2 + 1], sum);
        LILY_UNROLL for (uint i = 0; i < HEAD_DIM / 32; ++i) {
            value[i] = fma(weight, part_o[ulong(part) * HEAD_DIM + i * 32 + lane], value[i]);
        }
    }
    LILY_UNROLL for (uint i = 0; i < HEAD_DIM / 32; ++i) {
        const ulong gate = (ulong(head) * 2 + 1) * HEAD_DIM + i * 32 + lane;
        out[ulong(head) * HEAD_DIM + i * 32 + lane] = act(value[i] / sum * sigmoid(float(qg[gate])));
    }
}
