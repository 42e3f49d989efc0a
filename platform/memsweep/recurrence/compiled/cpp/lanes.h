// Rows of numbers, one for each lane, as vectors across them, and back: lanes x lanes numbers at a time in registers.
#pragma once
#include <cstring>

#include "simd.h"

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
