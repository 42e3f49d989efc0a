// Sequences on their way into blocks of vectors, and out of them.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <new>

#include "layer.h"

template <class T> class Buffer {
public:
    explicit Buffer(long count) {
        const size_t bytes = ((count * sizeof(T) + 63) / 64 + 1) * 64;
        if (!(data_ = static_cast<T*>(std::aligned_alloc(64, bytes)))) throw std::bad_alloc();
    }
    ~Buffer() { std::free(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    operator T*() { return data_; }

private:
    T* data_;
};

constexpr long TILE = 64;  // numbers of a sequence that are moved at a time: what they are spread over stays in the cache

// Sequences first ... first + W of [B][T][K] as [T][K][V]; lanes beyond the batch repeat the block's first sequence.
template <class R> void pack(const R* from, long batch, long first, long horizon, long features, Vec<R>* to) {
    constexpr int width = V * Simd<R>::lanes;
    R* flat = reinterpret_cast<R*>(to);
    const long row = horizon * features;
    for (long start = 0; start < row; start += TILE) {
        const long end = std::min(start + TILE, row);
        for (int lane = 0; lane < width; ++lane) {
            const R* sequence = from + (first + lane < batch ? first + lane : first) * row;
            for (long k = start; k < end; ++k) flat[k * width + lane] = sequence[k];
        }
    }
}

template <class R> void unpack(const Vec<R>* from, long batch, long first, long row, R* to) {
    constexpr int width = V * Simd<R>::lanes;
    const R* flat = reinterpret_cast<const R*>(from);
    for (long start = 0; start < row; start += TILE) {
        const long end = std::min(start + TILE, row);
        for (int lane = 0; lane < width && first + lane < batch; ++lane)
            for (long k = start; k < end; ++k) to[(first + lane) * row + k] = flat[k * width + lane];
    }
}

// 1 in lanes that hold a sequence of their own, 0 in those that repeat one.
template <class R> void mark(long batch, long first, typename Simd<R>::Int (&own)[V]) {
    for (int v = 0; v < V; ++v)
        for (int lane = 0; lane < Simd<R>::lanes; ++lane) own[v][lane] = first + v * Simd<R>::lanes + lane < batch ? -1 : 0;
}

template <class R> void silence(Vec<R>* dy, long rows, const typename Simd<R>::Int (&own)[V]) {
    for (long row = 0; row < rows; ++row)
        for (int v = 0; v < V; ++v) dy[row * V + v] = own[v] ? dy[row * V + v] : Vec<R>{};
}
