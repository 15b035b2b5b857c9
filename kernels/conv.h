// The causal convolution of the delta rule: 4 taps, depthwise, then SiLU.
//
// Rows of u before the step lie in a ring, position p in row p % CONV_RING, so that threadgroups that
// still read the rows before the step and one that already writes the step's never meet: CONV_RING
// is at least CONV_KERNEL - 1 + T for a step that is written while it is read.
#include "lily.h"

#define C (2 * N_K_HEADS * K_HEAD_DIM + N_V_HEADS * V_HEAD_DIM)

// Channel c at token t of the step; `position` is that of token 0.
template <typename T>
inline float conv_silu(device const T* u, device const act* ring, device const float* conv1d, uint position, uint t, uint c)
{
    float sum = 0.0f;
    LILY_UNROLL for (uint j = 0; j < CONV_KERNEL; ++j) {
        const uint back = CONV_KERNEL - 1 - j;                 // tokens before t
        float x = 0.0f;
        if (back <= t) { x = float(u[ulong(t - back) * C + c]); }
        else if (position + t >= back) { x = float(ring[((position + t - back) % CONV_RING) * C + c]); }
        sum = fma(conv1d[c * CONV_KERNEL + j], x, sum);
    }
    return silu(sum);
}
