// Metal's 8 x 8 matrices over a SIMD group, two elements of a row a lane:
//   row = (lane / 4 & 4) + lane / 2 % 4,  column = (lane / 4 & 2) * 2 + lane % 2 * 2
// as found by MLX (steel/gemm/mma.h, BaseMMAFrag). Products are summed in f32.
#pragma once

template <class T, int Rows, int Columns> struct simdgroup_matrix {
    static_assert(Rows == 8 && Columns == 8, "matrices are 8 x 8");
    simdgroup_matrix() = default;
    explicit inline simdgroup_matrix(T diagonal) {
        const uint at = sim_lane();
        const uint row = (at / 4 & 4) + at / 2 % 4, column = (at / 4 & 2) * 2 + at % 2 * 2;
        elements.x = row == column ? diagonal : T(0.0f);
        elements.y = row == column + 1 ? diagonal : T(0.0f);
    }
    inline vec<T, 2>& thread_elements() { return elements; }
    inline const vec<T, 2>& thread_elements() const { return elements; }

private:
    vec<T, 2> elements;
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int Rows, int Columns, class V>
inline simdgroup_matrix<T, Rows, Columns> make_filled_simdgroup_matrix(V value) {
    simdgroup_matrix<T, Rows, Columns> m;
    m.thread_elements().x = T(value);
    m.thread_elements().y = T(value);
    return m;
}

// Column and row in memory; with the constructors of Metal, whose functions take it.
struct ulong2 {
    ulong x, y;
    inline ulong2(ulong both) : x(both), y(both) {}
    inline ulong2(ulong x, ulong y) : x(x), y(y) {}
};

// Where element `i` of this lane is in memory.
inline ulong sim_matrix_offset(uint i, ulong elements_per_row, ulong2 origin, bool transpose) {
    const uint lane = sim_lane();
    const ulong row = (lane / 4 & 4) + lane / 2 % 4, column = (lane / 4 & 2) * 2 + lane % 2 * 2 + i;
    return transpose ? (origin.y + column) * elements_per_row + origin.x + row
                     : (origin.y + row) * elements_per_row + origin.x + column;
}

template <class T>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* from, ulong elements_per_row = 8,
                           ulong2 origin = 0, bool transpose = false) {
    sim_matrix_touch();
    for (uint i = 0; i < 2; ++i) {
        m.thread_elements()[i] = from[sim_matrix_offset(i, elements_per_row, origin, transpose)];
    }
}
template <class T>
inline void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, T* to, ulong elements_per_row = 8,
                            ulong2 origin = 0, bool transpose = false) {
    sim_matrix_touch();
    for (uint i = 0; i < 2; ++i) {
        to[sim_matrix_offset(i, elements_per_row, origin, transpose)] = m.thread_elements()[i];
    }
}

template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d,
                                          const simdgroup_matrix<A, 8, 8>& a,
                                          const simdgroup_matrix<B, 8, 8>& b,
                                          const simdgroup_matrix<C, 8, 8>& c, SIM_LINE) {
    const SimPair sum =
        sim_matrix_multiply({float(a.thread_elements().x), float(a.thread_elements().y)},
                            {float(b.thread_elements().x), float(b.thread_elements().y)},
                            {float(c.thread_elements().x), float(c.thread_elements().y)}, sim_line);
    d.thread_elements().x = D(sum.x);
    d.thread_elements().y = D(sum.y);
}
template <class D, class A, class B>
inline void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                               const simdgroup_matrix<B, 8, 8>& b, SIM_LINE) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<float, 8, 8>(0.0f),
                                  sim_line);
}
