// What one layer is, and how its sequences lie in memory while it runs.
//
//     h_t = carried h_{t-1} + sigma(u x_t + b + A h_{t-1}),   h_{-1} = 0,   y_t = c tau(h_t) + d      (carried: 0 or 1)
//
// Sequences stand side by side in the lanes of vectors, a block of V vectors at a time (two; one in files that define
// FEW_SEQUENCES, for sequences that would leave the other empty); one model runs over one block forward and backward
// before the next, so that its states never leave the cache. The sums of a model's gradient are over blocks in order,
// and no model knows of another: its numbers do not depend on its company.
//
// Letters: N models, B sequences, T time, M width, I inputs, O outputs, V vectors of a block.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "simd.h"

// What is compiled for both numbers of vectors lies in a namespace of each: the linker would take one for the other.
#ifdef FEW_SEQUENCES
#define BLOCKS blocks_of_one
#else
#define BLOCKS blocks_of_two
#endif

inline namespace BLOCKS {

#ifdef FEW_SEQUENCES
constexpr int V = 1;
#else
constexpr int V = 2;
#endif

template <class R> struct Layer {
    long width, inputs, outputs;
    const R *encoder, *bias, *matrix, *readout, *offset;  // [M][I], [M], [M] or [M][M], [O][M], [O]
};

// The eigenvalue 1 - max(w, least) of a raw weight w, and the gradient by w of what has the gradient g by the eigenvalue.
template <class R> inline R clamped(R raw, double least) { return R(1) - (raw < R(least) ? R(least) : raw); }
template <class R> inline R of_clamped(R raw, double least, R g) { return raw <= R(least) ? R(0) : -g; }

template <class R> struct Gradient {
    R *encoder, *bias, *matrix, *readout, *offset;  // as above; sums are added to what is there
};

template <class R> struct Block {
    long horizon;
    const Vec<R>* x;  // [T][I][V]
    Vec<R>* y;        // [T][O][V]: outputs of the forward pass, then their gradients for the backward pass
};

template <class R> inline void start_with_offset(const Layer<R>& layer, const Block<R>& block) {
    for (long t = 0; t < block.horizon; ++t)
        for (long o = 0; o < layer.outputs; ++o)
            for (int v = 0; v < V; ++v) block.y[(t * layer.outputs + o) * V + v] = layer.offset[o] - Vec<R>{};
}

template <class R> inline void collect_offset(const Layer<R>& layer, const Block<R>& block, R* gradient) {
    for (long o = 0; o < layer.outputs; ++o) {
        Vec<R> total{};
        for (long t = 0; t < block.horizon; ++t)
            for (int v = 0; v < V; ++v) total += block.y[(t * layer.outputs + o) * V + v];
        gradient[o] += sum<R>(total);
    }
}

// Sequences on their way into blocks of vectors, and out of them.

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

// The first `some` of the `row` numbers of sequences first ... first + W, as [some][V]; lanes beyond the batch repeat the
// block's first sequence.
template <class R> void pack(const R* from, long batch, long first, long row, long some, Vec<R>* to) {
    constexpr int lanes = Simd<R>::lanes;
    for (int v = 0; v < V; ++v) {
        const R* sequences[lanes];
        for (int lane = 0; lane < lanes; ++lane) {
            const long own = first + v * lanes + lane;
            sequences[lane] = from + (own < batch ? own : first) * row;
        }
        long k = 0;
        for (; k + lanes <= some; k += lanes) {
            Vec<R> rows[lanes];
            for (int lane = 0; lane < lanes; ++lane) std::memcpy(rows + lane, sequences[lane] + k, sizeof rows[0]);
            turn<R>(rows);
            for (int lane = 0; lane < lanes; ++lane) to[(k + lane) * V + v] = rows[lane];
        }
        for (; k < some; ++k)
            for (int lane = 0; lane < lanes; ++lane) to[k * V + v][lane] = sequences[lane][k];
    }
}

template <class R> void unpack(const Vec<R>* from, long batch, long first, long row, long some, R* to) {
    constexpr int lanes = Simd<R>::lanes;
    for (int v = 0; v < V; ++v) {
        const long start = first + v * lanes, count = std::min<long>(lanes, batch - start);
        R* sequences = to + start * row;
        long k = 0;
        for (; k + lanes <= some; k += lanes) {
            Vec<R> rows[lanes];
            for (int lane = 0; lane < lanes; ++lane) rows[lane] = from[(k + lane) * V + v];
            turn<R>(rows);
            for (long lane = 0; lane < count; ++lane) std::memcpy(sequences + lane * row + k, rows + lane, sizeof rows[0]);
        }
        for (; k < some; ++k)
            for (long lane = 0; lane < count; ++lane) sequences[lane * row + k] = from[k * V + v][lane];
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

// The weighted squared error of a block; outputs become their gradients.
template <class R>
inline R squared(Vec<R>* y, const Vec<R>* target, const R* weight, long horizon, long outputs,
          const typename Simd<R>::Int (&own)[V]) {
    Vec<R> total{};
    for (long t = 0; t < horizon; ++t)
        for (long o = 0; o < outputs; ++o)
            for (int v = 0; v < V; ++v) {
                const long at = (t * outputs + o) * V + v;
                const Vec<R> error = own[v] ? y[at] - target[at] : Vec<R>{};
                const Vec<R> weighted = weight[t] * error;
                total += weighted * error;
                y[at] = weighted + weighted;
            }
    return sum<R>(total);
}

}  // namespace BLOCKS
