// Mixture of experts for a few tokens, in two dispatches after the router's logits:
//
//   moe_gate_up   a[t, slot] = weight * silu(W_gate h) * (W_up h),  h = x * gain * rsqrt(mean(x^2) + eps)
//   moe_down      x[t] += sum over slots of W_down a[t, slot]
//
// Slots 0 .. TOP_K-1 are the routed experts, best first, slot TOP_K is the shared one, whose weight is
// sigmoid(shared_logit). Every threadgroup of moe_gate_up chooses the experts for itself: 256 logits
// are cheaper to rank than a dispatch is to wait for. Weights are folded into a, so that moe_down is
// one long dot product in slot order.
// The shared expert has a format of its own: S_BITS, S_GROUP, S_SCALE; the routed ones W_*.
#include "gemv.h"
#include "route.h"

#define WIDTH (EXPERT_WIDTH > SHARED_WIDTH ? EXPERT_WIDTH : SHARED_WIDTH)
typedef Code<S_BITS, S_SCALE>::type shared_code_t;
typedef S_SCALE shared_scale_t;

struct MoeParams { uint gate_stride; uint up_stride; };

kernel void moe_gate_up(device const float*          x       [[buffer(0)]],   // [T, HIDDEN]
                        device const float*          gain    [[buffer(1)]],   // [HIDDEN]
                        device const float*          logits  [[buffer(2)]],   // [T, N_EXPERTS]
                        device const float*          shared  [[buffer(3)]],   // [T]
                        device const code_t*         gw      [[buffer(4)]],
                        device const scale_t*        gs      [[buffer(5)]],
                        device const scale_t*        gb      [[buffer(6)]],
                        device const code_t*         uw      [[buffer(7)]],
                        device const scale_t*        us      [[buffer(8)]],
                        device const scale_t*        ub      [[buffer(9)]],
                        device const shared_code_t*  sgw     [[buffer(10)]],
                        device const shared_scale_t* sgs     [[buffer(11)]],
                        device const shared_scale_t* sgb     [[buffer(12)]],
                        device const shared_code_t*  suw     [[buffer(13)]],
                        device const shared_scale_t* sus     [[buffer(14)]],
                        device const shared_scale_t* sub     [[buffer(15)]],
                        device float*                a       [[buffer(16)]],  // [T, TOP_K + 1, WIDTH]
                        device uint*                 experts [[buffer(17)]],  // [T, TOP_K]
                        constant MoeParams&          p       [[buffer(18)]],
                        uint3 tg   [[threadgroup_position_in_grid]],
                        uint  tid  [[thread_index_in_threadgroup]],
                        uint  sg   [[simdgroup_index_in_threadgroup]],
                        uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup float4 xs[STAGED_LEN(HIDDEN)];
    threadgroup float partial[8];
    threadgroup float* flat = (threadgroup float*)xs;
    const uint slot = tg.y;
    const uint t = tg.z;
    float squares = 0.0f;
    for (uint k = tid; k < HIDDEN; k += 256) {
        const float v = x[ulong(t) * HIDDEN + k];
        squares = fma(v, v, squares);
        flat[staged_at(k)] = v * gain[k];
    }
    squares = simd_sum(squares);
    if (lane == 0) { partial[sg] = squares; }
    float weight = 0.0f;
    uint expert = 0;
    if (slot < TOP_K) {                                      // the same for the whole threadgroup
        uint e[TOP_K];
        float w[TOP_K];
        choose(logits + ulong(t) * N_EXPERTS, lane, e, w);
        LILY_UNROLL for (uint k = 0; k < TOP_K; ++k) {
            if (k == slot) { expert = e[k]; weight = w[k]; }
        }
    } else {
        weight = sigmoid(shared[t]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = 0.0f;
    for (uint i = 0; i < 8; ++i) { total += partial[i]; }
    const float scale = rsqrt(total / float(HIDDEN) + RMS_EPS);
    if (slot < TOP_K && tg.x == 0 && tid == 0) { experts[t * TOP_K + slot] = expert; }

    const uint row0 = (tg.x * 8 + sg) * ROWS;
    const uint rows = slot < TOP_K ? EXPERT_WIDTH : SHARED_WIDTH;
    if (row0 < rows) {                                       // the same for all lanes of a SIMD group
        float gate[ROWS];
        float up[ROWS];
        LILY_UNROLL for (uint r = 0; r < ROWS; ++r) { gate[r] = 0.0f; up[r] = 0.0f; }
        if (slot < TOP_K) {
            const ulong g0 = ulong(expert) * p.gate_stride;
            const ulong u0 = ulong(expert) * p.up_stride;
            dot_rows<ROWS, W_BITS, W_GROUP, W_SCALE>(xs, HIDDEN, gw, gs, gb, g0 + row0, g0 + EXPERT_WIDTH - 1, lane, gate);
            dot_rows<ROWS, W_BITS, W_GROUP, W_SCALE>(xs, HIDDEN, uw, us, ub, u0 + row0, u0 + EXPERT_WIDTH - 1, lane, up);
        } else {
            dot_rows<ROWS, S_BITS, S_GROUP, S_SCALE>(xs, HIDDEN, sgw, sgs, sgb, row0, SHARED_WIDTH - 1, lane, gate);
            dot_rows<ROWS, S_BITS, S_GROUP, S_SCALE>(xs, HIDDEN, suw, sus, sub, row0, SHARED_WIDTH - 1, lane, up);
        }
        LILY_UNROLL for (uint r = 0; r < ROWS; ++r) {
            const float g = simd_sum(gate[r]) * scale;
            const float u = simd_sum(up[r]) * scale;
            if (lane == 0 && row0 + r < rows) {
                a[(ulong(t) * (TOP_K + 1) + slot) * WIDTH + row0 + r] = weight * silu(g) * u;
            }
        }
    }
}

struct MoeDownParams { uint stride; };

kernel void moe_down(device const float*          a       [[buffer(0)]],   // [T, TOP_K + 1, WIDTH]
                     device const uint*           experts [[buffer(1)]],   // [T, TOP_K]
                     device const code_t*         w       [[buffer(2)]],
                     device const scale_t*        s       [[buffer(3)]],
                     device const scale_t*        b       [[buffer(4)]],
                     device const shared_code_t*  sw      [[buffer(5)]],
                     device const shared_scale_t* ss      [[buffer(6)]],
                     device const shared_scale_t* sb      [[buffer(7)]],
                     device float*                x       [[buffer(8)]],   // [T, HIDDEN]
                     constant MoeDownParams&      p       [[buffer(9)]],
                     uint3 tg   [[threadgroup_position_in_grid]],
                     uint  tid  [[thread_index_in_threadgroup]],
                     uint  sg   [[simdgroup_index_in_threadgroup]],
                     uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup float4 as[(TOP_K + 1) * STAGED_LEN(WIDTH)];
    threadgroup float* flat = (threadgroup float*)as;
    const uint t = tg.y;
    for (uint slot = 0; slot <= TOP_K; ++slot) {
        const uint width = slot < TOP_K ? EXPERT_WIDTH : SHARED_WIDTH;
        for (uint k = tid; k < width; k += 256) {
            flat[slot * STAGED_LEN(WIDTH) * 4 + staged_at(k)] = a[(ulong(t) * (TOP_K + 1) + slot) * WIDTH + k];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint row0 = (tg.x * 8 + sg) * ROWS;
    if (row0 < HIDDEN) {                                     // the same for all lanes of a SIMD group
        float acc[ROWS];
        LILY_UNROLL for (uint r = 0; r < ROWS; ++r) { acc[r] = 0.0f; }
        LILY_UNROLL for (uint slot = 0; slot < TOP_K; ++slot) {
            const ulong e0 = ulong(experts[t * TOP_K + slot]) * p.stride;
            dot_rows<ROWS, W_BITS, W_GROUP, W_SCALE>(as + slot * STAGED_LEN(WIDTH), EXPERT_WIDTH, w, s, b, e0 + row0,
                                                     e0 + HIDDEN - 1, lane, acc);
        }
        dot_rows<ROWS, S_BITS, S_GROUP, S_SCALE>(as + TOP_K * STAGED_LEN(WIDTH), SHARED_WIDTH, sw, ss, sb, row0, HIDDEN - 1,
                                                 lane, acc);
        LILY_UNROLL for (uint r = 0; r < ROWS; ++r) {
            const float sum = simd_sum(acc[r]);
            if (lane == 0 && row0 + r < HIDDEN) { x[ulong(t) * HIDDEN + row0 + r] += sum; }
        }
    }
}
