// simdgroup_matrix: products, transposes, origins and element types.
#include "lily.h"

// d = a b + c for every SIMD group, all 8 x 8, and its transpose; e = a b.
kernel void multiply(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                     device const float* c [[buffer(2)]], device float* d [[buffer(3)]],
                     device float* transposed [[buffer(4)]], device float* e [[buffer(5)]],
                     uint sg [[simdgroup_index_in_threadgroup]])
{
    simdgroup_matrix<float, 8, 8> ma, mb, mc, md;
    simdgroup_load(ma, a + sg * 64);
    simdgroup_load(mb, b + sg * 64, 8, ulong2(0, 0));
    simdgroup_load(mc, c + sg * 64, 8);
    simdgroup_multiply_accumulate(md, ma, mb, mc);
    simdgroup_store(md, d + sg * 64, 8);
    simdgroup_store(md, transposed + sg * 64, 8, ulong2(0, 0), true);
    simdgroup_multiply(mc, ma, mb);
    simdgroup_store(mc, e + sg * 64, 8);
}

// y[32, 16] = x[32, 24] w[16, 24]^T by one SIMD group a row of four tiles, through threadgroup
// memory, in the type T.
kernel void tiles(device const float* x [[buffer(0)]], device const float* w [[buffer(1)]],
                  device float* y [[buffer(2)]],
                  uint tid [[thread_index_in_threadgroup]],
                  uint sg [[simdgroup_index_in_threadgroup]])
{
    threadgroup T xt[32 * 24];
    threadgroup T wt[16 * 24];
    for (uint i = tid; i < 32 * 24; i += 128) { xt[i] = T(x[i]); }
    for (uint i = tid; i < 16 * 24; i += 128) { wt[i] = T(w[i]); }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_matrix<float, 8, 8> sums[2];
    LILY_UNROLL for (uint j = 0; j < 2; ++j) {
        sums[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        for (uint k = 0; k < 24; k += 8) {
            simdgroup_matrix<T, 8, 8> mx, mw;
            simdgroup_load(mx, xt, 24, ulong2(k, sg * 8));
            simdgroup_load(mw, wt + j * 8 * 24 + k, 24, ulong2(0, 0), true);
            simdgroup_multiply_accumulate(sums[j], mx, mw, sums[j]);
        }
        simdgroup_store(sums[j], y + sg * 8 * 16 + j * 8, 16);
    }
}

// Where a lane's elements are, and a diagonal.
kernel void layout(device float* y [[buffer(0)]], device float* one [[buffer(1)]],
                   uint lane [[thread_index_in_simdgroup]])
{
    simdgroup_matrix<float, 8, 8> m;
    m.thread_elements()[0] = float(lane * 2);
    m.thread_elements()[1] = float(lane * 2 + 1);
    simdgroup_store(m, y, 8);
    simdgroup_store(simdgroup_matrix<float, 8, 8>(3.0f), one, 8);
}

// A load that one lane does not do.
kernel void diverged(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                     uint lane [[thread_index_in_simdgroup]])
{
    simdgroup_matrix<float, 8, 8> m = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    if (lane != 9) { simdgroup_load(m, x, 8); }
    simdgroup_store(m, y, 8);
}

// A tile that ends outside, and a tile of threadgroup memory that is not complete.
kernel void outside(device const float* x [[buffer(0)]], device float* y [[buffer(1)]])
{
    simdgroup_matrix<float, 8, 8> m;
    simdgroup_load(m, x, 9);
    simdgroup_store(m, y, 8);
}
kernel void incomplete(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                       uint lane [[thread_index_in_simdgroup]])
{
    threadgroup float t[64];
    t[lane] = x[lane];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_matrix<float, 8, 8> m;
    simdgroup_load(m, t, 8);
    simdgroup_store(m, y, 8);
}
