// Products of a square matrix with the states of a block, and the sums of outer products that are its gradient.
#pragma once
#include <algorithm>

#include "layer.h"

template <class R, int U, class Start, class Finish>
inline void some_rows(const R* matrix, long width, const Vec<R>* states, long first, Start start, Finish finish) {
    Vec<R> acc[U][V];
    for (int u = 0; u < U; ++u)
        for (int v = 0; v < V; ++v) acc[u][v] = start(first + u, v);
    if (states)
        for (long j = 0; j < width; ++j)
            for (int u = 0; u < U; ++u)
                for (int v = 0; v < V; ++v) acc[u][v] += matrix[(first + u) * width + j] * states[j * V + v];
    for (int u = 0; u < U; ++u)
        for (int v = 0; v < V; ++v) finish(first + u, v, acc[u][v]);
}

// finish(row, v, start(row, v) + (matrix times states)[row][v]) for every row, several at a time in registers;
// states: [M][V], or null for zeros.
template <class R, class Start, class Finish>
inline void rows_times_states(const R* matrix, long width, const Vec<R>* states, Start start, Finish finish) {
    long i = 0;
    for (; REGISTERS >= 32 && i + 8 <= width; i += 8) some_rows<R, 8>(matrix, width, states, i, start, finish);
    for (; i + 4 <= width; i += 4) some_rows<R, 4>(matrix, width, states, i, start, finish);
    for (; i < width; ++i) some_rows<R, 1>(matrix, width, states, i, start, finish);
}

template <class R> inline void transpose(const R* matrix, long width, R* into) {
    for (long i = 0; i < width; ++i)
        for (long j = 0; j < width; ++j) into[j * width + i] = matrix[i * width + j];
}

// The errors e of some steps, latest first, until their outer products with the states before them are summed up:
// as many steps as stay in the cache.
template <class R> class OuterProducts {
public:
    static long room(long width) { return steps(width) * width * V; }

    OuterProducts(long width, Vec<R>* errors, R* into) : width_(width), errors_(errors), into_(into) {}

    // Where the errors of the next step go: [M][V].
    Vec<R>* next() { return errors_ + count_ * width_ * V; }

    // They are there, and `before` holds the states that stand left of them in time, [M][V], earlier steps below it.
    void add(const Vec<R>* before, bool last) {
        if (++count_ < steps(width_) && !last) return;
        long i = 0;
        for (; i + 4 <= width_; i += 4) columns<4>(before, i);
        for (; i < width_; ++i) columns<1>(before, i);
        count_ = 0;
    }

private:
    static long steps(long width) { return std::max(32L, 2048 / width); }

    template <int U> void columns(const Vec<R>* oldest, long i) {
        long j = 0;
        for (; j + 4 <= width_; j += 4) tile<U, 4>(oldest, i, j);
        for (; j < width_; ++j) tile<U, 1>(oldest, i, j);
    }

    template <int U, int W> void tile(const Vec<R>* oldest, long i, long j) {
        Vec<R> acc[U][W] = {};
        for (long k = 0; k < count_; ++k) {
            const Vec<R> *e = errors_ + (k * width_ + i) * V, *h = oldest + ((count_ - 1 - k) * width_ + j) * V;
            for (int v = 0; v < V; ++v)
                for (int u = 0; u < U; ++u)
                    for (int w = 0; w < W; ++w) acc[u][w] += e[u * V + v] * h[w * V + v];
        }
        for (int u = 0; u < U; ++u)
            for (int w = 0; w < W; ++w) into_[(i + u) * width_ + j + w] += sum<R>(acc[u][w]);
    }

    long width_, count_ = 0;
    Vec<R>* errors_;
    R* into_;
};
