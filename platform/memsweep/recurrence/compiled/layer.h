// What one layer is, and how its sequences lie in memory while it runs.
//
//     h_t = carried h_{t-1} + sigma(u x_t + b + A h_{t-1}),   h_{-1} = 0,   y_t = c tau(h_t) + d      (carried: 0 or 1)
//
// Sequences stand side by side in the lanes of vectors, a block of V vectors at a time; one model runs over one block
// forward and backward before the next, so that its states never leave the cache. The sums of a model's gradient are
// over blocks in order, and no model knows of another: its numbers do not depend on its company.
//
// Letters: N models, B sequences, T time, M width, I inputs, O outputs, V vectors of a block.
#pragma once
#include "simd.h"

constexpr int V = 2;

template <class R> struct Layer {
    long width, inputs, outputs;
    const R *encoder, *bias, *matrix, *readout, *offset;  // [M][I], [M], [M] or [M][M], [O][M], [O]
};

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
