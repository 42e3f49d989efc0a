// Diagonal layers whose decay is a function of the input, from the input to the answer and back; see
// memsweep/recurrence/selective/gated.py.
//
//     h_t = a_t h_{t-1} + b_t,   y_t = R h_t + d x_t,   a_t and b_t functions of W x_t + b of the gates
//
// The sequences of a model stand behind one another: rows, taken a chunk at a time, whatever sequences they belong to. The
// lanes of a vector are units, so that one sequence wastes nothing. The drives W x + b and the states before each chunk
// are kept; gates and states are computed once more on the way back, and never leave the cache.
//
// Letters: N models, B sequences, T time, F features, M width, G gates with the candidate (the last), W the width in whole
// vectors, Q numbers of a gate in a row of drives, C = G Q.
#include <cmath>
#include <limits>

#include "panels.h"
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

constexpr int MOST_GATES = 3;

// Up to a vector of numbers, zeros behind them, and back: by masks where the processor has them, else as panels.h has
// it, whose copies of a part of a vector cost more than a step of a narrow layer.
#if defined(__AVX512F__)
constexpr bool MASKS = true;
inline unsigned first_lanes(long count, int lanes) { return count < lanes ? (1u << count) - 1 : ~0u; }
inline Vec<float> some_at(const float* from, long count) {
    return _mm512_maskz_loadu_ps(first_lanes(count, 16), from);
}
inline Vec<double> some_at(const double* from, long count) {
    return _mm512_maskz_loadu_pd(first_lanes(count, 8), from);
}
inline void put_some(Vec<float> vector, float* to, long count) {
    _mm512_mask_storeu_ps(to, first_lanes(count, 16), vector);
}
inline void put_some(Vec<double> vector, double* to, long count) {
    _mm512_mask_storeu_pd(to, first_lanes(count, 8), vector);
}
#else
constexpr bool MASKS = false;
template <class R> inline Vec<R> some_at(const R* from, long count) { return vector_at<R>(from, count); }
template <class R> inline void put_some(Vec<R> vector, R* to, long count) { put<R>(vector, to, count); }
#endif

struct SelectiveLayerCall {
    int64_t backward, unit, models, batch, horizon, features, width, kept_numbers, chunk;
    const void *read, *given;                                  // x, and gradients of the answers: [N][B][T][F]
    const void *encoder[MOST_GATES], *bias[MOST_GATES];        // [N][M][F], [N][M]; null where there are fewer gates
    const void *decay, *readout, *skip;                        // [N][M] or null, [N][F][M], [N][F]
    void *kept, *answers, *of_read;                            // [N][kept_numbers] or null; [N][B][T][F]
    void *of_encoder[MOST_GATES], *of_bias[MOST_GATES], *of_decay, *of_readout, *of_skip;
};

// sigma(x) and sigma(-x), both with all their digits; 0 where e^x nears the largest number.
template <class R> inline void shares(Vec<R> x, Vec<R>& share, Vec<R>& rest) {
    const R limit = sizeof(R) == 8 ? R(709) : R(88);
    const Vec<R> size = x < 0 ? -x : x, one = 1 - Vec<R>{};
    const Vec<R> grown = expm1_of_positive<R>(size > limit ? limit - Vec<R>{} : size);  // NaN stays
    const Vec<R> inverse = one / (grown + 2), less = size > limit ? Vec<R>{} : inverse, more = (grown + 1) * inverse;
    share = x < 0 ? less : more;
    rest = x < 0 ? more : less;
}

// A unit says a and b by its drives, and what it keeps of a step; then the gradients of the drives, from those of h_t and
// h_{t-1}. `rate` is a function of the trained decay.
struct MinGRU {  // a = 1 - z, b = z u
    static constexpr int gates = 2, kept = 2;
    template <class R> static R rate(R) { return 0; }
    template <class R> static R of_decay(R, R) { return 0; }
    template <class R> static void go(const Vec<R>* drive, Vec<R>, Vec<R>& a, Vec<R>& b, Vec<R>* kept) {
        shares<R>(drive[0], kept[0], kept[1]);
        a = kept[1];
        b = kept[0] * drive[1];
    }
    template <class R>
    static void back(const Vec<R>* drive, Vec<R>, const Vec<R>* kept, Vec<R> g, Vec<R> before, Vec<R>* of, Vec<R>&) {
        of[0] = g * (drive[1] - before) * (kept[0] * kept[1]);
        of[1] = g * kept[0];
    }
};

