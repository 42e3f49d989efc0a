// Selective state-space layers, from the input to the answer and back; see memsweep/recurrence/selective/state_space.py.
//
//     h_t = exp(-Delta_t r) h_{t-1} + Delta_t B_t x_t,   y_t = R (C_t . h_t + d x_t),   Delta_t = softplus(z_t + b)
//
// with z, B, x and C linear maps of the input u. The sequences of a model stand in the lanes of vectors. Channels do not
// depend on one another but by B and C: one at a time runs through a chunk of steps, and stays in the cache. The maps and
// the states before each chunk are kept; the way back runs through the chunk once more.
//
// Few sequences would leave most of a vector empty. There steps stand in the lanes, those of one sequence at a time. Only
// the recurrence itself, which has to take one step after the other, turns them to states in the lanes. Every number is
// summed in the order that it has with sequences in the lanes, and keeps its bits.
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
          of_few_(few() * (H + D)), answer_rows_(few() * L * D), outer_rows_(few() * L * D), bundles_(N * Q),
          grads_(few() * N * Q), of_rates_(few() * N * Q), of_maps_of_(few() * G * W), given_(few() * G * F),
          rest_(few() * L), rows_(A), in_decay_(A), in_added_(A), in_input_(A), in_output_(A), in_outer_(A), in_step_(A),
          in_states_(A + Q), in_whole_(A), in_exponent_(A), states_of_(A), whole_of_(A), exponent_of_(A) {}

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

    // From here on, few sequences: the steps of a chunk of one sequence stand in the lanes, G groups of them.

    // Whether that costs less: half as many vectors at most, for turning them costs about as much as their numbers.
    bool is_few(long count) const { return 2 * count * groups(T) <= T; }

    long few() const {
        const long last = (B - 1) % lanes + 1;
        return is_few(last) ? last : 0;
    }

    static long groups(long steps) { return (steps + lanes - 1) / lanes; }
    static long steps_of(long group, long steps) { return std::min<long>(lanes, steps - group * lanes); }
    static const R* numbers(const Vec<R>* vectors) { return reinterpret_cast<const R*>(vectors); }
    static R* numbers(Vec<R>* vectors) { return reinterpret_cast<R*>(vectors); }

    // Rows of numbers, one a step, to [group][row] vectors of steps; and back, from groups that are `apart` vectors apart.
    static void into_steps(const R* from, long rows, long steps, Vec<R>* to) {
        for (long g = 0; g < groups(steps); ++g)
            into_lanes<R>(from + g * lanes * rows, rows, steps_of(g, steps), rows, to + g * rows);
    }

    static void out_of_steps(const Vec<R>* from, long apart, long rows, long steps, R* to) {
        for (long g = 0; g < groups(steps); ++g)
            out_of_lanes<R>(from + g * apart, rows, steps_of(g, steps), rows, to + g * lanes * rows);
    }

    // Channels go in bundles of C, whose states are Q vectors. Numbers of all states, channel after channel, to bundles.
    void into_bundles(const R* from, Vec<R>* to) const {
        for (long first = 0; first < M; first += C * S, to += Q) {
            std::fill_n(to, Q, Vec<R>{});
            std::copy_n(from + first, std::min(C * S, M - first), numbers(to));
        }
    }

    void out_of_bundles(const Vec<R>* from, R* to) const {
        for (long first = 0; first < M; first += C * S, from += Q)
            std::copy_n(numbers(from), std::min(C * S, M - first), to + first);
    }

    // value(channel, state) of the steps of a group, to vectors of a bundle's states: [vector][step].
    template <class Value> void to_states(long group, long channels, Vec<R>* to, Value value) {
        for (long j = 0; j < channels; ++j)
            for (long s = 0; s < S; ++s) rows_[j * S + s] = value(j, s);
        std::fill(rows_ + channels * S, rows_ + Q * lanes, Vec<R>{});
        for (long q = 0; q < Q; ++q) turned(rows_ + q * lanes, to + (q * G + group) * lanes);
    }

    // And back, to [state] of steps; from vectors whose steps begin `apart` after one another.
    void to_steps(const Vec<R>* from, long apart, long group, Vec<R>* to) const {
        for (long q = 0; q < Q; ++q) turned(from + q * apart + group * lanes, to + q * lanes);
    }

    static void turned(const Vec<R>* from, Vec<R>* to) {
        Vec<R> square[lanes];
        for (int i = 0; i < lanes; ++i) square[i] = from[i];
        turn<R>(square);
        for (int i = 0; i < lanes; ++i) to[i] = square[i];
    }

    // In the room of a block, each sequence has its own: maps of all steps, then states before all chunks.
    R* kept_of(long row, long sequence) const {
        return numbers(kept(row)) + sequence * (T * W + (T + L - 1) / L * M);
    }

    // work(vector of maps, where it is kept, how many steps it has)
    template <class Do> void by_maps(long steps, R* kept, Do work) {
        for (long g = 0; g < groups(steps); ++g)
            for (long i = 0; i < W; ++i, kept += steps_of(g, steps)) work(maps_[g * W + i], kept, steps_of(g, steps));
    }

    void forward_by_steps(long row, int count) {
        now_ = maps_;
        for (long sequence = 0; sequence < count; ++sequence) {
            std::fill_n(bundles_ + 0, N * Q, Vec<R>{});
            for (long first = 0; first < T; first += L) {
                const long steps = std::min(L, T - first), place = (row + sequence) * T + first;
                into_steps(some(call_.read, F, place), F, steps, read_);
                times(joined_, W, F, read_, groups(steps), now_);
                if (call_.kept) {
                    R* own = kept_of(row, sequence);
                    by_maps(steps, own + first * W, [](Vec<R> map, R* to, long many) { put<R>(map, to, many); });
                    out_of_bundles(bundles_, own + T * W + first / L * M);
                }
                find_steps(groups(steps), lanes);
                for (long b = 0; b < N; ++b) through_steps<false>(b * C, steps, bundles_ + b * Q);
                times(readout_, F, D, answers_, groups(steps), shown_);
                out_of_steps(shown_, F, F, steps, some(call_.answers, F, place));
            }
        }
    }

    void backward_by_steps(long row, int count) {
        now_ = maps_;
        std::fill_n(grads_ + 0, count * N * Q, Vec<R>{});
        by_sums(count, [](Vec<R>& sum, long lane, R& own) { own = sum[lane]; });
        for (long first = (T + L - 1) / L * L - L; first >= 0; first -= L) {
            const long steps = std::min(L, T - first);
            for (long sequence = 0; sequence < count; ++sequence) {
                const long place = (row + sequence) * T + first;
                R *own = kept_of(row, sequence), *of_bias = of_few_ + sequence * (H + D);
                by_maps(steps, own + first * W, [](Vec<R>& map, R* from, long many) { map = vector_at<R>(from, many); });
                into_bundles(own + T * W + first / L * M, bundles_);
                find_steps(groups(steps), lanes);
                of_now_ = of_maps_of_ + sequence * G * W;
                Vec<R>* given = given_ + sequence * G * F;
                into_steps(some(call_.given, F, place), F, steps, given);
                times(back_, D, F, given, groups(steps), outer_);
                std::fill_n(of_now_, groups(steps) * W, Vec<R>{});
                for (long b = 0; b < N; ++b) {
                    through_steps<true>(b * C, steps, bundles_ + b * Q);
                    const long own_bundle = (sequence * N + b) * Q;
                    back_steps(b * C, steps, grads_ + own_bundle, of_rates_ + own_bundle);
                }
                add_skips(steps, answer_rows_ + sequence * L * D, of_bias + H);
                finish_steps(steps, of_bias);
                out_of_steps(answers_, D, D, steps, answer_rows_ + sequence * L * D);
                times(turned_, F, W, of_now_, groups(steps), read_);
                out_of_steps(read_, F, F, steps, some(call_.of_read, F, place));
            }
            const R* read = some(call_.read, F, row * T + first);
            add_products({of_maps_of_, W, count, steps}, read, T * F, F, of_joined_);
            add_products({given_, F, count, steps}, answer_rows_, L * D, D, of_readout_);
        }
        by_sums(count, [](Vec<R>& sum, long lane, R own) { sum[lane] = own; });
    }

    // work(sum over all steps, lane of the sequence in it, where the sequence has its own)
    template <class Do> void by_sums(int count, Do work) {
        for (int sequence = 0; sequence < count; ++sequence) {
            R *of_bias = of_few_ + sequence * (H + D), *of_rate = numbers(of_rates_ + sequence * N * Q);
            for (long h = 0; h < H; ++h) work(sums_[h], sequence, of_bias[h]);
            for (long m = 0; m < M; ++m) work(sums_[H + m], sequence, of_rate[m / (C * S) * Q * lanes + m % (C * S)]);
            for (long d = 0; d < D; ++d) work(sums_[H + M + d], sequence, of_bias[H + d]);
        }
    }

    // Gradients of skips, whose steps are summed up in their order; scratch: [steps][D].
    void add_skips(long steps, R* scratch, R* of_skip) {
        out_of_steps(outer_, D, D, steps, outer_rows_);
        out_of_steps(now_ + H + S, W, D, steps, scratch);
        for (long t = steps - 1; t >= 0; --t)
            for (long d = 0; d < D; ++d) of_skip[d] += outer_rows_[t * D + d] * scratch[t * D + d];
    }

    void finish_steps(long steps, R* of_bias) {
        for (long g = groups(steps) - 1; g >= 0; --g)
            for (long h = 0; h < H; ++h) {
                of_now_[g * W + h] *= slope_[g * H + h];
                for (long t = steps_of(g, steps) - 1; t >= 0; --t) of_bias[h] += of_now_[g * W + h][t];
            }
    }

    // A bundle of channels through a chunk: `through` of few sequences.
    template <bool Keeps> void through_steps(long first, long steps, Vec<R>* states) {
        const long channels = std::min(C, D - first), all = G * lanes;
        for (long g = 0; g < groups(steps); ++g) {
            const Vec<R>*input = now_ + g * W + H, *size = step_ + g * H;
            to_states(g, channels, in_decay_, [&](long j, long s) {
                return exponential<R>(-rate_[(first + j) * S + s] * size[(first + j) * H / D]);
            });
            to_states(g, channels, in_added_, [&](long j, long) { return size[(first + j) * H / D] * input[S + first + j]; });
            to_states(g, channels, in_input_, [&](long, long s) { return input[s]; });
        }
        for (long q = 0; q < Q; ++q) {
            Vec<R> state = states[q], *kept = in_states_ + q * (all + 1);
            kept[0] = state;
            for (long t = 0; t < steps; ++t) {
                const long k = q * all + t;
                state = in_decay_[k] * state + in_added_[k] * in_input_[k];
                kept[t + 1] = state;
            }
            if (!Keeps) states[q] = state;
        }
        for (long g = 0; g < groups(steps); ++g) {
            Vec<R>* now = states_of_ + g * Q * lanes;
            to_steps(in_states_ + 1, all + 1, g, now);
            const Vec<R>*input = now_ + g * W + H, *output = input + S + D;
            for (long j = 0; j < channels; ++j) {
                const long d = first + j;
                Vec<R> answer[TOGETHER] = {};
                by_states([&](auto width, long s) {
                    for (int i = 0; i < decltype(width)::value; ++i) answer[i] += output[s + i] * now[j * S + s + i];
                });
                answers_[g * D + d] = ((answer[0] + answer[1]) + (answer[2] + answer[3])) + skip_[d] * input[S + d];
            }
        }
    }

    // `back` of few sequences.
    void back_steps(long first, long steps, Vec<R>* grads, Vec<R>* of_rates) {
        const long channels = std::min(C, D - first), all = G * lanes;
        for (long g = 0; g < groups(steps); ++g) {
            const Vec<R>*output = now_ + g * W + H + S + D, *size = step_ + g * H, *outer = outer_ + g * D;
            to_states(g, channels, in_output_, [&](long, long s) { return output[s]; });
            to_states(g, channels, in_outer_, [&](long j, long) { return outer[first + j]; });
            to_states(g, channels, in_step_, [&](long j, long) { return size[(first + j) * H / D]; });
        }
        const R least = std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();  // as in `back`
        for (long q = 0; q < Q; ++q) {
            Vec<R> grad = grads[q], of_rate = of_rates[q];
            const Vec<R>* before = in_states_ + q * (all + 1);
            for (long t = steps - 1; t >= 0; --t) {
                const long k = q * all + t;
                const Vec<R> whole = grad + in_output_[k] * in_outer_[k], passed = whole * in_decay_[k];
                const Vec<R> of_exponent = passed * before[t];
                of_rate -= of_exponent * in_step_[k];
                in_whole_[k] = whole;
                in_exponent_[k] = of_exponent;
                grad = passed;
            }
            grads[q] = (grad < least) & (grad > -least) ? Vec<R>{} : grad;
            of_rates[q] = of_rate;
        }
        for (long g = 0; g < groups(steps); ++g) {
            to_steps(in_whole_, all, g, whole_of_);
            to_steps(in_exponent_, all, g, exponent_of_);
            for (long j = 0; j < channels; ++j) back_channel(first + j, g, (g * Q * lanes) + j * S, j * S);
        }
    }

    // What the steps of a group give to the maps; now, own: where the channel's states and their gradients stand.
    void back_channel(long d, long group, long now, long own) {
        const long h = d * H / D;
        const R* rate = rate_ + d * S;
        const Vec<R>*input = now_ + group * W + H, *whole = whole_of_ + own, *of_exponent = exponent_of_ + own;
        Vec<R>*of_input = of_now_ + group * W + H, *of_output = of_input + S + D;
        const Vec<R> step = step_[group * H + h], channel = input[S + d], added = step * channel;
        const Vec<R> outer = outer_[group * D + d];
        Vec<R> of_added[TOGETHER] = {}, of_step[TOGETHER] = {};
        by_states([&](auto width, long s) {
            for (int j = 0; j < decltype(width)::value; ++j) {
                of_output[s + j] += outer * states_of_[now + s + j];
                of_input[s + j] += whole[s + j] * added;
                of_added[j] += whole[s + j] * input[s + j];
                of_step[j] -= of_exponent[s + j] * rate[s + j];
            }
        });
        const Vec<R> by_added = (of_added[0] + of_added[1]) + (of_added[2] + of_added[3]);
        const Vec<R> by_step = (of_step[0] + of_step[1]) + (of_step[2] + of_step[3]);
        of_input[S + d] = by_added * step + outer * skip_[d];
        of_now_[group * W + h] += by_added * channel + by_step;
    }

    // [sequence][G][rows] vectors of steps.
    struct Left {
        const Vec<R>* first;
        long rows, sequences, steps;
    };

    // into[i][j] += the sum over steps and sequences of left[i] right[j], in the order of `add_outer`; right: rows of
    // numbers, one a step, those of the next sequence `next` numbers further.
    void add_products(const Left& left, const R* right, long next, long columns, R* into) {
        long j = 0;
        for (; j + 2 * lanes <= columns; j += 2 * lanes) by_rows<2>(left, right + j, next, columns, into + j);
        for (; j + lanes <= columns; j += lanes) by_rows<1>(left, right + j, next, columns, into + j);
        if (j == columns) return;
        for (long s = 0; s < left.sequences; ++s)
            for (long t = 0; t < left.steps; ++t) {
                Vec<R>& to = rest_[s * L + t];
                to = Vec<R>{};
                std::copy_n(right + s * next + t * columns + j, columns - j, numbers(&to));
            }
        long i = 0;
        for (; i + 4 <= left.rows; i += 4) rest_tile<4>(left, i, columns, columns - j, into + j);
        for (; i < left.rows; ++i) rest_tile<1>(left, i, columns, columns - j, into + j);
    }

    template <int K> void by_rows(const Left& left, const R* right, long next, long columns, R* into) {
        long i = 0;
        for (; K * 8 <= REGISTERS / 2 && i + 8 <= left.rows; i += 8) tile<8, K>(left, i, right, next, columns, into);
        for (; i + 4 <= left.rows; i += 4) tile<4, K>(left, i, right, next, columns, into);
        for (; i < left.rows; ++i) tile<1, K>(left, i, right, next, columns, into);
    }

    // Row i at a step; the next row has it `lanes` numbers further.
    const R* number(const Left& left, long i, long sequence, long t) const {
        return numbers(left.first + (sequence * G + t / lanes) * left.rows + i) + t % lanes;
    }

    template <int U, int K>
    void tile(const Left& left, long i, const R* right, long next, long columns, R* into) {
        constexpr long together = 128 / lanes;  // steps that `outer_columns` sums up by themselves
        for (long first = 0; first < left.steps; first += together) {
            Vec<R> acc[U][K] = {};
            for (long t = first; t < std::min(first + together, left.steps); ++t)
                for (long s = 0; s < left.sequences; ++s) {
                    const R* e = number(left, i, s, t);
                    Vec<R> row[K];
                    std::memcpy(row, right + s * next + t * columns, sizeof row);
                    for (int u = 0; u < U; ++u)
                        for (int c = 0; c < K; ++c) acc[u][c] += e[u * lanes] * row[c];
                }
            for (int u = 0; u < U; ++u)
                for (int c = 0; c < K; ++c) {
                    R* to = into + (i + u) * columns + c * lanes;
                    put<R>(vector_at<R>(to, lanes) + acc[u][c], to, lanes);
                }
        }
    }

    // Columns that fill no vector: each sequence is summed up by itself, and then they are by pairs, as in `sum`.
    template <int U> void rest_tile(const Left& left, long i, long columns, long some, R* into) {
        Vec<R> part[lanes][U];
        for (long s = 0; s < left.sequences; ++s) {
            Vec<R> acc[U] = {};
            for (long t = 0; t < left.steps; ++t) {
                const R* e = number(left, i, s, t);
                for (int u = 0; u < U; ++u) acc[u] += e[u * lanes] * rest_[s * L + t];
            }
            for (int u = 0; u < U; ++u) part[s][u] = acc[u];
        }
        for (int half = lanes / 2; half > 0; half /= 2)
            for (int s = 0; s < half && s + half < left.sequences; ++s)
                for (int u = 0; u < U; ++u) part[s][u] += part[s + half][u];
        for (int u = 0; u < U; ++u)
            for (long c = 0; c < some; ++c) into[(i + u) * columns + c] += part[0][u][c];
    }

    const StateSpaceCall& call_;
    const long B, T, F, H, D, S, M, W, L;
    const R *bias_ = nullptr, *rate_ = nullptr, *skip_ = nullptr, *readout_ = nullptr;
    Vec<R>* now_ = nullptr;  // maps of the chunk
    Buffer<R> joined_, turned_, of_joined_, of_readout_, back_;
    Buffer<Vec<R>> maps_, read_, shown_, step_, slope_, outer_, answers_, state_, grad_, of_maps_, sums_, states_, decays_;

    // Of few sequences: groups of steps in a chunk, channels of a bundle, bundles, vectors of a bundle's states, and of all
    // its steps.
    const long G = groups(L), C = std::max(1L, std::min(D, lanes / S)), N = few() ? (D + C - 1) / C : 0;
    const long Q = few() ? (C * S + lanes - 1) / lanes : 0, A = Q * G * lanes;
    Vec<R>* of_now_ = nullptr;
    Buffer<R> of_few_, answer_rows_, outer_rows_;
    Buffer<Vec<R>> bundles_, grads_, of_rates_, of_maps_of_, given_, rest_, rows_;
    Buffer<Vec<R>> in_decay_, in_added_, in_input_, in_output_, in_outer_, in_step_, in_states_, in_whole_, in_exponent_;
    Buffer<Vec<R>> states_of_, whole_of_, exponent_of_;  // [state] of steps; the others have [vector of states][step]
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
