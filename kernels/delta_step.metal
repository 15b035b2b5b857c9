// Gated delta rule for the few tokens of a decode or verification step, from projections to output:
//
//   y = silu(conv4(u)); q = y_q / sqrt(|y_q|^2 + 1e-6) / sqrt(K_HEAD_DIM); k likewise without the last
//   factor; v = y_v; beta = sigmoid(b); g = decay * softplus(a + dt_bias)
//   S = exp(g) S;  d = beta (v - S^T k);  S += k d^T;  o = S^T q
//
// One threadgroup of 4 SIMD groups for 32 value columns of one value head; a SIMD group has 8 columns,
// a lane K_HEAD_DIM / 32 keys of each, in registers from the first token to the last: the state is
// read once and written once. The convolution and norms of q and k are repeated by every threadgroup
// that needs them, which is cheaper than a dispatch.
//
// TENTATIVE: the state stays as it was, and what delta_commit needs is stashed: k, d and exp(g).
#include "conv.h"

#define KEYS (K_HEAD_DIM / 32)
#define COLUMNS 8
#define SLICES (V_HEAD_DIM / 32)

struct DeltaStepParams { uint n_tokens; };

kernel void delta_step(device const float* u       [[buffer(0)]],    // [T, C]
                       device const float* b       [[buffer(1)]],    // [T, N_V_HEADS]
                       device const float* a       [[buffer(2)]],    // [T, N_V_HEADS]
                       device const float* conv1d  [[buffer(3)]],    // [C, CONV_KERNEL]
                       device const float* decay   [[buffer(4)]],    // [N_V_HEADS], -exp(A_log)
                       device const float* dt_bias [[buffer(5)]],    // [N_V_HEADS]
                       device const uint*  seq     [[buffer(6)]],    // [0]: position of token 0
                       device act*         ring    [[buffer(7)]],    // [CONV_RING, C]
                       device float*       state   [[buffer(8)]],    // [N_V_HEADS, V_HEAD_DIM, K_HEAD_DIM]
                       device float*       o       [[buffer(9)]],    // [T, N_V_HEADS, V_HEAD_DIM]
                       device float*       part    [[buffer(10)]],   // [T, N_V_HEADS, SLICES] sums of o^2
                       device float*       stash_k [[buffer(11)]],   // [T, N_V_HEADS, K_HEAD_DIM]
                       device float*       stash_d [[buffer(12)]],   // [T, N_V_HEADS, V_HEAD_DIM]
                       device float*       stash_g [[buffer(13)]],   // [T, N_V_HEADS] exp(g)
                       constant DeltaStepParams& p [[buffer(14)]],
                       uint3 tg   [[threadgroup_position_in_grid]],
                       uint  tid  [[thread_index_in_threadgroup]],
                       uint  sg   [[simdgroup_index_in_threadgroup]],
                       uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup float qs[K_HEAD_DIM];
    threadgroup float ks[K_HEAD_DIM];
    threadgroup float vs[32];
    threadgroup float sums[8];
    const uint hv = tg.y;
    const uint hk = hv / (N_V_HEADS / N_K_HEADS);
    const uint position = seq[0];
    const uint column0 = tg.x * 32 + sg * COLUMNS;
    // Channels of u: q heads, k heads, v heads.
    const uint cq = hk * K_HEAD_DIM;
    const uint ck = (N_K_HEADS + hk) * K_HEAD_DIM;
    const uint cv = 2 * N_K_HEADS * K_HEAD_DIM + hv * V_HEAD_DIM + tg.x * 32;
    // Of the threadgroups that read a q or k channel, one writes it to the ring.
    const bool writes_qk = tg.x == 0 && hv % (N_V_HEADS / N_K_HEADS) == 0;

    device float* s0 = state + (ulong(hv) * V_HEAD_DIM + column0) * K_HEAD_DIM + lane * KEYS;
    float s[COLUMNS][KEYS];
    LILY_UNROLL for (uint c = 0; c < COLUMNS; ++c) {
        LILY_UNROLL for (uint i = 0; i < KEYS; ++i) { s[c][i] = s0[c * K_HEAD_DIM + i]; }
    }
    for (uint t = 0; t < p.n_tokens; ++t) {
        const uint row = ((position + t) % CONV_RING) * C;
        threadgroup_barrier(mem_flags::mem_threadgroup);       // the readers of the last token are done
        float q2 = 0.0f;
        float k2 = 0.0f;
        for (uint i = tid; i < K_HEAD_DIM; i += 128) {
            const float q = conv_silu(u, ring, conv1d, position, t, cq + i);
            const float k = conv_silu(u, ring, conv1d, position, t, ck + i);
            qs[i] = q;
            ks[i] = k;
            q2 = fma(q, q, q2);
            k2 = fma(k, k, k2);
            if (writes_qk) {
                ring[row + cq + i] = act(u[t * C + cq + i]);
                ring[row + ck + i] = act(u[t * C + ck + i]);
            }
        }
        if (tid < 32) {
            vs[tid] = conv_silu(u, ring, conv1d, position, t, cv + tid);
            ring[row + cv + tid] = act(u[t * C + cv + tid]);
        }
        q2 = simd_sum(q2);
        k2 = simd_sum(k2);
        if (lane == 0) { sums[sg] = q2; sums[4 + sg] = k2; }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const float q_scale = rsqrt((sums[0] + sums[1]) + (sums[2] + sums[3]) + 1e-6f) * rsqrt(float(K_HEAD_DIM));
        const float k_scale = rsqrt((sums[4] + sums[5]) + (sums[6] + sums[7]) + 1e-6f);
        float q[KEYS];
        float k[KEYS];
        LILY_UNROLL for (uint i = 0; i < KEYS; ++i) {
            q[i] = qs[lane * KEYS + i] * q_scale;
            k[i] = ks[lane * KEYS + i] * k_scale;
        }
        const float beta = sigmoid(b[t * N_V_HEADS + hv]);
        const float forget = exp(decay[hv] * softplus(a[t * N_V_HEADS + hv] + dt_bias[hv]));
        float squares = 0.0f;
        LILY_UNROLL for (uint c = 0; c < COLUMNS; ++c) {
            float predicted = 0.0f;
            LILY_UNROLL for (uint i = 0; i < KEYS; ++i) {
                s[c][i] *= forget;
                predicted = fma(s[c][i], k[i], predicted);
            }
            predicted = simd_sum(predicted);
            const float d = beta * (vs[sg * COLUMNS + c] - predicted);
            float out = 0.0f;
            LILY_UNROLL for (uint i = 0; i < KEYS; ++i) {
                s[c][i] = fma(k[i], d, s[c][i]);
                out = fma(s[c][i], q[i], out);
            }
            out = simd_sum(out);
            squares = fma(out, out, squares);
            if (lane == 0) {
                const ulong at = (ulong(t) * N_V_HEADS + hv) * V_HEAD_DIM + column0 + c;
                o[at] = out;
#if TENTATIVE
                stash_d[at] = d;
#endif
            }
        }
#if TENTATIVE
        if (tg.x == 0 && sg == 0) {
            LILY_UNROLL for (uint i = 0; i < KEYS; ++i) {
                stash_k[(ulong(t) * N_V_HEADS + hv) * K_HEAD_DIM + lane * KEYS + i] = k[i];
            }
            if (lane == 0) { stash_g[t * N_V_HEADS + hv] = forget; }
        }
#endif
        threadgroup_barrier(mem_flags::mem_threadgroup);       // the readers of `sums` are done
        if (lane == 0) { sums[sg] = squares; }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (tid == 0) { part[(t * N_V_HEADS + hv) * SLICES + tg.x] = (sums[0] + sums[1]) + (sums[2] + sums[3]); }
    }
#if !TENTATIVE
    LILY_UNROLL for (uint c = 0; c < COLUMNS; ++c) {
        LILY_UNROLL for (uint i = 0; i < KEYS; ++i) { s0[c * K_HEAD_DIM + i] = s[c][i]; }
    }
#endif
}

