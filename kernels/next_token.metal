// The end of a decode step on the device: the token with the largest logit, fed back without the host.
//
//   argmax_parts   PARTS threadgroups of 256 threads: the largest logit of each part and its index
//   argmax         one SIMD group: the largest of those (equal logits: the lower index) becomes the next
//                  token and is noted; the sequence has one token more
#include "lily.h"

kernel void argmax_parts(device const float* logits [[buffer(0)]],   // [VOCAB]
                         device float*       best   [[buffer(1)]],   // [PARTS]
                         device uint*        at     [[buffer(2)]],   // [PARTS]
                         uint3 tg   [[threadgroup_position_in_grid]],
                         uint  tid  [[thread_index_in_threadgroup]],
                         uint  sg   [[simdgroup_index_in_threadgroup]],
                         uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup float values[8];
    threadgroup uint indices[8];
    float top = -INFINITY;
    uint index = VOCAB;
    for (uint i = tg.x * 256 + tid; i < VOCAB; i += PARTS * 256) {
        if (logits[i] > top) { top = logits[i]; index = i; }
    }
    const float lead = simd_max(top);
    const uint first = simd_min(top == lead ? index : uint(VOCAB));
    if (lane == 0) { values[sg] = lead; indices[sg] = first; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid == 0) {
        for (uint g = 0; g < 8; ++g) {
            if (values[g] > top || (values[g] == top && indices[g] < index)) { top = values[g]; index = indices[g]; }
        }
        best[tg.x] = top;
        at[tg.x] = index;
    }
}

struct ArgmaxParams { uint history; };

kernel void argmax(device const float* best  [[buffer(0)]],
                   device const uint*  at    [[buffer(1)]],
                   device uint*        ids   [[buffer(2)]],   // [0]: the token of the next step
                   device uint*        seq   [[buffer(3)]],   // [0]: committed tokens
                   device uint*        noted [[buffer(4)]],   // [history], position p in p % history
                   constant ArgmaxParams& p  [[buffer(5)]],
                   uint lane [[thread_index_in_simdgroup]])
{
    float top = -INFINITY;
    uint index = VOCAB;
    for (uint i = lane; i < PARTS; i += 32) {
        if (best[i] > top || (best[i] == top && at[i] < index)) { top = best[i]; index = at[i]; }
    }
    const float lead = simd_max(top);
    // A row without any number: token 0, as on the CPU.
    const uint first = simd_min(top == lead ? index : uint(VOCAB)) % VOCAB;
    if (lane == 0) {
        ids[0] = first;
        seq[0] += 1;
        noted[seq[0] % p.history] = first;
    }
}

// seq[0] += n, for steps whose tokens come from the host.
struct AdvanceParams { uint n_tokens; };

kernel void advance(device uint* seq [[buffer(0)]], constant AdvanceParams& p [[buffer(1)]],
                    uint tid [[thread_index_in_threadgroup]])
{
    if (tid == 0) { seq[0] += p.n_tokens; }
}