struct MinLSTM {  // a = f / (f + i), b = i / (f + i) u
    static constexpr int gates = 3, kept = 4;
    template <class R> static R rate(R) { return 0; }
    template <class R> static R of_decay(R, R) { return 0; }
    template <class R> static void go(const Vec<R>* drive, Vec<R>, Vec<R>& a, Vec<R>& b, Vec<R>* kept) {
        Vec<R> forget, input;
        shares<R>(drive[0], forget, kept[0]);
        shares<R>(drive[1], input, kept[1]);
        const Vec<R> both = forget + input;
        a = kept[2] = forget / both;
        kept[3] = input / both;
        b = kept[3] * drive[2];
    }
    template <class R>
    static void back(const Vec<R>* drive, Vec<R>, const Vec<R>* kept, Vec<R> g, Vec<R> before, Vec<R>* of, Vec<R>&) {
        const Vec<R> of_share = g * (before - drive[2]) * (kept[2] * kept[3]);
        of[0] = of_share * kept[0];
        of[1] = -of_share * kept[1];
        of[2] = g * kept[3];
    }
};

struct HGRN {  // 1 - a = sigma(-Lambda) sigma(-f), b = (1 - a) silu(u)
    static constexpr int gates = 2, kept = 5;
    template <class R> static R rate(R decay) { return 1 / (1 + std::exp(decay)); }
    template <class R> static R of_decay(R decay, R rate) { return -rate / (1 + std::exp(-decay)); }
    template <class R> static void go(const Vec<R>* drive, Vec<R> rate, Vec<R>& a, Vec<R>& b, Vec<R>* kept) {
        Vec<R> share, rest;
        shares<R>(drive[0], kept[0], kept[1]);
        shares<R>(drive[1], share, rest);
        kept[2] = rate * kept[1];
        kept[3] = drive[1] * share;
        kept[4] = share * (1 + drive[1] * rest);
        a = 1 - kept[2];
        b = kept[2] * kept[3];
    }
    template <class R>
    static void back(const Vec<R>*, Vec<R>, const Vec<R>* kept, Vec<R> g, Vec<R> before, Vec<R>* of, Vec<R>& of_rate) {
        const Vec<R> of_new = g * (kept[3] - before);
        of_rate += of_new * kept[1];
        of[0] = -of_new * kept[2] * kept[0];
        of[1] = g * kept[2] * kept[4];
    }
};

struct RGLRU {  // log a = -rate r, b = sqrt(1 - a^2) i u, rate = 8 softplus(-Lambda)
    static constexpr int gates = 3, kept = 6;
    template <class R> static R rate(R decay) {  // from 20 on softplus is the identity, as torch has it
        return 8 * (decay < -20 ? -decay : decay < 0 ? std::log1p(std::exp(decay)) - decay : std::log1p(std::exp(-decay)));
    }
    template <class R> static R of_decay(R decay, R) { return decay < -20 ? -8 : -8 / (1 + std::exp(decay)); }
    template <class R> static void go(const Vec<R>* drive, Vec<R> rate, Vec<R>& a, Vec<R>& b, Vec<R>* kept) {
        shares<R>(drive[0], kept[0], kept[1]);
        shares<R>(drive[1], kept[2], kept[3]);
        const R limit = sizeof(R) == 8 ? R(709) : R(88);
        const Vec<R> exponent = rate * kept[0];
        const Vec<R> grown = expm1_of_positive<R>(exponent > limit ? limit - Vec<R>{} : exponent);  // NaN stays
        a = kept[4] = 1 / (grown + 1);
        kept[5] = root(grown * a * (1 + a));  // 1 - a^2 without its cancellation near a = 1
        b = kept[5] * kept[2] * drive[2];
    }
    template <class R>
    static void back(const Vec<R>* drive, Vec<R> rate, const Vec<R>* kept, Vec<R> g, Vec<R> before, Vec<R>* of,
                     Vec<R>& of_rate) {
        const Vec<R> a = kept[4], scaled = g * kept[2], by_input = g * kept[5];
        const Vec<R> of_exponent = scaled * drive[2] * (a * a / kept[5]) - g * before * a, by_rate = of_exponent * kept[0];
        of_rate += by_rate;
        of[0] = by_rate * rate * kept[1];
        of[1] = by_input * drive[2] * (kept[2] * kept[3]);
        of[2] = scaled * kept[5];
    }
    template <class V> static V root(V x) {
        V found;
        for (unsigned lane = 0; lane < sizeof(V) / sizeof(x[0]); ++lane) found[lane] = std::sqrt(x[lane]);
        return found;
    }
};

