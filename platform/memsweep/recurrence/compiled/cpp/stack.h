// A residual stack of recurrent units, whole: outputs, gradients, and the weighted squared error with its gradient.
//
//     x <- W_in u + b,   x <- x + mixing(unit(norm(x))) in each layer,   y = W_out x + b       (residual_stack.py)
//
// A block of sequences goes through all layers and back before the next: what the layers keep of it stays near. Weights
// are those of one model, flat, in the order of its roles. See memsweep/models/deep/fused_stack.py.
#pragma once
#include <deque>

#include "units.h"

inline namespace BLOCKS {

constexpr long PLACES = 2;  // of a layer at which features are dropped: behind the gelu, and behind the gate

enum Mode { OUTPUTS = 0, PULL = 1, LOSS_AND_GRADIENT = 2 };
enum Mixing { FULL_GLU = 0, HALF_GLU1 = 1, HALF_GLU2 = 2, GELU = 3, NONE = 4 };

struct StackCall {
    int64_t mode, unit, sigma, normalized, mixing, norm, residual;  // unit: 0 rnn (sigma: 0 linear, 2 tanh, 3 relu), 1
                                                                    // gru, 2 lru (normalized: by a trained gain)
    int64_t models, batch, horizon, inputs, features, width, outputs, layers, size;
    const uint8_t* live;                  // [N]: the others are passed over
    const void *x, *target, *squares;     // [B][T][I], [B][T][O], [T]
    const void* weights;                  // [N][S]
    void *y, *loss;                       // [N][B][T][O]: outputs, or their gradients; [N]
    void* gradient;                       // [N][S]; sums are added to what is there
};

// gelu(a), the one with tanh, and its derivative.
template <class R> inline Vec<R> gelu(Vec<R> a, Vec<R>& slope) {
    const R scale = R(0.7978845608028653559), cubic = R(0.044715);
    const Vec<R> square = a * a;
    const Vec<R> bend = hyperbolic_tangent<R>(scale * a * (1 + cubic * square));
    slope = R(0.5) * (1 + bend) + R(0.5) * a * (1 - bend * bend) * (scale * (1 + 3 * cubic * square));
    return R(0.5) * a * (1 + bend);
}

template <class R> struct Scratch {
    explicit Scratch(long count) : read(count), of_answers(count), of_mixed(count), of_gate(count), of_read(count) {}

    Buffer<Vec<R>> read, of_answers, of_mixed, of_gate, of_read;  // [T][F][V] each
};

template <class R, class Unit> class StackLayer {
public:
    using Vector = Vec<R>;

    explicit StackLayer(const StackCall& call)
        : call_(call), shape_(unit_shape(call)), T_(call.horizon), F_(call.features), unit_(shape_),
          normal_(T_ * F_ * V), scale_(T_ * V), slope_(T_ * F_ * V), shown_(T_ * F_ * V), mixed_(T_ * F_ * V),
          gate_(T_ * F_ * V), turned_(2 * F_ * F_) {}

    static UnitShape unit_shape(const StackCall& call) {
        return {call.horizon, call.features, call.width, call.normalized != 0};
    }

    static long size(const StackCall& call) {
        const long F = call.features, maps = call.mixing == FULL_GLU ? 2 : call.mixing <= HALF_GLU2 ? 1 : 0;
        return Unit::size(unit_shape(call)) + (call.norm ? 2 * F : 0) + maps * (F * F + F);
    }

    // Factors [PLACES][F][V] of the features of all steps, until the next call; null: all are 1.
    void drop(const Vector* factors) { factors_ = factors; }

    // The features [T][F][V] on their way through the layer.
    void forward(const R* weights, Vector* x, Scratch<R>& scratch) {
        const Places<const R> at = places(weights);
        normalize(x);
        read_again(at, scratch.read);
        const Vector* answers = unit_.forward(weights, scratch.read);
        for (long t = 0; t < T_; ++t) {
            const long from = t * F_ * V;
            mix(at, answers + from, from);
            for (long k = from; k < from + F_ * V; ++k) {
                const Vector y = call_.mixing == NONE ? answers[k] : call_.mixing == GELU ? shown_[k] : mixed_[k] * gate_[k];
                x[k] = call_.residual ? x[k] + y : y;
            }
        }
    }

    // After `forward`: the gradients of the layer's features become those of the features before it.
    void backward(const R* weights, Vector* dx, Scratch<R>& scratch, R* gradient) {
        const Places<const R> at = places(weights);
        const Places<R> into = places(gradient);
        Vector *of_answers = scratch.of_answers, *of_mixed = scratch.of_mixed, *of_gate = scratch.of_gate;
        const bool full = call_.mixing == FULL_GLU, gated = call_.mixing <= HALF_GLU2;
        if (full) transpose<R>(at.mix, F_, F_, turned_);
        if (gated) transpose<R>(at.gate, F_, F_, turned_ + F_ * F_);
        for (long from = 0; from < T_ * F_ * V; from += F_ * V) unmix(dx + from, from, of_answers, of_mixed, of_gate);
        if (gated) {
            add_outer_of_series<R>(of_gate, F_, shown_, F_, T_, into.gate);
            add_rows<R>(of_gate, F_, T_, into.gate + F_ * F_);
        }
        if (full) {
            add_outer_of_series<R>(of_mixed, F_, shown_, F_, T_, into.mix);
            add_rows<R>(of_mixed, F_, T_, into.mix + F_ * F_);
        }
        read_again(at, scratch.read);
        unit_.backward(weights, scratch.read, of_answers, scratch.of_read, gradient);
        if (call_.norm) {
            add_rows<R>(scratch.of_read, normal_, F_, T_, into.gain);
            add_rows<R>(scratch.of_read, F_, T_, into.gain + F_);
        }
        denormalize(at, scratch.of_read, dx);
    }

private:
    // Where the weights around the unit stand, or their gradients; each bias stands behind its map or gain.
    template <class T> struct Places {
        T *gain, *mix, *gate;
    };

    template <class T> Places<T> places(T* weights) const {
        T* gain = weights + Unit::size(shape_);
        T* mix = gain + (call_.norm ? 2 * F_ : 0);
        return {gain, mix, mix + (call_.mixing == FULL_GLU ? F_ * (F_ + 1) : 0)};
    }

    void normalize(const Vector* x) {
        if (!call_.norm) {
            std::copy(x, x + T_ * F_ * V, normal_ + 0);
            return;
        }
        const R share = R(1) / R(F_);
        for (long t = 0; t < T_; ++t)
            for (int v = 0; v < V; ++v) {
                const Vector* now = x + t * F_ * V + v;
                Vector mean{}, square{};
                for (long f = 0; f < F_; ++f) mean += now[f * V];
                mean *= share;
                for (long f = 0; f < F_; ++f) square += (now[f * V] - mean) * (now[f * V] - mean);
                Vector& scale = scale_[t * V + v];
                for (int lane = 0; lane < Simd<R>::lanes; ++lane)
                    scale[lane] = 1 / std::sqrt(square[lane] * share + R(1e-6));
                for (long f = 0; f < F_; ++f) normal_[(t * F_ + f) * V + v] = (now[f * V] - mean) * scale;
            }
    }

    // What the unit reads, from the normalized features.
    void read_again(const Places<const R>& at, Vector* read) {
        if (!call_.norm) {
            std::copy(normal_ + 0, normal_ + T_ * F_ * V, read);
            return;
        }
        for (long t = 0; t < T_; ++t)
            for (long f = 0; f < F_; ++f)
                for (int v = 0; v < V; ++v) {
                    const long k = (t * F_ + f) * V + v;
                    read[k] = at.gain[f] * normal_[k] + at.gain[F_ + f];
                }
    }

    void mix(const Places<const R>& at, const Vector* answer, long from) {
        if (call_.mixing == NONE) return;
        Vector *shown = shown_ + from, *mixed = mixed_ + from, *gate = gate_ + from;
        for (long k = 0; k < F_ * V; ++k) shown[k] = gelu<R>(answer[k], slope_[from + k]);
        thin(0, shown);
        thin(0, slope_ + from);
        if (call_.mixing == GELU) return;
        rows_times(
            at.gate, F_, F_, shown, [&](long i, int) { return at.gate[F_ * F_ + i] - Vector{}; },
            [&](long i, int v, Vector sum) { gate[i * V + v] = sigmoid<R>(sum); });
        if (call_.mixing == FULL_GLU)
            rows_times(
                at.mix, F_, F_, shown, [&](long i, int) { return at.mix[F_ * F_ + i] - Vector{}; },
                [&](long i, int v, Vector sum) { mixed[i * V + v] = sum; });
        else
            std::copy_n(call_.mixing == HALF_GLU1 ? shown : answer, F_ * V, mixed);
        thin(1, mixed);
    }

    // Drops features of one step at a place.
    void thin(long place, Vector* features) const {
        if (!factors_) return;
        for (long k = 0; k < F_ * V; ++k) features[k] *= factors_[place * F_ * V + k];
    }

    // One step of the gradients of answers, of the mixed features and of the gate before its sigmoid.
    void unmix(const Vector* dy, long from, Vector* of_answers, Vector* of_mixed, Vector* of_gate) {
        Vector* of_answer = of_answers + from;
        if (call_.mixing == NONE) {
            std::copy_n(dy, F_ * V, of_answer);
            return;
        }
        if (call_.mixing == GELU) {
            for (long k = 0; k < F_ * V; ++k) of_answer[k] = dy[k] * slope_[from + k];
            return;
        }
        Vector *mixed = of_mixed + from, *gate = of_gate + from;
        for (long k = 0; k < F_ * V; ++k) {
            const Vector s = gate_[from + k];
            mixed[k] = dy[k] * s;
            gate[k] = dy[k] * mixed_[from + k] * s * (1 - s);
        }
        thin(1, mixed);
        const bool first = call_.mixing == HALF_GLU1;
        rows_times<R>(
            turned_ + F_ * F_, F_, F_, gate, [&](long i, int v) { return first ? mixed[i * V + v] : Vector{}; },
            [&](long i, int v, Vector sum) { of_answer[i * V + v] = sum; });
        if (call_.mixing == FULL_GLU)
            rows_times<R>(
                turned_, F_, F_, mixed, [&](long i, int v) { return of_answer[i * V + v]; },
                [&](long i, int v, Vector sum) { of_answer[i * V + v] = sum; });
        for (long k = 0; k < F_ * V; ++k) {
            of_answer[k] *= slope_[from + k];
            if (call_.mixing == HALF_GLU2) of_answer[k] += mixed[k];
        }
    }

    void denormalize(const Places<const R>& at, const Vector* of_read, Vector* dx) {
        const R share = R(1) / R(F_);
        for (long t = 0; t < T_; ++t)
            for (int v = 0; v < V; ++v) {
                const Vector *grad = of_read + t * F_ * V + v, *normal = normal_ + t * F_ * V + v;
                Vector* to = dx + t * F_ * V + v;
                Vector mean{}, along{};
                if (call_.norm)
                    for (long f = 0; f < F_; ++f) {
                        const Vector e = at.gain[f] * grad[f * V];
                        mean += e;
                        along += e * normal[f * V];
                    }
                mean *= share;
                along *= share;
                for (long f = 0; f < F_; ++f) {
                    const Vector e = call_.norm
                        ? scale_[t * V + v] * (at.gain[f] * grad[f * V] - mean - normal[f * V] * along)
                        : grad[f * V];
                    to[f * V] = call_.residual ? to[f * V] + e : e;
                }
            }
    }

    const StackCall& call_;
    const UnitShape shape_;
    const long T_, F_;
    Unit unit_;
    Buffer<Vector> normal_, scale_, slope_, shown_, mixed_, gate_;  // [T][F][V] each, scale [T][V]
    Buffer<R> turned_;
    const Vector* factors_ = nullptr;
};

template <class R, class Unit> class Stack {
public:
    using Vector = Vec<R>;

    explicit Stack(const StackCall& call)
        : call_(call), gradient_(call.mode != OUTPUTS), T_(call.horizon), F_(call.features),
          scratch_(T_ * F_ * V), features_(T_ * F_ * V), errors_(gradient_ ? T_ * F_ * V : 1),
          turned_(call.outputs * F_) {
        // without a gradient, one layer's room serves all
        for (long layer = 0; layer < (gradient_ ? call.layers : 1); ++layer) layers_.emplace_back(call);
    }

    static long size(const StackCall& call) {
        const long affine = call.features * (call.inputs + 1) + call.outputs * (call.features + 1);
        return affine + call.layers * StackLayer<R, Unit>::size(call);
    }

    // factors: of all layers, or null.
    void forward(const R* weights, const Vector* x, const Vector* factors, Vector* y) {
        const long I = call_.inputs, O = call_.outputs, own = StackLayer<R, Unit>::size(call_);
        for (long t = 0; t < T_; ++t) affine(weights, F_, I, x + t * I * V, features_ + t * F_ * V);
        for (long layer = 0; layer < call_.layers; ++layer) {
            StackLayer<R, Unit>& now = layers_[gradient_ ? layer : 0];
            now.drop(factors ? factors + layer * PLACES * F_ * V : nullptr);
            now.forward(weights + F_ * (I + 1) + layer * own, features_, scratch_);
        }
        for (long t = 0; t < T_; ++t)
            affine(weights + readout(), O, F_, features_ + t * F_ * V, y + t * O * V);
    }

    void backward(const R* weights, const Vector* x, const Vector* dy, R* gradient) {
        const long I = call_.inputs, O = call_.outputs, own = StackLayer<R, Unit>::size(call_);
        R* of_readout = gradient + readout();
        add_outer_of_series<R>(dy, O, features_, F_, T_, of_readout);
        add_rows<R>(dy, O, T_, of_readout + O * F_);
        transpose<R>(weights + readout(), O, F_, turned_);
        for (long t = 0; t < T_; ++t)
            rows_times<R>(
                turned_, F_, O, dy + t * O * V, [](long, int) { return Vector{}; },
                [&](long i, int v, Vector sum) { errors_[(t * F_ + i) * V + v] = sum; });
        for (long layer = call_.layers - 1; layer >= 0; --layer) {
            const long at = F_ * (I + 1) + layer * own;
            layers_[layer].backward(weights + at, errors_, scratch_, gradient + at);
        }
        add_outer_of_series<R>(errors_, F_, x, I, T_, gradient);
        add_rows<R>(errors_, F_, T_, gradient + F_ * I);
    }

private:
    long readout() const { return F_ * (call_.inputs + 1) + call_.layers * StackLayer<R, Unit>::size(call_); }

    // W x + b of one step, b behind W.
    static void affine(const R* map, long rows, long columns, const Vector* x, Vector* y) {
        rows_times(
            map, rows, columns, x, [&](long i, int) { return map[rows * columns + i] - Vector{}; },
            [&](long i, int v, Vector sum) { y[i * V + v] = sum; });
    }

    const StackCall& call_;
    const bool gradient_;
    const long T_, F_;
    Scratch<R> scratch_;
    Buffer<Vector> features_, errors_;
    Buffer<R> turned_;
    std::deque<StackLayer<R, Unit>> layers_;
};

// factors: [N][B][layers][PLACES][F], or null.
template <class R, class Unit> bool run_stack(const StackCall& call, const void* factors) {
    if (call.size != Stack<R, Unit>::size(call)) return false;
    const long B = call.batch, T = call.horizon, I = call.inputs, O = call.outputs, S = call.size;
    const long dropped = call.layers * PLACES * call.features;
    const bool judged = call.mode == LOSS_AND_GRADIENT;
    Stack<R, Unit> stack(call);
    Buffer<Vec<R>> x(T * I * V), y(T * O * V), target(judged ? T * O * V : 1), kept(factors ? dropped * V : 1);
    for (long first = 0; first < B; first += V * Simd<R>::lanes) {
        typename Simd<R>::Int own[V] = {};
        mark<R>(B, first, own);
        pack<R>(static_cast<const R*>(call.x), B, first, T * I, T * I, x);
        if (judged) pack<R>(static_cast<const R*>(call.target), B, first, T * O, T * O, target);
        for (long n = 0; n < call.models; ++n) {
            if (!call.live[n]) continue;
            const R* weights = static_cast<const R*>(call.weights) + n * S;
            R* outer = static_cast<R*>(call.y) + n * B * T * O;
            if (factors) pack<R>(static_cast<const R*>(factors) + n * B * dropped, B, first, dropped, dropped, kept);
            stack.forward(weights, x, factors ? kept + 0 : nullptr, y);
            if (call.mode == OUTPUTS) unpack<R>(y, B, first, T * O, T * O, outer);
            if (judged)
                static_cast<R*>(call.loss)[n] += squared<R>(y, target, static_cast<const R*>(call.squares), T, O, own);
            if (call.mode == PULL) {
                pack<R>(outer, B, first, T * O, T * O, y);
                silence<R>(y, T * O, own);
            }
            if (call.mode != OUTPUTS) stack.backward(weights, x, y, static_cast<R*>(call.gradient) + n * S);
        }
    }
    return true;
}

template <class R> bool choose_stack(const StackCall& call, const void* factors) {
    switch (call.unit) {
        case 0:
            switch (call.sigma) {
                case 0: return run_stack<R, RnnUnit<R, Linear>>(call, factors);
                case 2: return run_stack<R, RnnUnit<R, Tanh>>(call, factors);
                case 3: return run_stack<R, RnnUnit<R, Relu>>(call, factors);
            }
            return false;
        case 1: return run_stack<R, GruUnit<R>>(call, factors);
        case 2: return run_stack<R, LruUnit<R>>(call, factors);
    }
    return false;
}

}  // namespace BLOCKS
