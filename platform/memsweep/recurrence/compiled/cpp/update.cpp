// One step of an optimizer over the flat weights of an ensemble: penalty, watch over finite numbers, clip, update; see
// memsweep/learning/training/update.py. Each row is computed by itself, in a fixed order.
//
// Letters: P rows, of which the first are replicas and the others stay what they are; S numbers of a row; K groups of
// weights with settings of their own, the first of them the training's; E entries that are watched against their weight.
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace {

enum Kind { ADAM = 0, ADAMW = 1, RMSPROP = 2 };

struct UpdateCall {
    int64_t kind, rows, replicas, size, groups, entries;
    double penalty, clip, factor;    // of the amplitudes' squares; largest norm, 0: none; of all learning rates
    double beta1, beta2;             // decay factors of the running means; beta2 alone: RMSprop
    double of_mean, of_square;       // what the means of the gradient and of its square are divided by
    double epsilon;
    const void *weights, *loss;      // [P][S], [P]
    void* gradient;                  // [P][S]; the penalty's is added
    const uint8_t *exists, *amplitudes;  // [P][S], padding is 0; [S], what pays the penalty
    const void *rates, *plateau;     // [P][K], [P]: learning rates, and what they are multiplied by
    const double* decay;             // [K]
    const int64_t *column, *entry;   // [S]: the group of each number; null: all are of the first; [E]: where they stand
    void *mean, *square, *moved;     // [P][S]: the optimizer's state (no mean: RMSprop), the next weights
    void* largest;                   // [P]: the largest |gradient / weight| of the entries so far
    uint8_t *running, *diverged;     // [P]
    int64_t* steps;                  // [P]
};

template <class R> class Step {
public:
    Step(const UpdateCall& call, long row)
        : call_(call), row_(row), size_(call.size), weights_(at<const R>(call.weights)), gradient_(at<R>(call.gradient)),
          exists_(call.exists + row * call.size) {}

    void run() {
        if (call_.penalty) add_penalty();
        uint8_t &running = call_.running[row_], &diverged = call_.diverged[row_];
        const bool replica = row_ < call_.replicas;
        if (replica && running) watch_ratio();
        const bool healthy = std::isfinite(static_cast<const R*>(call_.loss)[row_]) && finite();
        diverged |= running && !healthy;
        running &= healthy;
        call_.steps[row_] += running;
        if (!replica) std::copy_n(weights_, size_, at<R>(call_.moved));
        else if (running) move<true>(clip());
        else move<false>(0);
    }

private:
    template <class T> T* at(const void* all) const { return const_cast<T*>(static_cast<const R*>(all) + row_ * size_); }

    void add_penalty() {
        const R twice = R(2 * call_.penalty);
        for (long i = 0; i < size_; ++i) gradient_[i] += call_.amplitudes[i] ? twice * weights_[i] : R(0);
    }

    void watch_ratio() {
        R& largest = static_cast<R*>(call_.largest)[row_];
        for (long k = 0; k < call_.entries; ++k) {
            const long i = call_.entry[k];
            const R ratio = std::abs(gradient_[i] / weights_[i]);
            if (exists_[i] && ratio > largest) largest = ratio;  // 0/0: a dead mode has no ratio
        }
    }

    bool finite() const {
        R zero = 0;  // a finite number times 0 is 0, any other one's product is NaN
        for (long i = 0; i < size_; ++i) zero += gradient_[i] * 0;
        return zero == 0;
    }

    // What a gradient of a larger norm is multiplied by. In double: squares beyond 1e38 overflow in float.
    R clip() const {
        if (!call_.clip) return 1;
        constexpr long parts = 8;
        double sums[parts] = {};
        for (long i = 0; i < size_; i += parts)
            for (long k = 0; k < std::min(parts, size_ - i); ++k) {
                const double number = exists_[i + k] ? double(gradient_[i + k]) : 0;
                sums[k] += number * number;
            }
        double total = 0;
        for (double part : sums) total += part;
        return R(std::min(1.0, call_.clip / std::sqrt(total)));
    }

    template <bool live> void move(R scale) {
        const R* rates = static_cast<const R*>(call_.rates) + row_ * call_.groups;
        const R common = R(call_.factor) * static_cast<const R*>(call_.plateau)[row_];
        switch (call_.kind) {
            case ADAM: return update<ADAM, live>(scale, rates, common);
            case ADAMW: return update<ADAMW, live>(scale, rates, common);
            default: return update<RMSPROP, live>(scale, rates, common);
        }
    }

    template <int kind, bool live> void update(R scale, const R* rates, R common) {
        const R beta1 = R(call_.beta1), fresh1 = R(1 - call_.beta1), beta2 = R(call_.beta2), fresh2 = R(1 - call_.beta2);
        const R of_mean = R(call_.of_mean), of_square = R(call_.of_square), epsilon = R(call_.epsilon);
        R *means = kind == RMSPROP ? nullptr : at<R>(call_.mean), *squares = at<R>(call_.square);
        R* moved = at<R>(call_.moved);
        for (long i = 0; i < size_; ++i) {
            const long group = call_.column ? call_.column[i] : 0;
            const R weight = weights_[i], decay = R(call_.decay[group]), rate = rates[group] * common;
            const bool moves = live && exists_[i];
            R gradient = moves ? scale * gradient_[i] : R(0);
            if (kind != ADAMW) gradient += moves ? decay * weight : R(0);
            const R square = squares[i] = beta2 * squares[i] + fresh2 * gradient * gradient;
            const R root = std::sqrt(square) / of_square + epsilon;
            R direction = gradient / root;
            if (kind != RMSPROP) {
                const R mean = means[i] = beta1 * means[i] + fresh1 * gradient;
                direction = mean / root / of_mean;
            }
            if (kind == ADAMW) direction += decay * weight;
            moved[i] = moves ? weight - direction * rate : weight;
        }
    }

    const UpdateCall& call_;
    const long row_, size_;
    const R* weights_;
    R* gradient_;
    const uint8_t* exists_;
};

}  // namespace

// What Python calls (update.py). 0: done.
extern "C" int memsweep_update(const UpdateCall* call) {
    for (long row = 0; row < call->rows; ++row) Step<REAL>(*call, row).run();
    return 0;
}
