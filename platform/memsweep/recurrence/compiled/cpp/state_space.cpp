// Selective state-space layers, from the input to the answer and back; see memsweep/recurrence/selective/state_space.py.
//
//     h_t = exp(-Delta_t r) h_{t-1} + Delta_t B_t x_t,   y_t = R (C_t . h_t + d x_t),   Delta_t = softplus(z_t + b)
//
// with z, B, x and C linear maps of the input u. The sequences of a model stand in the lanes of vectors. Channels do not
// depend on one another but by B and C: one at a time runs through a chunk of steps, and stays in the cache. The maps and
// the states before each chunk are kept; the way back runs through the chunk once more.
//
// Few sequences would leave most of a vector empty: there steps stand in the lanes, those of one sequence at a time. Only
// the recurrence itself, which has to take one after the other, turns them to states in the lanes. Every number is summed
// in the order that it has with sequences in the lanes, and keeps its bits.
//
// Letters: N models, B sequences, T time, F features, H heads, D channels, S states of a channel, M = D S, W = H + S + D +
// S maps of a step.
#define FEW_SEQUENCES  // blocks of one vector
#include <limits>

#include "lanes.h"
#include "panels.h"
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
          answers_(L * D), state_(M), grad_(M), of_maps_(L * W), sums_(H + M + D), states_((L + 1) * S), decays_(L * S),
          G((L + lanes - 1) / lanes), Q(((few() ? C : 0) * S + lanes - 1) / lanes), units_(bundles() * Q),
          grads_(few() * bundles() * Q), of_rates_(few() * bundles() * Q), of_few_(few() * G * W), own_(few() * (H + D)),
          rows_(few() * L * D), outer_rows_(few() ? L * D : 0), tail_(few() * L), shown_few_(few() * G * F), decay_(Q * G * lanes), added_(Q * G * lanes), input_(Q * G * lanes),
          output_(Q * G * lanes), outside_(Q * G * lanes), time_(Q * G * lanes), before_(Q * (G * lanes + 1)),
          whole_(Q * G * lanes), exponent_(Q * G * lanes), decay_now_(G * Q * lanes), now_state_(G * Q * lanes), turning_(Q * lanes) {}

    void run(long model) {
        copy_weights(model);
        std::fill_n(of_joined_ + 0, W * F, R(0));
        std::fill_n(of_readout_ + 0, F * D, R(0));
        std::fill_n(sums_ + 0, H + M + D, Vec<R>{});
        for (long first = 0; first < B; first += Simd<R>::lanes) {
            const int count = std::min<long>(Simd<R>::lanes, B - first);
            const long row = model * B + first;
            if (is_few(count)) call_.backward ? backward_by_steps(row, count) : forward_by_steps(row, count);
            else call_.backward ? backward(row, count) : forward(row, count);
        }
        if (call_.backward) write_gradients(model);
    }

