// What the gated layers have in common: an affine map of what is read drives their gates.
//
// Series of a block of sequences are [steps][K][V]: F features are read, G gates have M numbers each. a_t = W x_t + b.
#pragma once
#include "product.h"

inline namespace BLOCKS {

// Of weights, or of their gradients.
template <class T> struct GatedWeights {
    T *matrix, *encoder, *bias, *recalled;  // U [G][M][M], W [G][M][F], b [G][M]; c of a GRU [M]
};

template <class R> class Drive {
public:
    using Vector = Vec<R>;

    Drive(long rows, long features) : rows_(rows), F_(features), turned_(rows * features) {}

    // a of one step.
    void forward(const GatedWeights<const R>& weights, const Vector* x, Vector* gates) const {
        rows_times(
            weights.encoder, rows_, F_, x, [&](long i, int) { return weights.bias[i] - Vector{}; },
            [&](long i, int v, Vector sum) { gates[i * V + v] = sum; });
    }

    // Before `of_read` with these weights.
    void turn(const GatedWeights<const R>& weights) { transpose<R>(weights.encoder, rows_, F_, turned_); }

    // The gradient by x of one step, from that by a.
    void of_read(const Vector* of_gates, Vector* of_x) {
        rows_times<R>(
            turned_, F_, rows_, of_gates, [](long, int) { return Vector{}; },
            [&](long i, int v, Vector sum) { of_x[i * V + v] = sum; });
    }

    // Gradients by W and b from those by a, of some steps; the next step's stand so many vectors further.
    void of_weights(const Vector* of_gates, long next, const Vector* read, long steps, const GatedWeights<R>& into) const {
        add_outer<R>({of_gates, rows_, next}, {read, F_, F_ * V}, steps, into.encoder);
        add_rows<R>({of_gates, rows_, next}, steps, into.bias);
    }

private:
    const long rows_, F_;
    Buffer<R> turned_;
};

}  // namespace BLOCKS
