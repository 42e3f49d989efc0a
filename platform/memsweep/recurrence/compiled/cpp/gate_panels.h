// Matrices as few sequences of a gated layer read them, and the sums of outer products that are their gradient: the lanes
// of a vector are units, so that one sequence fills them.
//
// Every number is summed up in the order that the blocks of gated.h have (product.h): it has the same bits.
#pragma once
#include <algorithm>

#include "lanes.h"
#include "panels.h"
#include "product.h"

// Rows of some numbers: row i begins `next` numbers after row i - 1, and has its numbers in runs that begin at `at`.
template <class R> struct Rows {
    const R* first;
    long next, count;
    long runs = 1, at[4] = {0, 0, 0, 0};
};

// A matrix in panels of some vectors of columns, zeros beyond the width; the last panel has the vectors that are left.
template <class R> class GatePanels {
public:
    // rows: of the matrix in each run of a row that is multiplied with it; columns: `groups` times `width`, each in whole
    // vectors; together: rows that are to be multiplied at once.
    GatePanels(long runs, long rows, long groups, long width, long together)
        : runs_(runs), rows_(rows), groups_(groups), width_(width), each_((width + lanes - 1) / lanes),
          most_(together <= 3 ? 2 * COLUMNS : together == 4 ? COLUMNS * 3 / 2 : COLUMNS), numbers_(runs * rows * groups * each_ * lanes),
          column_(runs * rows) {}

    // Entry (row, column of a group) is matrix[group * jump + row * down + column * right], where down or right is 1.
    void fill(const R* matrix, long jump, long down, long right) {
        const long count = runs_ * rows_;
        for (long c = 0; c < groups_ * each_; ++c) {
            const long place = c / most_ * most_, across = std::min(most_, groups_ * each_ - place), start = c % each_ * lanes;
            const long some = std::min<long>(lanes, width_ - start);
            const R* from = matrix + c / each_ * jump + start * right;
            Vec<R>* to = numbers_ + place * count + c - place;
            if (right == 1) {
                for (long j = 0; j < count; ++j) to[j * across] = vector_at<R>(from + j * down, some);
            } else {
                into_lanes<R>(from, right, int(some), count, column_);
                for (long j = 0; j < count; ++j) to[j * across] = column_[j];
            }
        }
    }

    // finish(i, c, start(i, c) + the sum over j of left[i][j] times row j of the matrix), c: which vector of columns.
    template <class Start, class Finish> void times(const Rows<R>& left, Start start, Finish finish) {
        const long most = most_rows(most_), tiles = (left.count + most - 1) / most;
        for (long c = 0; c < groups_ * each_; c += most_) {
            const long across = std::min(most_, groups_ * each_ - c);
            for (long tile = 0; tile < tiles; ++tile) {
                const long first = tile * left.count / tiles, count = (tile + 1) * left.count / tiles - first;
                Vec<R> sums[ROWS * COLUMNS];
                for (long i = 0; i < count; ++i)
                    for (long k = 0; k < across; ++k) sums[i * across + k] = start(first + i, c + k);
                pick<1, 1>(count, across, c, left, first, sums);
                for (long i = 0; i < count; ++i)
                    for (long k = 0; k < across; ++k) finish(first + i, c + k, sums[i * across + k]);
            }
        }
    }

private:
    static constexpr long lanes = Simd<R>::lanes;

    // At once, so that the sums fill the registers.
    static constexpr long most_rows(long across) { return across * 2 > 3 * COLUMNS ? 3 : across > COLUMNS ? 4 : ROWS; }

    template <int U, int K>
    void pick(long count, long across, long c, const Rows<R>& left, long first, Vec<R>* sums) {
        if constexpr (K < 2 * COLUMNS)
            if (K < across) return pick<U, K + 1>(count, across, c, left, first, sums);
        if constexpr (U < most_rows(K))
            if (U < count) return pick<U + 1, K>(count, across, c, left, first, sums);
        tile<U, K>(numbers_ + c * runs_ * rows_, left, first, sums);
    }

    template <int U, int K>
    __attribute__((noinline)) void tile(const Vec<R>* panel, const Rows<R>& left, long first, Vec<R>* sums) {
        Vec<R> acc[U][K];
        for (int u = 0; u < U; ++u)
            for (int k = 0; k < K; ++k) acc[u][k] = sums[u * K + k];
        for (long run = 0; run < runs_; ++run, panel += rows_ * K) {
            const R* row = left.first + first * left.next + left.at[run];
            for (long j = 0; j < rows_; ++j)
                for (int u = 0; u < U; ++u)
                    for (int k = 0; k < K; ++k) acc[u][k] += row[u * left.next + j] * panel[j * K + k];
        }
        for (int u = 0; u < U; ++u)
            for (int k = 0; k < K; ++k) sums[u * K + k] = acc[u][k];
    }

    const long runs_, rows_, groups_, width_, each_, most_;
    Buffer<Vec<R>> numbers_, column_;
};

