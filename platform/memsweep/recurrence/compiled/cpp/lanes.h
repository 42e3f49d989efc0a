// Rows of numbers, one for each lane, as vectors across them, and back: lanes x lanes numbers at a time in registers.
#pragma once
#include <cstring>

#include "simd.h"

#if defined(__clang__)
#include <utility>
template <class R, int S, bool Upper, size_t... L> inline Vec<R> halves_of(Vec<R> a, Vec<R> b, std::index_sequence<L...>) {
    return __builtin_shufflevector(a, b, (L & S ? (Upper ? sizeof...(L) + L : sizeof...(L) + L - S) : Upper ? L + S : L)...);
}
template <class R, int S, bool Upper> inline Vec<R> halves_of(Vec<R> a, Vec<R> b) {
    return halves_of<R, S, Upper>(a, b, std::make_index_sequence<Simd<R>::lanes>{});
}
#else
// Of each 2 S numbers: the S lower of a and then of b, or the upper ones.
template <class R, int S, bool Upper> inline Vec<R> halves_of(Vec<R> a, Vec<R> b) {
    constexpr int lanes = Simd<R>::lanes;
    typename Simd<R>::Int places{};
    for (int lane = 0; lane < lanes; ++lane) places[lane] = (lane & S ? lanes + lane - S : lane) + (Upper ? S : 0);
    return __builtin_shuffle(a, b, places);
}
#endif

// Turns a square of lanes vectors: number j of vector i becomes number i of vector j.
template <class R, int S = 1> inline void turn(Vec<R>* square) {
    if constexpr (S < Simd<R>::lanes) {
        for (int i = 0; i < Simd<R>::lanes; ++i)
            if (!(i & S)) {
                const Vec<R> a = square[i], b = square[i + S];
                square[i] = halves_of<R, S, false>(a, b);
                square[i + S] = halves_of<R, S, true>(a, b);
            }
        turn<R, 2 * S>(square);
    }
}

// Rows that begin `apart` numbers after one another; lanes without a row get zeros.
template <class R> void into_lanes(const R* rows, long apart, int count, long size, Vec<R>* to) {
    constexpr int lanes = Simd<R>::lanes;
    long k = 0;
    for (; k + lanes <= size; k += lanes) {
        Vec<R> square[lanes] = {};
        for (int lane = 0; lane < count; ++lane) std::memcpy(&square[lane], rows + lane * apart + k, sizeof(Vec<R>));
        turn<R>(square);
        for (int i = 0; i < lanes; ++i) to[k + i] = square[i];
    }
    for (; k < size; ++k) {
        to[k] = Vec<R>{};
        for (int lane = 0; lane < count; ++lane) to[k][lane] = rows[lane * apart + k];
    }
}

template <class R> void out_of_lanes(const Vec<R>* from, long apart, int count, long size, R* rows) {
    constexpr int lanes = Simd<R>::lanes;
    long k = 0;
    for (; k + lanes <= size; k += lanes) {
        Vec<R> square[lanes];
        for (int i = 0; i < lanes; ++i) square[i] = from[k + i];
        turn<R>(square);
        for (int lane = 0; lane < count; ++lane) std::memcpy(rows + lane * apart + k, &square[lane], sizeof(Vec<R>));
    }
    for (; k < size; ++k)
        for (int lane = 0; lane < count; ++lane) rows[lane * apart + k] = from[k][lane];
}
