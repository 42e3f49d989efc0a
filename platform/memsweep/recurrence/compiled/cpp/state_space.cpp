// Selective state-space layers, from the input to the answer and back; see memsweep/recurrence/selective/state_space.py.
//
//     h_t = exp(-Delta_t r) h_{t-1} + Delta_t B_t x_t,   y_t = R (C_t . h_t + d x_t),   Delta_t = softplus(z_t + b)
//
// with z, B, x and C linear maps of the input u. The sequences of a model stand in the lanes of vectors. Channels do not
// depend on one another but by B and C: one at a time runs through a chunk of steps, and stays in the cache. The maps and
// the states before each chunk are kept; the way back runs through the chunk once more.
//
// Letters: N models, B sequences, T time, F features, H heads, D channels, S states of a channel, M = D S, W = H + S + D +
// S maps of a step.
#define FEW_SEQUENCES  // blocks of one vector
#include <limits>

#include "lanes.h"
#include "product.h"

namespace {

struct StateSpaceCall {
    int64_t backward, models, batch, horizon, features, heads, channels, states, chunk;
    const void *read, *given;                        // u, and gradients of the answers: [N][B][T][F]
    const void *step, *input, *candidate, *output;   // [N][H][F], [N][S][F], [N][D][F], [N][S][F]
    const void *bias, *rate, *skip, *readout;        // b [N][H], r [N][M], d [N][D], R [N][F][D]
    void *kept, *answers, *of_read;                  // [N][blocks][T W + chunks M][lanes], or null; [N][B][T][F]
    void *of_step, *of_input, *of_candidate, *of_output, *of_bias, *of_rate, *of_skip, *of_readout;
};

// e^y, 0 far below and infinite far above the numbers that there are.
template <class R> inline Vec<R> exponential(Vec<R> y) {
    using S = Simd<R>;
    typedef typename S::Int Int;
    const R limit = sizeof(R) == 8 ? R(708) : R(87);
    Vec<R> bounded = y > limit ? limit - Vec<R>{} : y;  // NaN stays
    bounded = bounded < -limit ? -limit - Vec<R>{} : bounded;
    const Vec<R> shifted = bounded * R(1.4426950408889634074) + S::shifter;
    const Vec<R> count = shifted - S::shifter;
    const Vec<R> r = (bounded - count * S::log2_high) - count * S::log2_low;
    constexpr Series<R> taylor;
    const Vec<R> rr = r * r;
    Vec<R> odd = taylor.inverse_factorial[S::terms] - Vec<R>{}, even = taylor.inverse_factorial[S::terms - 1] - Vec<R>{};
    for (int k = S::terms - 2; k >= 3; k -= 2) {
        odd = odd * rr + taylor.inverse_factorial[k];
        even = even * rr + taylor.inverse_factorial[k - 1];
    }
    const Vec<R> small = (odd * r + even) * rr + r;
    const Vec<R> power = (Vec<R>)(((Int)shifted + S::exponent_bias) << S::mantissa_bits);
    const Vec<R> value = power * small + power;
    const Vec<R> ends = y > limit ? std::numeric_limits<R>::infinity() - Vec<R>{} : Vec<R>{};
    return (y > limit) | (y < -limit) ? ends : value;
}

// log(1 + u) for 0 <= u <= 1: 2 artanh(s) of s = u / (2 + u), at most a third.
template <class R> inline Vec<R> log1p_of_share(Vec<R> u) {
    constexpr int terms = sizeof(R) == 8 ? 17 : 8;
    const Vec<R> s = u / (u + 2), ss = s * s;
    Vec<R> series = R(1.0 / (2 * terms + 1)) - Vec<R>{};
    for (int k = terms - 1; k >= 1; --k) series = series * ss + R(1.0 / (2 * k + 1));
    return 2 * (series * ss * s + s);
}

// A step size and its derivative; from 20 on the identity, as torch has it.
template <class R> inline void softplus(Vec<R> z, Vec<R>& value, Vec<R>& slope) {
    const Vec<R> zero{}, one = 1 - zero;
    const Vec<R> shown = exponential<R>(z < 0 ? z : -z), share = one / (one + shown);
    value = (z > 0 ? z : z != z ? z : zero) + log1p_of_share<R>(shown);
    value = z > 20 ? z : value;
    slope = z > 20 ? one : z < 0 ? shown * share : share;
}

template <class R> class StateSpace {
public:
    explicit StateSpace(const StateSpaceCall& call)
        : call_(call), B(call.batch), T(call.horizon), F(call.features), H(call.heads), D(call.channels), S(call.states),
          M(D * S), W(H + D + 2 * S), L(call.chunk), joined_(W * F), turned_(W * F), of_joined_(W * F), of_readout_(F * D),
          back_(F * D), maps_(L * W), read_(L * F), shown_(L * F), step_(L * H), slope_(L * H), outer_(L * D),
          answers_(L * D), state_(M), grad_(M), of_maps_(L * W), sums_(H + M + D), states_((L + 1) * S), decays_(L * S) {}

    void run(long model) {
        copy_weights(model);
        std::fill_n(of_joined_ + 0, W * F, R(0));
        std::fill_n(of_readout_ + 0, F * D, R(0));
        std::fill_n(sums_ + 0, H + M + D, Vec<R>{});
        for (long first = 0; first < B; first += Simd<R>::lanes) {
            const int count = std::min<long>(Simd<R>::lanes, B - first);
            call_.backward ? backward(model * B + first, count) : forward(model * B + first, count);
        }
        if (call_.backward) write_gradients(model);
    }

private:
    static constexpr int TOGETHER = 4;  // states at a time: the sums of one wait less for those of another

    static const R* some(const void* all, long size, long index) { return static_cast<const R*>(all) + size * index; }
    static R* some(void* all, long size, long index) { return static_cast<R*>(all) + size * index; }

    void copy_weights(long model) {
        R* to = joined_;
        const auto add = [&](const void* rows, long count) {
            std::copy_n(some(rows, count * F, model), count * F, to);
            to += count * F;
        };
        add(call_.step, H);
        add(call_.input, S);
        add(call_.candidate, D);
        add(call_.output, S);
        bias_ = some(call_.bias, H, model);
        rate_ = some(call_.rate, M, model);
        skip_ = some(call_.skip, D, model);
        readout_ = some(call_.readout, F * D, model);
        if (!call_.backward) return;
        transpose<R>(joined_, W, F, turned_);
        transpose<R>(readout_, F, D, back_);
    }

    void write_gradients(long model) {
        const R* from = of_joined_;
        const auto take = [&](void* rows, long count) {
            std::copy_n(from, count * F, some(rows, count * F, model));
            from += count * F;
        };
        take(call_.of_step, H);
        take(call_.of_input, S);
        take(call_.of_candidate, D);
        take(call_.of_output, S);
        std::copy_n(of_readout_ + 0, F * D, some(call_.of_readout, F * D, model));
        const Vec<R>* total = sums_;
        const auto add_up = [&](void* all, long size) {
            R* found = some(all, size, model);
            for (long k = 0; k < size; ++k) found[k] = sum<R>(*total++);
        };
        add_up(call_.of_bias, H);
        add_up(call_.of_rate, M);
        add_up(call_.of_skip, D);
    }

    // What is kept of the block that begins with this sequence: maps of all steps, then states before all chunks.
    Vec<R>* kept(long row) const {
        constexpr long wide = 64 / sizeof(R);  // Python's blocks: the place of a model depends on no shares of the work
        const long blocks = (B + wide - 1) / wide * (wide / Simd<R>::lanes), chunks = (T + L - 1) / L;
        const long block = row / B * blocks + row % B / Simd<R>::lanes;
        return static_cast<Vec<R>*>(call_.kept) + block * (T * W + chunks * M);
    }

    static void times(const R* matrix, long rows, long columns, const Vec<R>* from, long steps, Vec<R>* to) {
        for (long t = 0; t < steps; ++t)
            rows_times<R>(
                matrix, rows, columns, from + t * columns, [](long, int) { return Vec<R>{}; },
                [&](long i, int, Vec<R> sum) { to[t * rows + i] = sum; });
    }

    void forward(long row, int count) {
        std::fill_n(state_ + 0, M, Vec<R>{});
        for (long first = 0; first < T; first += L) {
            const long steps = std::min(L, T - first);
            into_lanes<R>(some(call_.read, F, row * T + first), T * F, count, steps * F, read_);
            now_ = call_.kept ? kept(row) + first * W : maps_ + 0;
            times(joined_, W, F, read_, steps, now_);
            find_steps(steps, count);
            if (call_.kept) std::copy_n(state_ + 0, M, kept(row) + T * W + first / L * M);
            for (long d = 0; d < D; ++d) through<false>(d, steps, state_ + d * S);
            times(readout_, F, D, answers_, steps, shown_);
            out_of_lanes<R>(shown_, T * F, count, steps * F, some(call_.answers, F, row * T + first));
        }
    }

    void backward(long row, int count) {
        std::fill_n(grad_ + 0, M, Vec<R>{});
        for (long first = (T + L - 1) / L * L - L; first >= 0; first -= L) {
            const long steps = std::min(L, T - first);
            into_lanes<R>(some(call_.given, F, row * T + first), T * F, count, steps * F, shown_);
            now_ = kept(row) + first * W;
            find_steps(steps, count);
            times(back_, D, F, shown_, steps, outer_);
            std::fill_n(of_maps_ + 0, steps * W, Vec<R>{});
            for (long d = 0; d < D; ++d) {
                std::copy_n(kept(row) + T * W + first / L * M + d * S, S, states_ + 0);
                through<true>(d, steps, states_);
                back(d, steps);
            }
            finish(steps);
            into_lanes<R>(some(call_.read, F, row * T + first), T * F, count, steps * F, read_);
            add_outer<R>({of_maps_, W, W}, {read_, F, F}, steps, of_joined_);
            add_outer<R>({shown_, F, F}, {answers_, D, D}, steps, of_readout_);
            times(turned_, F, W, of_maps_, steps, read_);
            out_of_lanes<R>(read_, T * F, count, steps * F, some(call_.of_read, F, row * T + first));
        }
    }

    // Lanes without a sequence stand still: their decays would count in no answer, but infinite ones in all gradients.
    void find_steps(long steps, int count) {
        Vec<R> own{};
        for (int lane = 0; lane < count; ++lane) own[lane] = 1;
        for (long t = 0; t < steps; ++t)
            for (long h = 0; h < H; ++h) {
                Vec<R>& step = step_[t * H + h];
                softplus<R>(now_[t * W + h] + bias_[h], step, slope_[t * H + h]);
                step = own > 0 ? step : Vec<R>{};
            }
    }

    template <class Do> void by_states(Do work) const {
        long s = 0;
        for (; s + TOGETHER <= S; s += TOGETHER) work(std::integral_constant<int, TOGETHER>{}, s);
        for (; s < S; ++s) work(std::integral_constant<int, 1>{}, s);
    }

    // A channel through a chunk. Keeps: leaves decays and the states behind each step for the way back.
    template <bool Keeps> void through(long d, long steps, Vec<R>* states) {
        const long h = d * H / D;
        const R* rate = rate_ + d * S;
        for (long t = 0; t < steps; ++t) {
            const Vec<R>*input = now_ + t * W + H, *output = input + S + D;
            const Vec<R> step = step_[t * H + h], channel = input[S + d], added = step * channel;
            const Vec<R>* before = states + (Keeps ? t * S : 0);
            Vec<R> *after = states + (Keeps ? (t + 1) * S : 0), answer[TOGETHER] = {};
            by_states([&](auto width, long s) {
                constexpr int J = decltype(width)::value;
                Vec<R> decay[J];
                for (int j = 0; j < J; ++j) decay[j] = exponential<R>(-rate[s + j] * step);
                for (int j = 0; j < J; ++j) {
                    const Vec<R> state = decay[j] * before[s + j] + added * input[s + j];
                    after[s + j] = state;
                    answer[j] += output[s + j] * state;
                    if (Keeps) decays_[t * S + s + j] = decay[j];
                }
            });
            answers_[t * D + d] = ((answer[0] + answer[1]) + (answer[2] + answer[3])) + skip_[d] * channel;
        }
    }

    void back(long d, long steps) {
        const long h = d * H / D;
        const R* rate = rate_ + d * S;
        Vec<R>*grad = grad_ + d * S, *of_rate = sums_ + H + d * S;
        for (long t = steps - 1; t >= 0; --t) {
            const Vec<R>*input = now_ + t * W + H, *output = input + S + D;
            const Vec<R>*before = states_ + t * S, *now = before + S, *decays = decays_ + t * S;
            Vec<R>*of_input = of_maps_ + t * W + H, *of_output = of_input + S + D;
            const Vec<R> step = step_[t * H + h], channel = input[S + d], added = step * channel, outer = outer_[t * D + d];
            Vec<R> of_added[TOGETHER] = {}, of_step[TOGETHER] = {};
            by_states([&](auto width, long s) {
                for (int j = 0; j < decltype(width)::value; ++j) {
                    const Vec<R> whole = grad[s + j] + output[s + j] * outer, passed = whole * decays[s + j];
                    const Vec<R> of_exponent = passed * before[s + j];
                    of_output[s + j] += outer * now[s + j];
                    of_input[s + j] += whole * added;
                    of_added[j] += whole * input[s + j];
                    of_step[j] -= of_exponent * rate[s + j];
                    of_rate[s + j] -= of_exponent * step;
                    grad[s + j] = passed;
                }
            });
            const Vec<R> by_added = (of_added[0] + of_added[1]) + (of_added[2] + of_added[3]);
            const Vec<R> by_step = (of_step[0] + of_step[1]) + (of_step[2] + of_step[3]);
            of_input[S + d] = by_added * step + outer * skip_[d];
            sums_[H + M + d] += outer * channel;
            of_maps_[t * W + h] += by_added * channel + by_step;
        }
        // a gradient shrinks like a^k, and a processor multiplies subnormal numbers many times more slowly
        const R least = std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
        for (long s = 0; s < S; ++s) grad[s] = (grad[s] < least) & (grad[s] > -least) ? Vec<R>{} : grad[s];
    }

    // The gradients of step sizes become those of what they are functions of.
    void finish(long steps) {
        for (long t = steps - 1; t >= 0; --t)
            for (long h = 0; h < H; ++h) {
                of_maps_[t * W + h] *= slope_[t * H + h];
                sums_[h] += of_maps_[t * W + h];
            }
    }

    const StateSpaceCall& call_;
    const long B, T, F, H, D, S, M, W, L;
    const R *bias_ = nullptr, *rate_ = nullptr, *skip_ = nullptr, *readout_ = nullptr;
    Vec<R>* now_ = nullptr;  // maps of the chunk
    Buffer<R> joined_, turned_, of_joined_, of_readout_, back_;
    Buffer<Vec<R>> maps_, read_, shown_, step_, slope_, outer_, answers_, state_, grad_, of_maps_, sums_, states_, decays_;
};

}  // namespace

// What Python calls (state_space.py), for some models. 0: done; 2: no memory.
extern "C" int memsweep_state_space(const StateSpaceCall* call) try {
    StateSpace<REAL> layer(*call);
    for (long model = 0; model < call->models; ++model) layer.run(model);
    return 0;
} catch (const std::bad_alloc&) {
    return 2;
}
