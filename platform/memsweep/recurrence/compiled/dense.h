// A layer whose units all see one another: step by step, each a product of the matrix with a block of states,
// several rows at a time in registers.
#pragma once
#include <algorithm>

#include "layer.h"

template <class R, class Sigma, class Tau, bool Carried> struct Dense {
    using Vector = Vec<R>;
    static constexpr long CHUNK = 32;  // steps whose outer products are added up together

    static long scratch(long horizon, const Layer<R>& layer, bool keep) {
        const long width = layer.width;
        if (!keep) return 2 * width * V;
        const long matrix = (width * width + Simd<R>::lanes - 1) / Simd<R>::lanes;
        return (horizon + CHUNK + 2) * width * V + width * (layer.inputs + layer.outputs + 1) + matrix;
    }

    // states: [T][M][V], or the last two steps where nothing is kept
    static void forward(const Layer<R>& layer, const Block<R>& block, Vector* states, bool keep) {
        const long width = layer.width, outputs = layer.outputs;
        start_with_offset(layer, block);
        for (long t = 0; t < block.horizon; ++t) {
            Vector* now = states + (keep ? t : t % 2) * width * V;
            const Vector* before = t ? states + (keep ? t - 1 : (t - 1) % 2) * width * V : nullptr;
            const Vector* x = block.x + t * layer.inputs * V;
            long i = 0;
            for (; i + 8 <= width; i += 8) step<8>(layer, x, before, now, i);
            for (; i + 4 <= width; i += 4) step<4>(layer, x, before, now, i);
            for (; i < width; ++i) step<1>(layer, x, before, now, i);
            Vector* y = block.y + t * outputs * V;
            for (long j = 0; j < width; ++j)
                for (int v = 0; v < V; ++v) {
                    const Vector shown = Tau::template value<R>(now[j * V + v]);
                    for (long o = 0; o < outputs; ++o) y[o * V + v] += layer.readout[o * width + j] * shown;
                }
        }
    }

    static void backward(const Layer<R>& layer, const Block<R>& block, Vector* scratch, const Gradient<R>& into) {
        const long width = layer.width, inputs = layer.inputs, outputs = layer.outputs, horizon = block.horizon;
        const Vector* states = scratch;
        Vector* errors = scratch + horizon * width * V;  // e of a chunk: [CHUNK][M][V]
        Vector* whole = errors + CHUNK * width * V;      // gradient of the state: [M][V]
        Vector* later = whole + width * V;               // what of it comes from later steps: [M][V]
        Vector *encoders = later + width * V, *readouts = encoders + width * inputs, *biases = readouts + width * outputs;
        R* transposed = reinterpret_cast<R*>(biases + width);
        std::fill(later, later + width * V, Vector{});
        std::fill(encoders, biases + width, Vector{});
        for (long i = 0; i < width; ++i)
            for (long j = 0; j < width; ++j) transposed[j * width + i] = layer.matrix[i * width + j];
        collect_offset(layer, block, into.offset);
        long kept = 0;
        for (long t = horizon - 1; t >= 0; --t) {
            const Vector *h = states + t * width * V, *before = t ? h - width * V : nullptr;
            const Vector *x = block.x + t * inputs * V, *dy = block.y + t * outputs * V;
            Vector* e = errors + kept * width * V;
            for (long i = 0; i < width; ++i)
                for (int v = 0; v < V; ++v) {
                    const Vector carried = Carried && t ? before[i * V + v] : Vector{};
                    const Vector shown = Tau::template value<R>(h[i * V + v]);
                    Vector arriving{};
                    for (long o = 0; o < outputs; ++o) {
                        arriving += layer.readout[o * width + i] * dy[o * V + v];
                        readouts[i * outputs + o] += dy[o * V + v] * shown;
                    }
                    const Vector all = later[i * V + v] + Tau::template slope<R>(shown, Vector{}) * arriving;
                    const Vector error = Sigma::template slope<R>(h[i * V + v], carried) * all;
                    whole[i * V + v] = all;
                    e[i * V + v] = error;
                    biases[i] += error;
                    for (long k = 0; k < inputs; ++k) encoders[i * inputs + k] += error * x[k * V + v];
                }
            if (t == 0) break;
            long i = 0;
            for (; i + 8 <= width; i += 8) step_back<8>(transposed, width, e, whole, later, i);
            for (; i + 4 <= width; i += 4) step_back<4>(transposed, width, e, whole, later, i);
            for (; i < width; ++i) step_back<1>(transposed, width, e, whole, later, i);
            if (++kept == CHUNK || t == 1) {
                // step k of the chunk is time t + kept - 1 - k, and its product is with the state before
                outer_products(layer, errors, states + (t - 1) * width * V, kept, into.matrix);
                kept = 0;
            }
        }
        for (long i = 0; i < width; ++i) {
            into.bias[i] += sum<R>(biases[i]);
            for (long k = 0; k < inputs; ++k) into.encoder[i * inputs + k] += sum<R>(encoders[i * inputs + k]);
            for (long o = 0; o < outputs; ++o) into.readout[o * width + i] += sum<R>(readouts[i * outputs + o]);
        }
    }

private:
    // acc += rows of the matrix times the states
    template <int U>
    static void multiply(const R* matrix, long width, const Vector* states, Vector (&acc)[U][V]) {
        for (long j = 0; j < width; ++j)
            for (int u = 0; u < U; ++u)
                for (int v = 0; v < V; ++v) acc[u][v] += matrix[u * width + j] * states[j * V + v];
    }

    template <int U>
    static void step(const Layer<R>& layer, const Vector* x, const Vector* before, Vector* now, long first) {
        Vector acc[U][V];
        for (int u = 0; u < U; ++u)
            for (int v = 0; v < V; ++v) {
                acc[u][v] = layer.bias[first + u] - Vector{};
                for (long k = 0; k < layer.inputs; ++k)
                    acc[u][v] += layer.encoder[(first + u) * layer.inputs + k] * x[k * V + v];
            }
        if (before) multiply<U>(layer.matrix + first * layer.width, layer.width, before, acc);
        for (int u = 0; u < U; ++u)
            for (int v = 0; v < V; ++v) {
                const Vector answer = Sigma::template value<R>(acc[u][v]);
                now[(first + u) * V + v] = Carried && before ? before[(first + u) * V + v] + answer : answer;
            }
    }

    template <int U>
    static void step_back(const R* transposed, long width, const Vector* e, const Vector* whole, Vector* later,
                          long first) {
        Vector acc[U][V];
        for (int u = 0; u < U; ++u)
            for (int v = 0; v < V; ++v) acc[u][v] = Carried ? whole[(first + u) * V + v] : Vector{};
        multiply<U>(transposed + first * width, width, e, acc);
        for (int u = 0; u < U; ++u)
            for (int v = 0; v < V; ++v) later[(first + u) * V + v] = acc[u][v];
    }

    // oldest: the states before the chunk's earliest step
    static void outer_products(const Layer<R>& layer, const Vector* errors, const Vector* oldest, long count, R* into) {
        const long width = layer.width;
        long i = 0;
        for (; i + 4 <= width; i += 4) columns<4>(width, errors, oldest, count, into, i);
        for (; i < width; ++i) columns<1>(width, errors, oldest, count, into, i);
    }

    template <int U>
    static void columns(long width, const Vector* errors, const Vector* oldest, long count, R* into, long i) {
        long j = 0;
        for (; j + 4 <= width; j += 4) tile<U, 4>(width, errors, oldest, count, into, i, j);
        for (; j < width; ++j) tile<U, 1>(width, errors, oldest, count, into, i, j);
    }

    template <int U, int W>
    static void tile(long width, const Vector* errors, const Vector* oldest, long count, R* into, long i, long j) {
        Vector acc[U][W] = {};
        for (long k = 0; k < count; ++k) {
            const Vector *e = errors + (k * width + i) * V, *h = oldest + ((count - 1 - k) * width + j) * V;
            for (int v = 0; v < V; ++v)
                for (int u = 0; u < U; ++u)
                    for (int w = 0; w < W; ++w) acc[u][w] += e[u * V + v] * h[w * V + v];
        }
        for (int u = 0; u < U; ++u)
            for (int w = 0; w < W; ++w) into[(i + u) * width + j + w] += sum<R>(acc[u][w]);
    }
};
