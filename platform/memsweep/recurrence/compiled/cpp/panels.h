// Products of rows of numbers with a matrix, both as they lie in memory: the lanes of a vector are columns.
//
// Each number is summed over the matrix's rows in their order, so that it depends on nothing but its own row and column.
#pragma once
#include <algorithm>
#include <cstring>

#include "layer.h"

// Rows, and vectors of columns, of a product that is summed up in registers.
constexpr int ROWS = 6, COLUMNS = REGISTERS >= 32 ? 4 : 2;

template <class R> inline Vec<R> vector_at(const R* from, long count) {
    Vec<R> found{};
    if (count >= Simd<R>::lanes) std::memcpy(&found, from, sizeof found);
    else std::memcpy(&found, from, count * sizeof(R));
    return found;
}

template <class R> inline void put(Vec<R> vector, R* to, long count) {
    if (count >= Simd<R>::lanes) std::memcpy(to, &vector, sizeof vector);
    else std::memcpy(to, &vector, count * sizeof(R));
}

// A matrix in panels of COLUMNS vectors, [panel][row][COLUMNS], zeros beyond the width: what a product reads in order.
template <class R> class Panels {
public:
    static constexpr long across = COLUMNS * Simd<R>::lanes;

    static long room(long width) { return (width + across - 1) / across * across; }

    Panels(long most_rows, long width) : width_(width), numbers_(room(width) * most_rows) {}

    // Entry (row, column) is matrix[row * down + column * right].
    void fill(const R* matrix, long rows, long down, long right) {
        rows_ = rows;
        for (long start = 0; start < width_; start += across)
            for (long j = 0; j < rows; ++j) {
                R* to = numbers_ + start * rows + j * across;
                const R* from = matrix + j * down + start * right;
                const long count = std::min(across, width_ - start);
                if (right == 1) std::copy_n(from, count, to);
                else
                    for (long c = 0; c < count; ++c) to[c] = from[c * right];
                std::fill(to + count, to + across, R(0));
            }
    }

    // finish(i, column, how many columns from there on, sum over j of left[i][j] times row j of the matrix), i < count;
    // left: rows that are `stride` numbers apart.
    template <class Finish> void times(const R* left, long stride, long count, Finish finish) {
        const long tiles = (count + ROWS - 1) / ROWS;
        for (long start = 0; start < width_; start += across)
            for (long tile = 0; tile < tiles; ++tile) {
                const long first = tile * count / tiles, last = (tile + 1) * count / tiles;
                Vec<R> sums[ROWS][COLUMNS];
                some(numbers_ + start * rows_, left + first * stride, stride, last - first, sums);
                for (long i = first; i < last; ++i)
                    for (long c = 0; c < COLUMNS; ++c) {
                        const long column = start + c * Simd<R>::lanes;
                        if (column < width_) finish(i, column, width_ - column, sums[i - first][c]);
                    }
            }
    }

private:
    using Sums = Vec<R> (&)[ROWS][COLUMNS];

    void some(const R* panel, const R* left, long stride, long count, Sums sums) {
        switch (count) {
            case 1: return tile<1>(panel, left, stride, sums);
            case 2: return tile<2>(panel, left, stride, sums);
            case 3: return tile<3>(panel, left, stride, sums);
            case 4: return tile<4>(panel, left, stride, sums);
            case 5: return tile<5>(panel, left, stride, sums);
            default: return tile<6>(panel, left, stride, sums);
        }
    }

    template <int U> __attribute__((noinline)) void tile(const R* panel, const R* left, long stride, Sums sums) {
        const Vec<R>* columns = reinterpret_cast<const Vec<R>*>(panel);
        Vec<R> acc[U][COLUMNS] = {};
        for (long j = 0; j < rows_; ++j)
            for (int u = 0; u < U; ++u)
                for (int c = 0; c < COLUMNS; ++c) acc[u][c] += left[u * stride + j] * columns[j * COLUMNS + c];
        for (int u = 0; u < U; ++u)
            for (int c = 0; c < COLUMNS; ++c) sums[u][c] = acc[u][c];
    }

    long width_, rows_ = 0;
    Buffer<R> numbers_;
};
