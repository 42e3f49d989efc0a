// The GRU with its gradient; see memsweep/recurrence/gated/gru.py.
#pragma once
#include "gated.h"

inline namespace BLOCKS {

// A step of some numbers, `step` vectors of each kind: the gates r, z, n and what is recalled, q, [4][step].
template <class R> struct GruCell {
    using Vector = Vec<R>;
    static constexpr long gate_count = 3, kept_count = 4, carried_count = 1;
    static constexpr long recurrent[] = {0, 1, 3};  // which of what is kept are driven by U, row by row

    static Vector candidate(Vector drive, Vector reset, Vector recalled) {
        return hyperbolic_tangent<R>(drive + reset * recalled);
    }

    static void move(const Vector* gates, long step, const Vector* before, Vector* now) {
        const Vector *update = gates + step, *candidate = update + step;
        for (long k = 0; k < step; ++k) now[k] = before[k] + update[k] * (candidate[k] - before[k]);
    }

    // Gates become the errors of their sums, q that of U_n h. later: by later steps, then by this one, without U.
    static void back(Vector* gates, long step, const Vector* before, const Vector* grads, Vector* later) {
        Vector *reset = gates, *update = reset + step, *candidate = update + step, *recalled = candidate + step;
        for (long k = 0; k < step; ++k) {
            const Vector r = reset[k], z = update[k], n = candidate[k];
            const Vector whole = grads[k] + later[k], of_sum = whole * z * (1 - n * n);
            reset[k] = of_sum * recalled[k] * r * (1 - r);
            update[k] = whole * (n - before[k]) * z * (1 - z);
            candidate[k] = of_sum;
            recalled[k] = of_sum * r;
            later[k] = (1 - z) * whole;
        }
    }
};

template <class R> class GruBlock {
public:
    using Vector = Vec<R>;
    using Cell = GruCell<R>;
    static constexpr long gate_count = Cell::gate_count, kept_count = Cell::kept_count;
    static constexpr long carried_count = Cell::carried_count;

    // steps: the most that are gone at a time.
    GruBlock(long width, long features, long steps)
        : M_(width), F_(features), drive_(3 * M_, F_), gates_(steps * 4 * M_ * V), states_((steps + 1) * M_ * V),
          later_(M_ * V), transposed_(3 * M_ * M_) {}

    // [M][V]: what is carried into the first of the next steps, and out of the last of some.
    Vector* carried(int) { return states_; }
    void carry(long steps) { std::copy_n(states_ + steps * M_ * V, M_ * V, states_ + 0); }
    const Vector* states() { return states_ + M_ * V; }

    // The gates r, z and n and what is recalled, q, of some steps, [steps][4][M][V]: with what is carried into the first,
    // all that `backward` needs of a forward pass.
    Vector* kept() { return gates_; }
    void restore(long steps) {
        for (long t = 0; t < steps; ++t) move(t);
    }

    // read: [steps][F][V].
    void forward(const GatedWeights<const R>& weights, const Vector* read, long steps) {
        const long step = M_ * V;
        for (long t = 0; t < steps; ++t) {
            Vector *reset = gates_ + 4 * t * step, *candidate = reset + 2 * step, *recalled = candidate + step;
            const Vector* before = states_ + t * step;
            drive_.forward(weights, read + t * F_ * V, reset);
            rows_times(
                weights.matrix, 2 * M_, M_, before, [&](long i, int v) { return reset[i * V + v]; },
                [&](long i, int v, Vector sum) { reset[i * V + v] = sigmoid<R>(sum); });
            rows_times(
                weights.matrix + 2 * M_ * M_, M_, M_, before, [&](long i, int) { return weights.recalled[i] - Vector{}; },
                [&](long i, int v, Vector sum) {
                    const long at = i * V + v;
                    recalled[at] = sum;
                    candidate[at] = Cell::candidate(candidate[at], reset[at], sum);
                });
            move(t);
        }
    }

    // Before the first way back with these weights, and before that of a block's last steps.
    void turn(const GatedWeights<const R>& weights) {
        drive_.turn(weights);
        transpose<R>(weights.matrix, 2 * M_, M_, transposed_);
        transpose<R>(weights.matrix + 2 * M_ * M_, M_, M_, transposed_ + 2 * M_ * M_);
    }
    void start_back() { std::fill(later_ + 0, later_ + M_ * V, Vector{}); }

    // After `forward` over the same steps, or `restore`. grads: of their states, [steps][M][V]; of_read: [steps][F][V],
    // or null. It leaves gradients of the drive where the gates were.
    void backward(const Vector* read, const Vector* grads, Vector* of_read, const GatedWeights<R>& gradient, long steps) {
        const long step = M_ * V, square = M_ * M_;
        Vector* later = later_;
        const auto so_far = [&](long i, int v) { return later[i * V + v]; };
        const auto further = [&](long i, int v, Vector sum) { later[i * V + v] = sum; };
        for (long t = steps - 1; t >= 0; --t) {
            Vector *reset = gates_ + 4 * t * step, *recalled = reset + 3 * step;
            Cell::back(reset, step, states_ + t * step, grads + t * step, later);
            rows_times<R>(transposed_, M_, 2 * M_, reset, so_far, further);
            rows_times<R>(transposed_ + 2 * square, M_, M_, recalled, so_far, further);
            if (of_read) drive_.of_read(reset, of_read + t * F_ * V);
        }
        const Steps<R> before{states_, M_, step};
        add_outer<R>({gates_, 2 * M_, 4 * step}, before, steps, gradient.matrix);
        add_outer<R>({gates_ + 3 * step, M_, 4 * step}, before, steps, gradient.matrix + 2 * square);
        add_rows<R>({gates_ + 3 * step, M_, 4 * step}, steps, gradient.recalled);
        drive_.of_weights(gates_, 4 * step, read, steps, gradient);
    }

private:
    // One step, from its gates.
    void move(long t) {
        const long step = M_ * V;
        Cell::move(gates_ + 4 * t * step, step, states_ + t * step, states_ + (t + 1) * step);
    }

    const long M_, F_;
    Drive<R> drive_;
    Buffer<Vector> gates_, states_, later_;  // states: with that before the first step
    Buffer<R> transposed_;
};

}  // namespace BLOCKS
