// Weights as stored. A matrix is [rows, cols] with cols a multiple of 32, in one of the forms
//
//   bits 2..8    MLX affine: codes are a little-endian bit stream per row, w = scale * code + bias
//                per `group` consecutive inputs; scales and biases are [rows, cols / group]
//   bits 16, 32  plain elements; scales and biases are not read
//
// and is read in units of 16 consecutive weights of a row: small enough to spread 512 columns over
// the lanes of a SIMD group, and never across a group.
//
// W_BITS, W_GROUP and W_SCALE name the format of a kernel that reads one matrix; kernels that read
// several formats use the templates.
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
constant constexpr uint UNIT = 16;

// The type of the codes: words, or the elements themselves.
template <uint BITS, typename SCALE> struct Code { typedef uint type; };
template <typename SCALE> struct Code<16, SCALE> { typedef SCALE type; };
template <typename SCALE> struct Code<32, SCALE> { typedef SCALE type; };
typedef Code<W_BITS, W_SCALE>::type code_t;
typedef W_SCALE scale_t;

// Codes in a row.
template <uint BITS> inline ulong row_codes_of(uint cols) {
    return BITS >= 16 ? ulong(cols) : ulong(cols) * BITS / 32;
}

// The codes (or plain weights) of the 16 columns from 16 * unit on; `row` is the row's first code.
template <uint BITS> inline void load_unit_of(device const uint* row, uint unit, thread float* w) {
    if (BITS == 4) {
        LILY_UNROLL for (uint j = 0; j < 2; ++j) {
            const uint v = row[unit * 2 + j];
            LILY_UNROLL for (uint i = 0; i < 8; ++i) { w[8 * j + i] = float((v >> (4 * i)) & 15u); }
        }
    } else if (BITS == 8) {
        LILY_UNROLL for (uint j = 0; j < 4; ++j) {
            const uint v = row[unit * 4 + j];
            LILY_UNROLL for (uint i = 0; i < 4; ++i) { w[4 * j + i] = float((v >> (8 * i)) & 255u); }
        }
    } else {
        LILY_UNROLL for (uint i = 0; i < UNIT; ++i) {
            const uint bit = (unit * UNIT + i) * BITS;
            const uint shift = bit % 32;
            uint v = row[bit / 32] >> shift;
            if (shift + BITS > 32) { v |= row[bit / 32 + 1] << (32 - shift); }
            w[i] = float(v & ((1u << BITS) - 1u));
        }
    }
}
template <uint BITS> inline void load_unit_of(device const bfloat* row, uint unit, thread float* w) {
    LILY_UNROLL for (uint i = 0; i < UNIT; ++i) { w[i] = float(row[unit * UNIT + i]); }
}
template <uint BITS> inline void load_unit_of(device const half* row, uint unit, thread float* w) {
    LILY_UNROLL for (uint i = 0; i < UNIT; ++i) { w[i] = float(row[unit * UNIT + i]); }
}
template <uint BITS> inline void load_unit_of(device const float* row, uint unit, thread float* w) {
    LILY_UNROLL for (uint i = 0; i < UNIT; ++i) { w[i] = row[unit * UNIT + i]; }
}

inline ulong row_codes(uint cols) { return row_codes_of<W_BITS>(cols); }
inline void load_unit(device const code_t* row, uint unit, thread float* w) { load_unit_of<W_BITS>(row, unit, w); }
