// Products of a matrix with the vectors of a block, and the sums of outer products that are its gradient.
#pragma once
#include <algorithm>
#include <cstring>

#include "layer.h"

inline namespace BLOCKS {

template <class R, int U, class Start, class Finish>
inline void some_rows(const R* matrix, long columns, const Vec<R>* states, long first, Start start, Finish finish) {
    Vec<R> acc[U][V];
    for (int u = 0; u < U; ++u)
        for (int v = 0; v < V; ++v) acc[u][v] = start(first + u, v);
    if (states)
        for (long j = 0; j < columns; ++j)
            for (int u = 0; u < U; ++u)
                for (int v = 0; v < V; ++v) acc[u][v] += matrix[(first + u) * columns + j] * states[j * V + v];
    for (int u = 0; u < U; ++u)
        for (int v = 0; v < V; ++v) finish(first + u, v, acc[u][v]);
}

// finish(row, v, start(row, v) + (matrix times states)[row][v]) for every row, several at a time in registers;
// matrix: [rows][columns]; states: [columns][V], or null for zeros.
template <class R, class Start, class Finish>
inline void rows_times(const R* matrix, long rows, long columns, const Vec<R>* states, Start start, Finish finish) {
    long i = 0;
    for (; REGISTERS >= 32 && i + 8 <= rows; i += 8) some_rows<R, 8>(matrix, columns, states, i, start, finish);
    for (; i + 4 <= rows; i += 4) some_rows<R, 4>(matrix, columns, states, i, start, finish);
    for (; i < rows; ++i) some_rows<R, 1>(matrix, columns, states, i, start, finish);
}

// The same with a square matrix.
template <class R, class Start, class Finish>
inline void rows_times_states(const R* matrix, long width, const Vec<R>* states, Start start, Finish finish) {
    rows_times(matrix, width, width, states, start, finish);
}

template <class R> inline void transpose(const R* matrix, long rows, long columns, R* into) {
    for (long i = 0; i < rows; ++i)
        for (long j = 0; j < columns; ++j) into[j * rows + i] = matrix[i * columns + j];
}

template <class R> inline void transpose(const R* matrix, long width, R* into) { transpose(matrix, width, width, into); }

// Vectors of some steps: [rows][V] each, the next one so many vectors further.
template <class R> struct Steps {
    const Vec<R>* first;
    long rows, next;
};

// Columns that fill no vector: each number has a vector of its own, which is summed over its lanes at the end.
template <class R, int U, int W>
inline void outer_tile(const Steps<R>& left, const Steps<R>& right, long count, long i, long j, R* into) {
    Vec<R> acc[U][W] = {};
    for (long k = 0; k < count; ++k) {
        const Vec<R> *e = left.first + k * left.next + i * V, *h = right.first + k * right.next + j * V;
        for (int v = 0; v < V; ++v)
            for (int u = 0; u < U; ++u)
                for (int w = 0; w < W; ++w) acc[u][w] += e[u * V + v] * h[w * V + v];
    }
    for (int u = 0; u < U; ++u)
        for (int w = 0; w < W; ++w) into[(i + u) * right.rows + j + w] += sum<R>(acc[u][w]);
}

template <class R, int U>
inline void outer_rows(const Steps<R>& left, const Steps<R>& right, long count, long i, long j, R* into) {
    for (; j + 4 <= right.rows; j += 4) outer_tile<R, U, 4>(left, right, count, i, j, into);
    for (; j < right.rows; ++j) outer_tile<R, U, 1>(left, right, count, i, j, into);
}

// Columns side by side in lanes, [steps][V * lanes][W]: one row for each sequence of a step.
template <class R, int W> using Turned = Vec<R>[W];

template <class R, int U, int W>
inline void turned_tile(const Steps<R>& left, const Turned<R, W>* turned, long count, long i, R* into, long next) {
    constexpr long sequences = V * Simd<R>::lanes;
    Vec<R> acc[U][W] = {};
    for (long k = 0; k < count; ++k) {
        const R* e = reinterpret_cast<const R*>(left.first + k * left.next + i * V);
        for (long s = 0; s < sequences; ++s)
            for (int u = 0; u < U; ++u)
                for (int w = 0; w < W; ++w) acc[u][w] += e[u * sequences + s] * turned[k * sequences + s][w];
    }
    for (int u = 0; u < U; ++u)
        for (int w = 0; w < W; ++w) {
            R* to = into + (i + u) * next + w * Simd<R>::lanes;
            Vec<R> total;
            std::memcpy(&total, to, sizeof total);
            total += acc[u][w];
            std::memcpy(to, &total, sizeof total);
        }
}

// W vectors of columns from column j on. Nothing is summed over lanes, and what is read is read half as often.
template <class R, int W>
inline void outer_columns(const Steps<R>& left, const Steps<R>& right, long count, long j, R* into) {
    constexpr int lanes = Simd<R>::lanes, some = 128 / (V * lanes);
    Vec<R> turned[some * V * lanes][W];
    for (long first = 0; first < count; first += some) {
        const long last = std::min(first + some, count);
        for (long k = first; k < last; ++k)
            for (int v = 0; v < V; ++v)
                for (int w = 0; w < W; ++w) {
                    Vec<R> rows[lanes];
                    const Vec<R>* h = right.first + k * right.next + (j + w * lanes) * V + v;
                    for (int lane = 0; lane < lanes; ++lane) rows[lane] = h[lane * V];
                    turn<R>(rows);
                    auto* to = turned + ((k - first) * V + v) * lanes;
                    for (int lane = 0; lane < lanes; ++lane) to[lane][w] = rows[lane];
                }
        const Steps<R> now{left.first + first * left.next, left.rows, left.next};
        long i = 0;
        for (; W * 8 <= REGISTERS / 2 && i + 8 <= left.rows; i += 8)
            turned_tile<R, 8, W>(now, turned, last - first, i, into + j, right.rows);
        for (; i + 4 <= left.rows; i += 4) turned_tile<R, 4, W>(now, turned, last - first, i, into + j, right.rows);
        for (; i < left.rows; ++i) turned_tile<R, 1, W>(now, turned, last - first, i, into + j, right.rows);
    }
}

// As many steps of vectors of this width as stay in the cache.
inline long cached_steps(long width) { return std::max(32L, 2048 / width); }

// into[i][j] += the sum over steps and sequences of left[i] right[j].
template <class R> inline void add_outer(const Steps<R>& left, const Steps<R>& right, long count, R* into) {
    constexpr long lanes = Simd<R>::lanes;
    const long most = cached_steps(std::max(left.rows, right.rows));
    for (long first = 0; first < count; first += most) {
        const long some = std::min(most, count - first);
        const Steps<R> e{left.first + first * left.next, left.rows, left.next};
        const Steps<R> h{right.first + first * right.next, right.rows, right.next};
        long i = 0, j = 0;
        for (; j + 2 * lanes <= h.rows; j += 2 * lanes) outer_columns<R, 2>(e, h, some, j, into);
        for (; j + lanes <= h.rows; j += lanes) outer_columns<R, 1>(e, h, some, j, into);
        for (; i + 4 <= e.rows; i += 4) outer_rows<R, 4>(e, h, some, i, j, into);
        for (; i < e.rows; ++i) outer_rows<R, 1>(e, h, some, i, j, into);
    }
}

// The same of two series, [T][rows][V] and [T][columns][V].
template <class R>
inline void add_outer_of_series(const Vec<R>* left, long rows, const Vec<R>* right, long columns, long horizon, R* into) {
    add_outer<R>({left, rows, rows * V}, {right, columns, columns * V}, horizon, into);
}

// into[i] += the sum over steps and sequences of row i; found: a vector, by step and place in the step.
template <class R, class Found> inline void add_rows(long rows, long count, R* into, Found found) {
    constexpr long some = 8;  // what lies side by side is read together
    for (long first = 0; first < rows; first += some) {
        const long last = std::min(first + some, rows);
        Vec<R> totals[some] = {};
        for (long k = 0; k < count; ++k)
            for (long i = first; i < last; ++i)
                for (int v = 0; v < V; ++v) totals[i - first] += found(k, i * V + v);
        for (long i = first; i < last; ++i) into[i] += sum<R>(totals[i - first]);
    }
}

template <class R> inline void add_rows(const Steps<R>& steps, long count, R* into) {
    add_rows<R>(steps.rows, count, into, [&](long k, long at) { return steps.first[k * steps.next + at]; });
}

// Of series [T][rows][V].
template <class R> inline void add_rows(const Vec<R>* series, long rows, long horizon, R* into) {
    add_rows<R>({series, rows, rows * V}, horizon, into);
}

template <class R> inline void add_rows(const Vec<R>* one, const Vec<R>* other, long rows, long horizon, R* into) {
    add_rows<R>(rows, horizon, into, [&](long t, long at) { return one[t * rows * V + at] * other[t * rows * V + at]; });
}

// The errors e of some steps, latest first, until their outer products with the states before them are summed up:
// as many steps as stay in the cache.
template <class R> class OuterProducts {
public:
    static long room(long width) { return cached_steps(width) * width * V; }

    OuterProducts(long width, Vec<R>* errors, R* into) : width_(width), errors_(errors), into_(into) {}

    // Where the errors of the next step go: [M][V].
    Vec<R>* next() { return errors_ + count_ * width_ * V; }

    // They are there, and `before` holds the states that stand left of them in time, [M][V], earlier steps below it.
    void add(const Vec<R>* before, bool last) {
        const long step = width_ * V;
        if (++count_ < cached_steps(width_) && !last) return;
        add_outer<R>({errors_, width_, step}, {before + (count_ - 1) * step, width_, -step}, count_, into_);
        count_ = 0;
    }

private:
    long width_, count_ = 0;
    Vec<R>* errors_;
    R* into_;
};

}  // namespace BLOCKS
