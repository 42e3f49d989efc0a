// A layer of independent units. A few units at a time run through all of time, with their weights, states and
// gradients in registers.
#pragma once
#include "layer.h"

template <class R, class Sigma, class Tau, bool Carried> struct Diagonal {
    using Vector = Vec<R>;

    static long scratch(long horizon, const Layer<R>& layer, bool keep) {
        const long accumulators = 2 * (layer.inputs + layer.outputs);
        return (keep ? horizon * layer.width * V : 0) + accumulators;
    }

    static void forward(const Layer<R>& layer, const Block<R>& block, Vector* scratch, bool keep) {
        start_with_offset(layer, block);
        long i = 0;
        for (; i + 4 <= layer.width; i += 4) forward_of<4>(layer, block, keep ? scratch : nullptr, i);
        for (; i < layer.width; ++i) forward_of<1>(layer, block, keep ? scratch : nullptr, i);
    }

    static void backward(const Layer<R>& layer, const Block<R>& block, Vector* scratch, const Gradient<R>& into) {
        collect_offset(layer, block, into.offset);
        Vector* sums = scratch + block.horizon * layer.width * V;
        const bool single = layer.inputs == 1 && layer.outputs == 1;
        long i = 0;
        for (; i + 2 <= layer.width; i += 2)
            single ? backward_of<2, true>(layer, block, scratch, sums, into, i)
                   : backward_of<2, false>(layer, block, scratch, sums, into, i);
        for (; i < layer.width; ++i)
            single ? backward_of<1, true>(layer, block, scratch, sums, into, i)
                   : backward_of<1, false>(layer, block, scratch, sums, into, i);
    }

private:
    // states: [M][T][V]
    template <int U>
    static void forward_of(const Layer<R>& layer, const Block<R>& block, Vector* states, long first) {
        const long inputs = layer.inputs, outputs = layer.outputs, horizon = block.horizon;
        Vector h[U][V] = {};
        for (long t = 0; t < horizon; ++t) {
            const Vector* x = block.x + t * inputs * V;
            Vector* y = block.y + t * outputs * V;
            for (int u = 0; u < U; ++u) {
                const R* encoder = layer.encoder + (first + u) * inputs;
                for (int v = 0; v < V; ++v) {
                    Vector drive = layer.bias[first + u] + encoder[0] * x[v];
                    for (long k = 1; k < inputs; ++k) drive += encoder[k] * x[k * V + v];
                    const Vector answer = Sigma::template value<R>(drive + layer.matrix[first + u] * h[u][v]);
                    h[u][v] = Carried ? h[u][v] + answer : answer;
                    if (states) states[((first + u) * horizon + t) * V + v] = h[u][v];
                }
            }
            for (int v = 0; v < V; ++v) {
                Vector shown[U];
                for (int u = 0; u < U; ++u) shown[u] = Tau::template value<R>(h[u][v]);
                for (long o = 0; o < outputs; ++o)
                    for (int u = 0; u < U; ++u) y[o * V + v] += layer.readout[o * layer.width + first + u] * shown[u];
            }
        }
    }

    template <int U, bool Single>
    static void backward_of(const Layer<R>& layer, const Block<R>& block, const Vector* states, Vector* sums,
                            const Gradient<R>& into, long first) {
        const long inputs = Single ? 1 : layer.inputs, outputs = Single ? 1 : layer.outputs;
        const long horizon = block.horizon, width = layer.width;
        Vector g[U][V] = {}, h[U][V], of_matrix[U] = {}, of_bias[U] = {}, of_encoder[U] = {}, of_readout[U] = {};
        Vector *encoders = sums, *readouts = sums + U * inputs;
        if (!Single)
            for (long k = 0; k < U * (inputs + outputs); ++k) sums[k] = Vector{};
        for (int u = 0; u < U; ++u)
            for (int v = 0; v < V; ++v) h[u][v] = states[((first + u) * horizon + horizon - 1) * V + v];
        for (long t = horizon - 1; t >= 0; --t) {
            const Vector *x = block.x + t * inputs * V, *dy = block.y + t * outputs * V;
            for (int u = 0; u < U; ++u) {
                for (int v = 0; v < V; ++v) {
                    const Vector before = t ? states[((first + u) * horizon + t - 1) * V + v] : Vector{};
                    const Vector carried = Carried ? before : Vector{};
                    const Vector shown = Tau::template value<R>(h[u][v]);
                    Vector arriving{};
                    if (Single) {
                        arriving = layer.readout[first + u] * dy[v];
                        of_readout[u] += dy[v] * shown;
                    } else {
                        for (long o = 0; o < outputs; ++o) {
                            arriving += layer.readout[o * width + first + u] * dy[o * V + v];
                            readouts[u * outputs + o] += dy[o * V + v] * shown;
                        }
                    }
                    const Vector whole = g[u][v] + Tau::template slope<R>(shown, Vector{}) * arriving;
                    const Vector e = Sigma::template slope<R>(h[u][v], carried) * whole;
                    of_bias[u] += e;
                    of_matrix[u] += e * before;
                    if (Single) {
                        of_encoder[u] += e * x[v];
                    } else {
                        for (long k = 0; k < inputs; ++k) encoders[u * inputs + k] += e * x[k * V + v];
                    }
                    g[u][v] = layer.matrix[first + u] * e;
                    if (Carried) g[u][v] += whole;
                    h[u][v] = before;
                }
            }
        }
        for (int u = 0; u < U; ++u) {
            into.matrix[first + u] += sum<R>(of_matrix[u]);
            into.bias[first + u] += sum<R>(of_bias[u]);
            for (long k = 0; k < inputs; ++k)
                into.encoder[(first + u) * inputs + k] += sum<R>(Single ? of_encoder[u] : encoders[u * inputs + k]);
            for (long o = 0; o < outputs; ++o)
                into.readout[o * width + first + u] += sum<R>(Single ? of_readout[u] : readouts[u * outputs + o]);
        }
    }
};
