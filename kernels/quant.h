// Weights as stored. A matrix is [rows, cols] with cols a multiple of 32, in one of the forms
//
//   W_BITS 2..8   MLX affine: codes are a little-endian bit stream per row, w = scale * code + bias
//                 per W_GROUP consecutive inputs; scales and biases are W_SCALE [rows, cols / W_GROUP]
//   W_BITS 16, 32 plain: W_SCALE elements; scales and biases are not read
//
// and is read in units of 16 consecutive weights of a row: small enough to spread 512 columns over
// the lanes of a SIMD group, and never across a group.
#include "lily.h"
#ifndef W_BITS
#define W_BITS 4
#endif
#ifndef W_GROUP
#define W_GROUP 64
#endif
#ifndef W_SCALE
#define W_SCALE bfloat
#endif
#if W_BITS >= 16
typedef W_SCALE code_t;
#else
typedef uint code_t;
#endif
typedef W_SCALE scale_t;
constant constexpr uint UNIT = 16;

// Elements of code_t in a row.
inline ulong row_codes(uint cols) {
#if W_BITS >= 16
    return cols;
#else
    return cols * W_BITS / 32;
#endif
}

// Codes (or plain weights) of the 16 columns from 16 * unit on; `row` is the row's first code.
inline void load_unit(device const code_t* row, uint unit, thread float* w) {
#if W_BITS >= 16
    LILY_UNROLL for (uint i = 0; i < UNIT; ++i) { w[i] = float(row[unit * UNIT + i]); }
#elif W_BITS == 8
    LILY_UNROLL for (uint j = 0; j < 4; ++j) {
        const uint v = row[unit * 4 + j];
        w[4 * j] = float(v & 255u);
        w[4 * j + 1] = float((v >> 8) & 255u);
        w[4 * j + 2] = float((v >> 16) & 255u);
        w[4 * j + 3] = float(v >> 24);
    }
#elif W_BITS == 4
    LILY_UNROLL for (uint j = 0; j < 2; ++j) {
        const uint v = row[unit * 2 + j];
        LILY_UNROLL for (uint i = 0; i < 8; ++i) { w[8 * j + i] = float((v >> (4 * i)) & 15u); }
    }
#else
    LILY_UNROLL for (uint i = 0; i < UNIT; ++i) {
        const uint bit = (unit * UNIT + i) * W_BITS;
        const uint shift = bit % 32;
        uint v = row[bit / 32] >> shift;
        if (shift + W_BITS > 32) { v |= row[bit / 32 + 1] << (32 - shift); }
        w[i] = float(v & ((1u << W_BITS) - 1u));
    }
#endif
}
