// Gated delta rule for many tokens, in chunks of CHUNK = 64. Per value head, rows are the tokens of a chunk:
//
//   y = silu(conv4(u)); q = y_q / sqrt(|y_q|^2 + 1e-6) / sqrt(K_HEAD_DIM); k likewise without the last
//   factor; v = y_v; beta = sigmoid(b); g = decay * softplus(a + dt_bias)
//   G_i  = sum of g over the chunk up to and including i
//   D_ij = exp(G_i - G_j) for j <= i, else 0
//   A_ij = beta_i (k_i . k_j) D_ij for j < i, else 0;  T = (I + A)^-1;  P = (Q K^T) * D
//   R    = beta (V - exp(G) K S)           what the state does not know yet
//   N    = T R                             the same, each token knowing those before it in the chunk
//   O    = exp(G) Q S + P N
//   S   <- exp(G_C) S + K^T (exp(G_C - G) N)
//   out  = O / rms(O) * gain * silu(z)
//
// T is applied to R, not to V and K apart: then the difference of value and prediction is formed in f32
// and the only operands that are rounded for the products are Q, K, S, R, N, T and P. G, A, the
// solve, R, N, O and the state that is carried are f32 in both modes. With bf16 operands O and S are off by
// 3.4e-3 of their norm after 150 tokens and after 1000 (f32: 2e-7), as much as rounding u and out costs.
//
// delta_inputs     convolution, norms and gates; q, k, v as the blocks of panel.h, k also transposed,
//                  padded with zeros to whole chunks, which leave the state as it is
// delta_solve      T and P, all chunks at once
// delta_chunks     from chunk to chunk; a threadgroup has COLUMNS value columns of one head
// delta_ring       the last rows of u, for the next step
// delta_gated_norm
//
// Rows of u before the step come from the ring of delta_step.metal, position p in row p % CONV_RING.
// q, k and v are activations: in bf16 they were rounded on their way into u already, and products would
// round q and k anyway.
#include "panel.h"

#define CHUNK 64
#define KEYS (K_HEAD_DIM / 32)
#define C (2 * N_K_HEADS * K_HEAD_DIM + N_V_HEADS * V_HEAD_DIM)
#define REPEAT (N_V_HEADS / N_K_HEADS)
#ifndef COLUMNS
#define COLUMNS 16
#endif
#ifndef CONV_RING
#define CONV_RING 32
#endif
// Tokens of a SIMD group in delta_inputs: a block of k transposed has 16.
#define TOKENS 16
#define HEADS_LEN (TOKENS * ((K_HEAD_DIM > V_HEAD_DIM ? K_HEAD_DIM : V_HEAD_DIM) + 1))

struct DeltaParams { uint n_tokens; uint n_padded; };

