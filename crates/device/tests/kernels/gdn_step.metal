// Gated delta rule, T tokens, one value head per threadgroup.y, 8 state columns per SIMD group.
//   S = exp(g_t) S;  d = beta_t (v_t - S^T k_t);  S += k_t d^T;  o_t = S^T q_t        S is [128 keys, 128 values], f32
// A lane keeps 4 keys of each of the group's 8 columns in registers; q and k of a token are staged once per threadgroup.
#include "lily.h"

struct GdnParams { uint n_tokens; uint n_key_heads; uint n_value_heads; };

constant constexpr uint D = 128;
constant constexpr uint COLS = 8;

kernel void gdn_step(device const float* q     [[buffer(0)]],   // [T, Hk, D]
                     device const float* k     [[buffer(1)]],   // [T, Hk, D]
                     device const float* v     [[buffer(2)]],   // [T, Hv, D]
                     device const float* g     [[buffer(3)]],   // [T, Hv] log decay
                     device const float* beta  [[buffer(4)]],   // [T, Hv]
                     device float*       state [[buffer(5)]],   // [Hv, D values, D keys]
                     device float*       o     [[buffer(6)]],   // [T, Hv, D]
                     constant GdnParams& p     [[buffer(7)]],
                     uint3 tg   [[threadgroup_position_in_grid]],
                     uint  tid  [[thread_index_in_threadgroup]],
                     uint  sg   [[simdgroup_index_in_threadgroup]],
                     uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup float kq[2 * D];
    const uint hv = tg.y;
    const uint hk = hv / (p.n_value_heads / p.n_key_heads);
    const uint col0 = (tg.x * 4 + sg) * COLS;                   // 4 SIMD groups a threadgroup, grid.x = D / 32
    device float* s0 = state + ulong(hv) * D * D + lane * 4;
    float s[COLS][4];
    for (uint c = 0; c < COLS; ++c) {
        for (uint i = 0; i < 4; ++i) { s[c][i] = s0[(col0 + c) * D + i]; }
    }
    for (uint t = 0; t < p.n_tokens; ++t) {
        threadgroup_barrier(mem_flags::mem_threadgroup);        // the last token's readers are done
        kq[tid] = k[(t * p.n_key_heads + hk) * D + tid];        // 128 threads, D = 128
        kq[D + tid] = q[(t * p.n_key_heads + hk) * D + tid];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const float decay = exp(g[t * p.n_value_heads + hv]);
        const float b = beta[t * p.n_value_heads + hv];
        for (uint c = 0; c < COLS; ++c) {
            float predicted = 0.0f;
            for (uint i = 0; i < 4; ++i) { s[c][i] *= decay; predicted += s[c][i] * kq[lane * 4 + i]; }
            predicted = simd_sum(predicted);
            const float d = b * (v[(t * p.n_value_heads + hv) * D + col0 + c] - predicted);
            float out = 0.0f;
            for (uint i = 0; i < 4; ++i) { s[c][i] += kq[lane * 4 + i] * d; out += s[c][i] * kq[D + lane * 4 + i]; }
            out = simd_sum(out);
            if (lane == 0) { o[(t * p.n_value_heads + hv) * D + col0 + c] = out; }
        }
    }
    for (uint c = 0; c < COLS; ++c) {
        for (uint i = 0; i < 4; ++i) { s0[(col0 + c) * D + i] = s[c][i]; }
    }
}
