// The GRU, driven gate by gate, and its gradient; see memsweep/recurrence/gated/gru.py.
//
// A block of sequences is [T][K][V]. The forward pass leaves gates where the drive was, r, z and n of a step one after
// the other, and the backward pass gradients of the drive where they were.
#pragma once
#include "product.h"

template <class R> class GatedBlock {
public:
    using Vector = Vec<R>;
    static constexpr long gate_count = 3;

    GatedBlock(long width, long horizon, bool backward)
        : width_(width), horizon_(horizon), gates_(horizon * 3 * width * V), states_(horizon * width * V),
          recalled_(backward ? horizon * width * V : width * V), kept_(backward),
          errors_(backward ? 3 * OuterProducts<R>::room(width) : 1), sums_(backward ? 3 * width * V : 1),
          transposed_(backward ? 3 * width * width : 1) {}

    Vector* gates() { return gates_; }
    Vector* states() { return states_; }

    void forward(const R* matrix, const R* bias) {
        const long M = width_, square = M * M, step = M * V;
        for (long t = 0; t < horizon_; ++t) {
            Vector *reset = gates_ + 3 * t * step, *update = reset + step, *candidate = update + step;
            Vector *now = states_ + t * step, *before = t ? now - step : nullptr;
            Vector* recalled = recalled_ + (kept_ ? t * step : 0);
            for (Vector* gate : {reset, update})
                rows_times_states(
                    matrix + (gate == update ? square : 0), M, before, [&](long i, int v) { return gate[i * V + v]; },
                    [&](long i, int v, Vector sum) { gate[i * V + v] = sigmoid<R>(sum); });
            rows_times_states(
                matrix + 2 * square, M, before, [&](long i, int v) { return bias[i] - Vector{}; },
                [&](long i, int v, Vector sum) {
                    const long at = i * V + v;
                    recalled[at] = sum;
                    candidate[at] = hyperbolic_tangent<R>(candidate[at] + reset[at] * sum);
                    const Vector h = before ? before[at] : Vector{};
                    now[at] = h + update[at] * (candidate[at] - h);
                });
        }
    }

    // After a forward pass of the same drive. grads: of the states, [T][M][V].
    void backward(const R* matrix, const Vector* grads, R* of_matrix, R* of_bias) {
        const long M = width_, square = M * M, step = M * V, room = OuterProducts<R>::room(M);
        Vector *kept = sums_, *later = kept + step, *biases = later + step;
        std::fill(later, biases + step, Vector{});
        for (int gate = 0; gate < 3; ++gate) transpose(matrix + gate * square, M, transposed_ + gate * square);
        OuterProducts<R> products[] = {{M, errors_, of_matrix},
                                       {M, errors_ + room, of_matrix + square},
                                       {M, errors_ + 2 * room, of_matrix + 2 * square}};
        for (long t = horizon_ - 1; t >= 0; --t) {
            Vector *reset = gates_ + 3 * t * step, *update = reset + step, *candidate = update + step;
            const Vector *before = t ? states_ + (t - 1) * step : nullptr, *recalled = recalled_ + t * step;
            Vector* errors[] = {products[0].next(), products[1].next(), products[2].next()};
            for (long k = 0; k < step; ++k) {
                const Vector r = reset[k], z = update[k], n = candidate[k], h = before ? before[k] : Vector{};
                const Vector whole = grads[t * step + k] + later[k], of_sum = whole * z * (1 - n * n);
                reset[k] = errors[0][k] = of_sum * recalled[k] * r * (1 - r);
                update[k] = errors[1][k] = whole * (n - h) * z * (1 - z);
                candidate[k] = of_sum;
                errors[2][k] = of_sum * r;
                biases[k] += errors[2][k];
                kept[k] = (1 - z) * whole;
            }
            if (t == 0) break;
            for (int gate = 0; gate < 3; ++gate) {
                const Vector* start = gate ? later : kept;
                rows_times_states(
                    transposed_ + gate * square, M, errors[gate], [&](long i, int v) { return start[i * V + v]; },
                    [&](long i, int v, Vector sum) { later[i * V + v] = sum; });
                products[gate].add(before, t == 1);
            }
        }
        for (long i = 0; i < M; ++i)
            for (int v = 0; v < V; ++v) of_bias[i] += sum<R>(biases[i * V + v]);
    }

private:
    long width_, horizon_;
    Buffer<Vector> gates_, states_, recalled_;
    bool kept_;
    Buffer<Vector> errors_, sums_;
    Buffer<R> transposed_;
};
