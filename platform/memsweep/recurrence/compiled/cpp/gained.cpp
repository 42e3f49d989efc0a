// A recurrence by a dense matrix whose steps have gains of their own, and activations with a threshold.
//
//     h_t = f_t(x_t + V h_{t-1}),   f_t(a) = rho_t sigma(a)   or   (1 - exp(-rho_t a)) sigma(a)
//
// Series stay as they lie in memory, [B][T][M], and the lanes of a vector are units, not sequences: a batch of ten
// wastes nothing, and a step is one product of the states of all sequences with the matrix (panels.h).
//
// Letters: N models, B sequences, T time, M width.
#include "panels.h"

struct GainedCall {
    int64_t work, sigma, kind;      // work: see Work; sigma: 0 linear, 1 hardtanh, 2 tanh, 3 relu, 4 modrelu; kind: see Kind
    int64_t batch, horizon, width;
    int64_t model, models, first, last;  // from which to which model, and of these which sequences, or rows of products
    const void *matrix, *threshold, *gains, *before;  // [N][M][M], [N][M], [N][T], [N][B][M]; the last may be null
    const void* given;  // [N][B][T][M]: the drive; the gradients of the states; of products, those of the drive
    void* inner;        // [N][B][T][M]: pre-activations, written (or null) or read; of products, the states
    void* found;        // [N][B][T][M]: states, or the gradients of the drive; of products sums are added: [N][M][M]
    void *of_threshold, *of_gains, *of_before;        // [N][B][M], [N][B][T], [N][B][M]; each may be null
};

enum Work { FORWARD = 0, BACKWARD = 1, PRODUCTS = 2 };

enum Kind { PLAIN = 0, FACTOR = 1, EXPONENTIAL = 2 };

// 1 - e^{-x}; minus infinity where e^{-x} nears the largest number.
template <class R> inline Vec<R> saturating(Vec<R> x) {
    const R limit = sizeof(R) == 8 ? R(709) : R(88);
    const Vec<R> one = 1 - Vec<R>{}, size = x < 0 ? -x : x;
    const Vec<R> grown = expm1_of_positive<R>(size > limit ? limit - Vec<R>{} : size);  // NaN stays
    return x < 0 ? (size > limit ? -one / Vec<R>{} : -grown) : grown / (grown + 1);
}

// Activations by pre-activation and threshold: value, derivative, and derivative by the threshold.
struct GainedLinear {
    template <class R> static Vec<R> value(Vec<R> a, Vec<R>) { return a; }
    template <class R> static Vec<R> slope(Vec<R>, Vec<R>) { return 1 - Vec<R>{}; }
    template <class R> static Vec<R> by_threshold(Vec<R>) { return Vec<R>{}; }
};

struct GainedHardtanh : GainedLinear {
    template <class R> static Vec<R> value(Vec<R> a, Vec<R>) { return Hardtanh::value<R>(a); }
    template <class R> static Vec<R> slope(Vec<R> a, Vec<R>) { return (a < 1) & (a > -1) ? 1 - Vec<R>{} : Vec<R>{}; }
};

struct GainedTanh : GainedLinear {
    template <class R> static Vec<R> value(Vec<R> a, Vec<R>) { return hyperbolic_tangent<R>(a); }
    template <class R> static Vec<R> slope(Vec<R>, Vec<R> answer) { return 1 - answer * answer; }
};

struct GainedRelu : GainedLinear {
    template <class R> static Vec<R> value(Vec<R> a, Vec<R>) { return Relu::value<R>(a); }
    template <class R> static Vec<R> slope(Vec<R> a, Vec<R>) { return a > 0 ? 1 - Vec<R>{} : Vec<R>{}; }
};

struct ModRelu {
    template <class R> static Vec<R> value(Vec<R> a, Vec<R> threshold) {
        const Vec<R> size = (a < 0 ? -a : a) + threshold;
        return size <= 0 ? Vec<R>{} : a > 0 ? size : a < 0 ? -size : a * size;  // 0, or NaN, which stays
    }
    template <class R> static Vec<R> slope(Vec<R>, Vec<R> answer) { return answer == 0 ? Vec<R>{} : 1 - Vec<R>{}; }
    template <class R> static Vec<R> by_threshold(Vec<R> answer) {
        const Vec<R> one = 1 - Vec<R>{};
        return answer > 0 ? one : answer < 0 ? -one : Vec<R>{};
    }
};

