// Gated attention of one token: norm and rotation of q and k, the new KV row, and the attention itself.
//
//   q = rope(norm(q) * q_gain) * HEAD_DIM^-0.5, k likewise without the last factor
//   out[h] = softmax(q_h K^T) V * sigmoid(gate_h)
//
// The context is cut into N_SPLITS parts; a threadgroup of 4 SIMD groups takes one part of the rows of
// one KV head for QUERIES of its query heads, which share every row that is read. A SIMD group takes
// four rows at a time, a lane HEAD_DIM / 32 dimensions. Sums are f32 with a running maximum; the
// SIMD groups meet in threadgroup memory, the parts in attention_merge (no dispatch if there is one).
#include "lily.h"

#define GROUP (N_HEADS / N_KV_HEADS)
#define DIMS (HEAD_DIM / 32)
#define AT_ONCE 4

struct AttentionDecodeParams { uint capacity; uint offset; };

// Normed and rotated: x[i] * gain[i] * rsqrt(mean + eps), pairs (j, j + ROTARY_DIM / 2) turned. All threads
// of a SIMD group work on one head in threadgroup memory.
inline void norm_rope(threadgroup float* x, device const float* gain, device const float* turn, float factor, uint lane)
{
    float squares = 0.0f;
    for (uint i = lane; i < HEAD_DIM; i += 32) { squares = fma(x[i], x[i], squares); }
    const float scale = rsqrt(simd_sum(squares) / float(HEAD_DIM) + RMS_EPS) * factor;
    for (uint i = lane; i < HEAD_DIM; i += 32) { x[i] = x[i] * scale * gain[i]; }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = lane; j < ROTARY_DIM / 2; j += 32) {
        const float c = turn[j];
        const float s = turn[ROTARY_DIM / 2 + j];
        const float first = x[j];
        const float second = x[ROTARY_DIM / 2 + j];
        x[j] = first * c - second * s;
        x[ROTARY_DIM / 2 + j] = second * c + first * s;
    }
}

