// Vectors, and the functions of them that a recurrence needs.
//
// GCC's and Clang's vector extension. A vector is as wide as a register: GCC keeps wider ones in memory, and is then ten
// times as slow.
// No -ffast-math anywhere: it would delete the passage of NaN, by which a diverged model is known.
#pragma once
#include <cstdint>
#include <utility>

#if defined(__AVX512F__)
constexpr int BYTES = 64, REGISTERS = 32;
#elif defined(__AVX__)
constexpr int BYTES = 32, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int BYTES = 16, REGISTERS = 32;
#else
constexpr int BYTES = 16, REGISTERS = 16;
#endif

template <class R> struct Simd;

template <> struct Simd<double> {
    typedef double Vec __attribute__((vector_size(BYTES)));
    typedef int64_t Int __attribute__((vector_size(BYTES)));
    static constexpr int lanes = BYTES / 8;
    static constexpr int mantissa_bits = 52, exponent_bias = 1023, terms = 13;
    static constexpr double shifter = 0x1.8p52;  // added to a small number, it leaves the nearest integer
    static constexpr double log2_high = 0x1.62e42fefa38p-1, log2_low = 0x1.ef35793c7673p-45;
    static constexpr double saturated = 20.0;  // tanh is 1 from here on
};

template <> struct Simd<float> {
    typedef float Vec __attribute__((vector_size(BYTES)));
    typedef int32_t Int __attribute__((vector_size(BYTES)));
    static constexpr int lanes = BYTES / 4;
    static constexpr int mantissa_bits = 23, exponent_bias = 127, terms = 7;
    static constexpr float shifter = 0x1.8p23f;
    static constexpr float log2_high = 0x1.62e4p-1f, log2_low = 0x1.7f7d1cp-20f;
    static constexpr float saturated = 10.0f;
};

template <class R> using Vec = typename Simd<R>::Vec;

template <class R> inline R sum(Vec<R> x) {
    // pairwise, in a fixed order
    R part[Simd<R>::lanes];
    for (int lane = 0; lane < Simd<R>::lanes; ++lane) part[lane] = x[lane];
    for (int half = Simd<R>::lanes / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
    return part[0];
}

// a and b change their numbers: with H = 1, a keeps its even lanes and gets those of b as odd ones; b likewise.
template <class R, int H, int... lane> inline void exchange(Vec<R>& a, Vec<R>& b, std::integer_sequence<int, lane...>) {
    constexpr int L = Simd<R>::lanes;
#if defined(__clang__)
    const Vec<R> first = __builtin_shufflevector(a, b, (lane & H ? lane - H + L : lane)...);
    b = __builtin_shufflevector(a, b, (lane & H ? lane + L : lane + H)...);
#else
    typedef typename Simd<R>::Int Int;
    const Vec<R> first = __builtin_shuffle(a, b, Int{(lane & H ? lane - H + L : lane)...});
    b = __builtin_shuffle(a, b, Int{(lane & H ? lane + L : lane + H)...});
#endif
    a = first;
}

// As many vectors as a vector has lanes: vector i's lane j becomes vector j's lane i.
template <class R, int H = Simd<R>::lanes / 2> inline void turn(Vec<R> (&rows)[Simd<R>::lanes]) {
    for (int i = 0; i < Simd<R>::lanes; ++i)
        if (!(i & H)) exchange<R, H>(rows[i], rows[i + H], std::make_integer_sequence<int, Simd<R>::lanes>{});
    if constexpr (H > 1) turn<R, H / 2>(rows);
}

template <class R> struct Series {
    R inverse_factorial[Simd<R>::terms + 1]{};
    constexpr Series() {
        double product = 1;
        for (int k = 1; k <= Simd<R>::terms; ++k) inverse_factorial[k] = R(1 / (product *= k));
    }
};

// e^y - 1 for 0 <= y <= 2 saturated: y = n log 2 + r with |r| <= log(2)/2, a Taylor polynomial in r, and then
// 2^n (e^r - 1) + (2^n - 1). Relative error a few units of the last place down to y = 0.
template <class R> inline Vec<R> expm1_of_positive(Vec<R> y) {
    using S = Simd<R>;
    typedef typename S::Int Int;
    const Vec<R> shifted = y * R(1.4426950408889634074) + S::shifter;
    const Vec<R> count = shifted - S::shifter;
    const Vec<R> r = (y - count * S::log2_high) - count * S::log2_low;
    constexpr Series<R> taylor;
    const Vec<R> rr = r * r;
    // odd and even terms apart, so that one need not wait for the other
    Vec<R> odd = taylor.inverse_factorial[S::terms] - Vec<R>{}, even = taylor.inverse_factorial[S::terms - 1] - Vec<R>{};
    for (int k = S::terms - 2; k >= 3; k -= 2) {
        odd = odd * rr + taylor.inverse_factorial[k];
        even = even * rr + taylor.inverse_factorial[k - 1];
    }
    const Vec<R> series = odd * r + even;
    const Vec<R> small = series * rr + r;
    const Int power_bits = ((Int)shifted + S::exponent_bias) << S::mantissa_bits;
    const Vec<R> power = (Vec<R>)power_bits;
    return power * small + (power - 1);
}

template <class R> inline Vec<R> hyperbolic_tangent(Vec<R> x) {
    typedef typename Simd<R>::Int Int;
    const R saturated = Simd<R>::saturated;
    const Int sign = (Int)x & (Int)(-R(0) - Vec<R>{});
    const Vec<R> size = (Vec<R>)((Int)x ^ sign);
    const Vec<R> bounded = size > saturated ? saturated - Vec<R>{} : size;  // NaN stays
    const Vec<R> grown = expm1_of_positive<R>(bounded + bounded);
    const Vec<R> answer = grown / (grown + 2);
    return (Vec<R>)((Int)answer ^ sign);
}

template <class R> inline Vec<R> sigmoid(Vec<R> x) { return R(0.5) + R(0.5) * hyperbolic_tangent<R>(R(0.5) * x); }

// Activations: their value, and their derivative from the answer y. `carried` is what the answer was added to:
// a clipped answer is known by the sum that it must have given, exactly.
struct Linear {
    template <class R> static Vec<R> value(Vec<R> x) { return x; }
    template <class R> static Vec<R> slope(Vec<R> state, Vec<R> carried) { return 1 - Vec<R>{}; }
};

struct Hardtanh {
    template <class R> static Vec<R> value(Vec<R> x) {
        const Vec<R> one = 1 - Vec<R>{};
        const Vec<R> below = x > one ? one : x;  // NaN stays
        return below < -one ? -one : below;
    }
    template <class R> static Vec<R> slope(Vec<R> state, Vec<R> carried) {
        const Vec<R> zero{}, one = 1 - zero;
        return (state == carried + 1) | (state == carried - 1) ? zero : one;
    }
};

struct Tanh {
    template <class R> static Vec<R> value(Vec<R> x) { return hyperbolic_tangent<R>(x); }
    template <class R> static Vec<R> slope(Vec<R> state, Vec<R> carried) {
        const Vec<R> answer = state - carried;
        return 1 - answer * answer;
    }
};

struct Relu {
    template <class R> static Vec<R> value(Vec<R> x) { return x < 0 ? Vec<R>{} : x; }  // NaN stays
    template <class R> static Vec<R> slope(Vec<R> state, Vec<R> carried) {
        const Vec<R> zero{}, one = 1 - zero;
        return state == carried ? zero : one;
    }
};
