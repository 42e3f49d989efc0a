// A residual stack without an encoder: the unit of its first layer reads the inputs, and nothing is added to its layer.
//
//     x <- mixing(unit(u)),   x <- x + mixing(unit(norm(x))) in each further layer,   y = W_out x + b
//
// Further layers are those of stack.h, and so are blocks. See memsweep/models/deep/no_encoder.
#pragma once
#include "stack.h"

inline namespace BLOCKS {

// A unit that answers what it reads: a layer around it is what stands behind the answers of another.
template <class R> class Passing {
public:
    using Vector = Vec<R>;

    explicit Passing(const UnitShape& shape) : count_(shape.horizon * shape.features * V) {}
    static long size(const UnitShape&) { return 0; }
    const Vector* forward(const R*, const Vector* read) { return read; }
    void backward(const R*, const Vector*, const Vector* grads, Vector* of_read, R*) { std::copy_n(grads, count_, of_read); }

private:
    const long count_;
};

// Tells the stack whose first unit reads the inputs from the one of stack.h.
template <class Unit> struct OfInputs {};

template <class R, class Unit> class Stack<R, OfInputs<Unit>> {
public:
    using Vector = Vec<R>;

    explicit Stack(const StackCall& call)
        : call_(call), bare_(bare(call)), gradient_(call.mode != OUTPUTS), T_(call.horizon), F_(call.features),
          unit_(first_shape(call)), behind_(bare_), scratch_(T_ * F_ * V), features_(T_ * F_ * V),
          errors_(gradient_ ? T_ * F_ * V : 1), turned_(call.outputs * F_) {
        // without a gradient, one layer's room serves all
        for (long layer = 1; layer < (gradient_ ? call.layers : std::min<long>(call.layers, 2)); ++layer)
            layers_.emplace_back(call);
    }

    static long size(const StackCall& call) {
        return first_size(call) + (call.layers - 1) * StackLayer<R, Unit>::size(call) + call.outputs * (call.features + 1);
    }

    // factors: of all layers, or null.
    void forward(const R* weights, const Vector* x, const Vector* factors, Vector* y) {
        const long O = call_.outputs, own = StackLayer<R, Unit>::size(call_);
        std::copy_n(unit_.forward(weights, x), T_ * F_ * V, features_ + 0);
        if (call_.mixing != NONE) {
            behind_.drop(factors);
            behind_.forward(weights + Unit::size(first_shape(call_)), features_, scratch_);
        }
        for (long layer = 1; layer < call_.layers; ++layer) {
            StackLayer<R, Unit>& now = layers_[gradient_ ? layer - 1 : 0];
            now.drop(factors ? factors + layer * PLACES * F_ * V : nullptr);
            now.forward(weights + first_size(call_) + (layer - 1) * own, features_, scratch_);
        }
        const R* map = weights + readout();
        for (long t = 0; t < T_; ++t)
            rows_times(
                map, O, F_, features_ + t * F_ * V, [&](long i, int) { return map[O * F_ + i] - Vector{}; },
                [&](long i, int v, Vector sum) { y[(t * O + i) * V + v] = sum; });
    }

    void backward(const R* weights, const Vector* x, const Vector* dy, R* gradient) {
        const long O = call_.outputs, own = StackLayer<R, Unit>::size(call_);
        R* of_readout = gradient + readout();
        add_outer_of_series<R>(dy, O, features_, F_, T_, of_readout);
        add_rows<R>(dy, O, T_, of_readout + O * F_);
        transpose<R>(weights + readout(), O, F_, turned_);
        for (long t = 0; t < T_; ++t)
            rows_times<R>(
                turned_, F_, O, dy + t * O * V, [](long, int) { return Vector{}; },
                [&](long i, int v, Vector sum) { errors_[(t * F_ + i) * V + v] = sum; });
        for (long layer = call_.layers - 1; layer >= 1; --layer) {
            const long at = first_size(call_) + (layer - 1) * own;
            layers_[layer - 1].backward(weights + at, errors_, scratch_, gradient + at);
        }
        const long at = Unit::size(first_shape(call_));
        if (call_.mixing != NONE) behind_.backward(weights + at, errors_, scratch_, gradient + at);
        unit_.backward(weights, x, errors_, nullptr, gradient);
    }

private:
    static UnitShape first_shape(const StackCall& call) {
        return {call.horizon, call.inputs, call.width, call.normalized != 0};
    }

    static StackCall bare(StackCall call) {
        call.norm = call.residual = 0;
        return call;
    }

    static long first_size(const StackCall& call) {
        return Unit::size(first_shape(call)) + StackLayer<R, Passing<R>>::size(bare(call));
    }

    long readout() const { return first_size(call_) + (call_.layers - 1) * StackLayer<R, Unit>::size(call_); }

    const StackCall& call_;
    const StackCall bare_;
    const bool gradient_;
    const long T_, F_;
    Unit unit_;
    StackLayer<R, Passing<R>> behind_;
    Scratch<R> scratch_;
    Buffer<Vector> features_, errors_;
    Buffer<R> turned_;
    std::deque<StackLayer<R, Unit>> layers_;  // those after the first
};

// Of units that answer with their states.
template <class R> bool choose_stack_of_inputs(const StackCall& call, const void* factors) {
    return call.unit == 1 && run_stack<R, OfInputs<GruUnit<R>>>(call, factors);
}

}  // namespace BLOCKS