private:
    static constexpr int lanes = Simd<R>::lanes;
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

    // Whether the steps of this many sequences stand in the lanes.
    bool is_few(long count) const { return count * ((T + lanes - 1) / lanes) * FEWER < T; }
    long few() const {
        const long last = (B - 1) % lanes + 1;
        return is_few(last) ? last : 0;
    }
    long bundles() const { return (D + C - 1) / C; }

    static const R* numbers(const Vec<R>* vectors) { return reinterpret_cast<const R*>(vectors); }
    static R* numbers(Vec<R>* vectors) { return reinterpret_cast<R*>(vectors); }
    static long some_lanes(long steps, long g) { return std::min<long>(lanes, steps - g * lanes); }
    R* kept_of(long row, long s) const { return numbers(kept(row)) + s * (T * W + (T + L - 1) / L * M); }

    // Numbers of all states, channel after channel, as whole vectors for each bundle of channels; and back.
    void into_bundles(const R* from, Vec<R>* to) const {
        for (long b = 0; b < bundles(); ++b) {
            const long first = b * C * S, count = std::min(C * S, M - first);
            std::fill_n(to + b * Q, Q, Vec<R>{});
            std::copy_n(from + first, count, numbers(to + b * Q));
        }
    }
    void out_of_bundles(const Vec<R>* from, R* to) const {
        for (long b = 0; b < bundles(); ++b)
            std::copy_n(numbers(from + b * Q), std::min(C * S, M - b * C * S), to + b * C * S);
    }

    // Rows of numbers, one a step, as [group][row] vectors of steps; and back.
    void into_steps(const R* from, long rows, long steps, Vec<R>* to) {
        for (long g = 0; g < groups(steps); ++g)
            into_lanes<R>(from + g * lanes * rows, rows, some_lanes(steps, g), rows, to + g * rows);
    }
    void out_of_steps(const Vec<R>* from, long next, long rows, long steps, R* to) {
        for (long g = 0; g < groups(steps); ++g)
            out_of_lanes<R>(from + g * next, rows, some_lanes(steps, g), rows, to + g * lanes * rows);
    }
    static long groups(long steps) { return (steps + lanes - 1) / lanes; }

    // What a bundle's states have at each step, value(channel, state) in steps, to states in lanes: [vector][step].
    template <class Value> void to_states(long g, long channels, Vec<R>* to, Value value) {
        for (long j = 0; j < channels; ++j)
            for (long s = 0; s < S; ++s) turning_[j * S + s] = value(j, s);
        std::fill(turning_ + channels * S, turning_ + Q * lanes, Vec<R>{});
        for (long q = 0; q < Q; ++q) {
            Vec<R> square[lanes];
            for (int i = 0; i < lanes; ++i) square[i] = turning_[q * lanes + i];
            turn<R>(square);
            for (int i = 0; i < lanes; ++i) to[(q * G + g) * lanes + i] = square[i];
        }
    }

    // The way back: [group][state] of steps. `next`: from one vector's steps to those of the next.
    void to_steps(const Vec<R>* from, long next, long g, Vec<R>* to) {
        for (long q = 0; q < Q; ++q) {
            Vec<R> square[lanes];
            for (int i = 0; i < lanes; ++i) square[i] = from[q * next + g * lanes + i];
            turn<R>(square);
            for (int i = 0; i < lanes; ++i) to[(g * Q + q) * lanes + i] = square[i];
        }
    }

    void forward_by_steps(long row, int count) {
        for (long s = 0; s < count; ++s) {
            std::fill_n(units_ + 0, bundles() * Q, Vec<R>{});
            for (long first = 0; first < T; first += L) {
                const long steps = std::min(L, T - first), place = ((row + s) * T + first) * F;
                into_steps(static_cast<const R*>(call_.read) + place, F, steps, read_);
                now_ = maps_;
                times(joined_, W, F, read_, groups(steps), now_);
                if (call_.kept) {
                    R* own = kept_of(row, s);
                    out_of_bundles(units_, own + T * W + first / L * M);
                    own += first * W;
                    for (long k = 0; k < groups(steps) * W; ++k, own += some_lanes(steps, (k - 1) / W))
                        put<R>(now_[k], own, some_lanes(steps, k / W));
                }
                find_steps(groups(steps), lanes);
                for (long b = 0; b < bundles(); ++b) through_steps<false>(b * C, steps, units_ + b * Q);
                times(readout_, F, D, answers_, groups(steps), shown_);
                out_of_steps(shown_, F, F, steps, static_cast<R*>(call_.answers) + place);
            }
        }
    }

    void backward_by_steps(long row, int count) {
        const long wide = bundles() * Q;
        std::fill_n(grads_ + 0, count * wide, Vec<R>{});
        for (long s = 0; s < count; ++s) exchange_sums(s, [](Vec<R>& sum, long lane, R& own) { own = sum[lane]; });
        for (long first = (T + L - 1) / L * L - L; first >= 0; first -= L) {
            const long steps = std::min(L, T - first);
            const R* read = some(call_.read, F, row * T + first);
            const R* given = some(call_.given, F, row * T + first);
            for (long s = 0; s < count; ++s) {
                const R* own = kept_of(row, s);
                into_bundles(own + T * W + first / L * M, units_);
                own += first * W;
                now_ = maps_;
                for (long k = 0; k < groups(steps) * W; ++k, own += some_lanes(steps, (k - 1) / W))
                    now_[k] = vector_at<R>(own, some_lanes(steps, k / W));
                find_steps(groups(steps), lanes);
                into_steps(given + s * T * F, F, steps, shown_);
                times(back_, D, F, shown_, groups(steps), outer_);
                of_now_ = of_few_ + s * G * W;
                std::fill_n(of_now_, groups(steps) * W, Vec<R>{});
                R* of_bias = own_ + s * (H + D);
                for (long b = 0; b < bundles(); ++b) {
                    through_steps<true>(b * C, steps, units_ + b * Q);
                    back_steps(b * C, steps, grads_ + s * wide + b * Q, of_rates_ + s * wide + b * Q);
                }
                for (long g = groups(steps) - 1; g >= 0; --g)
                    for (long h = 0; h < H; ++h) {
                        of_now_[g * W + h] *= slope_[g * H + h];
                        for (long i = some_lanes(steps, g) - 1; i >= 0; --i) of_bias[h] += of_now_[g * W + h][i];
                    }
                out_of_steps(outer_, D, D, steps, outer_rows_);
                out_of_steps(now_ + H + S, W, D, steps, rows_ + s * L * D);
                for (long k = steps - 1; k >= 0; --k)
                    for (long d = 0; d < D; ++d) of_bias[H + d] += outer_rows_[k * D + d] * rows_[(s * L + k) * D + d];
                out_of_steps(answers_, D, D, steps, rows_ + s * L * D);
                std::copy_n(shown_ + 0, groups(steps) * F, shown_few_ + s * G * F);
                times(turned_, F, W, of_now_, groups(steps), read_);
                out_of_steps(read_, F, F, steps, some(call_.of_read, F, (row + s) * T + first));
            }
            add_products(of_few_, W, read, T * F, F, count, steps, of_joined_);
            add_products(shown_few_, F, rows_, L * D, D, count, steps, of_readout_);
        }
        for (long s = 0; s < count; ++s) exchange_sums(s, [](Vec<R>& sum, long lane, R own) { sum[lane] = own; });
    }

    // A sequence's part of the sums over all steps.
    template <class Do> void exchange_sums(long s, Do work) {
        for (long h = 0; h < H; ++h) work(sums_[h], s, own_[s * (H + D) + h]);
        for (long d = 0; d < D; ++d) work(sums_[H + M + d], s, own_[s * (H + D) + H + d]);
        R* rates = numbers(of_rates_ + s * bundles() * Q);
        for (long d = 0; d < D; ++d)
            for (long k = 0; k < S; ++k) work(sums_[H + d * S + k], s, rates[d / C * Q * lanes + d % C * S + k]);
    }

    // A bundle of channels through a chunk.
    template <bool Keeps> void through_steps(long first, long steps, Vec<R>* states) {
        const long channels = std::min(C, D - first), U = G * lanes;
        for (long g = 0; g < groups(steps); ++g) {
            const Vec<R>* input = now_ + g * W + H;
            const auto step = [&](long j) { return step_[g * H + (first + j) * H / D]; };
            to_states(g, channels, decay_, [&](long j, long s) {
                const Vec<R> decay = exponential<R>(-rate_[(first + j) * S + s] * step(j));
                if (Keeps) decay_now_[g * Q * lanes + j * S + s] = decay;
                return decay;
            });
            to_states(g, channels, added_, [&](long j, long) { return step(j) * input[S + first + j]; });
            to_states(g, channels, input_, [&](long, long s) { return input[s]; });
        }
        for (long q = 0; q < Q; ++q) {
            Vec<R> state = states[q];
            before_[q * (U + 1)] = state;
            for (long t = 0; t < steps; ++t) {
                state = decay_[q * U + t] * state + added_[q * U + t] * input_[q * U + t];
                before_[q * (U + 1) + t + 1] = state;
            }
            if (!Keeps) states[q] = state;
        }
        for (long g = 0; g < groups(steps); ++g) {
            to_steps(before_ + 1, U + 1, g, now_state_);
            const Vec<R> *input = now_ + g * W + H, *output = input + S + D;
            for (long j = 0; j < channels; ++j) {
                const Vec<R>* state = now_state_ + g * Q * lanes + j * S;
                Vec<R> answer[TOGETHER] = {};
                by_states([&](auto width, long s) {
                    for (int i = 0; i < decltype(width)::value; ++i) answer[i] += output[s + i] * state[s + i];
                });
                const long d = first + j;
                answers_[g * D + d] = ((answer[0] + answer[1]) + (answer[2] + answer[3])) + skip_[d] * input[S + d];
            }
        }
    }

    void back_steps(long first, long steps, Vec<R>* grads, Vec<R>* of_rates) {
        const long channels = std::min(C, D - first), U = G * lanes;
        for (long g = 0; g < groups(steps); ++g) {
            const Vec<R>* output = now_ + g * W + H + S + D;
            to_states(g, channels, output_, [&](long, long s) { return output[s]; });
            to_states(g, channels, outside_, [&](long j, long) { return outer_[g * D + first + j]; });
            to_states(g, channels, time_, [&](long j, long) { return step_[g * H + (first + j) * H / D]; });
        }
        const R least = std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
        for (long q = 0; q < Q; ++q) {
            Vec<R> grad = grads[q], of_rate = of_rates[q];
            for (long t = steps - 1; t >= 0; --t) {
                const long k = q * U + t;
                const Vec<R> whole = grad + output_[k] * outside_[k], passed = whole * decay_[k];
                const Vec<R> of_exponent = passed * before_[k + q];
                of_rate -= of_exponent * time_[k];
                grad = passed;
                whole_[k] = whole;
                exponent_[k] = of_exponent;
            }
            grads[q] = (grad < least) & (grad > -least) ? Vec<R>{} : grad;
            of_rates[q] = of_rate;
        }
        for (long g = groups(steps) - 1; g >= 0; --g) {
            const Vec<R>* input = now_ + g * W + H;
            Vec<R>*of_input = of_now_ + g * W + H, *of_output = of_input + S + D;
            to_steps(whole_, U, g, turned_whole_());
            to_steps(exponent_, U, g, turned_exponent_());
            for (long j = 0; j < channels; ++j) {
                const long d = first + j, h = d * H / D, place = g * Q * lanes + j * S;
                const Vec<R>*wholes = turned_whole_() + place, *exponents = turned_exponent_() + place, *now = now_state_ + place;
                const Vec<R> step = step_[g * H + h], channel = input[S + d], added = step * channel, outer = outer_[g * D + d];
                Vec<R> of_added[TOGETHER] = {}, of_step[TOGETHER] = {};
                by_states([&](auto width, long s) {
                    for (int i = 0; i < decltype(width)::value; ++i) {
                        of_output[s + i] += outer * now[s + i];
                        of_input[s + i] += wholes[s + i] * added;
                        of_added[i] += wholes[s + i] * input[s + i];
                        of_step[i] -= exponents[s + i] * rate_[d * S + s + i];
                    }
                });
                const Vec<R> by_added = (of_added[0] + of_added[1]) + (of_added[2] + of_added[3]);
                const Vec<R> by_step = (of_step[0] + of_step[1]) + (of_step[2] + of_step[3]);
                of_input[S + d] = by_added * step + outer * skip_[d];
                of_now_[g * W + h] += by_added * channel + by_step;
            }
        }
    }
    Vec<R>* turned_whole_() { return input_; }      // whose numbers are of no more use
    Vec<R>* turned_exponent_() { return added_; }

    // into[i][j] += the sum over steps and sequences of left[i] right[j], in the order of `add_outer`; left: [sequence][G]
    // [rows] vectors of steps, right: rows of numbers, one a step, those of a sequence `next` numbers after another's.
    void add_products(const Vec<R>* left, long rows, const R* right, long next, long columns, long count, long steps, R* into) {
        long j = 0;
        const auto over_rows = [&](auto vectors) {
            constexpr int K = decltype(vectors)::value;
            long i = 0;
            for (; K * 8 <= REGISTERS / 2 && i + 8 <= rows; i += 8) tile<8, K>(left, rows, right, next, columns, count, steps, i, j, into);
            for (; i + 4 <= rows; i += 4) tile<4, K>(left, rows, right, next, columns, count, steps, i, j, into);
            for (; i < rows; ++i) tile<1, K>(left, rows, right, next, columns, count, steps, i, j, into);
        };
        for (; j + 2 * lanes <= columns; j += 2 * lanes) over_rows(std::integral_constant<int, 2>{});
        for (; j + lanes <= columns; j += lanes) over_rows(std::integral_constant<int, 1>{});
        if (j == columns) return;
        for (long s = 0; s < count; ++s)
            for (long k = 0; k < steps; ++k) {
                Vec<R>& to = tail_[s * L + k];
                to = Vec<R>{};
                std::copy_n(right + s * next + k * columns + j, columns - j, numbers(&to));
            }
        long i = 0;
        for (; i + 4 <= rows; i += 4) tail_tile<4>(left, rows, count, steps, columns - j, i, into + i * columns + j, columns);
        for (; i < rows; ++i) tail_tile<1>(left, rows, count, steps, columns - j, i, into + i * columns + j, columns);
    }

    const R* number_of(const Vec<R>* left, long rows, long s, long k, long i) const {
        return numbers(left + (s * G + k / lanes) * rows + i) + k % lanes;
    }

    template <int U, int K>
    void tile(const Vec<R>* left, long rows, const R* right, long next, long columns, long count, long steps, long i, long j, R* into) {
        constexpr long together = 128 / lanes;  // steps
        for (long first = 0; first < steps; first += together) {
            Vec<R> acc[U][K] = {};
            for (long k = first; k < std::min(first + together, steps); ++k)
                for (long s = 0; s < count; ++s) {
                    const R* e = number_of(left, rows, s, k, i);
                    Vec<R> row[K];
                    std::memcpy(row, right + s * next + k * columns + j, sizeof row);
                    for (int u = 0; u < U; ++u)
                        for (int c = 0; c < K; ++c) acc[u][c] += e[u * lanes] * row[c];
                }
            for (int u = 0; u < U; ++u)
                for (int c = 0; c < K; ++c) {
                    R* to = into + (i + u) * columns + j + c * lanes;
                    put<R>(vector_at<R>(to, lanes) + acc[u][c], to, lanes);
                }
        }
    }

    // Columns that fill no vector: sequences are summed up one by one, and then by pairs.
    template <int U> void tail_tile(const Vec<R>* left, long rows, long count, long steps, long some, long i, R* into, long columns) {
        Vec<R> part[lanes][U];
        for (long s = 0; s < count; ++s) {
            Vec<R> acc[U] = {};
            for (long k = 0; k < steps; ++k) {
                const R* e = number_of(left, rows, s, k, i);
                for (int u = 0; u < U; ++u) acc[u] += e[u * lanes] * tail_[s * L + k];
            }
            for (int u = 0; u < U; ++u) part[s][u] = acc[u];
        }
        for (int half = lanes / 2; half > 0; half /= 2)
            for (int lane = 0; lane < half && lane + half < count; ++lane)
                for (int u = 0; u < U; ++u) part[lane][u] += part[lane + half][u];
        for (int u = 0; u < U; ++u)
            for (long c = 0; c < some; ++c) into[u * columns + c] += part[0][u][c];
    }

    static constexpr double FEWER = 1.0;
    Vec<R>* of_now_ = nullptr;

    const StateSpaceCall& call_;
    const long B, T, F, H, D, S, M, W, L;
    const R *bias_ = nullptr, *rate_ = nullptr, *skip_ = nullptr, *readout_ = nullptr;
    Vec<R>* now_ = nullptr;  // maps of the chunk
    Buffer<R> joined_, turned_, of_joined_, of_readout_, back_;
    Buffer<Vec<R>> maps_, read_, shown_, step_, slope_, outer_, answers_, state_, grad_, of_maps_, sums_, states_, decays_;
    const long C = std::max(1L, std::min(D, lanes / S));  // channels whose states fill a vector
    const long G, Q;  // groups of steps of a chunk, vectors of states of some channels
    Buffer<Vec<R>> units_, grads_, of_rates_, of_few_;
    Buffer<R> own_, rows_, outer_rows_;
    Buffer<Vec<R>> tail_, shown_few_, decay_, added_, input_, output_, outside_, time_, before_, whole_, exponent_, decay_now_, now_state_, turning_;
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
