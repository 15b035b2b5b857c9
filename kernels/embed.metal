// x[t] = row ids[t] of the embedding table, in f32                            [T, HIDDEN]
// One threadgroup of 128 threads a token; a thread decodes units of 16 columns.
#include "quant.h"

kernel void embed(device const uint*    ids    [[buffer(0)]],   // [T], each below VOCAB
                  device const code_t*  codes  [[buffer(1)]],   // [VOCAB, HIDDEN]
                  device const scale_t* scales [[buffer(2)]],
                  device const scale_t* biases [[buffer(3)]],
                  device float*         x      [[buffer(4)]],
                  uint3 tg  [[threadgroup_position_in_grid]],
                  uint  tid [[thread_index_in_threadgroup]])
{
    const ulong row = ids[tg.x];
    for (uint unit = tid; unit < HIDDEN / UNIT; unit += 128) {
        float w[UNIT];
        load_unit(codes + row * row_codes(HIDDEN), unit, w);
        float scale = 1.0f;
        float bias = 0.0f;
        if (W_BITS < 16) {
            const ulong g = row * (HIDDEN / W_GROUP) + unit * UNIT / W_GROUP;
            scale = float(scales[g]);
            bias = float(biases[g]);
        }
        LILY_UNROLL for (uint i = 0; i < UNIT; ++i) {
            x[ulong(tg.x) * HIDDEN + unit * UNIT + i] = W_BITS < 16 ? scale * w[i] + bias : w[i];
        }
    }
}
