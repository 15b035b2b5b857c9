// The inner loop of every product with one vector.
//
// The vector is staged in threadgroup memory as float4, permuted so that the lanes of a SIMD group,
// which work on neighbouring units of 16 columns, read neighbouring float4: element k lies at
// staged_at(k). A SIMD group then handles ROWS rows, each lane every 32nd unit.
#include "quant.h"

// float4 needed for `cols` elements.
#define STAGED_LEN(cols) (((cols) + 511) / 512 * 128)

inline uint staged_at(uint k) {
    const uint unit = k / UNIT;
    return (((unit / 32) * 4 + (k % UNIT) / 4) * 32 + unit % 32) * 4 + k % 4;
}

// acc[r] += the part of lane `lane` of row `row0 + r` times the staged vector; rows past the last
// are read as the last.
template <uint N_ROWS, uint BITS, uint GROUP, typename SCALE>
inline void dot_rows(threadgroup const float4* x, uint cols, device const typename Code<BITS, SCALE>::type* codes,
                     device const SCALE* scales, device const SCALE* biases, ulong row0, ulong last_row,
                     uint lane, thread float* acc)
{
    for (uint unit = lane; unit < cols / UNIT; unit += 32) {
        float xv[UNIT];
        float sum = 0.0f;
        LILY_UNROLL for (uint j = 0; j < 4; ++j) {
            const float4 v = x[((unit / 32) * 4 + j) * 32 + unit % 32];
            xv[4 * j] = v.x;
            xv[4 * j + 1] = v.y;
            xv[4 * j + 2] = v.z;
            xv[4 * j + 3] = v.w;
            sum += (v.x + v.y) + (v.z + v.w);
        }
        LILY_UNROLL for (uint r = 0; r < N_ROWS; ++r) {
            const ulong row = min(row0 + r, last_row);
            float w[UNIT];
            load_unit_of<BITS>(codes + row * row_codes_of<BITS>(cols), unit, w);
            float d = 0.0f;
            LILY_UNROLL for (uint i = 0; i < UNIT; ++i) { d = fma(w[i], xv[i], d); }
            if (BITS < 16) {
                const ulong g = row * (cols / GROUP) + unit * UNIT / GROUP;
                d = float(scales[g]) * d + float(biases[g]) * sum;
            }
            acc[r] += d;
        }
    }
}