// The gradient of the matrix, sum over sequences and steps of e_t h_{t-1}', rows first ... last of one model's: in an
// order of its own, whatever the rows.
template <class R> class Products {
public:
    Products(const GainedCall& call) : call_(call), panels_(most(call), call.width), turned_(most(call) * call.width) {}

    void add(long model) {
        const long B = call_.batch, T = call_.horizon, M = call_.width;
        const R* errors = static_cast<const R*>(call_.given) + model * B * T * M;
        const R* states = static_cast<const R*>(call_.inner) + model * B * T * M;
        R* into = static_cast<R*>(call_.found) + model * M * M;
        if (call_.before) {
            const R* before = static_cast<const R*>(call_.before) + model * B * M;
            for (long b = 0; b < B; b += DEPTH) some(errors + b * T * M, T * M, before + b * M, std::min(DEPTH, B - b), into);
        }
        for (long b = 0; b < B; ++b)
            for (long t = 1; t < T; t += DEPTH) {
                const long at = (b * T + t) * M;
                some(errors + at, M, states + at - M, std::min(DEPTH, T - t), into);
            }
    }

private:
    static constexpr long DEPTH = 64;  // pairs of e and h at a time: they stay in the cache

    static long most(const GainedCall& call) { return std::min(DEPTH, std::max(call.horizon, call.batch)); }

    void some(const R* errors, long apart, const R* states, long count, R* into) {
        const long M = call_.width, first = call_.first;
        panels_.fill(states, count, M, 1);
        for (long k = 0; k < count; ++k)
            for (long i = first; i < call_.last; ++i) turned_[(i - first) * count + k] = errors[k * apart + i];
        panels_.times(turned_, count, call_.last - first, [&](long row, long column, long left, Vec<R> sum) {
            R* to = into + (first + row) * M + column;
            put<R>(vector_at<R>(to, left) + sum, to, left);
        });
    }

    const GainedCall& call_;
    Panels<R> panels_;
    Buffer<R> turned_;
};

