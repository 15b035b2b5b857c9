// y [16, 32] = a [16, 32] b [32, 32]^T by one SIMD group, right if BAD is 0.

#define LD 40

kernel void product(device const float* a [[buffer(0)]],
                    device const float* b [[buffer(1)]],
                    device float*       y [[buffer(2)]],
                    uint lane [[thread_index_in_simdgroup]])
{
    threadgroup act as[16 * LD];
    threadgroup act bs[32 * LD];
    for (uint i = lane; i < 512; i += 32) { as[i / 32 * LD + i % 32] = act(a[i]); }
    for (uint i = lane; i < 1024; i += 32) { bs[i / 32 * LD + i % 32] = act(b[i]); }
#if BAD != 1                                                 // reads what others have just written
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    Tile<16, 32> t;
#if BAD != 2                                                 // sums begin with anything
    tile_zero(t);
#endif
#if BAD == 3                                                 // longer than what is there
    tile_mma_nt<64>(t, as, LD, bs, LD);
#elif BAD == 4                                               // some lanes stay away
    if (lane < 16) { tile_mma_nt<32>(t, as, LD, bs, LD); }
    threadgroup_barrier(mem_flags::mem_threadgroup);
#else
    tile_mma_nt<32>(t, as, LD, bs, LD);
#endif
#if BAD == 5                                                 // the places of another body
    for (uint i = 0; i < TILE_COUNT(16, 32); ++i) {
        y[(i / 8 * 8 + (lane / 4 & 4) + lane / 2 % 4) * 32 + i / 2 % 4 * 8 + (lane / 4 & 2) * 2 + lane % 2 * 2 + i % 2] = tile_get(t, i);
    }
#else
    for (uint i = 0; i < tile_count(t); ++i) {
        if (tile_valid(t, i)) { y[tile_row(t, i, lane) * 32 + tile_col(t, i, lane)] = tile_get(t, i); }
    }
#endif
}
