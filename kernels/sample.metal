// The next token by the request's own rules, without the host: temperature, top-k, top-p, min-p and one
// draw, in the order of the CPU's sampler (crates/engine/src/sample.rs), which takes its draws from the
// same generator: the host writes the draws of the next steps ahead, as they depend on the seed alone.
//
//   top_parts   LISTS SIMD groups: the `top_k` largest logits of each one's share, best first; equal
//               logits: the lower id. Threadgroups of 8 SIMD groups
//   choose      one threadgroup of 32 SIMD groups: merges the lists (a lane holds the head of one), then
//               one SIMD group merges theirs and one lane draws; the token is fed back and noted
//
// Logits past `vocab` belong to padding rows. A NaN or +infinity anywhere gives the token VOCAB, which
// no one can feed: the host refuses the answer as its own sampler would.
#include "lily.h"

#define K_MAX 32
#define PER_LANE ((VOCAB + LISTS * 32 - 1) / (LISTS * 32))

struct TopParams { uint top_k; uint vocab; };

kernel void top_parts(device const float* logits [[buffer(0)]],   // [VOCAB]
                      device float*       values [[buffer(1)]],   // [LISTS, K_MAX]
                      device uint*        ids    [[buffer(2)]],   // [LISTS, K_MAX]
                      device uint*        bad    [[buffer(3)]],   // [LISTS]
                      constant TopParams& p      [[buffer(4)]],
                      uint3 tg   [[threadgroup_position_in_grid]],
                      uint  sg   [[simdgroup_index_in_threadgroup]],
                      uint  lane [[thread_index_in_simdgroup]])
{
    const uint list = tg.x * 8 + sg;
    float x[PER_LANE];
    uint n_bad = 0;
    LILY_UNROLL for (uint i = 0; i < PER_LANE; ++i) {
        const uint id = (i * LISTS + list) * 32 + lane;
        const float logit = id < p.vocab ? logits[id] : -INFINITY;
        // A comparison with NaN is false.
        const bool good = logit < INFINITY;
        n_bad += good ? 0u : 1u;
        x[i] = good ? logit : -INFINITY;
    }
    n_bad = simd_sum(n_bad);
    if (lane == 0) { bad[list] = n_bad; }
    for (uint k = 0; k < p.top_k; ++k) {
        float best = -INFINITY;
        uint at = VOCAB;
        LILY_UNROLL for (uint i = 0; i < PER_LANE; ++i) {
            if (x[i] > best) { best = x[i]; at = (i * LISTS + list) * 32 + lane; }
        }
        const float top = simd_max(best);
        const uint id = simd_min(best == top ? at : uint(VOCAB));
        LILY_UNROLL for (uint i = 0; i < PER_LANE; ++i) {
            if ((i * LISTS + list) * 32 + lane == id) { x[i] = -INFINITY; }
        }
        if (lane == 0) {
            values[list * K_MAX + k] = top;
            ids[list * K_MAX + k] = id;
        }
    }
}

struct ChooseParams { uint top_k; uint history; float temperature; float top_p; float min_p; };

// Takes the best of the heads of 32 lists, one a lane: its value and id. Lists end with VOCAB.
inline void best_head(float head, uint id, thread float& value, thread uint& at)
{
    value = simd_max(head);
    at = simd_min(head == value ? id : uint(VOCAB));
}

kernel void choose(device const float* values [[buffer(0)]],
                   device const uint*  listed [[buffer(1)]],
                   device const uint*  bad    [[buffer(2)]],
                   device const float* draws  [[buffer(3)]],   // [history], for position p in p % history
                   device uint*        ids    [[buffer(4)]],   // [0]: the token of the next step
                   device uint*        seq    [[buffer(5)]],   // [0]: committed tokens
                   device uint*        noted  [[buffer(6)]],   // [history]
                   constant ChooseParams& p   [[buffer(7)]],
                   uint sg   [[simdgroup_index_in_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]])
{
    threadgroup float tops[32 * K_MAX];
    threadgroup uint top_ids[32 * K_MAX];
    threadgroup float best[K_MAX];
    threadgroup uint best_ids[K_MAX];
    threadgroup uint n_bad[32];
    // LISTS is 1024: every lane of every SIMD group has a list of its own.
    const uint list = sg * 32 + lane;
    const uint bad_here = simd_sum(bad[list]);
    if (lane == 0) { n_bad[sg] = bad_here; }
    uint next = 0;
    for (uint k = 0; k < p.top_k; ++k) {
        const bool left = next < p.top_k;
        const float head = left ? values[list * K_MAX + next] : -INFINITY;
        const uint id = left ? listed[list * K_MAX + next] : uint(VOCAB);
        float value = 0.0f;
        uint at = 0;
        best_head(head, id, value, at);
        if (at < VOCAB && id == at) { next += 1; }
        if (lane == 0) {
            tops[sg * K_MAX + k] = value;
            top_ids[sg * K_MAX + k] = at;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (sg == 0) {                                             // the same for all lanes of a SIMD group
        const uint all_bad = simd_sum(n_bad[lane]);
        next = 0;
        for (uint k = 0; k < p.top_k; ++k) {
            const bool left = next < p.top_k;
            const float head = left ? tops[lane * K_MAX + next] : -INFINITY;
            const uint id = left ? top_ids[lane * K_MAX + next] : uint(VOCAB);
            float value = 0.0f;
            uint at = 0;
            best_head(head, id, value, at);
            if (at < VOCAB && id == at) { next += 1; }
            if (lane == 0) {
                best[k] = value;
                best_ids[k] = at;
            }
        }
        if (lane == 0) {
            // Best first, so each filter keeps a front part. A probability is relative to the best.
            uint n = 0;
            float total = 0.0f;
            const float top = best[0];
            for (uint k = 0; k < p.top_k; ++k) {
                if (best_ids[k] < VOCAB) {
                    best[k] = exp((best[k] - top) / p.temperature);
                    total += best[k];
                    n = k + 1;
                }
            }
            if (p.top_p < 1.0f) {
                const float wanted = p.top_p * total;
                float kept = 0.0f;
                uint n_kept = n;
                for (uint k = n; k > 0; --k) {
                    // From the back: the first that reaches it is the last one seen here.
                    kept = 0.0f;
                    for (uint i = 0; i < k; ++i) { kept += best[i]; }
                    if (kept >= wanted) { n_kept = k; }
                }
                n = n_kept;
            }
            total = 0.0f;
            uint n_kept = 0;
            for (uint k = 0; k < n; ++k) {
                if (best[k] >= p.min_p) {
                    total += best[k];
                    n_kept = k + 1;
                }
            }
            const uint position = seq[0] + 1;
            float rest = draws[position % p.history] * total;
            uint token = VOCAB;
            for (uint k = 0; k < n_kept; ++k) {
                // Rounding can leave a trace of the draw: then it is the last with any probability.
                if (rest >= 0.0f && best[k] > 0.0f) { token = best_ids[k]; }
                rest -= best[k];
            }
            if (all_bad > 0) { token = VOCAB; }
            ids[0] = token < VOCAB ? token : 0;
            seq[0] = position;
            noted[position % p.history] = token;
        }
    }
}