// y of one head, TOKENS tokens from t0 on, into `x` [TOKENS][DIM + 1]; normed to length `scale` unless 0.
template <uint DIM>
inline void convolve(threadgroup act* x, device const act* u, device const act* ring, device const float* conv1d,
                     uint position, uint n_tokens, uint t0, uint channel, float scale, uint lane)
{
    float w[DIM / 32][CONV_KERNEL];
    float window[DIM / 32][CONV_KERNEL];                   // the oldest row first
    LILY_UNROLL for (uint i = 0; i < DIM / 32; ++i) {
        const uint c = channel + i * 32 + lane;
        LILY_UNROLL for (uint j = 0; j < CONV_KERNEL; ++j) { w[i][j] = conv1d[c * CONV_KERNEL + j]; }
        LILY_UNROLL for (uint j = 1; j < CONV_KERNEL; ++j) {
            const uint back = CONV_KERNEL - j;             // rows before t0
            float value = 0.0f;
            if (t0 >= back) {
                if (t0 - back < n_tokens) { value = float(u[ulong(t0 - back) * C + c]); }
            } else if (position + t0 >= back) {
                value = float(ring[(position + t0 - back) % CONV_RING * C + c]);
            }
            window[i][j] = value;
        }
    }
    for (uint t = 0; t < TOKENS; ++t) {
        float y[DIM / 32];
        float squares = 0.0f;
        LILY_UNROLL for (uint i = 0; i < DIM / 32; ++i) {
            LILY_UNROLL for (uint j = 1; j < CONV_KERNEL; ++j) { window[i][j - 1] = window[i][j]; }
            const bool here = t0 + t < n_tokens;
            window[i][CONV_KERNEL - 1] = here ? float(u[ulong(t0 + t) * C + channel + i * 32 + lane]) : 0.0f;
            float sum = 0.0f;
            LILY_UNROLL for (uint j = 0; j < CONV_KERNEL; ++j) { sum = fma(w[i][j], window[i][j], sum); }
            y[i] = here ? silu(sum) : 0.0f;
            squares = fma(y[i], y[i], squares);
        }
        if (scale != 0.0f) {
            const float factor = rsqrt(simd_sum(squares) + 1e-6f) * scale;
            LILY_UNROLL for (uint i = 0; i < DIM / 32; ++i) { y[i] *= factor; }
        }
        LILY_UNROLL for (uint i = 0; i < DIM / 32; ++i) { x[t * (DIM + 1) + i * 32 + lane] = act(y[i]); }
    }
}

