// The recurrence of matrix.cpp for one item at a time, whose own state fills the lanes of vectors. Sums over keys need
// lanes of values (rows of S), sums over values need lanes of keys. So the state goes through a chunk in both, and each sum
// keeps the order that it has in matrix.cpp, with the same roundings.
//
// Letters: T time, K keys, V values, L lanes, W vectors of V, U vectors of K, J vectors of values at a time.
#pragma once
#include "matrix.h"

namespace {

// A product that is stored as it is: what is added to it later must not join it in one rounding.
template <class V> inline void rounded(V& product) {
#if defined(__x86_64__)
    asm("" : "+v"(product));
#elif defined(__aarch64__)
    asm("" : "+w"(product));
#else
    asm("" : "+m"(product));
#endif
}

// work(0), work(1) ... as constants, so that arrays of vectors which are told apart by them stay in registers.
template <class Do, int... n> inline void each(std::integer_sequence<int, n...>, Do work) {
    (work(std::integral_constant<int, n>{}), ...);
}
template <int N, class Do> inline void each(Do work) { each(std::make_integer_sequence<int, N>{}, work); }

// A series [X][T][width] and one chunk of one item of it: rows of whole vectors, and a row behind them.
template <class R> class Rows {
public:
    Rows(const void* all, long width, const MatrixCall& call)
        : all_(static_cast<R*>(const_cast<void*>(all))), width_(width), horizon_(call.horizon),
          vectors_((width + lanes - 1) / lanes), room_(all ? (call.chunk + 1) * vectors_ : 0) {
        clear(call.chunk + 1);
    }

    void read(long item, long step, long steps) {
        for (long t = 0; all_ && t < steps; ++t) std::copy_n(row(item, step + t), width_, numbers(t));
    }
    void write(long item, long step, long steps) {
        for (long t = 0; all_ && t < steps; ++t) std::copy_n(numbers(t), width_, row(item, step + t));
    }
    void clear(long steps) { if (all_) std::fill_n(static_cast<Vec<R>*>(room_), steps * vectors_, Vec<R>{}); }
    Vec<R>* operator[](long step) { return room_ + step * vectors_; }
    R* numbers(long step) { return reinterpret_cast<R*>(room_ + step * vectors_); }

private:
    static constexpr int lanes = Simd<R>::lanes;
    R* row(long item, long step) { return all_ + (item * horizon_ + step) * width_; }

    R* all_;
    long width_, horizon_, vectors_;
    Buffer<Vec<R>> room_;
};

template <class R, Erased E, Decay D> class FewItems {
public:
    explicit FewItems(const MatrixCall& call)
        : call_(call), scale_(call.scale), K(call.keys), V(call.values), W((V + L - 1) / L), U((K + L - 1) / L),
          query_(call.query, K, call), key_(call.key, K, call), value_(call.value, V, call),
          decay_(call.decay, call.decays, call), read_(call.read, K, call), erased_(call.erased, K, call),
          answers_(call.answers, V, call), given_(call.given, V, call), of_query_(call.of_query, K, call),
          of_key_(call.of_key, K, call), of_value_(call.of_value, V, call), of_decay_(call.of_decay, call.decays, call),
          of_read_(call.of_read, K, call), of_erased_(call.of_erased, K, call),
          removed_(&call, E == NOTHING ? 0 : V, call), of_removed_(&call, E == NOTHING ? 0 : V, call),
          down_(W * K), grad_down_(call.backward ? W * K : 0), across_(call.backward ? V * U : 0),
          grad_across_(call.backward ? V * U : 0), kept_((call.chunk + 1) * ROWS),
          steps_(D == ALL ? ROWS / TOGETHER * call.chunk + L : 0), fading_(fading_groups() * call.chunk + L) {
        std::fill_n(steps_ + 0, D == ALL ? ROWS / TOGETHER * call.chunk + L : 0, Vec<R>{});
    }

    // Whether `count` items cost less one by one than in the lanes of a block, whose states leave the nearest cache. One
    // by one, a state is gone through in vectors of values and in vectors of keys.
    static bool pays(const MatrixCall& call, long count) {
        const long K = call.keys, V = call.values, W = (V + L - 1) / L, U = (K + L - 1) / L;
        const long vectors = count * (W * K + U * V), block = 2 * K * V;
        return vectors < block || (vectors == block && W > 1);
    }

    void forward(long item) {
        into_rows(state_of(item, 0), down_);
        for (long first = 0, c = 1; first < call_.horizon; first += call_.chunk, ++c) {
            const long steps = read(item, first);
            by_vectors([&](auto vectors, long w) { run<decltype(vectors)::value, false>(w, steps); });
            answers_.write(item, first, steps);
            out_of_rows(down_, state_of(item, c));
        }
    }

    void backward(long item) {
        const R* left = static_cast<const R*>(call_.given_left) + item * K * V;
        into_rows(left, grad_down_);
        into_keys(left, grad_across_);
        for (long c = (call_.horizon + call_.chunk - 1) / call_.chunk - 1; c >= 0; --c) {
            const long first = c * call_.chunk, steps = read(item, first);
            given_.read(item, first, steps);
            if (E != NOTHING) into_rows(state_of(item, c), down_);
            by_vectors([&](auto vectors, long w) {
                constexpr int J = decltype(vectors)::value;
                if (E != NOTHING) run<J, true>(w, steps);
                back<J>(w, steps);
            });
            into_keys(state_of(item, c), across_);
            for (Rows<R>* rows : {&of_query_, &of_key_, &of_decay_, &of_read_, &of_erased_}) rows->clear(steps);
            std::fill_n(fading_ + 0, fading_groups() * call_.chunk, R(0));
            for (long u = 0; u < U; ++u) by_rows([&](auto groups, auto together, long row, R* fading) {
                sums_over_values<decltype(groups)::value, decltype(together)::value>(u, row, steps, fading);
            });
            for (long g = 0; g < fading_groups(); ++g)
                for (long t = 0; t < steps; ++t) *of_decay_.numbers(t) += fading_[g * call_.chunk + t];
            for (Rows<R>* rows : {&of_query_, &of_key_, &of_value_, &of_decay_, &of_read_, &of_erased_})
                rows->write(item, first, steps);
            without_subnormals<R>(grad_down_, W * K);
            without_subnormals<R>(grad_across_, V * U);
        }
        R* start = static_cast<R*>(call_.of_start) + item * K * V;
        for (long row = 0; row < V; ++row) std::copy_n(numbers(grad_across_ + row * U), K, start + row * K);
    }

private:
    static constexpr int L = Simd<R>::lanes, ROWS = 4;  // rows that go through a chunk by keys at once

    static R* numbers(Vec<R>* vectors) { return reinterpret_cast<R*>(vectors); }
    R* state_of(long item, long chunk) {
        return static_cast<R*>(call_.states) + (item * (call_.kept + 1) + std::min<long>(chunk, call_.kept)) * K * V;
    }

    long read(long item, long first) {
        const long steps = std::min(call_.chunk, call_.horizon - first);
        for (Rows<R>* rows : {&query_, &key_, &value_, &decay_, &read_, &erased_}) rows->read(item, first, steps);
        return steps;
    }

    // S [V][K] as [W][K] vectors of rows, and back; as [V][U] vectors of keys.
    void into_rows(const R* state, Vec<R>* to) {
        for (long w = 0; w < W; ++w) into_lanes<R>(state + w * L * K, K, std::min<long>(L, V - w * L), K, to + w * K);
    }
    void out_of_rows(const Vec<R>* from, R* state) {
        for (long w = 0; w < W; ++w) out_of_lanes<R>(from + w * K, K, std::min<long>(L, V - w * L), K, state + w * L * K);
    }
    void into_keys(const R* state, Vec<R>* to) {
        std::fill_n(to, V * U, Vec<R>{});
        for (long row = 0; row < V; ++row) std::copy_n(state + row * K, K, numbers(to + row * U));
    }

    template <class Do> void by_vectors(Do work) {
        long w = 0;
        for (; w + 4 <= W; w += 4) work(std::integral_constant<int, 4>{}, w);
        if (W - w == 3) work(std::integral_constant<int, 3>{}, w);
        if (W - w == 2) work(std::integral_constant<int, 2>{}, w);
        if (W - w == 1) work(std::integral_constant<int, 1>{}, w);
    }

    // Groups of rows whose sums are taken together, and then by themselves: TOGETHER rows each, and the rest alone.
    long fading_groups() const { return D == ALL ? V / TOGETHER + V % TOGETHER : 0; }

    template <class Do> void by_rows(Do work) {
        using std::integral_constant;
        R* fading = fading_;
        long row = 0;
        for (; row + ROWS <= V; row += ROWS, fading += ROWS / TOGETHER * call_.chunk)
            work(integral_constant<int, ROWS / TOGETHER>{}, integral_constant<int, TOGETHER>{}, row, fading);
        for (; row + TOGETHER <= V; row += TOGETHER, fading += call_.chunk)
            work(integral_constant<int, 1>{}, integral_constant<int, TOGETHER>{}, row, fading);
        for (; row < V; ++row, fading += call_.chunk)
            work(integral_constant<int, 1>{}, integral_constant<int, 1>{}, row, fading);
    }

    template <class A> static Vec<R> faded(const A* decay, long key, Vec<R> state) {
        return D == NONE ? state : decay[D == EACH ? key : 0] * state;
    }

    // J vectors of rows through a chunk. Keeps: leaves S r of each step for the way back, and no answers.
    template <int J, bool Keeps> void run(long w, long steps) {
        Vec<R>* state = down_ + w * K;
        Vec<R> removed[J] = {};
        if (E == NOTHING) {
            long t = 0;
            for (; t + 2 <= steps; t += 2) answer<J, 2>(state, w, t);
            if (t < steps) answer<J, 1>(state, w, t);
            return;
        }
        for (long i = 0; i < K; ++i)
            for (int j = 0; j < J; ++j) removed[j] += read_.numbers(0)[i] * state[j * K + i];
        for (long t = 0; t < steps; ++t) {
            const R *q = query_.numbers(t), *k = key_.numbers(t), *a = decay_.numbers(t), *e = erased_.numbers(t);
            const R* r = read_.numbers(t + 1);  // behind the last step zeros, or what nobody asks for
            Vec<R> next[J] = {}, answer[J] = {}, value[J];
            for (int j = 0; j < J; ++j) value[j] = value_[t][w + j] - (E == WRITTEN ? removed[j] : Vec<R>{});
            for (long i = 0; i < K; ++i)
                for (int j = 0; j < J; ++j) {
                    Vec<R> now = faded(a, i, state[j * K + i]) + k[i] * value[j];
                    if (E == OTHERS) now -= e[i] * removed[j];
                    state[j * K + i] = now;
                    if (!Keeps) answer[j] += q[i] * now;
                    next[j] += r[i] * now;
                }
            for (int j = 0; j < J; ++j) {
                if (Keeps) removed_[t][w + j] = removed[j], value_[t][w + j] = value[j];  // as the sums over values need it
                else answers_[t][w + j] = scale_ * answer[j];
                removed[j] = next[j];
            }
        }
    }

    // S steps at once where nothing is erased: none of them needs a sum over the state of the step before, so that a
    // vector of it is read and written once.
    template <int J, int S> void answer(Vec<R>* state, long w, long t) {
        const R *q[S], *k[S], *a[S];
        Vec<R> answer[S][J] = {}, value[S][J];
        for (int s = 0; s < S; ++s) {
            q[s] = query_.numbers(t + s), k[s] = key_.numbers(t + s), a[s] = decay_.numbers(t + s);
            for (int j = 0; j < J; ++j) value[s][j] = value_[t + s][w + j];
        }
        for (long i = 0; i < K; ++i)
            for (int j = 0; j < J; ++j) {
                Vec<R> now = state[j * K + i];
                for (int s = 0; s < S; ++s) {
                    now = faded(a[s], i, now) + k[s][i] * value[s][j];
                    answer[s][j] += q[s][i] * now;
                }
                state[j * K + i] = now;
            }
        for (int s = 0; s < S; ++s)
            for (int j = 0; j < J; ++j) answers_[t + s][w + j] = scale_ * answer[s][j];
    }

    // The sums over keys of the way back, which need no state.
    template <int J> void back(long w, long steps) {
        Vec<R>* grad = grad_down_ + w * K;
        Vec<R> of_removed[J] = {};
        if (E == NOTHING) {
            long t = steps;
            for (; t >= 2; t -= 2) of_values<J, 2>(grad, w, t - 2);
            if (t) of_values<J, 1>(grad, w, 0);
            return;
        }
        back_at<J, true>(grad, w, steps - 1, of_removed);
        for (long t = steps - 2; t >= 0; --t) back_at<J, false>(grad, w, t, of_removed);
        for (long i = 0; i < K; ++i)
            for (int j = 0; j < J; ++j) grad[j * K + i] += read_.numbers(0)[i] * of_removed[j];
    }

    // S steps at once, as in answer().
    template <int J, int S> void of_values(Vec<R>* grad, long w, long t) {
        const R *q[S], *k[S], *a[S];
        Vec<R> of_value[S][J] = {}, given[S][J];
        for (int s = 0; s < S; ++s) {
            q[s] = query_.numbers(t + s), k[s] = key_.numbers(t + s), a[s] = decay_.numbers(t + s);
            for (int j = 0; j < J; ++j) given[s][j] = given_[t + s][w + j] = scale_ * given_[t + s][w + j];
        }
        for (long i = 0; i < K; ++i)
            for (int j = 0; j < J; ++j) {
                Vec<R> whole = grad[j * K + i];
                for (int s = S - 1; s >= 0; --s) {
                    whole += q[s][i] * given[s][j];
                    of_value[s][j] += whole * k[s][i];
                    whole = faded(a[s], i, whole);
                    if (D != NONE) rounded(whole);
                }
                grad[j * K + i] = whole;
            }
        for (int s = 0; s < S; ++s)
            for (int j = 0; j < J; ++j) of_value_[t + s][w + j] = of_value[s][j];
    }

    // What the step behind has removed joins the gradient here, on the same way through it.
    template <int J, bool Last> void back_at(Vec<R>* grad, long w, long t, Vec<R> (&of_removed)[J]) {
        const R *q = query_.numbers(t), *k = key_.numbers(t), *a = decay_.numbers(t), *e = erased_.numbers(t);
        const R* r = read_.numbers(t + 1);
        Vec<R> given[J], of_value[J] = {}, of_now[J] = {};
        for (int j = 0; j < J; ++j) given[j] = given_[t][w + j] = scale_ * given_[t][w + j];
        for (long i = 0; i < K; ++i)
            for (int j = 0; j < J; ++j) {
                Vec<R> whole = grad[j * K + i];
                if (!Last) whole += r[i] * of_removed[j];
                whole += q[i] * given[j];
                of_value[j] += whole * k[i];
                if (E == OTHERS) of_now[j] -= whole * e[i];
                grad[j * K + i] = faded(a, i, whole);
            }
        for (int j = 0; j < J; ++j) {
            of_value_[t][w + j] = of_value[j];
            of_removed_[t][w + j] = of_removed[j] = E == WRITTEN ? -of_value[j] : of_now[j];
        }
    }

    // G times J rows of a vector of keys through a chunk and back; of each J the sums are taken together.
    template <int G, int J> void sums_over_values(long u, long row, long steps, R* fading) {
        constexpr int N = G * J;
        constexpr bool BEFORE = D != NONE || E != NOTHING;  // whether the way back needs the states before its steps
        const Vec<R> *q = query_[0] + u, *k = key_[0] + u, *r = read_[0] + u, *e = erased_[0] + u, *a = decay_[0] + u;
        const R *value = value_.numbers(0) + row, *given = given_.numbers(0) + row;
        const R *removed = removed_.numbers(0) + row, *of_removed = of_removed_.numbers(0) + row;
        Vec<R> *of_q = of_query_[0] + u, *of_k = of_key_[0] + u, *of_r = of_read_[0] + u, *of_e = of_erased_[0] + u;
        Vec<R> *of_a = of_decay_[0] + u, *kept = kept_, *fading_keys = steps_, state[N], grad[N];
        const R* a_of_all = decay_.numbers(0);
        const long U = this->U, by = W * L, chunk = call_.chunk;
        each<N>([&](auto n) {
            state[n] = across_[(row + n) * U + u];
            if (BEFORE) kept[n] = state[n];
            grad[n] = grad_across_[(row + n) * U + u];
        });
        for (long t = 0; t < steps; ++t) {
            const long by_key = t * U, by_value = t * by;
            Vec<R> of_query = of_q[by_key];
            each<G>([&](auto g) {
                Vec<R> some{};
                each<J>([&](auto j) {
                    constexpr int n = g * J + j;
                    state[n] = across_faded(a[by_key], a_of_all[t * L], state[n]) + k[by_key] * value[by_value + n];
                    if (E == OTHERS) state[n] -= e[by_key] * removed[by_value + n];
                    if (BEFORE) kept[(t + 1) * N + n] = state[n];
                    some += state[n] * given[by_value + n];
                });
                of_query += some;
            });
            of_q[by_key] = of_query;
        }
        for (long t = steps - 1; t >= 0; --t) {
            const long by_key = t * U, by_value = t * by;
            const Vec<R>* before = kept + t * N;
            Vec<R> of_key = of_k[by_key], of_erased{}, of_decay{}, of_read{};
            if (E == OTHERS) of_erased = of_e[by_key];
            if (D == EACH) of_decay = of_a[by_key];
            if (E != NOTHING) of_read = of_r[by_key];
            each<G>([&](auto g) {
                Vec<R> of_keys{}, of_others{}, of_decays{}, of_reads{};
                each<J>([&](auto j) {
                    constexpr int n = g * J + j;
                    const Vec<R> whole = grad[n] + q[by_key] * given[by_value + n];
                    of_keys += whole * value[by_value + n];
                    if (E == OTHERS) of_others -= whole * removed[by_value + n];
                    if (D != NONE) of_decays += whole * before[n];
                    grad[n] = across_faded(a[by_key], a_of_all[t * L], whole);
                    if (E == NOTHING) return;
                    of_reads += before[n] * of_removed[by_value + n];
                    if (D != NONE) rounded(grad[n]);
                    grad[n] += r[by_key] * of_removed[by_value + n];
                });
                of_key += of_keys;
                of_erased += of_others;
                of_read += of_reads;
                if (D == EACH) of_decay += of_decays;
                if (D == ALL) fading_keys[g * chunk + t] = of_decays;
            });
            of_k[by_key] = of_key;
            if (E == OTHERS) of_e[by_key] = of_erased;
            if (D == EACH) of_a[by_key] = of_decay;
            if (E != NOTHING) of_r[by_key] = of_read;
        }
        each<N>([&](auto n) { grad_across_[(row + n) * U + u] = grad[n]; });
        if (D == ALL)
            for (int g = 0; g < G; ++g)
                sum_of_keys(steps_ + g * call_.chunk, std::min<long>(L, K - u * L), steps, fading + g * call_.chunk);
    }

    // One a for all keys: its gradient is summed over them in their order, with steps in the lanes.
    void sum_of_keys(const Vec<R>* of_decay, long keys, long steps, R* sums) {
        for (long t = 0; t < steps; t += L) {
            Vec<R> square[L], sum;
            for (int i = 0; i < L; ++i) square[i] = of_decay[t + i];
            turn<R>(square);
            std::memcpy(&sum, sums + t, sizeof sum);
            for (long i = 0; i < keys; ++i) sum += square[i];
            std::memcpy(sums + t, &sum, sizeof sum);
        }
    }

    static Vec<R> across_faded(const Vec<R>& each, const R& all, Vec<R> state) {
        return D == NONE ? state : D == EACH ? each * state : all * state;
    }

    const MatrixCall& call_;
    const R scale_;
    const long K, V, W, U;
    Rows<R> query_, key_, value_, decay_, read_, erased_, answers_, given_;
    Rows<R> of_query_, of_key_, of_value_, of_decay_, of_read_, of_erased_, removed_, of_removed_;
    Buffer<Vec<R>> down_, grad_down_, across_, grad_across_, kept_, steps_;
    Buffer<R> fading_;  // [groups of rows][T]: gradients of one a for all keys
};

}  // namespace
