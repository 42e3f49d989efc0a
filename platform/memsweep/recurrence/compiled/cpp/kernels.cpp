// What Python calls: layers of many models over the same sequences (outputs, gradients, and the weighted squared error
// with its gradient), and series of states, each with a drive of its own. Called through ctypes; layer_outputs.py
// and scan.py, whose structures mirror the ones below.
#include "dense.h"
#include "diagonal.h"
#include "series.h"

namespace {

enum Mode { OUTPUTS = 0, PULL = 1, LOSS = 2, LOSS_AND_GRADIENT = 3 };

struct LayerCall {
    int64_t mode, dense, sigma, tau, carried;  // sigma, tau: 0 linear, 1 hardtanh, 2 tanh, 3 relu
    int64_t models, batch, horizon, width, inputs, outputs;
    int64_t row;  // from one model's weights to the next's where they lie in flat ones; 0: each tensor lies alone
    double least;                                                // of raw weights: see layer.h
    const uint8_t* live;                                         // [N]: the others are passed over
    const void *x, *target, *weight;                             // [B][T][I], [B][T][O], [T]
    const void *encoder, *bias, *matrix, *readout, *offset;      // of N models, one after the other
    void* y;                                                     // [N][B][T][O]: outputs, or their gradients
    void* loss;                                                  // [N]
    void *of_encoder, *of_bias, *of_matrix, *of_readout, *of_offset;  // sums are added to what is there
    const void* raw;                                             // [N][M], in place of a diagonal matrix
    void* of_raw;                                                // zeros
};

struct SeriesCall {
    int64_t backward, kind, sigma, carried;  // kind: 0 diagonal, 1 dense, 2 complex diagonal
    int64_t models, batch, horizon, width;   // width: real numbers of a step, two for a complex unit
    const void *matrix;                      // [N][M] or [N][M][M]
    const void *given, *states;              // [N][B][T][M]: the drive; or gradients of the states, and the states
    void *found, *of_matrix;                 // states, or gradients of the drive; sums are added to what is there
};

template <class R, class Kind> void run_series(const SeriesCall& call) {
    const long B = call.batch, T = call.horizon, M = call.width, row = T * M, square = call.kind == 1 ? M * M : M;
    Buffer<Vec<R>> values(row * V), states(call.backward ? row * V : 1), scratch(Kind::scratch(M));
    for (long n = 0; n < call.models; ++n) {
        const R* matrix = static_cast<const R*>(call.matrix) + n * square;
        const R* given = static_cast<const R*>(call.given) + n * B * row;
        R* found = static_cast<R*>(call.found) + n * B * row;
        for (long first = 0; first < B; first += V * Simd<R>::lanes) {
            pack<R>(given, B, first, T * M, T * M, values);
            if (call.backward) {
                typename Simd<R>::Int own[V] = {};
                mark<R>(B, first, own);
                silence<R>(values, row, own);
                pack<R>(static_cast<const R*>(call.states) + n * B * row, B, first, T * M, T * M, states);
                Kind::backward(matrix, M, T, states, values, scratch, static_cast<R*>(call.of_matrix) + n * square);
            } else {
                Kind::forward(matrix, M, T, values);
            }
            unpack<R>(values, B, first, row, row, found);
        }
    }
}

template <class R, template <class, class, bool> class Kind> bool choose_series(const SeriesCall& call) {
    switch (call.sigma * 2 + (call.carried ? 1 : 0)) {
        case 0: run_series<R, Kind<R, Linear, false>>(call); return true;
        case 2: run_series<R, Kind<R, Hardtanh, false>>(call); return true;
        case 3: run_series<R, Kind<R, Hardtanh, true>>(call); return true;
        case 4: run_series<R, Kind<R, Tanh, false>>(call); return true;
        case 5: run_series<R, Kind<R, Tanh, true>>(call); return true;
        case 6: run_series<R, Kind<R, Relu, false>>(call); return true;
        case 7: run_series<R, Kind<R, Relu, true>>(call); return true;
    }
    return false;
}

// The diagonal of a layer, of its raw weights; and the gradient by these, of that by the diagonal in its place.
template <class R> void set_diagonal(const LayerCall& call, const R* raw, R* diagonal) {
    for (long i = 0; i < call.width; ++i) {
        const R added = clamped<R>(raw[i], call.least) - R(1);
        diagonal[i] = call.carried ? added : R(1) + added;
    }
}

template <class R> void to_raw(const LayerCall& call, const R* raw, R* gradient) {
    for (long i = 0; i < call.width; ++i) gradient[i] = of_clamped<R>(raw[i], call.least, gradient[i]);
}

template <class R, class Kind> void run(const LayerCall& call) {
    const long B = call.batch, T = call.horizon, M = call.width, I = call.inputs, O = call.outputs;
    const long square = call.dense ? M * M : M;
    const bool pull = call.mode == PULL, gradient = pull || call.mode == LOSS_AND_GRADIENT;
    const bool judged = call.mode == LOSS || call.mode == LOSS_AND_GRADIENT;
    const Layer<R> shape{M, I, O, nullptr, nullptr, nullptr, nullptr, nullptr};
    Buffer<Vec<R>> x(T * I * V), y(T * O * V), target(judged ? T * O * V : 1), scratch(Kind::scratch(T, shape, gradient));
    Buffer<R> diagonal(M);
    for (long first = 0; first < B; first += V * Simd<R>::lanes) {
        typename Simd<R>::Int own[V] = {};
        mark<R>(B, first, own);
        pack<R>(static_cast<const R*>(call.x), B, first, T * I, T * I, x);
        if (judged) pack<R>(static_cast<const R*>(call.target), B, first, T * O, T * O, target);
        const Block<R> block{T, x, y};
        for (long n = 0; n < call.models; ++n) {
            if (!call.live[n]) continue;
            const auto of = [n](const void* all, long size) { return static_cast<const R*>(all) + n * size; };
            const auto into = [n](void* all, long size) { return static_cast<R*>(all) + n * size; };
            const auto apart = [&call](long size) { return call.row ? call.row : size; };
            if (call.raw) set_diagonal<R>(call, of(call.raw, call.row), diagonal);
            const R* matrix = call.raw ? diagonal : of(call.matrix, square);
            const Layer<R> layer{M, I, O, of(call.encoder, apart(M * I)), of(call.bias, apart(M)), matrix,
                                 of(call.readout, apart(O * M)), of(call.offset, apart(O))};
            Kind::forward(layer, block, scratch, gradient);
            if (call.mode == OUTPUTS) unpack<R>(y, B, first, T * O, T * O, into(call.y, B * T * O));
            if (judged)
                *into(call.loss, 1) += squared<R>(y, target, static_cast<const R*>(call.weight), T, O, own);
            if (pull) {
                pack<R>(of(call.y, B * T * O), B, first, T * O, T * O, y);
                silence<R>(y, T * O, own);
            }
            if (gradient) {
                const Gradient<R> sums{into(call.of_encoder, apart(M * I)), into(call.of_bias, apart(M)),
                                       call.raw ? into(call.of_raw, call.row) : into(call.of_matrix, square),
                                       into(call.of_readout, apart(O * M)),
                                       into(call.of_offset, apart(O))};
                Kind::backward(layer, block, scratch, sums);
                if (call.raw && first + V * Simd<R>::lanes >= B)
                    to_raw<R>(call, of(call.raw, call.row), into(call.of_raw, call.row));
            }
        }
    }
}

template <class R, template <class, class, class, bool> class Kind> bool choose(const LayerCall& call) {
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

// Both answer 0: done; 1: there is no such recurrence; 2: no memory.
extern "C" int memsweep_layer(const LayerCall* call) try {
    return (call->dense ? choose<REAL, Dense>(*call) : choose<REAL, Diagonal>(*call)) ? 0 : 1;
} catch (const std::bad_alloc&) {
    return 2;
}

extern "C" int memsweep_series(const SeriesCall* call) try {
    switch (call->kind) {
        case 0: return choose_series<REAL, DiagonalSeries>(*call) ? 0 : 1;
        case 1: return choose_series<REAL, DenseSeries>(*call) ? 0 : 1;
        case 2: run_series<REAL, ComplexSeries<REAL>>(*call); return 0;
    }
    return 1;
} catch (const std::bad_alloc&) {
    return 2;
}
