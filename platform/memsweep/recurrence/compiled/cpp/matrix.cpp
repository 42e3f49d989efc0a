// A recurrence whose state is a matrix, and its gradient; see memsweep/recurrence/matrix.
//
//     S_t = S_{t-1} (diag(a_t) - r_t e_t') + v_t k_t',   y_t = s S_t q_t
//
// Items (heads of sequences of replicas) stand in the lanes of vectors, so that none depends on another. Rows of S depend
// on keys, and not on one another: a few at a time run through a chunk of steps, and stay in the cache. The state before
// each chunk is kept; the way back runs through the chunk once more. Items that would leave lanes empty, and those whose
// states fill lanes themselves, go another way, to the same bits: matrix_few.h.
//
// Letters: X items, T time, K keys, V values (rows of S), J rows at a time.
#include "matrix_few.h"

namespace {

// A series [X][T][width] and one chunk of it, of as many items as there are lanes.
template <class R> class Part {
public:
    Part(const void* all, long width, const MatrixCall& call)
        : all_(static_cast<R*>(const_cast<void*>(all))), width_(width), row_(call.horizon * width),
          vectors_(all ? call.chunk * width : 0) {}

    void read(long item, int count, long step, long steps) {
        if (all_) into_lanes<R>(all_ + item * row_ + step * width_, row_, count, steps * width_, vectors_);
    }
    void write(long item, int count, long step, long steps) {
        if (all_) out_of_lanes<R>(vectors_, row_, count, steps * width_, all_ + item * row_ + step * width_);
    }
    void clear(long steps) { if (all_) std::fill_n(static_cast<Vec<R>*>(vectors_), steps * width_, Vec<R>{}); }
    Vec<R>* operator[](long step) { return vectors_ + step * width_; }

private:
    R* all_;
    long width_, row_;
    Buffer<Vec<R>> vectors_;
};

template <class R, Erased E, Decay D> class Recurrence {
public:
    explicit Recurrence(const MatrixCall& call)
        : call_(call), scale_(call.scale), K(call.keys), V(call.values), chunks_((call.horizon + call.chunk - 1) / call.chunk),
          query_(call.query, K, call), key_(call.key, K, call), value_(call.value, V, call),
          decay_(call.decay, call.decays, call), read_(call.read, K, call), erased_(call.erased, K, call),
          answers_(call.answers, V, call), given_(call.given, V, call), of_query_(call.of_query, K, call),
          of_key_(call.of_key, K, call), of_value_(call.of_value, V, call), of_decay_(call.of_decay, call.decays, call),
          of_read_(call.of_read, K, call), of_erased_(call.of_erased, K, call), state_(K * V), grad_(K * V),
          kept_(call.backward ? (call.chunk + 1) * TOGETHER * K : 0), sums_(call.chunk * TOGETHER) {}

    void forward(long item, int count) {
        into_lanes<R>(state_of(item, 0), apart(), count, K * V, state_);
        for (long c = 0; c < chunks_; ++c) {
            const long first = c * call_.chunk, steps = read(item, count, first);
            by_rows([&](auto rows, long row) {
                run<decltype(rows)::value, false>(row, steps, state_ + row * K);
            });
            answers_.write(item, count, first, steps);
            out_of_lanes<R>(state_, apart(), count, K * V, state_of(item, c + 1));
        }
    }

    void backward(long item, int count) {
        const R* left = static_cast<const R*>(call_.given_left) + item * K * V;
        into_lanes<R>(left, K * V, count, K * V, grad_);
        for (long c = chunks_ - 1; c >= 0; --c) {
            const long first = c * call_.chunk, steps = read(item, count, first);
            given_.read(item, count, first, steps);
            into_lanes<R>(state_of(item, c), apart(), count, K * V, state_);
            for (Part<R>* part : {&of_query_, &of_key_, &of_decay_, &of_read_, &of_erased_}) part->clear(steps);
            by_rows([&](auto rows, long row) {
                constexpr int J = decltype(rows)::value;
                std::copy_n(state_ + row * K, J * K, static_cast<Vec<R>*>(kept_));
                run<J, true>(row, steps, kept_);
                back<J>(row, steps, grad_ + row * K);
            });
            for (Part<R>* part : {&of_query_, &of_key_, &of_value_, &of_decay_, &of_read_, &of_erased_})
                part->write(item, count, first, steps);
            without_subnormals<R>(grad_, K * V);
        }
        out_of_lanes<R>(grad_, K * V, count, K * V, static_cast<R*>(call_.of_start) + item * K * V);
    }

private:
    long apart() const { return (call_.kept + 1) * K * V; }
    R* state_of(long item, long chunk) {
        return static_cast<R*>(call_.states) + item * apart() + std::min<long>(chunk, call_.kept) * K * V;
    }

    long read(long item, int count, long first) {
        const long steps = std::min(call_.chunk, call_.horizon - first);
        for (Part<R>* part : {&query_, &key_, &value_, &decay_, &read_, &erased_}) part->read(item, count, first, steps);
        return steps;
    }

    template <class Do> void by_rows(Do work) {
        long row = 0;
        for (; row + TOGETHER <= V; row += TOGETHER) work(std::integral_constant<int, TOGETHER>{}, row);
        for (; row < V; ++row) work(std::integral_constant<int, 1>{}, row);
    }

    Vec<R> faded(long step, long key, Vec<R> state) {
        return D == NONE ? state : decay_[step][D == EACH ? key : 0] * state;
    }

    // J rows through a chunk. Keeps: leaves the state behind each step, and S r, for the way back, and no answers.
    template <int J, bool Keeps> void run(long row, long steps, Vec<R>* states) {
        for (long t = 0; t < steps; ++t) {
            Vec<R>*before = states + (Keeps ? t * J * K : 0), *now = states + (Keeps ? (t + 1) * J * K : 0);
            const Vec<R> *q = query_[t], *k = key_[t], *r = read_[t], *e = erased_[t];
            Vec<R> removed[J] = {}, answer[J] = {}, value[J];
            if (E != NOTHING)
                for (long i = 0; i < K; ++i)
                    for (int j = 0; j < J; ++j) removed[j] += r[i] * before[j * K + i];
            for (int j = 0; j < J; ++j) value[j] = value_[t][row + j] - (E == WRITTEN ? removed[j] : Vec<R>{});
            for (long i = 0; i < K; ++i)
                for (int j = 0; j < J; ++j) {
                    Vec<R> state = faded(t, i, before[j * K + i]) + k[i] * value[j];
                    if (E == OTHERS) state -= e[i] * removed[j];
                    now[j * K + i] = state;
                    if (!Keeps) answer[j] += q[i] * state;
                }
            for (int j = 0; j < J; ++j)
                if (Keeps) sums_[t * J + j] = removed[j];
                else answers_[t][row + j] = scale_ * answer[j];
        }
    }

    template <int J> void back(long row, long steps, Vec<R>* grad) {
        for (long t = steps - 1; t >= 0; --t) {
            const Vec<R>*before = kept_ + t * J * K, *now = before + J * K;
            const Vec<R> *q = query_[t], *k = key_[t], *r = read_[t], *e = erased_[t];
            Vec<R> given[J], value[J], removed[J], of_value[J] = {}, of_removed[J] = {}, of_all{};
            for (int j = 0; j < J; ++j) {
                given[j] = scale_ * given_[t][row + j];
                removed[j] = sums_[t * J + j];
                value[j] = value_[t][row + j] - (E == WRITTEN ? removed[j] : Vec<R>{});
            }
            for (long i = 0; i < K; ++i) {
                Vec<R> of_query{}, of_key{}, of_erased{}, of_decay{};
                for (int j = 0; j < J; ++j) {
                    const Vec<R> whole = grad[j * K + i] + q[i] * given[j];
                    of_query += now[j * K + i] * given[j];
                    of_key += whole * value[j];
                    of_value[j] += whole * k[i];
                    if (E == OTHERS) {
                        of_erased -= whole * removed[j];
                        of_removed[j] -= whole * e[i];
                    }
                    if (D != NONE) of_decay += whole * before[j * K + i];
                    grad[j * K + i] = faded(t, i, whole);
                }
                of_query_[t][i] += of_query;
                of_key_[t][i] += of_key;
                if (E == OTHERS) of_erased_[t][i] += of_erased;
                if (D == EACH) of_decay_[t][i] += of_decay;
                if (D == ALL) of_all += of_decay;
            }
            if (D == ALL) of_decay_[t][0] += of_all;
            for (int j = 0; j < J; ++j) of_value_[t][row + j] = of_value[j];
            if (E == NOTHING) continue;
            for (int j = 0; j < J; ++j)
                if (E == WRITTEN) of_removed[j] = -of_value[j];
            for (long i = 0; i < K; ++i) {
                Vec<R> of_read{};
                for (int j = 0; j < J; ++j) {
                    of_read += before[j * K + i] * of_removed[j];
                    grad[j * K + i] += r[i] * of_removed[j];
                }
                of_read_[t][i] += of_read;
            }
        }
    }

    const MatrixCall& call_;
    const R scale_;
    const long K, V, chunks_;
    Part<R> query_, key_, value_, decay_, read_, erased_, answers_, given_;
    Part<R> of_query_, of_key_, of_value_, of_decay_, of_read_, of_erased_;
    Buffer<Vec<R>> state_, grad_, kept_, sums_;
};

template <class R, Erased E, Decay D> void run(const MatrixCall& call) {
    using Few = FewItems<R, E, D>;
    constexpr int lanes = Simd<R>::lanes;
    // items that go by themselves: all, or those that fill no whole block; which way is a question of time alone
    const long over = call.items % lanes;
    const long rest = Few::pays(call, lanes) ? call.items : Few::pays(call, over) ? over : 0;
    if (call.items > rest) {
        Recurrence<R, E, D> recurrence(call);
        for (long item = 0; item < call.items - rest; item += lanes) {
            const int count = std::min<long>(lanes, call.items - rest - item);
            call.backward ? recurrence.backward(item, count) : recurrence.forward(item, count);
        }
    }
    if (!rest) return;
    Few few(call);
    for (long item = call.items - rest; item < call.items; ++item) call.backward ? few.backward(item) : few.forward(item);
}

template <class R, Erased E> void run(const MatrixCall& call) {
    if (call.decays == 0) run<R, E, NONE>(call);
    else if (call.decays == 1) run<R, E, ALL>(call);
    else run<R, E, EACH>(call);
}

}  // namespace

// What Python calls (kernel.py), for some items. 0: done; 2: no memory.
extern "C" int memsweep_matrix(const MatrixCall* call) try {
    if (!call->read) run<REAL, NOTHING>(*call);
    else call->erased ? run<REAL, OTHERS>(*call) : run<REAL, WRITTEN>(*call);
    return 0;
} catch (const std::bad_alloc&) {
    return 2;
}
