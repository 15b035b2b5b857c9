// Which experts a token goes to.
#include "lily.h"

#define PER_LANE ((N_EXPERTS + 31) / 32)

// The TOP_K largest of a token's logits, best first; equal logits go to the lower index, NaN counts
// as the smallest. A SIMD group works together and every lane learns all: experts[k], and weights[k],
// the softmax over the chosen.
inline void choose(device const float* logits, uint lane, thread uint* experts, thread float* weights)
{
    float l[PER_LANE];
    LILY_UNROLL for (uint i = 0; i < PER_LANE; ++i) {
        const uint expert = i * 32 + lane;
        const float x = expert < N_EXPERTS ? logits[expert] : -INFINITY;
        l[i] = x == x ? x : -INFINITY;
    }
    uint taken = 0;                                            // of this lane's experts
    float sum = 0.0f;
    LILY_UNROLL for (uint k = 0; k < TOP_K; ++k) {
        float best = -INFINITY;
        uint at = N_EXPERTS;
        LILY_UNROLL for (uint i = 0; i < PER_LANE; ++i) {
            const uint expert = i * 32 + lane;
            const bool free = expert < N_EXPERTS && ((taken >> i) & 1u) == 0;
            // -infinity may still be chosen when nothing else is left.
            if (free && (at == N_EXPERTS || l[i] > best)) { best = l[i]; at = expert; }
        }
        const float top = simd_max(best);
        const uint expert = simd_min(best == top ? at : uint(N_EXPERTS));
        if (expert % 32 == lane) { taken |= 1u << (expert / 32); }
        experts[k] = expert;
        weights[k] = top;
    }
    // weights[] holds the logits so far.
    const float largest = weights[0];
    LILY_UNROLL for (uint k = 0; k < TOP_K; ++k) {
        weights[k] = weights[k] == largest ? 1.0f : exp(weights[k] - largest);
        sum += weights[k];
    }
    LILY_UNROLL for (uint k = 0; k < TOP_K; ++k) { weights[k] = weights[k] / sum; }
}