// A matrix in panels of up to COLUMNS vectors, as panels.h has them, but for the last one: it has the vectors that are left,
// so that a narrow layer multiplies by few zeros. Each number is summed over the matrix's rows in their order.
template <class R> class Narrow {
public:
    Narrow(long most_rows, long width)
        : width_(width), vectors_((width + lanes - 1) / lanes), numbers_(vectors_ * lanes * most_rows) {}

    // Entry (row, column) is matrix[row * down + column * right].
    void fill(const R* matrix, long rows, long down, long right) {
        rows_ = rows;
        for (long first = 0; first < vectors_; first += COLUMNS) {
            const long across = std::min<long>(COLUMNS, vectors_ - first) * lanes, start = first * lanes;
            const long count = std::min(across, width_ - start);
            for (long j = 0; j < rows; ++j) {
                R* to = numbers_ + start * rows + j * across;
                const R* from = matrix + j * down + start * right;
                if (right == 1) std::copy_n(from, count, to);
                else
                    for (long c = 0; c < count; ++c) to[c] = from[c * right];
                std::fill(to + count, to + across, R(0));
            }
        }
    }

    // finish(i, column, how many columns from there on, sum over j of left[i][j] times row j of the matrix), i < count;
    // left: rows that are `stride` numbers apart; Turned: columns that are so.
    template <bool Turned = false, class Finish> void times(const R* left, long stride, long count, Finish finish) {
        for (long first = 0; first < vectors_; first += COLUMNS) {
            const R* panel = numbers_ + first * lanes * rows_;
            switch (std::min<long>(COLUMNS, vectors_ - first)) {
                case 1: panel_times<1, Turned>(panel, left, stride, count, first, finish); break;
                case 2: panel_times<2, Turned>(panel, left, stride, count, first, finish); break;
                case 3: panel_times<3, Turned>(panel, left, stride, count, first, finish); break;
                default: panel_times<COLUMNS, Turned>(panel, left, stride, count, first, finish);
            }
        }
    }

private:
    static constexpr long lanes = Simd<R>::lanes;

    template <int K, bool Turned, class Finish>
    void panel_times(const R* panel, const R* left, long stride, long count, long first, Finish& finish) {
        constexpr int U = K == 1 ? 8 : ROWS;  // enough sums that none waits for itself
        const long next = Turned ? 1 : stride;
        long i = 0;
        for (; i + U <= count; i += U) tile<U, K, Turned>(panel, left + i * next, stride, i, first, finish);
        for (; i + 2 <= count; i += 2) tile<2, K, Turned>(panel, left + i * next, stride, i, first, finish);
        for (; i < count; ++i) tile<1, K, Turned>(panel, left + i * next, stride, i, first, finish);
    }

    template <int U, int K, bool Turned, class Finish>
    void tile(const R* panel, const R* left, long stride, long row, long first, Finish& finish) {
        Vec<R> acc[U][K];
        sums<U, K, Turned>(panel, left, stride, acc);
        for (int u = 0; u < U; ++u)
            for (int c = 0; c < K; ++c) {
                const long column = (first + c) * lanes;
                finish(row + u, column, width_ - column, acc[u][c]);
            }
    }

    template <int U, int K, bool Turned>
    __attribute__((noinline)) void sums(const R* panel, const R* left, long stride, Vec<R> (&found)[U][K]) {
        const Vec<R>* columns = reinterpret_cast<const Vec<R>*>(panel);
        Vec<R> acc[U][K] = {};
        for (long j = 0; j < rows_; ++j)
            for (int u = 0; u < U; ++u)
                for (int c = 0; c < K; ++c)
                    acc[u][c] += (Turned ? left[j * stride + u] : left[u * stride + j]) * columns[j * K + c];
        for (int u = 0; u < U; ++u)
            for (int c = 0; c < K; ++c) found[u][c] = acc[u][c];
    }

    long width_, vectors_, rows_ = 0;
    Buffer<R> numbers_;
};