template <class R, class Sigma, int kind> struct Gained {
    using Vector = Vec<R>;

    static const R* some(const void* all, long size, long index) {
        return all ? static_cast<const R*>(all) + size * index : nullptr;
    }
    static R* some(void* all, long size, long index) { return all ? static_cast<R*>(all) + size * index : nullptr; }

    static void run(const GainedCall& call) {
        for (long model = call.model; model < call.models; ++model) {
            if (call.work == BACKWARD) backward(call, model);
            else forward(call, model);
        }
    }

    static void forward(const GainedCall& call, long model) {
        const long T = call.horizon, M = call.width, room = Panels<R>::room(M), count = call.last - call.first;
        const long start = model * call.batch + call.first;
        const R *drive = some(call.given, T * M, start), *before = some(call.before, M, start);
        const R *threshold = some(call.threshold, M, model), *gains = some(call.gains, T, model);
        R *inner = some(call.inner, T * M, start), *found = some(call.found, T * M, start);
        Panels<R> panels(M, M);
        panels.fill(some(call.matrix, M * M, model), M, 1, M);
        Buffer<R> first(count * room), second(count * room);
        R *now = first, *next = second;
        load(before, count, M, now);
        for (long t = 0; t < T; ++t) {
            const R gain = gains ? gains[t] : R(1);
            const auto step = [&](long row, long unit, long left, Vector sum) {
                const long at = (row * T + t) * M + unit;
                const Vector a = vector_at<R>(drive + at, left) + sum;
                const Vector b = threshold ? vector_at<R>(threshold + unit, left) : Vector{};
                Vector h = Sigma::template value<R>(a, b);
                if (kind == FACTOR) h *= gain;
                if (kind == EXPONENTIAL) h *= saturating<R>(gain * a);
                if (inner) put<R>(a, inner + at, left);
                put<R>(h, found + at, left);
                put<R>(h, next + row * room + unit, Simd<R>::lanes);
            };
            if (t || before) panels.times(now, room, count, step);
            else each(count, M, step);
            std::swap(now, next);
        }
    }

    static void backward(const GainedCall& call, long model) {
        const long T = call.horizon, M = call.width, room = Panels<R>::room(M), count = call.last - call.first;
        const long start = model * call.batch + call.first;
        const R *outer = some(call.given, T * M, start), *inner = some(const_cast<const void*>(call.inner), T * M, start);
        const R *threshold = some(call.threshold, M, model), *gains = some(call.gains, T, model);
        R *found = some(call.found, T * M, start), *of_before = some(call.of_before, M, start);
        R *of_threshold = some(call.of_threshold, M, start), *of_gains = some(call.of_gains, T, start);
        Panels<R> panels(M, M);
        panels.fill(some(call.matrix, M * M, model), M, M, 1);
        Buffer<R> first(count * room), second(count * room), thresholds(count * room);
        Buffer<Vector> by_gain(count);
        R *now = first, *next = second;
        load(nullptr, count, M, thresholds);
        load(nullptr, count, M, now);
        for (long t = T - 1; t >= 0; --t) {
            const R gain = gains ? gains[t] : R(1);
            std::fill(by_gain + 0, by_gain + count, Vector{});
            const auto step = [&](long row, long unit, long left, Vector sum) {
                const long at = (row * T + t) * M + unit;
                const Vector g = vector_at<R>(outer + at, left) + sum, a = vector_at<R>(inner + at, left);
                const Vector b = threshold ? vector_at<R>(threshold + unit, left) : Vector{};
                const Vector answer = Sigma::template value<R>(a, b);
                Vector slope = Sigma::template slope<R>(a, answer), scaled = g;
                if (kind == FACTOR) {
                    if (of_gains) by_gain[row] += g * answer;
                    scaled *= gain;
                }
                if (kind == EXPONENTIAL) {
                    const Vector factor = saturating<R>(gain * a), rest = (1 - factor) * answer;
                    if (of_gains) by_gain[row] += g * (a * rest);
                    scaled *= factor;
                    slope = factor * slope + gain * rest;
                }
                const Vector e = slope * (kind == EXPONENTIAL ? g : scaled);
                if (of_threshold) {
                    const Vector sum = vector_at<R>(thresholds + row * room + unit, Simd<R>::lanes);
                    const Vector more = sum + Sigma::template by_threshold<R>(answer) * scaled;
                    put<R>(more, thresholds + row * room + unit, Simd<R>::lanes);
                }
                put<R>(e, found + at, left);
                put<R>(e, next + row * room + unit, Simd<R>::lanes);
            };
            if (t < T - 1) panels.times(now, room, count, step);
            else each(count, M, step);
            if (of_gains)
                for (long row = 0; row < count; ++row) of_gains[row * T + t] = sum<R>(by_gain[row]);
            std::swap(now, next);
        }
        if (of_before)
            panels.times(now, room, count, [&](long row, long unit, long left, Vector sum) {
                put<R>(sum, of_before + row * M + unit, left);
            });
        if (of_threshold)
            for (long row = 0; row < count; ++row) std::copy_n(thresholds + row * room, M, of_threshold + row * M);
    }

private:
    static void load(const R* rows, long count, long width, R* to) {
        const long room = Panels<R>::room(width);
        std::fill(to, to + count * room, R(0));
        if (rows)
            for (long row = 0; row < count; ++row) std::copy_n(rows + row * width, width, to + row * room);
    }

    // A step from states of zero.
    template <class Step> static void each(long count, long width, Step step) {
        for (long row = 0; row < count; ++row)
            for (long unit = 0; unit < width; unit += Simd<R>::lanes) step(row, unit, width - unit, Vector{});
    }
};

template <class R, class Sigma> bool run_gained(const GainedCall& call) {
    switch (call.kind) {
        case PLAIN: Gained<R, Sigma, PLAIN>::run(call); return true;
        case FACTOR: Gained<R, Sigma, FACTOR>::run(call); return true;
        case EXPONENTIAL: Gained<R, Sigma, EXPONENTIAL>::run(call); return true;
    }
    return false;
}

template <class R> bool choose_gained(const GainedCall& call) {
    if (call.work == PRODUCTS) {
        Products<R> products(call);
        for (long model = call.model; model < call.models; ++model) products.add(model);
        return true;
    }
    switch (call.sigma) {
        case 0: return run_gained<R, GainedLinear>(call);
        case 1: return run_gained<R, GainedHardtanh>(call);
        case 2: return run_gained<R, GainedTanh>(call);
        case 3: return run_gained<R, GainedRelu>(call);
        case 4: return run_gained<R, ModRelu>(call);
    }
    return false;
}

// What Python calls (gained.py), for some sequences of one model.
// 0: done; 1: there is no such recurrence; 2: no memory.
extern "C" int memsweep_gained(const GainedCall* call) try {
    return choose_gained<REAL>(*call) ? 0 : 1;
} catch (const std::bad_alloc&) {
    return 2;
}
