// The LSTM with its gradient; see memsweep/recurrence/gated/lstm.py.
#pragma once
#include "gated.h"

// A step of some numbers, `step` vectors of each kind: the gates i, f, o and g [4][step]; c and h before and after it.
template <class R> struct LstmCell {
    using Vector = Vec<R>;
    static constexpr long gate_count = 4, kept_count = 4, carried_count = 2;
    static constexpr long recurrent[] = {0, 1, 2, 3};  // which of what is kept are driven by U, row by row

    // From the sums a + U h.
    static void open(Vector* gates, long step) {
        for (long k = 0; k < 3 * step; ++k) gates[k] = sigmoid<R>(gates[k]);
        for (long k = 3 * step; k < 4 * step; ++k) gates[k] = hyperbolic_tangent<R>(gates[k]);
    }

    static void move(const Vector* gates, long step, const Vector* earlier, Vector* cell, Vector* shown, Vector* now) {
        const Vector *into = gates, *forget = into + step, *out = forget + step, *candidate = out + step;
        for (long k = 0; k < step; ++k) {
            cell[k] = forget[k] * earlier[k] + into[k] * candidate[k];
            shown[k] = hyperbolic_tangent<R>(cell[k]);
            now[k] = out[k] * shown[k];
        }
    }

    // Gates become the errors of their sums. grads, later: gradients of h, given and by later steps; of_cell: of c.
    static void back(Vector* gates, long step, const Vector* earlier, const Vector* shown, const Vector* grads,
                     const Vector* later, Vector* of_cell) {
        Vector *into = gates, *forget = into + step, *out = forget + step, *candidate = out + step;
        for (long k = 0; k < step; ++k) {
            const Vector i = into[k], f = forget[k], o = out[k], g = candidate[k];
            const Vector whole = grads[k] + later[k];
            const Vector pushed = of_cell[k] + whole * o * (1 - shown[k] * shown[k]);
            into[k] = pushed * g * i * (1 - i);
            forget[k] = pushed * earlier[k] * f * (1 - f);
            out[k] = whole * shown[k] * o * (1 - o);
            candidate[k] = pushed * i * (1 - g * g);
            of_cell[k] = pushed * f;
        }
    }
};

template <class R> class LstmBlock {
public:
    using Vector = Vec<R>;
    using Cell = LstmCell<R>;
    static constexpr long gate_count = Cell::gate_count, kept_count = Cell::kept_count;
    static constexpr long carried_count = Cell::carried_count;

    // steps: the most that are gone at a time.
    LstmBlock(long width, long features, long steps)
        : M_(width), F_(features), drive_(4 * M_, F_), gates_(steps * 4 * M_ * V), states_((steps + 1) * M_ * V),
          cells_((steps + 1) * M_ * V), shown_(steps * M_ * V), sums_(2 * M_ * V), transposed_(4 * M_ * M_) {}

    // [M][V] each: what is carried into the first of the next steps, and out of the last of some.
    Vector* carried(int index) { return index ? cells_ : states_; }
    void carry(long steps) {
        for (Vector* each : {states_ + 0, cells_ + 0}) std::copy_n(each + steps * M_ * V, M_ * V, each);
    }
    const Vector* states() { return states_ + M_ * V; }

    // The gates i, f, o and g of some steps, [steps][4][M][V]: with what is carried into the first, all that `backward`
    // needs of a forward pass.
    Vector* kept() { return gates_; }
    void restore(long steps) {
        for (long t = 0; t < steps; ++t) move(t);
    }

    // read: [steps][F][V].
    void forward(const GatedWeights<const R>& weights, const Vector* read, long steps) {
        const long step = M_ * V;
        for (long t = 0; t < steps; ++t) {
            Vector* into = gates_ + 4 * t * step;
            drive_.forward(weights, read + t * F_ * V, into);
            rows_times(
                weights.matrix, 4 * M_, M_, states_ + t * step, [&](long i, int v) { return into[i * V + v]; },
                [&](long i, int v, Vector sum) { into[i * V + v] = sum; });
            Cell::open(into, step);
            move(t);
        }
    }

    // Before the first way back with these weights, and before that of a block's last steps.
    void turn(const GatedWeights<const R>& weights) {
        drive_.turn(weights);
        transpose<R>(weights.matrix, 4 * M_, M_, transposed_);
    }
    void start_back() { std::fill(sums_ + 0, sums_ + 2 * M_ * V, Vector{}); }

    // After `forward` over the same steps, or `restore`. grads: of their states, [steps][M][V]; of_read: [steps][F][V],
    // or null. It leaves gradients of the drive where the gates were.
    void backward(const Vector* read, const Vector* grads, Vector* of_read, const GatedWeights<R>& gradient, long steps) {
        const long step = M_ * V;
        Vector *later = sums_, *of_cell = later + step;
        for (long t = steps - 1; t >= 0; --t) {
            Vector* into = gates_ + 4 * t * step;
            Cell::back(into, step, cells_ + t * step, shown_ + t * step, grads + t * step, later, of_cell);
            rows_times<R>(
                transposed_, M_, 4 * M_, into, [](long, int) { return Vector{}; },
                [&](long i, int v, Vector sum) { later[i * V + v] = sum; });
            if (of_read) drive_.of_read(into, of_read + t * F_ * V);
        }
        add_outer_of_series<R>(gates_, 4 * M_, states_, M_, steps, gradient.matrix);
        drive_.of_weights(gates_, 4 * step, read, steps, gradient);
    }

private:
    // One step, from its gates.
    void move(long t) {
        const long step = M_ * V;
        Cell::move(gates_ + 4 * t * step, step, cells_ + t * step, cells_ + (t + 1) * step, shown_ + t * step,
                   states_ + (t + 1) * step);
    }

    const long M_, F_;
    Drive<R> drive_;
    Buffer<Vector> gates_, states_, cells_, shown_, sums_;  // states and cells: with those before the first step
    Buffer<R> transposed_;
};
