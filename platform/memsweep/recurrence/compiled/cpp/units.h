// Recurrent units of a residual stack over a block of sequences, forward and backward; see memsweep/models/deep/unit_*.py.
//
// A unit reads its weights one after the other, in the order of its roles, and writes their gradients in that order.
// `forward` keeps what `backward` needs of it. Series are [T][K][V]; what is read and answered has F features.
#pragma once
#include <cmath>

#include "gru.h"
#include "series.h"

inline namespace BLOCKS {

struct UnitShape {
    long horizon, features, width;
    bool normalized;  // of an LRU: whether it has a trained gain
};

// h_t = A sigma(h_{t-1}) + B x_t,   y_t = C h_t + D x_t
template <class R, class Sigma> class RnnUnit {
public:
    using Vector = Vec<R>;

    explicit RnnUnit(const UnitShape& shape)
        : T_(shape.horizon), F_(shape.features), M_(shape.width), states_(T_ * M_ * V), shown_((T_ + 1) * M_ * V),
          answers_(T_ * F_ * V), errors_(T_ * M_ * V), into_(M_ * F_), back_(M_ * M_), out_(M_ * F_) {}

    static long size(const UnitShape& shape) {
        return shape.width * (shape.width + 2 * shape.features) + shape.features;
    }

    const Vector* forward(const R* weights, const Vector* read) {
        const R *matrix = weights, *encoder = matrix + M_ * M_, *readout = encoder + M_ * F_, *skip = readout + F_ * M_;
        std::fill(shown_ + 0, shown_ + M_ * V, Vector{});
        for (long t = 0; t < T_; ++t) {
            Vector *now = states_ + t * M_ * V, *shown = shown_ + (t + 1) * M_ * V, *answer = answers_ + t * F_ * V;
            const Vector* x = read + t * F_ * V;
            rows_times(
                encoder, M_, F_, x, [](long, int) { return Vector{}; },
                [&](long i, int v, Vector sum) { now[i * V + v] = sum; });
            rows_times_states(
                matrix, M_, shown - M_ * V, [&](long i, int v) { return now[i * V + v]; },
                [&](long i, int v, Vector sum) {
                    now[i * V + v] = sum;
                    shown[i * V + v] = Sigma::template value<R>(sum);
                });
            rows_times(
                readout, F_, M_, now, [&](long i, int v) { return skip[i] * x[i * V + v]; },
                [&](long i, int v, Vector sum) { answer[i * V + v] = sum; });
        }
        return answers_;
    }

    void backward(const R* weights, const Vector* read, const Vector* grads, Vector* of_read, R* gradient) {
        const R *matrix = weights, *encoder = matrix + M_ * M_, *readout = encoder + M_ * F_, *skip = readout + F_ * M_;
        transpose(matrix, M_, back_ + 0);
        transpose(encoder, M_, F_, into_ + 0);
        transpose(readout, F_, M_, out_ + 0);
        for (long t = T_ - 1; t >= 0; --t) {
            Vector* error = errors_ + t * M_ * V;
            const Vector *later = t < T_ - 1 ? error + M_ * V : nullptr, *shown = shown_ + (t + 1) * M_ * V;
            const Vector* grad = grads + t * F_ * V;
            rows_times_states<R>(
                back_, M_, later, [](long, int) { return Vector{}; },
                [&](long i, int v, Vector sum) {
                    error[i * V + v] = Sigma::template slope<R>(shown[i * V + v], Vector{}) * sum;
                });
            rows_times<R>(
                out_, M_, F_, grad, [&](long i, int v) { return error[i * V + v]; },
                [&](long i, int v, Vector sum) { error[i * V + v] = sum; });
            rows_times<R>(
                into_, F_, M_, error, [&](long i, int v) { return skip[i] * grad[i * V + v]; },
                [&](long i, int v, Vector sum) { of_read[(t * F_ + i) * V + v] = sum; });
        }
        add_outer_of_series<R>(errors_, M_, shown_, M_, T_, gradient);
        add_outer_of_series<R>(errors_, M_, read, F_, T_, gradient += M_ * M_);
        add_outer_of_series<R>(grads, F_, states_, M_, T_, gradient += M_ * F_);
        add_rows<R>(grads, read, F_, T_, gradient += F_ * M_);
    }

private:
    const long T_, F_, M_;
    Buffer<Vector> states_, shown_, answers_, errors_;  // shown_: sigma(h_{t-1}), so that the first step is zeros
    Buffer<R> into_, back_, out_;
};

// The answers of a GRU are its states.
template <class R> class GruUnit {
public:
    using Vector = Vec<R>;

    explicit GruUnit(const UnitShape& shape)
        : T_(shape.horizon), F_(shape.features), M_(shape.width), block_(M_, F_, T_) {}

    static long size(const UnitShape& shape) { return shape.width * (3 * (shape.width + shape.features) + 4); }

    const Vector* forward(const R* weights, const Vector* read) {
        std::fill_n(block_.carried(0), M_ * V, Vector{});
        block_.forward(parts(weights), read, T_);
        return block_.states();
    }

    void backward(const R* weights, const Vector* read, const Vector* grads, Vector* of_read, R* gradient) {
        block_.turn(parts(weights));
        block_.start_back();
        block_.backward(read, grads, of_read, parts(gradient), T_);
    }

private:
    template <class T> GatedWeights<T> parts(T* weights) const {
        T *encoder = weights + 3 * M_ * M_, *bias = encoder + 3 * M_ * F_;
        return {weights, encoder, bias, bias + 3 * M_};
    }

    const long T_, F_, M_;
    GruBlock<R> block_;
};

// h_t = lambda h_{t-1} + gamma (B x_t),   y_t = Re(C h_t) + D x_t,   lambda = exp(-exp(nu) + i exp(theta)),
// gamma = exp(gamma_log), or 1. Complex numbers are pairs of rows.
template <class R> class LruUnit {
public:
    using Vector = Vec<R>;

    explicit LruUnit(const UnitShape& shape)
        : T_(shape.horizon), F_(shape.features), M_(shape.width), normalized_(shape.normalized), states_(T_ * 2 * M_ * V),
          answers_(T_ * F_ * V), errors_(T_ * 2 * M_ * V), scratch_(ComplexSeries<R>::scratch(2 * M_)),
          eigenvalues_(2 * M_), gains_(M_), encoder_(2 * M_ * F_), readout_(2 * M_ * F_), turned_(2 * M_ * F_),
          sums_(2 * M_ * F_) {}

    static long size(const UnitShape& shape) {
        return shape.width * (4 * shape.features + (shape.normalized ? 3 : 2)) + shape.features;
    }

    const Vector* forward(const R* weights, const Vector* read) {
        const R *encoder = weights + 2 * M_, *readout = encoder + 2 * M_ * F_, *skip = readout + 2 * M_ * F_;
        for (long i = 0; i < M_; ++i) {
            const R size = std::exp(-std::exp(weights[i])), phase = std::exp(weights[M_ + i]);
            eigenvalues_[2 * i] = size * std::cos(phase);
            eigenvalues_[2 * i + 1] = size * std::sin(phase);
            gains_[i] = normalized_ ? std::exp(skip[F_ + i]) : R(1);
            for (long f = 0; f < F_; ++f)
                for (long part = 0; part < 2; ++part) {
                    encoder_[(2 * i + part) * F_ + f] = gains_[i] * encoder[(part * M_ + i) * F_ + f];
                    const R out = readout[(part * F_ + f) * M_ + i];
                    readout_[f * 2 * M_ + 2 * i + part] = part ? -out : out;
                }
        }
        for (long t = 0; t < T_; ++t) {
            Vector* drive = states_ + t * 2 * M_ * V;
            rows_times<R>(
                encoder_, 2 * M_, F_, read + t * F_ * V, [](long, int) { return Vector{}; },
                [&](long i, int v, Vector sum) { drive[i * V + v] = sum; });
        }
        ComplexSeries<R>::forward(eigenvalues_, 2 * M_, T_, states_);
        for (long t = 0; t < T_; ++t) {
            const Vector* x = read + t * F_ * V;
            Vector* answer = answers_ + t * F_ * V;
            rows_times<R>(
                readout_, F_, 2 * M_, states_ + t * 2 * M_ * V, [&](long i, int v) { return skip[i] * x[i * V + v]; },
                [&](long i, int v, Vector sum) { answer[i * V + v] = sum; });
        }
        return answers_;
    }

    // After `forward` with the same weights.
    void backward(const R* weights, const Vector* read, const Vector* grads, Vector* of_read, R* gradient) {
        const R *encoder = weights + 2 * M_, *skip = encoder + 4 * M_ * F_;
        R *of_encoder = gradient + 2 * M_, *of_readout = of_encoder + 2 * M_ * F_, *of_skip = of_readout + 2 * M_ * F_;
        transpose<R>(readout_, F_, 2 * M_, turned_);
        for (long t = 0; t < T_; ++t) {
            Vector* error = errors_ + t * 2 * M_ * V;
            rows_times<R>(
                turned_, 2 * M_, F_, grads + t * F_ * V, [](long, int) { return Vector{}; },
                [&](long i, int v, Vector sum) { error[i * V + v] = sum; });
        }
        R* of_eigenvalues = sums_;
        std::fill(of_eigenvalues, of_eigenvalues + 2 * M_, R(0));
        ComplexSeries<R>::backward(eigenvalues_, 2 * M_, T_, states_, errors_, scratch_, of_eigenvalues);
        for (long i = 0; i < M_; ++i) {
            const R re = eigenvalues_[2 * i], im = eigenvalues_[2 * i + 1];
            const R by_re = of_eigenvalues[2 * i], by_im = of_eigenvalues[2 * i + 1];
            gradient[i] -= std::exp(weights[i]) * (by_re * re + by_im * im);
            gradient[M_ + i] += std::exp(weights[M_ + i]) * (by_im * re - by_re * im);
        }
        transpose<R>(encoder_, 2 * M_, F_, turned_);
        for (long t = 0; t < T_; ++t) {
            const Vector* grad = grads + t * F_ * V;
            rows_times<R>(
                turned_, F_, 2 * M_, errors_ + t * 2 * M_ * V, [&](long i, int v) { return skip[i] * grad[i * V + v]; },
                [&](long i, int v, Vector sum) { of_read[(t * F_ + i) * V + v] = sum; });
        }
        std::fill(sums_ + 0, sums_ + 2 * M_ * F_, R(0));
        add_outer_of_series<R>(errors_, 2 * M_, read, F_, T_, sums_);
        for (long i = 0; i < M_; ++i) {
            R of_gain = 0;
            for (long part = 0; part < 2; ++part)
                for (long f = 0; f < F_; ++f) {
                    const R found = sums_[(2 * i + part) * F_ + f];
                    of_gain += found * encoder[(part * M_ + i) * F_ + f];
                    of_encoder[(part * M_ + i) * F_ + f] += gains_[i] * found;
                }
            if (normalized_) of_skip[F_ + i] += gains_[i] * of_gain;
        }
        std::fill(sums_ + 0, sums_ + 2 * M_ * F_, R(0));
        add_outer_of_series<R>(grads, F_, states_, 2 * M_, T_, sums_);
        for (long f = 0; f < F_; ++f)
            for (long i = 0; i < M_; ++i) {
                of_readout[f * M_ + i] += sums_[f * 2 * M_ + 2 * i];
                of_readout[(F_ + f) * M_ + i] -= sums_[f * 2 * M_ + 2 * i + 1];
            }
        add_rows<R>(grads, read, F_, T_, of_skip);
    }

private:
    const long T_, F_, M_;
    const bool normalized_;
    Buffer<Vector> states_, answers_, errors_, scratch_;
    Buffer<R> eigenvalues_, gains_, encoder_, readout_, turned_, sums_;
};

}  // namespace BLOCKS
