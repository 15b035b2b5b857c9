// Metal 4's tensors and their product over a SIMD group, as far as tile.h uses them.
//
// Operands are read through the views by the lanes themselves, so bounds, contents and order are checked as
// for any access. Where a destination keeps its elements is nobody's business: here a lane has one more than
// it needs at either end, which is none, and the rest in an order that no machine has.
#pragma once

struct tensor_inline {};
template <class T, int N> struct array {
    T at[N];
    inline T& operator[](uint i) { return at[i]; }
    inline const T& operator[](uint i) const { return at[i]; }
};
template <class T, int Rank> struct dextents {
    static_assert(Rank == 2, "matrices");
    T x, y;
    inline dextents(T x, T y) : x(x), y(y) {}
};
// Fastest first.
template <class T, class Extents, class Kind> struct tensor {
    T* data;
    Extents extents;
    array<int32_t, 2> strides;
    inline tensor(T* data, Extents extents, array<int32_t, 2> strides)
        : data(data), extents(extents), strides(strides) {}
    inline float at(int32_t x, int32_t y) const {
        return float(data[long(x) * strides[0] + long(y) * strides[1]]);
    }
};

template <class T> inline constexpr T dynamic_length_v = T(-1);
struct execution_simdgroup {};

namespace mpp {
namespace tensor_ops {

struct matmul2d_descriptor {
    enum class mode { multiply, multiply_accumulate };
    int m, n, k;
    bool transpose_left, transpose_right, relaxed;
    mode what;
    constexpr matmul2d_descriptor(int m, int n, int k, bool left, bool right, bool relaxed, mode what)
        : m(m), n(n), k(k), transpose_left(left), transpose_right(right), relaxed(relaxed), what(what) {}
};

template <int M, int N> struct sim_destination {
    static constexpr uint EACH = M * N / 32;
    float elements[EACH + 2];
    // Nothing anybody could mean.
    inline sim_destination() {
        for (float& element : elements) element = __builtin_nanf("");
    }
    static inline uint get_capacity() { return EACH + 2; }
    static inline bool is_valid_element(uint i) { return i > 0 && i <= EACH; }
    inline float& operator[](uint i) { return elements[i]; }
    static inline array<int32_t, 2> get_multidimensional_index(uint i) {
        const uint place = (i - 1) * 32 + (sim_lane() * 11 + 5) % 32;
        return {int32_t(place / M), int32_t(place % M)}; // column, row
    }
};

template <matmul2d_descriptor What, class Scope> struct matmul2d {
    static_assert(What.m % 16 == 0 && What.n % 16 == 0, "16 at least");
    static_assert(!What.transpose_left && What.transpose_right, "only A B^T is simulated");
    static_assert(What.what == matmul2d_descriptor::mode::multiply_accumulate, "only sums are");
    using Destination = sim_destination<What.m, What.n>;

    template <class A, class B, class T> static inline Destination get_destination_cooperative_tensor() {
        return Destination();
    }
    template <class A, class B> static inline void run(const A& a, const B& b, Destination& d) {
        sim_matrix_touch();
        for (uint i = 0; i < Destination::get_capacity(); ++i) {
            if (!Destination::is_valid_element(i)) continue;
            const array<int32_t, 2> at = Destination::get_multidimensional_index(i);
            float sum = d[i];
            for (int32_t k = 0; k < a.extents.x; ++k) sum += a.at(k, at[1]) * b.at(k, at[0]);
            d[i] = sum;
        }
    }
};

} // namespace tensor_ops
} // namespace mpp
