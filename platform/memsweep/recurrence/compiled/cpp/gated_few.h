// Gated layers of few sequences, whose lanes would be empty in the blocks of gated.h: here the lanes are units.
//
// Numbers of a step are [B][K][W], B sequences of up to a block, W the width in whole vectors, zeros beyond the width. Each
// sum has the order that it has in a block, and each step is computed by the same code (LstmCell, GruCell).
#pragma once
#include "gate_panels.h"
#include "gru.h"
#include "lstm.h"

// One model.
template <class R> struct GatedPlaces {
    GatedWeights<const R> weights;
    GatedWeights<R> gradient;
    const R *x, *given;
    R *states, *kept, *carried, *of_x;
};

template <class R, class Cell> class FewGated {
public:
    FewGated(long batch, long count, long horizon, long features, long width, long steps)
        : batch_(batch), B_(count), T_(horizon), F_(features), M_(width), steps_(steps), W_(whole(M_)), X_(whole(F_)),
          gates_(steps * B_ * kept_count * W_), states_((steps + 1) * B_ * W_), cells_((steps + 1) * B_ * W_),
          shown_(steps * B_ * W_), x_(steps * B_ * X_), grads_(steps * B_ * W_), later_(B_ * W_), of_cell_(B_ * W_),
          starts_(kept_count * W_), drive_(1, F_, G, M_, ROWS), step_(1, M_, G, M_, B_), back_(G, M_, 1, M_, B_),
          of_read_(G, M_, 1, F_, ROWS) {}

    long count() const { return B_; }

    void forward(const GatedPlaces<R>& at, long first) {
        drive_.fill(at.weights.encoder, M_ * F_, 1, F_);
        step_.fill(at.weights.matrix, M_ * M_, 1, M_);
        std::fill_n(starts_ + 0, kept_count * W_, R(0));
        for (long g = 0; g < G; ++g) std::copy_n(at.weights.bias + g * M_, M_, starts_ + g * W_);
        if (!cells) std::copy_n(at.weights.recalled, M_, starts_ + G * W_);
        for (int c = 0; c < Cell::carried_count; ++c) std::fill_n(carried(c), B_ * W_, R(0));
        for (long from = 0; from < T_; from += steps_) {
            const long some = std::min(steps_, T_ - from);
            for (int c = 0; at.carried && c < Cell::carried_count; ++c)
                for (long b = 0; b < B_; ++b) std::copy_n(carried(c) + b * W_, M_, of_carried(at, from, c, first + b));
            read(at, first, from, some);
            go(some);
            for (long t = 0; t < some; ++t)
                for (long b = 0; b < B_; ++b) {
                    const long row = t * B_ + b, place = (first + b) * T_ + from + t;
                    std::copy_n(states_ + (row + B_) * W_, M_, at.states + place * M_);
                    for (long g = 0; at.kept && g < kept_count; ++g)
                        std::copy_n(gates_ + (row * kept_count + g) * W_, M_, at.kept + (place * kept_count + g) * M_);
                }
            for (int c = 0; c < Cell::carried_count; ++c)
                std::copy_n(carried(c) + some * B_ * W_, B_ * W_, carried(c));
        }
    }

    void backward(const GatedPlaces<R>& at, long first) {
        back_.fill(at.weights.matrix, 0, M_, 1);
        if (at.of_x) of_read_.fill(at.weights.encoder, 0, F_, 1);
        for (R* each : {later_ + 0, of_cell_ + 0}) std::fill_n(each, B_ * W_, R(0));
        for (long from = (T_ - 1) / steps_ * steps_; from >= 0; from -= steps_) {
            const long some = std::min(steps_, T_ - from);
            for (int c = 0; c < Cell::carried_count; ++c)
                for (long b = 0; b < B_; ++b) widen(of_carried(at, from, c, first + b), M_, carried(c) + b * W_);
            for (long t = 0; t < some; ++t) {
                for (long b = 0; b < B_; ++b) {
                    const long row = t * B_ + b, place = (first + b) * T_ + from + t;
                    for (long g = 0; g < kept_count; ++g)
                        widen(at.kept + (place * kept_count + g) * M_, M_, gates_ + (row * kept_count + g) * W_);
                    widen(at.given + place * M_, M_, grads_ + row * W_);
                }
                move(t);
            }
            read(at, first, from, some);
            for (long t = some - 1; t >= 0; --t) back(t);
            if (at.of_x)
                of_read_.times(
                    {gates_, kept_count * W_, some * B_, G, {0, W_, 2 * W_, 3 * W_}},
                    [](long, long) { return Vector{}; },
                    [&](long row, long c, Vector sum) {
                        R* to = at.of_x + ((first + row % B_) * T_ + from + row / B_) * F_;
                        put<R>(sum, to + c * lanes, F_ - c * lanes);
                    });
            add(at.gradient, some);
        }
    }

private:
    using Vector = Vec<R>;
    using Outer = FewOuter<R>;
    static constexpr long lanes = Simd<R>::lanes, G = Cell::gate_count, kept_count = Cell::kept_count;
    static constexpr bool cells = Cell::carried_count == 2;

    static long whole(long width) { return (width + lanes - 1) / lanes * lanes; }
    static Vector* at(R* numbers) { return reinterpret_cast<Vector*>(numbers); }
    static void widen(const R* from, long width, R* to) {
        std::copy_n(from, width, to);
        std::fill(to + width, to + whole(width), R(0));
    }

    R* carried(int which) { return which ? cells_ : states_; }
    R* of_carried(const GatedPlaces<R>& at, long from, int which, long b) const {
        return at.carried + ((from / steps_ * Cell::carried_count + which) * batch_ + b) * M_;
    }

    void read(const GatedPlaces<R>& at, long first, long from, long some) {
        for (long t = 0; t < some; ++t)
            for (long b = 0; b < B_; ++b) widen(at.x + ((first + b) * T_ + from + t) * F_, F_, x_ + (t * B_ + b) * X_);
    }

    // Some steps forward; the drives of all of them first.
    void go(long some) {
        const long next = kept_count * W_, each = W_ / lanes;
        drive_.times(
            {x_, X_, some * B_}, [&](long, long c) { return *at(starts_ + c * lanes); },
            [&](long row, long c, Vector sum) { *at(gates_ + row * next + c * lanes) = sum; });
        for (long t = 0; t < some; ++t) {
            R* gates = gates_ + t * B_ * next;
            // of a GRU, the last gate's part of U has a row of its own
            const auto place = [&](long c) { return (cells || c < 2 * each ? c : c + each) * lanes; };
            step_.times(
                {states_ + t * B_ * W_, W_, B_},
                [&](long b, long c) {
                    return cells || c < 2 * each ? *at(gates + b * next + c * lanes) : *at(starts_ + place(c));
                },
                [&](long b, long c, Vector sum) { *at(gates + b * next + place(c)) = sum; });
            for (long b = 0; b < B_; ++b) {
                Vector* own = at(gates + b * next);
                if constexpr (cells) Cell::open(own, each);
                else
                    for (long k = 0; k < 2 * each; ++k) own[k] = sigmoid<R>(own[k]);
                for (long k = 0; !cells && k < each; ++k)
                    own[2 * each + k] = candidate(own[2 * each + k], own[k], own[3 * each + k]);
            }
            move(t);
        }
    }

    static Vector candidate(Vector drive, Vector reset, Vector recalled) {
        if constexpr (cells) return Vector{};
        else return Cell::candidate(drive, reset, recalled);
    }

    // One step, from its gates.
    void move(long t) {
        const long each = W_ / lanes;
        for (long row = t * B_; row < (t + 1) * B_; ++row) {
            Vector *gates = at(gates_ + row * kept_count * W_), *now = at(states_ + (row + B_) * W_);
            if constexpr (cells)
                Cell::move(gates, each, at(cells_ + row * W_), at(cells_ + (row + B_) * W_), at(shown_ + row * W_), now);
            else Cell::move(gates, each, at(states_ + row * W_), now);
        }
    }

    // One step back: its gates become errors.
    void back(long t) {
        const long each = W_ / lanes, next = kept_count * W_;
        for (long b = 0; b < B_; ++b) {
            const long row = t * B_ + b;
            Vector *gates = at(gates_ + row * next), *grads = at(grads_ + row * W_), *later = at(later_ + b * W_);
            if constexpr (cells)
                Cell::back(gates, each, at(cells_ + row * W_), at(shown_ + row * W_), grads, later, at(of_cell_ + b * W_));
            else Cell::back(gates, each, at(states_ + row * W_), grads, later);
        }
        Rows<R> errors{gates_ + t * B_ * next, next, B_, G};
        for (long g = 0; g < G; ++g) errors.at[g] = Cell::recurrent[g] * W_;
        back_.times(
            errors, [&](long b, long c) { return cells ? Vector{} : *at(later_ + b * W_ + c * lanes); },
            [&](long b, long c, Vector sum) { *at(later_ + b * W_ + c * lanes) = sum; });
    }

    // The gradients of some steps, from their errors.
    void add(const GatedWeights<R>& into, long some) {
        const long next = kept_count * W_;
        for (long g = 0; g < G; ++g) {
            const R *own = gates_ + g * W_, *recurrent = gates_ + Cell::recurrent[g] * W_;
            // rows that a block multiplies together: of a GRU, r and z, and q alone
            const long rows = cells ? 4 * M_ : g < 2 ? 2 * M_ : M_;
            Outer::add({recurrent, M_, next}, {states_, M_, W_}, B_, some, cached_steps(rows), into.matrix + g * M_ * M_);
            Outer::add({own, M_, next}, {x_, F_, X_}, B_, some, cached_steps(std::max(G * M_, F_)),
                       into.encoder + g * M_ * F_);
            Outer::add_rows({own, M_, next}, B_, some, into.bias + g * M_);
        }
        if (!cells) Outer::add_rows({gates_ + G * W_, M_, next}, B_, some, into.recalled);
    }

    const long batch_, B_, T_, F_, M_, steps_, W_, X_;
    Buffer<R> gates_, states_, cells_, shown_, x_, grads_, later_, of_cell_, starts_;
    GatePanels<R> drive_, step_, back_, of_read_;
};