kernel void attention_decode(device const float* qg     [[buffer(0)]],   // [N_HEADS, 2, HEAD_DIM]
                             device const float* k      [[buffer(1)]],   // [N_KV_HEADS, HEAD_DIM]
                             device const float* v      [[buffer(2)]],   // [N_KV_HEADS, HEAD_DIM]
                             device const float* q_gain [[buffer(3)]],   // [HEAD_DIM]
                             device const float* k_gain [[buffer(4)]],   // [HEAD_DIM]
                             device const float* rope   [[buffer(5)]],   // [positions, 2, ROTARY_DIM / 2]
                             device const uint*  seq    [[buffer(6)]],   // [0] + offset: position of the token
                             device act*         kc     [[buffer(7)]],   // [N_KV_HEADS, capacity, HEAD_DIM]
                             device act*         vc     [[buffer(8)]],
                             device float*       part_o [[buffer(9)]],   // [N_HEADS, N_SPLITS, HEAD_DIM]
                             device float*       part_m [[buffer(10)]],  // [N_HEADS, N_SPLITS, 2]: maximum, sum
                             device float*       out    [[buffer(11)]],  // [N_HEADS, HEAD_DIM]
                             constant AttentionDecodeParams& p [[buffer(12)]],
                             uint3 tg   [[threadgroup_position_in_grid]],
                             uint  tid  [[thread_index_in_threadgroup]],
                             uint  sg   [[simdgroup_index_in_threadgroup]],
                             uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup float qs[QUERIES][HEAD_DIM];
    threadgroup float new_k[HEAD_DIM];
    threadgroup float os[SIMDGROUPS][QUERIES][HEAD_DIM];
    threadgroup float ms[SIMDGROUPS][QUERIES];
    threadgroup float ls[SIMDGROUPS][QUERIES];
    const uint split = tg.x;
    const uint head0 = tg.y * QUERIES;
    const uint kv = head0 / GROUP;
    const uint position = seq[0] + p.offset;
    device const float* turn = rope + ulong(position) * ROTARY_DIM;
    device act* k_rows = kc + ulong(kv) * p.capacity * HEAD_DIM;
    device act* v_rows = vc + ulong(kv) * p.capacity * HEAD_DIM;

    for (uint i = tid; i < QUERIES * HEAD_DIM; i += SIMDGROUPS * 32) {
        qs[i / HEAD_DIM][i % HEAD_DIM] = qg[ulong(head0 + i / HEAD_DIM) * 2 * HEAD_DIM + i % HEAD_DIM];
    }
    for (uint i = tid; i < HEAD_DIM; i += SIMDGROUPS * 32) { new_k[i] = k[kv * HEAD_DIM + i]; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint h = sg; h < QUERIES + 1; h += SIMDGROUPS) {    // the same for all lanes of a SIMD group
        if (h < QUERIES) { norm_rope(qs[h], q_gain, turn, rsqrt(float(HEAD_DIM)), lane); }
        else { norm_rope(new_k, k_gain, turn, 1.0f, lane); }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // The rows before this token, in parts of whole groups of rows.
    const uint chunk = (position / N_SPLITS / (AT_ONCE * SIMDGROUPS) + 1) * AT_ONCE * SIMDGROUPS;
    const uint begin = min(split * chunk, position);
    const uint end = min(begin + chunk, position);
    float q[QUERIES][DIMS];
    float o[QUERIES][DIMS];
    float m[QUERIES];
    float l[QUERIES];
    LILY_UNROLL for (uint h = 0; h < QUERIES; ++h) {
        m[h] = -INFINITY;
        l[h] = 0.0f;
        LILY_UNROLL for (uint i = 0; i < DIMS; ++i) { q[h][i] = qs[h][lane * DIMS + i]; o[h][i] = 0.0f; }
    }
    for (uint row0 = begin + sg * AT_ONCE; row0 < end; row0 += SIMDGROUPS * AT_ONCE) {
        float rows[AT_ONCE][DIMS];
        float scores[AT_ONCE][QUERIES];
        LILY_UNROLL for (uint r = 0; r < AT_ONCE; ++r) {
            const ulong row = min(row0 + r, end - 1);
            load_acts<DIMS>(k_rows + row * HEAD_DIM + lane * DIMS, rows[r]);
        }
        LILY_UNROLL for (uint r = 0; r < AT_ONCE; ++r) {
            LILY_UNROLL for (uint h = 0; h < QUERIES; ++h) {
                float score = 0.0f;
                LILY_UNROLL for (uint i = 0; i < DIMS; ++i) { score = fma(q[h][i], rows[r][i], score); }
                score = simd_sum(score);
                scores[r][h] = row0 + r < end ? score : -INFINITY;
            }
        }
        LILY_UNROLL for (uint r = 0; r < AT_ONCE; ++r) {
            const ulong row = min(row0 + r, end - 1);
            load_acts<DIMS>(v_rows + row * HEAD_DIM + lane * DIMS, rows[r]);
        }
        LILY_UNROLL for (uint h = 0; h < QUERIES; ++h) {
            float top = m[h];
            LILY_UNROLL for (uint r = 0; r < AT_ONCE; ++r) { top = max(top, scores[r][h]); }
            const float old = exp(m[h] - top);               // 0 the first time: exp(-inf); top is finite
            m[h] = top;
            l[h] *= old;
            LILY_UNROLL for (uint i = 0; i < DIMS; ++i) { o[h][i] *= old; }
            LILY_UNROLL for (uint r = 0; r < AT_ONCE; ++r) {
                const float w = exp(scores[r][h] - top);
                l[h] += w;
                LILY_UNROLL for (uint i = 0; i < DIMS; ++i) { o[h][i] = fma(w, rows[r][i], o[h][i]); }
            }
        }
    }
    // The token's own row belongs to the last part, SIMD group 0; its values are as the cache keeps them.
    if (split == N_SPLITS - 1 && sg == 0) {
        float new_v[DIMS];
        float own_k[DIMS];
        LILY_UNROLL for (uint i = 0; i < DIMS; ++i) {
            own_k[i] = float(act(new_k[lane * DIMS + i]));
            new_v[i] = float(act(v[kv * HEAD_DIM + lane * DIMS + i]));
            if (head0 % GROUP == 0) {
                k_rows[ulong(position) * HEAD_DIM + lane * DIMS + i] = act(own_k[i]);
                v_rows[ulong(position) * HEAD_DIM + lane * DIMS + i] = act(new_v[i]);
            }
        }
        LILY_UNROLL for (uint h = 0; h < QUERIES; ++h) {
            float score = 0.0f;
            LILY_UNROLL for (uint i = 0; i < DIMS; ++i) { score = fma(q[h][i], own_k[i], score); }
            score = simd_sum(score);
            const float top = max(m[h], score);
            const float old = exp(m[h] - top);
            const float w = exp(score - top);
            m[h] = top;
            l[h] = l[h] * old + w;
            LILY_UNROLL for (uint i = 0; i < DIMS; ++i) { o[h][i] = fma(w, new_v[i], o[h][i] * old); }
        }
    }
    LILY_UNROLL for (uint h = 0; h < QUERIES; ++h) {
        if (lane == 0) { ms[sg][h] = m[h]; ls[sg][h] = l[h]; }
        LILY_UNROLL for (uint i = 0; i < DIMS; ++i) { os[sg][h][lane * DIMS + i] = o[h][i]; }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = tid; i < QUERIES * HEAD_DIM; i += SIMDGROUPS * 32) {
        const uint h = i / HEAD_DIM;
        const uint d = i % HEAD_DIM;
        float top = ms[0][h];
        for (uint g = 1; g < SIMDGROUPS; ++g) { top = max(top, ms[g][h]); }
        float sum = 0.0f;
        float value = 0.0f;
        for (uint g = 0; g < SIMDGROUPS; ++g) {
            const float w = ls[g][h] > 0.0f ? exp(ms[g][h] - top) : 0.0f;
            sum += w * ls[g][h];
            value = fma(w, os[g][h][d], value);
        }
#if N_SPLITS == 1
        out[(head0 + h) * HEAD_DIM + d] = value / sum * sigmoid(qg[(ulong(head0 + h) * 2 + 1) * HEAD_DIM + d]);
#else
        part_o[(ulong(head0 + h) * N_SPLITS + split) * HEAD_DIM + d] = value;
        if (d == 0) {
            part_m[((head0 + h) * N_SPLITS + split) * 2] = top;
            part_m[((head0 + h) * N_SPLITS + split) * 2 + 1] = sum;
        }
#endif
    }
}

// One threadgroup of 256 threads a query head.
kernel void attention_merge(device const float* qg     [[buffer(0)]],
                            device const float* part_o [[buffer(1)]],
                            device const float* part_m [[buffer(2)]],
                            device float*       out    [[buffer(3)]],
                            uint3 tg  [[threadgroup_position_in_grid]],
                            uint  tid [[thread_index_in_threadgroup]])
{
    const uint h = tg.x;
    float top = -INFINITY;
    for (uint s = 0; s < N_SPLITS; ++s) { top = max(top, part_m[(h * N_SPLITS + s) * 2]); }
    for (uint d = tid; d < HEAD_DIM; d += 256) {
        float sum = 0.0f;
        float value = 0.0f;
        for (uint s = 0; s < N_SPLITS; ++s) {
            const float l = part_m[(h * N_SPLITS + s) * 2 + 1];
            const float w = l > 0.0f ? exp(part_m[(h * N_SPLITS + s) * 2] - top) : 0.0f;
            sum += w * l;
            value = fma(w, part_o[(ulong(h) * N_SPLITS + s) * HEAD_DIM + d], value);
        }
        out[h * HEAD_DIM + d] = value / sum * sigmoid(qg[(ulong(h) * 2 + 1) * HEAD_DIM + d]);
    }
}
