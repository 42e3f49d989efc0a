// Layers of many models over the same sequences: outputs, gradients, and the weighted squared error with its gradient.
// Called through ctypes; see compiled/binding.py, whose structure `Call` mirrors the one below.
#include <cstdlib>
#include <cstring>
#include <new>

#include "dense.h"
#include "diagonal.h"

namespace {

enum Mode { OUTPUTS = 0, PULL = 1, LOSS = 2, LOSS_AND_GRADIENT = 3 };

struct Call {
    int64_t mode, dense, sigma, tau, carried;  // sigma, tau: 0 linear, 1 hardtanh, 2 tanh, 3 relu
    int64_t models, batch, horizon, width, inputs, outputs;
    const uint8_t* live;                                         // [N]: the others are passed over
    const void *x, *target, *weight;                             // [B][T][I], [B][T][O], [T]
    const void *encoder, *bias, *matrix, *readout, *offset;      // of N models, one after the other
    void* y;                                                     // [N][B][T][O]: outputs, or their gradients
    void* loss;                                                  // [N]
    void *of_encoder, *of_bias, *of_matrix, *of_readout, *of_offset;  // sums are added to what is there
};

template <class T> class Buffer {
public:
    explicit Buffer(long count) {
        const size_t bytes = ((count * sizeof(T) + 63) / 64 + 1) * 64;
        if (!(data_ = static_cast<T*>(std::aligned_alloc(64, bytes)))) throw std::bad_alloc();
    }
    ~Buffer() { std::free(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    operator T*() { return data_; }

private:
    T* data_;
};

// Sequences first ... first + W of [B][T][K] as [T][K][V]; lanes beyond the batch repeat the block's first sequence.
template <class R> void pack(const R* from, long batch, long first, long horizon, long features, Vec<R>* to) {
    constexpr int lanes = Simd<R>::lanes;
    R* flat = reinterpret_cast<R*>(to);
    const long row = horizon * features;
    for (int lane = 0; lane < V * lanes; ++lane) {
        const R* sequence = from + (first + lane < batch ? first + lane : first) * row;
        for (long k = 0; k < row; ++k) flat[k * V * lanes + lane] = sequence[k];
    }
}

template <class R> void unpack(const Vec<R>* from, long batch, long first, long row, R* to) {
    constexpr int lanes = Simd<R>::lanes;
    const R* flat = reinterpret_cast<const R*>(from);
    for (int lane = 0; lane < V * lanes && first + lane < batch; ++lane)
        for (long k = 0; k < row; ++k) to[(first + lane) * row + k] = flat[k * V * lanes + lane];
}

// 1 in lanes that hold a sequence of their own, 0 in those that repeat one.
template <class R> void mark(long batch, long first, typename Simd<R>::Int (&own)[V]) {
    for (int v = 0; v < V; ++v)
        for (int lane = 0; lane < Simd<R>::lanes; ++lane) own[v][lane] = first + v * Simd<R>::lanes + lane < batch ? -1 : 0;
}

template <class R> void silence(Vec<R>* dy, long rows, const typename Simd<R>::Int (&own)[V]) {
    for (long row = 0; row < rows; ++row)
        for (int v = 0; v < V; ++v) dy[row * V + v] = own[v] ? dy[row * V + v] : Vec<R>{};
}

// The weighted squared error of a block; outputs become their gradients.
template <class R>
R squared(Vec<R>* y, const Vec<R>* target, const R* weight, long horizon, long outputs,
          const typename Simd<R>::Int (&own)[V]) {
    Vec<R> total{};
    for (long t = 0; t < horizon; ++t)
        for (long o = 0; o < outputs; ++o)
            for (int v = 0; v < V; ++v) {
                const long at = (t * outputs + o) * V + v;
                const Vec<R> error = own[v] ? y[at] - target[at] : Vec<R>{};
                const Vec<R> weighted = weight[t] * error;
                total += weighted * error;
                y[at] = weighted + weighted;
            }
    return sum<R>(total);
}

template <class R, class Kind> void run(const Call& call) {
    const long B = call.batch, T = call.horizon, M = call.width, I = call.inputs, O = call.outputs;
    const long square = call.dense ? M * M : M;
    const bool pull = call.mode == PULL, gradient = pull || call.mode == LOSS_AND_GRADIENT;
    const bool judged = call.mode == LOSS || call.mode == LOSS_AND_GRADIENT;
    const Layer<R> shape{M, I, O, nullptr, nullptr, nullptr, nullptr, nullptr};
    Buffer<Vec<R>> x(T * I * V), y(T * O * V), target(judged ? T * O * V : 1), scratch(Kind::scratch(T, shape, gradient));
    for (long first = 0; first < B; first += V * Simd<R>::lanes) {
        typename Simd<R>::Int own[V];
        mark<R>(B, first, own);
        pack<R>(static_cast<const R*>(call.x), B, first, T, I, x);
        if (judged) pack<R>(static_cast<const R*>(call.target), B, first, T, O, target);
        const Block<R> block{T, x, y};
        for (long n = 0; n < call.models; ++n) {
            if (!call.live[n]) continue;
            const auto of = [n](const void* all, long size) { return static_cast<const R*>(all) + n * size; };
            const auto into = [n](void* all, long size) { return static_cast<R*>(all) + n * size; };
            const Layer<R> layer{M, I, O, of(call.encoder, M * I), of(call.bias, M), of(call.matrix, square),
                                 of(call.readout, O * M), of(call.offset, O)};
            Kind::forward(layer, block, scratch, gradient);
            if (call.mode == OUTPUTS) unpack<R>(y, B, first, T * O, into(call.y, B * T * O));
            if (judged)
                *into(call.loss, 1) += squared<R>(y, target, static_cast<const R*>(call.weight), T, O, own);
            if (pull) {
                pack<R>(of(call.y, B * T * O), B, first, T, O, y);
                silence<R>(y, T * O, own);
            }
            if (gradient) {
                const Gradient<R> sums{into(call.of_encoder, M * I), into(call.of_bias, M), into(call.of_matrix, square),
                                       into(call.of_readout, O * M), into(call.of_offset, O)};
                Kind::backward(layer, block, scratch, sums);
            }
        }
    }
}

template <class R, template <class, class, class, bool> class Kind> bool choose(const Call& call) {
    if (call.sigma == 0 && !call.carried) {
        switch (call.tau) {
            case 0: run<R, Kind<R, Linear, Linear, false>>(call); return true;
            case 1: run<R, Kind<R, Linear, Hardtanh, false>>(call); return true;
            case 2: run<R, Kind<R, Linear, Tanh, false>>(call); return true;
            case 3: run<R, Kind<R, Linear, Relu, false>>(call); return true;
        }
    }
    if (call.tau == 0) {
        switch (call.sigma * 2 + (call.carried ? 1 : 0)) {
            case 2: run<R, Kind<R, Hardtanh, Linear, false>>(call); return true;
            case 3: run<R, Kind<R, Hardtanh, Linear, true>>(call); return true;
            case 4: run<R, Kind<R, Tanh, Linear, false>>(call); return true;
            case 5: run<R, Kind<R, Tanh, Linear, true>>(call); return true;
            case 6: run<R, Kind<R, Relu, Linear, false>>(call); return true;
            case 7: run<R, Kind<R, Relu, Linear, true>>(call); return true;
        }
    }
    return false;
}

}  // namespace

// 0: done; 1: no such layer; 2: no memory.
extern "C" int memsweep_layer(const Call* call) try {
    return (call->dense ? choose<REAL, Dense>(*call) : choose<REAL, Diagonal>(*call)) ? 0 : 1;
} catch (const std::bad_alloc&) {
    return 2;
}