template <class R, class Unit> class SelectiveLayer {
public:
    explicit SelectiveLayer(const SelectiveLayerCall& call)
        : call_(call), rows_(call.batch * call.horizon), T(call.horizon), F(call.features), M(call.width),
          W((M + lanes - 1) / lanes * lanes), Q(MASKS ? M : W), C(G * Q),
          L(std::max(1L, std::min<long>(call.chunk, rows_))), joined_(C * F), of_joined_(C * F), biases_(C), rates_(W),
          of_readout_(F * M), of_skip_(F), sums_((G + 1) * W / lanes), state_(W), grad_(W), drives_(L * C),
          states_((L + 1) * W), outer_(L * W), of_drives_(L * C), steps_(L * Unit::kept), decays_(L), by_drive_(F, C),
          by_state_(M, F), back_(F, M), by_of_drive_(C, F), of_state_(L, M), of_input_(L, F) {}

    void run(long model) {
        copy_weights(model);
        const R *read = some(call_.read, rows_ * F, model), *given = some(call_.given, rows_ * F, model);
        kept_ = some(call_.kept, call_.kept_numbers, model);
        if (!call_.backward) {
            std::fill_n(state_ + 0, W, R(0));
            for (long first = 0; first < rows_; first += L) forward(read, some(call_.answers, rows_ * F, model), first);
            return;
        }
        std::fill_n(of_joined_ + 0, C * F, R(0));
        std::fill_n(of_readout_ + 0, F * M, R(0));
        std::fill_n(of_skip_ + 0, F, R(0));
        std::fill_n(sums_ + 0, (G + 1) * W / lanes, Vec<R>{});
        std::fill_n(grad_ + 0, W, R(0));
        for (long first = (rows_ - 1) / L * L; first >= 0; first -= L)
            backward(read, given, some(call_.of_read, rows_ * F, model), first);
        write_gradients(model);
    }

private:
    static constexpr long G = Unit::gates, lanes = Simd<R>::lanes;

    static const R* some(const void* all, long size, long index) {
        return all ? static_cast<const R*>(all) + size * index : nullptr;
    }
    static R* some(void* all, long size, long index) { return all ? static_cast<R*>(all) + size * index : nullptr; }

    static Vec<R> at(const R* from) { return vector_at<R>(from, lanes); }
    static void set(Vec<R> value, R* to) { put<R>(value, to, lanes); }

    void copy_weights(long model) {
        std::fill_n(joined_ + 0, C * F, R(0));
        std::fill_n(biases_ + 0, C, R(0));
        for (long g = 0; g < G; ++g) {
            std::copy_n(some(call_.encoder[g], M * F, model), M * F, joined_ + g * Q * F);
            std::copy_n(some(call_.bias[g], M, model), M, biases_ + g * Q);
        }
        const R *decay = some(call_.decay, M, model), *readout = some(call_.readout, F * M, model);
        for (long m = 0; m < W; ++m) rates_[m] = Unit::rate(decay && m < M ? decay[m] : R(0));
        skip_ = some(call_.skip, F, model);
        if (call_.backward) {
            back_.fill(readout, F, M, 1);
            by_of_drive_.fill(joined_, C, F, 1);
        } else {
            by_drive_.fill(joined_, F, 1, F);
            by_state_.fill(readout, M, 1, M);
        }
    }

    void write_gradients(long model) {
        for (long g = 0; g < G; ++g) {
            std::copy_n(of_joined_ + g * Q * F, M * F, some(call_.of_encoder[g], M * F, model));
            std::copy_n(numbers(sums_ + g * W / lanes), M, some(call_.of_bias[g], M, model));
        }
        std::copy_n(of_readout_ + 0, F * M, some(call_.of_readout, F * M, model));
        std::copy_n(of_skip_ + 0, F, some(call_.of_skip, F, model));
        if (!call_.of_decay) return;
        const R *of_rate = numbers(sums_ + G * W / lanes), *decay = some(call_.decay, M, model);
        R* found = some(call_.of_decay, M, model);
        for (long m = 0; m < M; ++m) found[m] = of_rate[m] * Unit::of_decay(decay[m], rates_[m]);
    }

    static const R* numbers(const Vec<R>* vectors) { return reinterpret_cast<const R*>(vectors); }

    // What is kept of a model: drives of all rows, then states before all chunks.
    R* kept_state(long first) const { return kept_ + rows_ * C + first / L * W; }

    void forward(const R* read, R* answers, long first) {
        const long count = std::min(L, rows_ - first);
        R* drives = kept_ ? kept_ + first * C : drives_ + 0;
        by_drive_.times(read + first * F, F, count, [&](long row, long column, long left, Vec<R> sum) {
            put_some(sum + some_at(biases_ + column, left), drives + row * C + column, left);
        });
        if (kept_) std::copy_n(state_ + 0, W, kept_state(first));
        for (long m = 0; m < W; m += lanes) {
            Vec<R> drive[G], a, b, kept[Unit::kept], state = at(state_ + m);
            const Vec<R> rate = at(rates_ + m);
            for (long row = 0, t = first % T; row < count; ++row, t = t + 1 == T ? 0 : t + 1) {
                for (long g = 0; g < G; ++g) drive[g] = some_at(drives + row * C + g * Q + m, Q - m);
                Unit::template go<R>(drive, rate, a, b, kept);
                state = t ? a * state + b : b;
                set(state, states_ + (row + 1) * W + m);
            }
            set(state, state_ + m);
        }
        by_state_.times(states_ + W, W, count, [&](long row, long column, long left, Vec<R> sum) {
            const long place = (first + row) * F + column;
            put_some(sum + some_at(skip_ + column, left) * some_at(read + place, left), answers + place, left);
        });
    }

    void backward(const R* read, const R* given, R* of_read, long first) {
        const long count = std::min(L, rows_ - first);
        read += first * F, given += first * F, of_read += first * F;
        back_.times(given, F, count, [&](long row, long column, long, Vec<R> sum) {
            set(sum, outer_ + row * W + column);
        });
        for (long m = 0; m < W; m += lanes) {
            through(first, count, m);
            back(first, count, m);
        }
        add_products(of_drives_, C, of_input_, read, F, count, F, of_joined_);
        add_products(given, F, of_state_, states_ + W, W, count, M, of_readout_);
        by_of_drive_.times(of_drives_, C, count, [&](long row, long column, long left, Vec<R> sum) {
            const long place = row * F + column;
            const Vec<R> outer = some_at(given + place, left);
            put_some(sum + some_at(skip_ + column, left) * outer, of_read + place, left);
        });
        for (long f = 0; f < F; f += lanes) {
            Vec<R> total = some_at(of_skip_ + f, F - f);
            for (long row = 0; row < count; ++row)
                total += some_at(given + row * F + f, F - f) * some_at(read + row * F + f, F - f);
            put_some(total, of_skip_ + f, F - f);
        }
    }

    // The states of a vector of units, and what their gradients ask for.
    void through(long first, long count, long m) {
        const R* drives = kept_ + first * C;
        Vec<R> drive[G], b, state = at(kept_state(first) + m);
        const Vec<R> rate = at(rates_ + m);
        set(state, states_ + m);
        for (long row = 0, t = first % T; row < count; ++row, t = t + 1 == T ? 0 : t + 1) {
            for (long g = 0; g < G; ++g) drive[g] = some_at(drives + row * C + g * Q + m, Q - m);
            Unit::template go<R>(drive, rate, decays_[row], b, steps_ + row * Unit::kept);
            state = t ? decays_[row] * state + b : b;
            set(state, states_ + (row + 1) * W + m);
        }
    }

    void back(long first, long count, long m) {
        // a gradient shrinks like a^k, and a processor multiplies subnormal numbers many times more slowly
        const R least = std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
        const R* drives = kept_ + first * C;
        Vec<R> carried = at(grad_ + m), drive[G], of[G], totals[G] = {}, of_rate{};
        const Vec<R> rate = at(rates_ + m);
        for (long row = count - 1, t = (first + row) % T; row >= 0; --row, t = t ? t - 1 : T - 1) {
            for (long g = 0; g < G; ++g) drive[g] = some_at(drives + row * C + g * Q + m, Q - m);
            const Vec<R> whole = at(outer_ + row * W + m) + carried, before = t ? at(states_ + row * W + m) : Vec<R>{};
            Unit::template back<R>(drive, rate, steps_ + row * Unit::kept, whole, before, of, of_rate);
            for (long g = 0; g < G; ++g) {
                totals[g] += of[g];
                put_some(of[g], of_drives_ + row * C + g * Q + m, Q - m);
            }
            carried = t ? whole * decays_[row] : Vec<R>{};
            carried = (carried < least) & (carried > -least) ? Vec<R>{} : carried;
        }
        set(carried, grad_ + m);
        for (long g = 0; g < G; ++g) sums_[(g * W + m) / lanes] += totals[g];
        sums_[(G * W + m) / lanes] += of_rate;
    }

    // into[i][j] += the sum over the rows of a chunk of left[row][i] right[row][j]; rows of `right` begin `apart`
    // numbers after one another.
    void add_products(const R* left, long many, Narrow<R>& panels, const R* right, long apart, long count, long width,
                      R* into) {
        panels.fill(right, count, apart, 1);
        panels.template times<true>(left, many, many, [&](long i, long column, long some, Vec<R> sum) {
            R* to = into + i * width + column;
            put_some(some_at(to, some) + sum, to, some);
        });
    }

    const SelectiveLayerCall& call_;
    const long rows_, T, F, M, W, Q, C, L;
    const R* skip_ = nullptr;
    R* kept_ = nullptr;
    Buffer<R> joined_, of_joined_, biases_, rates_, of_readout_, of_skip_;
    Buffer<Vec<R>> sums_;
    Buffer<R> state_, grad_, drives_, states_, outer_, of_drives_;
    Buffer<Vec<R>> steps_, decays_;
    Narrow<R> by_drive_, by_state_, back_, by_of_drive_, of_state_, of_input_;
};

template <class R, class Unit> void run_layer(const SelectiveLayerCall& call) {
    SelectiveLayer<R, Unit> layer(call);
    for (long model = 0; model < call.models; ++model) layer.run(model);
}

}  // namespace

// What Python calls (gated.py), for some models. 0: done; 1: there is no such unit; 2: no memory.
extern "C" int memsweep_selective_layer(const SelectiveLayerCall* call) try {
    switch (call->unit) {
        case 0: run_layer<REAL, MinGRU>(*call); return 0;
        case 1: run_layer<REAL, MinLSTM>(*call); return 0;
        case 2: run_layer<REAL, HGRN>(*call); return 0;
        case 3: run_layer<REAL, RGLRU>(*call); return 0;
    }
    return 1;
} catch (const std::bad_alloc&) {
    return 2;
}