// One SIMD group TOKENS tokens of one head, 2 a threadgroup. Heads: q, k, v.
kernel void delta_inputs(device const act*   u       [[buffer(0)]],    // [T, C]
                         device const float* b       [[buffer(1)]],    // [T, N_V_HEADS]
                         device const float* a       [[buffer(2)]],    // [T, N_V_HEADS]
                         device const float* conv1d  [[buffer(3)]],    // [C, CONV_KERNEL]
                         device const float* decay   [[buffer(4)]],    // [N_V_HEADS], -exp(A_log)
                         device const float* dt_bias [[buffer(5)]],    // [N_V_HEADS]
                         device const uint*  seq     [[buffer(6)]],    // [0]: position of token 0
                         device const act*   ring    [[buffer(7)]],    // [CONV_RING, C]
                         device act*         q       [[buffer(8)]],    // [N_K_HEADS, padded / 8, K_HEAD_DIM / 16, PANEL]
                         device act*         k       [[buffer(9)]],
                         device act*         kt      [[buffer(10)]],   // [N_K_HEADS, padded / 64, K_HEAD_DIM / 8, 4, PANEL]
                         device act*         v       [[buffer(11)]],   // [N_V_HEADS, padded / 8, V_HEAD_DIM / 16, PANEL]
                         device float*       beta    [[buffer(12)]],   // [N_V_HEADS, padded]
                         device float*       g       [[buffer(13)]],   // [N_V_HEADS, padded]
                         constant DeltaParams& p     [[buffer(14)]],
                         uint3 tg   [[threadgroup_position_in_grid]],
                         uint  sg   [[simdgroup_index_in_threadgroup]],
                         uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup act heads[2][HEADS_LEN];
    threadgroup act* x = heads[sg];
    const uint item = tg.x * 2 + sg;
    const uint head = item % (2 * N_K_HEADS + N_V_HEADS);
    const uint t0 = item / (2 * N_K_HEADS + N_V_HEADS) * TOKENS;
    const uint position = seq[0];
    if (t0 >= p.n_padded) { return; }

    if (head >= 2 * N_K_HEADS) {
        const uint hv = head - 2 * N_K_HEADS;
        const uint channel = 2 * N_K_HEADS * K_HEAD_DIM + hv * V_HEAD_DIM;
        convolve<V_HEAD_DIM>(x, u, ring, conv1d, position, p.n_tokens, t0, channel, 0.0f, lane);
        if (lane < TOKENS) {
            const uint t = t0 + lane;
            const ulong at = ulong(hv) * p.n_padded + t;
            const bool here = t < p.n_tokens;
            beta[at] = here ? sigmoid(b[t * N_V_HEADS + hv]) : 0.0f;
            g[at] = here ? decay[hv] * softplus(a[t * N_V_HEADS + hv] + dt_bias[hv]) : 0.0f;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        device act* to = v + (ulong(hv) * (p.n_padded / 8) + t0 / 8) * (V_HEAD_DIM / 16) * PANEL;
        for (uint i = 0; i < TOKENS / 8 * (V_HEAD_DIM / 16); ++i) {
            threadgroup const act* at = x + (i / (V_HEAD_DIM / 16) * 8 + panel_row(lane)) * (V_HEAD_DIM + 1)
                + i % (V_HEAD_DIM / 16) * 16 + panel_col(lane);
            panel_write(to + i * PANEL + lane * 4, float(at[0]), float(at[1]), float(at[8]), float(at[9]));
        }
        return;
    }
    const bool is_query = head < N_K_HEADS;
    const uint hk = head % N_K_HEADS;
    const float scale = is_query ? rsqrt(float(K_HEAD_DIM)) : 1.0f;
    convolve<K_HEAD_DIM>(x, u, ring, conv1d, position, p.n_tokens, t0, head * K_HEAD_DIM, scale, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    device act* to = (is_query ? q : k) + (ulong(hk) * (p.n_padded / 8) + t0 / 8) * (K_HEAD_DIM / 16) * PANEL;
    for (uint i = 0; i < TOKENS / 8 * (K_HEAD_DIM / 16); ++i) {
        threadgroup const act* at = x + (i / (K_HEAD_DIM / 16) * 8 + panel_row(lane)) * (K_HEAD_DIM + 1)
            + i % (K_HEAD_DIM / 16) * 16 + panel_col(lane);
        panel_write(to + i * PANEL + lane * 4, float(at[0]), float(at[1]), float(at[8]), float(at[9]));
    }
    if (is_query) { return; }
    device act* transposed = kt + (ulong(hk) * (p.n_padded / CHUNK) + t0 / CHUNK) * (K_HEAD_DIM / 8 * 4 * PANEL)
        + t0 % CHUNK / 16 * PANEL;
    for (uint i = 0; i < K_HEAD_DIM / 8; ++i) {
        threadgroup const act* at = x + panel_col(lane) * (K_HEAD_DIM + 1) + i * 8 + panel_row(lane);
        panel_write(transposed + i * 4 * PANEL + lane * 4, float(at[0]), float(at[K_HEAD_DIM + 1]),
                    float(at[8 * (K_HEAD_DIM + 1)]), float(at[9 * (K_HEAD_DIM + 1)]));
    }
}

// The last rows of u into the ring, after the last reader of the rows that they replace. One thread a channel.
kernel void delta_ring(device const act*  u    [[buffer(0)]],
                       device const uint* seq  [[buffer(1)]],
                       device act*        ring [[buffer(2)]],
                       constant DeltaParams& p [[buffer(3)]],
                       uint3 tg  [[threadgroup_position_in_grid]],
                       uint  tid [[thread_index_in_threadgroup]])
{
    const uint c = tg.x * 256 + tid;
    const uint kept = min(p.n_tokens, uint(CONV_KERNEL - 1));
    if (c < C) {
        for (uint t = p.n_tokens - kept; t < p.n_tokens; ++t) { ring[(seq[0] + t) % CONV_RING * C + c] = u[ulong(t) * C + c]; }
    }
}

#define A_PITCH (CHUNK + 1)
#define A_LEN (CHUNK * A_PITCH)
#define X_LEN (16 * A_PITCH)

// T and P of one chunk and value head; 4 SIMD groups with 16 tokens each. Grid: chunks, value heads.
// T by blocks of 16: those on the diagonal by substitution, T_ij = -T_ii sum_(j<=k<i) A_ik T_kj below.
kernel void delta_solve(device const act*   q    [[buffer(0)]],
                        device const act*   k    [[buffer(1)]],
                        device const float* beta [[buffer(2)]],
                        device const float* g    [[buffer(3)]],
                        device float*       decays [[buffer(4)]], // [N_V_HEADS, padded]: exp(G)
                        device float*       rests [[buffer(5)]],  // [N_V_HEADS, padded]: exp(G_C - G)
                        device act*         ts   [[buffer(6)]],   // [N_V_HEADS, chunks, 8, 4, PANEL]: T
                        device act*         ps   [[buffer(7)]],   // the same of P
                        constant DeltaParams& p  [[buffer(8)]],
                        uint3 tg   [[threadgroup_position_in_grid]],
                        uint  tid  [[thread_index_in_threadgroup]],
                        uint  sg   [[simdgroup_index_in_threadgroup]],
                        uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup float as[A_LEN];                          // G_i - G_j, then A, then T
    threadgroup float xs[X_LEN];                          // sum_k A_ik T_kj of one row of blocks
    const uint hv = tg.y;
    const ulong token0 = ulong(hv) * p.n_padded + tg.x * CHUNK;
    // Every G_i - G_j is a sum of its own: a difference of sums from the start of the chunk would lose the
    // small decays behind a large one.
    if (tid < CHUNK) {
        float sum = 0.0f;
        for (uint i = tid + 1; i < CHUNK; ++i) {
            sum += g[token0 + i];
            as[i * A_PITCH + tid] = sum;
        }
        rests[token0 + tid] = exp(sum);
        sum = 0.0f;
        for (uint i = 0; i <= tid; ++i) { sum += g[token0 + i]; }
        decays[token0 + tid] = exp(sum);
    }
    const ulong first = (ulong(hv / REPEAT) * (p.n_padded / 8) + tg.x * (CHUNK / 8)) * (K_HEAD_DIM / 16) * PANEL;
    const ulong ld = K_HEAD_DIM / 16 * PANEL;
    Tile<16, CHUNK> kk;
    Tile<16, CHUNK> qk;
    tile_zero(kk);
    tile_zero(qk);
    LILY_UNROLL_4 for (uint i = 0; i < K_HEAD_DIM / 16; ++i) {
        Panel<act, 16> a;
        panel_load(a, k + first + sg * 2 * ld + i * PANEL, ld, lane);
        panel_mma_np(kk, a, k + first + i * PANEL, ld, lane);
        panel_load(a, q + first + sg * 2 * ld + i * PANEL, ld, lane);
        panel_mma_np(qk, a, k + first + i * PANEL, ld, lane);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    LILY_UNROLL for (uint i = 0; i < TILE_COUNT(16, CHUNK); ++i) {
        const uint row = sg * 16 + tile_row(kk, i, lane);
        const uint col = tile_col(kk, i, lane);
        const float d = col < row ? exp(as[row * A_PITCH + col]) : col == row ? 1.0f : 0.0f;
        as[row * A_PITCH + col] = col < row ? beta[token0 + row] * tile_get(kk, i) * d : 0.0f;
        tile_set(qk, i, tile_get(qk, i) * d);
    }
    // A tile's elements (row, col), (row, col + 1) of neighbouring blocks are a panel's.
    device act* pp = ps + ((ulong(hv) * (p.n_padded / CHUNK) + tg.x) * (CHUNK / 8) + sg * 2) * 4 * PANEL;
    LILY_UNROLL for (uint r = 0; r < 2; ++r) {
        LILY_UNROLL for (uint n = 0; n < 4; ++n) {
            const uint at = tile_at<16, CHUNK>(r, 2 * n);
            const uint next = tile_at<16, CHUNK>(r, 2 * n + 1);
            panel_write(pp + (r * 4 + n) * PANEL + lane * 4, tile_get(qk, at), tile_get(qk, at + 1), tile_get(qk, next),
                        tile_get(qk, next + 1));
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // Diagonal blocks: a column belongs to one thread, which is the only one to touch it.
    float column[16];
    if (tid < CHUNK) {
        const uint b0 = tid / 16 * 16;
        const uint j = tid % 16;
        LILY_UNROLL for (uint i = 0; i < 16; ++i) {
            float sum = i == j ? 1.0f : 0.0f;
            LILY_UNROLL for (uint m = 0; m < i; ++m) { sum = fma(-as[(b0 + i) * A_PITCH + b0 + m], column[m], sum); }
            column[i] = sum;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid < CHUNK) {
        const uint b0 = tid / 16 * 16;
        LILY_UNROLL for (uint i = 0; i < 16; ++i) { as[(b0 + i) * A_PITCH + b0 + tid % 16] = column[i]; }
    }
    for (uint i0 = 16; i0 < CHUNK; i0 += 16) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint at = tid; at < 16 * i0; at += 128) {
            const uint row = at / i0;
            const uint col = at % i0;
            float sum = 0.0f;
            for (uint m = col / 16 * 16; m < i0; ++m) { sum = fma(as[(i0 + row) * A_PITCH + m], as[m * A_PITCH + col], sum); }
            xs[row * A_PITCH + col] = sum;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint at = tid; at < 16 * i0; at += 128) {
            const uint row = at / i0;
            const uint col = at % i0;
            float sum = 0.0f;
            for (uint m = 0; m <= row; ++m) { sum = fma(-as[(i0 + row) * A_PITCH + i0 + m], xs[m * A_PITCH + col], sum); }
            as[(i0 + row) * A_PITCH + col] = sum;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    device act* tt = ts + (ulong(hv) * (p.n_padded / CHUNK) + tg.x) * (CHUNK / 8 * 4 * PANEL);
    for (uint i = sg; i < CHUNK / 8 * 4; i += 4) {
        threadgroup const float* at = as + (i / 4 * 8 + panel_row(lane)) * A_PITCH + i % 4 * 16 + panel_col(lane);
        panel_write(tt + i * PANEL + lane * 4, at[0], at[1], at[8], at[9]);
    }
}

#define S_PITCH (COLUMNS + 8)
#define S_LEN (K_HEAD_DIM * S_PITCH)
#define R_LEN (CHUNK * S_PITCH)
#define STATE_TILES ((K_HEAD_DIM + 127) / 128)

// 8 SIMD groups; the first four have 16 tokens each of K S, R and N, the others of Q S and O; rows of S are
// dealt to all. Grid: slices of COLUMNS value columns, value heads.
kernel void delta_chunks(device const act*   q     [[buffer(0)]],
                         device const act*   k     [[buffer(1)]],
                         device const act*   kt    [[buffer(2)]],
                         device const act*   v     [[buffer(3)]],
                         device const float* beta  [[buffer(4)]],
                         device const float* decays [[buffer(5)]],
                         device const float* rests [[buffer(6)]],
                         device const act*   ts    [[buffer(7)]],
                         device const act*   ps    [[buffer(8)]],
                         device float*       state [[buffer(9)]],    // [N_V_HEADS, V_HEAD_DIM, K_HEAD_DIM]
                         device float*       o     [[buffer(10)]],   // [T, N_V_HEADS, V_HEAD_DIM]
                         constant DeltaParams& p   [[buffer(11)]],
                         uint3 tg   [[threadgroup_position_in_grid]],
                         uint  sg   [[simdgroup_index_in_threadgroup]],
                         uint  lane [[thread_index_in_simdgroup]])
{
    threadgroup act ss[S_LEN];             // S, rounded for the products
    threadgroup act rs[R_LEN];                  // R
    threadgroup act ns[R_LEN];                  // N
    threadgroup act ds[R_LEN];                  // exp(G_C - G) N
    const uint hv = tg.y;
    const uint hk = hv / REPEAT;
    const uint column0 = tg.x * COLUMNS;
    const bool is_query = sg >= 4;
    const uint row0 = sg % 4 * 16;                        // tokens of this SIMD group in a chunk
    const uint n_chunks = p.n_padded / CHUNK;
    device float* s0 = state + (ulong(hv) * V_HEAD_DIM + column0) * K_HEAD_DIM;

    Tile<16, COLUMNS> s[STATE_TILES];
    LILY_UNROLL for (uint j = 0; j < STATE_TILES; ++j) {
        const uint key0 = (j * 8 + sg) * 16;
        if (key0 < K_HEAD_DIM) {
            LILY_UNROLL for (uint i = 0; i < TILE_COUNT(16, COLUMNS); ++i) {
                const uint key = key0 + tile_row(s[j], i, lane);
                const uint col = tile_col(s[j], i, lane);
                tile_set(s[j], i, s0[col * K_HEAD_DIM + key]);
                ss[key * S_PITCH + col] = act(tile_get(s[j], i));
            }
        }
    }
    for (uint chunk = 0; chunk < n_chunks; ++chunk) {
        const ulong token0 = ulong(hv) * p.n_padded + chunk * CHUNK;
        const float total = decays[token0 + CHUNK - 1];
        float decay[2];
        float rest[2];
        float weight[2];
        LILY_UNROLL for (uint r = 0; r < 2; ++r) {
            const ulong t = token0 + row0 + r * 8 + panel_row(lane);
            decay[r] = decays[t];
            rest[r] = rests[t];
            weight[r] = beta[t];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);   // S is written
        const ulong ld = K_HEAD_DIM / 16 * PANEL;
        device const act* rows = (is_query ? q : k) + (ulong(hk) * (p.n_padded / 8) + (chunk * CHUNK + row0) / 8) * ld;
        Tile<16, COLUMNS> x;
        tile_zero(x);
        LILY_UNROLL for (uint i = 0; i < K_HEAD_DIM / 16; ++i) {
            Panel<act, 16> a;
            panel_load(a, rows + i * PANEL, ld, lane);
            panel_mma_nn(x, a, ss + i * 16 * S_PITCH, S_PITCH);
        }
        LILY_UNROLL for (uint i = 0; i < TILE_COUNT(16, COLUMNS); ++i) {
            tile_set(x, i, tile_get(x, i) * decay[tile_row(x, i, 0) / 8]);
        }
        device const act* tp = (is_query ? ps : ts) + ((ulong(hv) * n_chunks + chunk) * (CHUNK / 8) + row0 / 8) * 4 * PANEL;
        if (!is_query) {
            device const act* values = v
                + (ulong(hv) * (p.n_padded / 8) + (chunk * CHUNK + row0) / 8) * (V_HEAD_DIM / 16) * PANEL;
            LILY_UNROLL for (uint i = 0; i < TILE_COUNT(16, COLUMNS); ++i) {
                const uint row = tile_row(x, i, lane);
                const uint col = tile_col(x, i, lane);
                const ulong at = (row / 8 * (V_HEAD_DIM / 16) + (column0 + col) / 16) * PANEL + panel_at(row, col);
                const float r = weight[tile_row(x, i, 0) / 8] * (float(values[at]) - tile_get(x, i));
                rs[(row0 + row) * S_PITCH + col] = act(r);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (!is_query) {
            Tile<16, COLUMNS> n;
            tile_zero(n);
            for (uint i = 0; i <= row0 / 16; ++i) {        // T is lower triangular
                Panel<act, 16> a;
                panel_load(a, tp + i * PANEL, 4 * PANEL, lane);
                panel_mma_nn(n, a, rs + i * 16 * S_PITCH, S_PITCH);
            }
            LILY_UNROLL for (uint i = 0; i < TILE_COUNT(16, COLUMNS); ++i) {
                const uint at = (row0 + tile_row(n, i, lane)) * S_PITCH + tile_col(n, i, lane);
                ns[at] = act(tile_get(n, i));
                ds[at] = act(tile_get(n, i) * rest[tile_row(n, i, 0) / 8]);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        LILY_UNROLL for (uint j = 0; j < STATE_TILES; ++j) {
            const uint key0 = (j * 8 + sg) * 16;
            if (key0 < K_HEAD_DIM) {
                device const act* keys = kt + ((ulong(hk) * n_chunks + chunk) * (K_HEAD_DIM / 8) + key0 / 8) * 4 * PANEL;
                LILY_UNROLL for (uint i = 0; i < TILE_COUNT(16, COLUMNS); ++i) { tile_set(s[j], i, tile_get(s[j], i) * total); }
                LILY_UNROLL for (uint i = 0; i < CHUNK / 16; ++i) {
                    Panel<act, 16> a;
                    panel_load(a, keys + i * PANEL, 4 * PANEL, lane);
                    panel_mma_nn(s[j], a, ds + i * 16 * S_PITCH, S_PITCH);
                }
                LILY_UNROLL for (uint i = 0; i < TILE_COUNT(16, COLUMNS); ++i) {
                    ss[(key0 + tile_row(s[j], i, lane)) * S_PITCH + tile_col(s[j], i, lane)] = act(tile_get(s[j], i));
                }
            }
        }
        if (is_query) {
            for (uint i = 0; i <= row0 / 16; ++i) {
                Panel<act, 16> a;
                panel_load(a, tp + i * PANEL, 4 * PANEL, lane);
                panel_mma_nn(x, a, ns + i * 16 * S_PITCH, S_PITCH);
            }
            LILY_UNROLL for (uint i = 0; i < TILE_COUNT(16, COLUMNS); ++i) {
                const uint t = chunk * CHUNK + row0 + tile_row(x, i, lane);
                if (t < p.n_tokens) {
                    o[(ulong(t) * N_V_HEADS + hv) * V_HEAD_DIM + column0 + tile_col(x, i, lane)] = tile_get(x, i);
                }
            }
        }
    }
    LILY_UNROLL for (uint j = 0; j < STATE_TILES; ++j) {
        const uint key0 = (j * 8 + sg) * 16;
        if (key0 < K_HEAD_DIM) {
            LILY_UNROLL for (uint i = 0; i < TILE_COUNT(16, COLUMNS); ++i) {
                s0[tile_col(s[j], i, lane) * K_HEAD_DIM + key0 + tile_row(s[j], i, lane)] = tile_get(s[j], i);
            }
        }
    }
}

// out = o / rms(o) * gain * silu(z). One SIMD group a head of a token, 4 a threadgroup.
kernel void delta_gated_norm(device const float* o    [[buffer(0)]],   // [T, N_V_HEADS, V_HEAD_DIM]
                             device const act*   z    [[buffer(1)]],
                             device const float* gain [[buffer(2)]],   // [V_HEAD_DIM]
                             device act*         out  [[buffer(3)]],
                             constant DeltaParams& p  [[buffer(4)]],
                             uint3 tg   [[threadgroup_position_in_grid]],
                             uint  sg   [[simdgroup_index_in_threadgroup]],
                             uint  lane [[thread_index_in_simdgroup]])
{
    const uint head = tg.x * 4 + sg;
    if (head >= p.n_tokens * N_V_HEADS) { return; }
    float x[V_HEAD_DIM / 32];
    float squares = 0.0f;
    LILY_UNROLL for (uint i = 0; i < V_HEAD_DIM / 32; ++i) {
        x[i] = o[ulong(head) * V_HEAD_DIM + i * 32 + lane];
        squares = fma(x[i], x[i], squares);
    }
    const float scale = rsqrt(simd_sum(squares) / float(V_HEAD_DIM) + RMS_EPS);
    LILY_UNROLL for (uint i = 0; i < V_HEAD_DIM / 32; ++i) {
        const ulong at = ulong(head) * V_HEAD_DIM + i * 32 + lane;
        out[at] = act(x[i] * scale * gain[i * 32 + lane] * silu(float(z[at])));
    }
}
