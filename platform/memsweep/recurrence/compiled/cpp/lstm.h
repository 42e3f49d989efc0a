// The LSTM, driven gate by gate, and its gradient; see memsweep/recurrence/gated/lstm.py.
//
// A block of sequences is [T][K][V]. The forward pass leaves gates where the drive was, i, f, o and g of a step one after
// the other, and the backward pass gradients of the drive where they were.
#pragma once
#include "product.h"

template <class R> class LstmBlock {
public:
    using Vector = Vec<R>;
    static constexpr long gate_count = 4;

    LstmBlock(long width, long horizon, bool backward)
        : width_(width), horizon_(horizon), gates_(horizon * 4 * width * V), states_(horizon * width * V),
          cells_((backward ? horizon : 1) * width * V), shown_((backward ? horizon : 1) * width * V), kept_(backward),
          errors_(backward ? 4 * OuterProducts<R>::room(width) : 1), sums_(backward ? 2 * width * V : 1),
          transposed_(backward ? 4 * width * width : 1) {}

    Vector* gates() { return gates_; }
    Vector* states() { return states_; }

    void forward(const R* matrix, const R*) {
        const long M = width_, square = M * M, step = M * V;
        for (long t = 0; t < horizon_; ++t) {
            Vector *into = gates_ + 4 * t * step, *forget = into + step, *out = forget + step, *candidate = out + step;
            Vector *now = states_ + t * step, *before = t ? now - step : nullptr;
            Vector *cell = cells_ + (kept_ ? t * step : 0), *shown = shown_ + (kept_ ? t * step : 0);
            const Vector* earlier = t ? cell - (kept_ ? step : 0) : nullptr;
            for (int g = 0; g < 3; ++g) {
                Vector* gate = into + g * step;
                rows_times_states(
                    matrix + g * square, M, before, [&](long i, int v) { return gate[i * V + v]; },
                    [&](long i, int v, Vector sum) { gate[i * V + v] = sigmoid<R>(sum); });
            }
            rows_times_states(
                matrix + 3 * square, M, before, [&](long i, int v) { return candidate[i * V + v]; },
                [&](long i, int v, Vector sum) {
                    const long at = i * V + v;
                    candidate[at] = hyperbolic_tangent<R>(sum);
                    const Vector old = earlier ? forget[at] * earlier[at] : Vector{};
                    cell[at] = old + into[at] * candidate[at];
                    shown[at] = hyperbolic_tangent<R>(cell[at]);
                    now[at] = out[at] * shown[at];
                });
        }
    }

    // After a forward pass of the same drive. grads: of the states, [T][M][V].
    void backward(const R* matrix, const Vector* grads, R* of_matrix, R*) {
        const long M = width_, square = M * M, step = M * V, room = OuterProducts<R>::room(M);
        Vector *later = sums_, *of_cell = later + step;
        std::fill(later, of_cell + step, Vector{});
        for (int g = 0; g < 4; ++g) transpose(matrix + g * square, M, transposed_ + g * square);
        OuterProducts<R> products[] = {{M, errors_, of_matrix},
                                       {M, errors_ + room, of_matrix + square},
                                       {M, errors_ + 2 * room, of_matrix + 2 * square},
                                       {M, errors_ + 3 * room, of_matrix + 3 * square}};
        for (long t = horizon_ - 1; t >= 0; --t) {
            Vector *into = gates_ + 4 * t * step, *forget = into + step, *out = forget + step, *candidate = out + step;
            const Vector *before = t ? states_ + (t - 1) * step : nullptr, *shown = shown_ + t * step;
            const Vector* earlier = t ? cells_ + (t - 1) * step : nullptr;
            Vector* errors[] = {products[0].next(), products[1].next(), products[2].next(), products[3].next()};
            for (long k = 0; k < step; ++k) {
                const Vector i = into[k], f = forget[k], o = out[k], g = candidate[k], c = earlier ? earlier[k] : Vector{};
                const Vector whole = grads[t * step + k] + later[k];
                const Vector pushed = of_cell[k] + whole * o * (1 - shown[k] * shown[k]);
                into[k] = errors[0][k] = pushed * g * i * (1 - i);
                forget[k] = errors[1][k] = pushed * c * f * (1 - f);
                out[k] = errors[2][k] = whole * shown[k] * o * (1 - o);
                candidate[k] = errors[3][k] = pushed * i * (1 - g * g);
                of_cell[k] = pushed * f;
            }
            if (t == 0) break;
            std::fill(later, later + step, Vector{});
            for (int g = 0; g < 4; ++g) {
                rows_times_states(
                    transposed_ + g * square, M, errors[g], [&](long i, int v) { return later[i * V + v]; },
                    [&](long i, int v, Vector sum) { later[i * V + v] = sum; });
                products[g].add(before, t == 1);
            }
        }
    }

private:
    long width_, horizon_;
    Buffer<Vector> gates_, states_, cells_, shown_;
    bool kept_;
    Buffer<Vector> errors_, sums_;
    Buffer<R> transposed_;
};
