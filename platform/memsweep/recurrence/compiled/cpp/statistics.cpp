// Linear models of one input and one output, judged by the statistics of a batch: these statistics, and the loss of
// models that are sums of modes, with its gradient. See gram.py and modal_loss.py.
//
// A mode answers an impulse with a lambda^s. Its powers are formed in registers, with times in the lanes, and are never
// stored. Every number is a sum in an order of its own, whatever the other models are: so bits do not depend on them.
//
// Letters: N models, B sequences, T time, a multiple of a vector's lanes, M modes.
#include <algorithm>

#include "layer.h"

namespace {

struct GramCall {
    int64_t sequences, horizon, steps, power;  // w^2 goes with t^power from 1 to steps and is 0 then; -1: as it is given
    const void *x, *squares;                   // [B][T], [T]: w^2 / (B T)
    void *lags, *mean;                         // [T][T], [T]
};

struct ModalCall {
    int64_t complex, gradient, models, copies, horizon, width;  // copies of a model share its target
    int64_t row;  // from one model's weights to the next's where they lie in flat ones; 0: each tensor lies alone
    double least;                                               // of raw weights, see eigenvalue below
    const uint8_t* live;                                        // [N]: the others are passed over
    const void *input, *bias, *readout, *eigenvalues, *offset;  // [N][M] each, the last [N]
    const void *target;                                         // [N / copies][T]
    const void *lags, *mean, *weight;                           // [T][T], [T], [T]; without mean, the diagonal [T]
    void* loss;                                                 // [N]
    void *of_input, *of_bias, *of_readout, *of_eigenvalues, *of_offset;  // written
    const void* raw;                                            // [N][M], in place of the eigenvalues
    void* of_raw;
};

template <class R> constexpr int lanes = Simd<R>::lanes;

template <class R> inline Vec<R> load(const R* from) {
    typedef R Anywhere __attribute__((vector_size(BYTES), aligned(sizeof(R)), may_alias));
    return *reinterpret_cast<const Anywhere*>(from);
}

template <class R> inline void store(Vec<R> value, R* to) {
    typedef R Anywhere __attribute__((vector_size(BYTES), aligned(sizeof(R)), may_alias));
    *reinterpret_cast<Anywhere*>(to) = value;
}

struct Range {
    long from, to;
};

// Products out[i][j] = sum_k left[i][k] right[k][j]. Neighbours in i, k and j are so many numbers apart: in left `row`
// and `step`, in right `stride` and 1.
template <class R> struct Product {
    const R* left;
    long row, step;
    const R* right;
    long stride;
    R* out;
    long width;  // of a row of out
};

template <class R, int U, int W> void tile(const Product<R>& p, long i, long j, long from, long to, bool add) {
    Vec<R> acc[U][W] = {};
    if (add)
        for (int u = 0; u < U; ++u)
            for (int w = 0; w < W; ++w) acc[u][w] = load(p.out + (i + u) * p.width + j + w * lanes<R>);
    for (long k = from; k < to; ++k) {
        Vec<R> right[W];
        for (int w = 0; w < W; ++w) right[w] = load(p.right + k * p.stride + j + w * lanes<R>);
        for (int u = 0; u < U; ++u) {
            const R left = p.left[(i + u) * p.row + k * p.step];
            for (int w = 0; w < W; ++w) acc[u][w] += left * right[w];
        }
    }
    for (int u = 0; u < U; ++u)
        for (int w = 0; w < W; ++w) store<R>(acc[u][w], p.out + (i + u) * p.width + j + w * lanes<R>);
}

constexpr int ROWS = 4, WIDE = REGISTERS >= 32 ? 4 : 2;

template <class R, int W, class Part> void strip(const Product<R>& p, long rows, long j, Part part, bool add) {
    long i = 0;
    for (; i + ROWS <= rows; i += ROWS) {
        const auto [from, to] = part(i, i + ROWS, j, j + W * lanes<R>);
        if (from < to) tile<R, ROWS, W>(p, i, j, from, to, add);
    }
    for (; i < rows; ++i) {
        const auto [from, to] = part(i, i + 1, j, j + W * lanes<R>);
        if (from < to) tile<R, 1, W>(p, i, j, from, to, add);
    }
}

// part(i, i_end, j, j_end): the k that rows and columns sum over, all others being zero; empty where nobody wants them.
template <class R, class Part> void multiply(const Product<R>& p, long rows, long columns, Part part, bool add = false) {
    long j = 0;
    for (; j + WIDE * lanes<R> <= columns; j += WIDE * lanes<R>) strip<R, WIDE>(p, rows, j, part, add);
    for (; j < columns; j += lanes<R>) strip<R, 1>(p, rows, j, part, add);
}

// sums[s][d] of gram below where the weights are a power q of time: with (s + n)^q = sum_k C(q, k) s^(q-k) n^k they
// follow from q + 1 moments of the products, sums over n that grow by one term from row to row. No term is negative
// that has a positive product, so nothing cancels that did not before.
template <class R> void by_moments(const R* products, long T, long steps, long q, R last, R* sums) {
    Buffer<R> moments((q + 1) * T), of_term(q + 1), of_row(q + 1);
    std::fill(moments + 0, moments + (q + 1) * T, R(0));
    std::fill(sums + steps * T, sums + T * T, R(0));
    for (long s = steps - 1; s >= 0; --s) {
        const R n = R(steps - s) / R(steps), before = R(s) / R(steps);
        R term = R(1), choose = R(1), row = last;
        for (long k = 0; k <= q; ++k) of_term[k] = term, term *= n;
        for (long k = q; k >= 0; --k) of_row[k] = choose * row, row *= before, choose = choose * R(k) / R(q - k + 1);
        const R* fresh = products + (steps - s - 1) * (T + 1);
        for (long d = 0; d <= s; d += lanes<R>) {
            const Vec<R> product = load(fresh + d);
            Vec<R> total{};
            for (long k = 0; k <= q; ++k) {
                const Vec<R> moment = load(moments + k * T + d) + of_term[k] * product;
                store<R>(moment, moments + k * T + d);
                total += of_row[k] * moment;
            }
            store<R>(total, sums + s * T + d);
        }
    }
}

template <class R> void gram(const GramCall& call) {
    constexpr long CHUNK = 256, BLOCK = 16;  // sequences and lags that stay in the cache
    const long B = call.sequences, T = call.horizon;
    const R *x = static_cast<const R*>(call.x), *squares = static_cast<const R*>(call.squares);
    R *lags = static_cast<R*>(call.lags), *mean = static_cast<R*>(call.mean);

    std::fill(mean, mean + T, R(0));
    for (long b = 0; b < B; ++b)
        for (long t = 0; t < T; ++t) mean[t] += x[b * T + t];
    for (long t = 0; t < T; ++t) mean[t] /= R(B);

    // products[j][i] = sum_b x[j] x[i] for i >= j; below the diagonal and at the end zeros, which are read
    Buffer<R> products(T * (T + 1)), sums(T * T), weights(2 * T);
    for (long j = 0; j <= T; ++j) std::fill(products + j * T, products + j * T + std::min(j, T), R(0));
    for (long first = 0; first < B; first += CHUNK) {
        const long count = std::min(CHUNK, B - first);
        const auto part = [count](long i, long, long, long j_end) { return Range{0, j_end > i ? count : 0}; };
        multiply(Product<R>{x + first * T, 1, T, x + first * T, T, products, T}, T, T, part, first > 0);
    }
    // sums[s][d] = sum_j w^2[s + j] products[j][j + d] for d <= s: the statistic of lags s and s - d
    std::copy(squares, squares + T, weights + 0);
    std::fill(weights + T, weights + 2 * T, R(0));
    const auto part = [T](long i, long i_end, long j, long) { return Range{0, j < i_end ? T - i : 0}; };
    if (call.power < 0) multiply(Product<R>{weights, 1, 1, products, T + 1, sums, T}, T, T, part);
    else by_moments<R>(products, T, call.steps, call.power, squares[call.steps - 1], sums);
    for (long s = 0; s < T; ++s) std::reverse_copy(sums + s * T, sums + s * T + s + 1, lags + s * T);
    for (long first = 0; first < T; first += BLOCK)  // to above the diagonal, from block to block
        for (long start = 0; start <= first; start += BLOCK)
            for (long k = start; k < std::min(start + BLOCK, T); ++k)
                for (long s = std::max(first, k + 1); s < std::min(first + BLOCK, T); ++s) lags[k * T + s] = lags[s * T + k];
}

// A number of the model: real, or complex where C is true.
template <class R, bool C> struct Number {
    R re, im;
    static Number read(const R* from, long index) {
        if constexpr (C) return {from[2 * index], from[2 * index + 1]};
        return {from[index], R(0)};
    }
    void write(R* to, long index) const {
        if constexpr (C) to[2 * index] = re, to[2 * index + 1] = im;
        else to[index] = re;
    }
    Number conj() const { return {re, -im}; }
    Number operator*(Number b) const {
        if constexpr (C) return {re * b.re - im * b.im, re * b.im + im * b.re};
        return {re * b.re, R(0)};
    }
    Number operator+(Number b) const { return {re + b.re, im + b.im}; }
};

// lambda^s at the times of a vector, from one vector to the next.
template <class R, bool C> struct Powers {
    Vec<R> re, im;
    Number<R, C> step;
    explicit Powers(Number<R, C> lambda) : re{}, im{}, step{R(1), R(0)} {
        for (int lane = 0; lane < lanes<R>; ++lane) {
            re[lane] = step.re, im[lane] = step.im;
            step = step * lambda;
        }
    }
    Powers() = default;
    void advance() {
        if constexpr (C) {
            const Vec<R> before = re;
            re = before * step.re - im * step.im;
            im = before * step.im + im * step.re;
        } else {
            re *= step.re;
        }
    }
};

template <class R, bool C> struct Mode {
    Number<R, C> kernel, drift, lambda;  // amplitudes of the answers to the input and to the bias
};

// The answers of U modes are added: kernel[s] and drift[s], real parts.
template <class R, bool C, int U> void respond(const Mode<R, C>* modes, long T, R* kernel, R* drift) {
    Powers<R, C> power[U];
    for (int u = 0; u < U; ++u) power[u] = Powers<R, C>(modes[u].lambda);
    for (long t = 0; t < T; t += lanes<R>) {
        Vec<R> k = load(kernel + t), d = load(drift + t);
        for (int u = 0; u < U; ++u) {
            k += modes[u].kernel.re * power[u].re;
            d += modes[u].drift.re * power[u].re;
            if constexpr (C) {
                k -= modes[u].kernel.im * power[u].im;
                d -= modes[u].drift.im * power[u].im;
            }
            power[u].advance();
        }
        store<R>(k, kernel + t);
        store<R>(d, drift + t);
    }
}

// For each of U modes, the sums over time of four series times its powers.
template <class R, bool C, int U>
void pull(const Mode<R, C>* modes, long T, const R* const (&series)[4], Number<R, C> (*sums)[4]) {
    Powers<R, C> power[U];
    Vec<R> re[U][4] = {}, im[U][4] = {};
    for (int u = 0; u < U; ++u) power[u] = Powers<R, C>(modes[u].lambda);
    for (long t = 0; t < T; t += lanes<R>)
        for (int u = 0; u < U; ++u) {
            for (int k = 0; k < 4; ++k) {
                re[u][k] += load(series[k] + t) * power[u].re;
                if constexpr (C) im[u][k] += load(series[k] + t) * power[u].im;
            }
            power[u].advance();
        }
    for (int u = 0; u < U; ++u)
        for (int k = 0; k < 4; ++k) sums[u][k] = {sum<R>(re[u][k]), C ? sum<R>(im[u][k]) : R(0)};
}

template <class R, bool C> class Modal {
public:
    explicit Modal(const ModalCall& call)
        : call_(call), T(call.horizon), M(call.width), row_(call.row ? call.row : M), modes_(M), error_(GROUP * T),
          drift_(GROUP * T), weighted_(GROUP * T), lagged_(GROUP * T), crossed_(GROUP * T), returned_(GROUP * T), mean_(2 * T),
          mirrored_(2 * T), series_(2 * T) {
        if (!call.mean) return;
        const R* mean = read(call.mean);
        std::fill(mean_ + 0, mean_ + T, R(0));
        std::copy(mean, mean + T, mean_ + T);
        std::fill(mirrored_ + 0, mirrored_ + 2 * T, R(0));
        for (long t = 0; t < T; ++t) mirrored_[T - t] = mean[t];
    }

    void run() {
        long rows[GROUP], count = 0;
        for (long n = 0; n < call_.models; ++n) {
            if (call_.live[n]) rows[count++] = n;
            if (count == GROUP || (count && n == call_.models - 1)) judge(rows, count), count = 0;
        }
    }

private:
    static constexpr long GROUP = 32;  // models whose products with the statistics are computed together
    static constexpr int U = REGISTERS >= 32 && !C ? 4 : 2;

    static const R* read(const void* from) { return static_cast<const R*>(from); }

    void judge(const long* rows, long count) {
        for (long n = 0; n < count; ++n) answer(rows[n], n);
        if (call_.mean) {
            const auto all = [this](long, long, long, long) { return Range{0, T}; };
            const auto before = [](long, long, long, long j_end) { return Range{0, j_end}; };
            const auto after = [this](long, long, long j, long) { return Range{j, T}; };
            multiply(Product<R>{error_, T, 1, read(call_.lags), T, lagged_, T}, count, T, all);
            // sums over earlier times of mean[t - s] error[s], and over later ones of mean[t - s] weighted[t]
            multiply(Product<R>{error_, T, 1, mean_ + T, -1, crossed_, T}, count, T, before);
            if (call_.gradient) multiply(Product<R>{weighted_, T, 1, mirrored_ + T, -1, returned_, T}, count, T, after);
        }
        for (long n = 0; n < count; ++n) {
            lose(rows[n], n);
            if (call_.gradient) differentiate(rows[n], n);
        }
    }

    void answer(long row, long n) {
        R *error = error_ + n * T, *drift = drift_ + n * T;
        const R *target = read(call_.target) + row / call_.copies * T, *weight = read(call_.weight);
        set(row);
        std::fill(error, error + T, R(0));
        std::fill(drift, drift + T, R(0));
        long i = 0;
        for (; i + U <= M; i += U) respond<R, C, U>(modes_ + i, T, error, drift);
        for (; i < M; ++i) respond<R, C, 1>(modes_ + i, T, error, drift);
        R total = read(call_.offset)[offset(row)];
        for (long t = 0; t < T; ++t) drift[t] = total += drift[t];
        for (long t = 0; t < T; ++t) error[t] -= target[t];
        for (long t = 0; t < T; ++t) weighted_[n * T + t] = weight[t] * drift[t];
    }

    void set(long row) {
        for (long i = 0, own = row * row_; i < M; ++i, ++own) {
            const auto readout = number(call_.readout, own);
            modes_[i] = {readout * number(call_.input, own), readout * number(call_.bias, own), eigenvalue(row, i)};
        }
    }

    Number<R, C> eigenvalue(long row, long i) const {
        if (call_.raw) return {clamped<R>(read(call_.raw)[row * row_ + i], call_.least), R(0)};
        return number(call_.eigenvalues, row * M + i);
    }

    long offset(long row) const { return call_.row ? row * call_.row : row; }
    static Number<R, C> number(const void* from, long index) { return Number<R, C>::read(read(from), index); }

    // The loss; lagged and crossed become its gradients by kernel and drift.
    void lose(long row, long n) {
        const R *error = error_ + n * T, *drift = drift_ + n * T, *weighted = weighted_ + n * T;
        const R *weight = read(call_.weight), *lags = read(call_.lags);
        R *lagged = lagged_ + n * T, *crossed = crossed_ + n * T, *returned = returned_ + n * T;
        Vec<R> total{};
        for (long t = 0; t < T; t += lanes<R>) {
            const bool full = call_.mean;
            const Vec<R> e = load(error + t), d = load(drift + t), w = load(weighted + t);
            const Vec<R> l = full ? load(lagged + t) : e * load(lags + t);
            const Vec<R> c = full ? load(weight + t) * load(crossed + t) : Vec<R>{};
            total += e * l + d * (c + c + w);
            if (!call_.gradient) continue;
            const Vec<R> half = full ? l + load(returned + t) : l, of_drift = c + w;
            store<R>(half + half, lagged + t);
            store<R>(of_drift + of_drift, crossed + t);
        }
        static_cast<R*>(call_.loss)[row] = sum<R>(total);
    }

    void differentiate(long row, long n) {
        R *of_kernel = lagged_ + n * T, *of_drift = crossed_ + n * T, *shifted = series_;
        for (long t = T - 2; t >= 0; --t) of_drift[t] += of_drift[t + 1];  // an answer to the bias stays in later drifts
        static_cast<R*>(call_.of_offset)[offset(row)] = of_drift[0];
        // d(lambda^s)/d(lambda) = s lambda^(s-1): shifted by one, so that lambda = 0 needs no special case
        for (long t = 0; t + 1 < T; ++t) {
            shifted[t] = R(t + 1) * of_kernel[t + 1];
            shifted[T + t] = R(t + 1) * of_drift[t + 1];
        }
        shifted[T - 1] = shifted[2 * T - 1] = R(0);
        const R* const series[4] = {of_kernel, of_drift, shifted, shifted + T};
        set(row);
        long i = 0;
        for (; i + U <= M; i += U) gather<U>(series, row, i);
        for (; i < M; ++i) gather<1>(series, row, i);
    }

    template <int K> void gather(const R* const (&series)[4], long row, long i) {
        Number<R, C> sums[K][4];
        pull<R, C, K>(modes_ + i, T, series, sums);
        for (int k = 0; k < K; ++k) {
            const long own = row * row_ + i + k;
            const auto& mode = modes_[i + k];
            const auto readout = number(call_.readout, own);
            const auto write = [](void* to, long at, Number<R, C> value) { value.conj().write(static_cast<R*>(to), at); };
            write(call_.of_input, own, readout * sums[k][0]);
            write(call_.of_bias, own, readout * sums[k][1]);
            write(call_.of_readout, own, number(call_.input, own) * sums[k][0] + number(call_.bias, own) * sums[k][1]);
            const auto of_eigenvalue = mode.kernel * sums[k][2] + mode.drift * sums[k][3];
            if (!call_.raw) write(call_.of_eigenvalues, row * M + i + k, of_eigenvalue);
            else static_cast<R*>(call_.of_raw)[own] = of_clamped<R>(read(call_.raw)[own], call_.least, of_eigenvalue.re);
        }
    }

    const ModalCall& call_;
    const long T, M, row_;
    Buffer<Mode<R, C>> modes_;
    Buffer<R> error_, drift_, weighted_, lagged_, crossed_, returned_, mean_, mirrored_, series_;  // [GROUP][T] and [2 T]
};

}  // namespace

// Both answer 0: done; 2: no memory.
extern "C" int memsweep_gram(const GramCall* call) try {
    gram<REAL>(*call);
    return 0;
} catch (const std::bad_alloc&) {
    return 2;
}

extern "C" int memsweep_modal_loss(const ModalCall* call) try {
    call->complex ? Modal<REAL, true>(*call).run() : Modal<REAL, false>(*call).run();
    return 0;
} catch (const std::bad_alloc&) {
    return 2;
}