// into[i][j] += the sum of left[i] right[j] over steps and sequences, as `add_outer` of product.h has it, where sequence
// s stands in lane s % lanes. left, right: numbers of step t and sequence b at (t * sequences + b) * next; most: steps
// at a time, by `cached_steps` of all rows that a block has in one product.
template <class R> class FewOuter {
public:
    struct Series {
        const R* first;
        long rows, next;
    };

    static void add(const Series& left, const Series& right, long sequences, long count, long most, R* into) {
        const long whole = right.rows / lanes * lanes;
        for (long first = 0; first < count; first += most) {
            const long some = std::min(most, count - first);
            const Series e{left.first + first * sequences * left.next, left.rows, left.next};
            const Series h{right.first + first * sequences * right.next, right.rows, right.next};
            for (long j = 0; j < whole; j += COLUMNS * lanes)
                columns<1>(e, h, sequences, some, j, std::min<long>(COLUMNS, (whole - j) / lanes), into);
            if (whole < right.rows) rest(e, h, sequences, some, whole, into);
        }
    }

    // into[i] += the sum of row i over steps and sequences, as `add_rows` of product.h has it.
    static void add_rows(const Series& of, long sequences, long count, R* into) {
        for (long i = 0; i < of.rows; i += lanes) {
            const long some = std::min<long>(lanes, of.rows - i);
            Vec<R> part[lanes];
            for (long b = 0; b < std::min(lanes, sequences); ++b) {
                Vec<R> total{};
                for (long t = 0; t < count; ++t)
                    for (long s = b; s < sequences; s += lanes)
                        total += vector_at<R>(of.first + (t * sequences + s) * of.next + i, some);
                part[b] = total;
            }
            put<R>(vector_at<R>(into + i, some) + over_lanes(part, 1, sequences), into + i, some);
        }
    }

private:
    static constexpr long lanes = Simd<R>::lanes, together = 128 / (V * lanes);  // steps, as in `outer_columns`

    template <int K>
    static void columns(const Series& e, const Series& h, long sequences, long count, long j, long across, R* into) {
        if constexpr (K < COLUMNS)
            if (K < across) return columns<K + 1>(e, h, sequences, count, j, across, into);
        long i = 0;
        for (; i + ROWS <= e.rows; i += ROWS) tile<ROWS, K>(e, h, sequences, count, i, into + i * h.rows + j, j);
        for (; i + 2 <= e.rows; i += 2) tile<2, K>(e, h, sequences, count, i, into + i * h.rows + j, j);
        for (; i < e.rows; ++i) tile<1, K>(e, h, sequences, count, i, into + i * h.rows + j, j);
    }

    template <int U, int K>
    static void tile(const Series& e, const Series& h, long sequences, long count, long i, R* into, long j) {
        for (long first = 0; first < count; first += together) {
            Vec<R> acc[U][K] = {};
            const long last = std::min(first + together, count) * sequences;
            const R *left = e.first + first * sequences * e.next + i, *right = h.first + first * sequences * h.next + j;
            for (long row = first * sequences; row < last; ++row, left += e.next, right += h.next)
                for (int u = 0; u < U; ++u)
                    for (int k = 0; k < K; ++k) acc[u][k] += left[u] * reinterpret_cast<const Vec<R>*>(right)[k];
            for (int u = 0; u < U; ++u)
                for (int k = 0; k < K; ++k) {
                    R* to = into + u * h.rows + k * lanes;
                    put<R>(vector_at<R>(to, lanes) + acc[u][k], to, lanes);
                }
        }
    }

    // Columns that fill no vector: a sum for each lane of sequences, and these are summed at the end.
    static void rest(const Series& e, const Series& h, long sequences, long count, long j, R* into) {
        long i = 0;
        for (; i + 8 <= e.rows; i += 8) rest_of<8>(e, h, sequences, count, i, j, into);
        for (; i < e.rows; ++i) rest_of<1>(e, h, sequences, count, i, j, into);
    }

    template <int U>
    static void rest_of(const Series& e, const Series& h, long sequences, long count, long i, long j, R* into) {
        Vec<R> part[lanes][U];
        for (long b = 0; b < std::min(lanes, sequences); ++b) {
            Vec<R> acc[U] = {};
            for (long t = 0; t < count; ++t)
                for (long s = b; s < sequences; s += lanes) {
                    const long row = t * sequences + s;
                    const Vec<R> column = *reinterpret_cast<const Vec<R>*>(h.first + row * h.next + j);
                    for (int u = 0; u < U; ++u) acc[u] += e.first[row * e.next + i + u] * column;
                }
            for (int u = 0; u < U; ++u) part[b][u] = acc[u];
        }
        for (int u = 0; u < U; ++u) {
            R* to = into + (i + u) * h.rows + j;
            put<R>(vector_at<R>(to, h.rows - j) + over_lanes(part[0] + u, U, sequences), to, h.rows - j);
        }
    }

    // As `sum` of simd.h adds up lanes, of which the first ones alone hold a sequence.
    static Vec<R> over_lanes(Vec<R>* part, long next, long sequences) {
        for (long half = lanes / 2; half > 0; half /= 2)
            for (long lane = 0; lane < half && lane + half < sequences; ++lane) part[lane * next] += part[(lane + half) * next];
        return part[0];
    }
};