// Applies the first n_tokens of a tentative step to the state. Geometry as delta_step.
kernel void delta_commit(device const float* stash_k [[buffer(0)]],
                         device const float* stash_d [[buffer(1)]],
                         device const float* stash_g [[buffer(2)]],
                         device float*       state   [[buffer(3)]],
                         constant DeltaStepParams& p [[buffer(4)]],
                         uint3 tg   [[threadgroup_position_in_grid]],
                         uint  sg   [[simdgroup_index_in_threadgroup]],
                         uint  lane [[thread_index_in_simdgroup]])
{
    const uint hv = tg.y;
    const uint column0 = tg.x * 32 + sg * COLUMNS;
    device float* s0 = state + (ulong(hv) * V_HEAD_DIM + column0) * K_HEAD_DIM + lane * KEYS;
    LILY_UNROLL for (uint c = 0; c < COLUMNS; ++c) {
        LILY_UNROLL for (uint i = 0; i < KEYS; ++i) {
            float s = s0[c * K_HEAD_DIM + i];
            for (uint t = 0; t < p.n_tokens; ++t) {
                const ulong head = ulong(t) * N_V_HEADS + hv;
                s *= stash_g[head];
                s = fma(stash_k[head * K_HEAD_DIM + lane * KEYS + i], stash_d[head * V_HEAD_DIM + column0 + c], s);
            }
            s0[c * K_HEAD_DIM + i] = s;
        }
    }
}
