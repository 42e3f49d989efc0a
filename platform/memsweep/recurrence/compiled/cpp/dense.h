// A layer whose units all see one another: step by step, each a product of the matrix with a block of states.
#pragma once
#include <type_traits>

#include "product.h"

template <class R, class Sigma, class Tau, bool Carried> struct Dense {
    using Vector = Vec<R>;

    static long scratch(long horizon, const Layer<R>& layer, bool keep) {
        const long width = layer.width;
        if (!keep) return 3 * width * V;
        const long matrix = (width * width + Simd<R>::lanes - 1) / Simd<R>::lanes;
        return (horizon + 2) * width * V + OuterProducts<R>::room(width) + width * (layer.inputs + layer.outputs + 1) + matrix;
    }

    // states: [T][M][V], or the last two steps where nothing is kept
    static void forward(const Layer<R>& layer, const Block<R>& block, Vector* states, bool keep) {
        const long width = layer.width, outputs = layer.outputs;
        Vector* shown = states + (keep ? block.horizon : 2) * width * V;
        for (long t = 0; t < block.horizon; ++t) {
            Vector* now = states + (keep ? t : t % 2) * width * V;
            const Vector* before = t ? states + (keep ? t - 1 : (t - 1) % 2) * width * V : nullptr;
            const Vector* x = block.x + t * layer.inputs * V;
            const auto driven = [&](long i, int v) {
                Vector drive = layer.bias[i] - Vector{};
                for (long k = 0; k < layer.inputs; ++k) drive += layer.encoder[i * layer.inputs + k] * x[k * V + v];
                return drive;
            };
            const auto step = [&](long i, int v, Vector sum) {
                const Vector answer = Sigma::template value<R>(sum);
                now[i * V + v] = Carried && before ? before[i * V + v] + answer : answer;
            };
            rows_times_states(layer.matrix, width, before, driven, step);
            if (!std::is_same<Tau, Linear>::value)
                for (long k = 0; k < width * V; ++k) shown[k] = Tau::template value<R>(now[k]);
            read_out(layer, std::is_same<Tau, Linear>::value ? now : shown, block.y + t * outputs * V);
        }
    }

    static void backward(const Layer<R>& layer, const Block<R>& block, Vector* scratch, const Gradient<R>& into) {
        const long width = layer.width, inputs = layer.inputs, outputs = layer.outputs, horizon = block.horizon;
        const Vector* states = scratch;
        Vector* errors = scratch + horizon * width * V;
        Vector* whole = errors + OuterProducts<R>::room(width);  // gradient of the state: [M][V]
        Vector* later = whole + width * V;                       // what of it comes from later steps: [M][V]
        Vector *encoders = later + width * V, *readouts = encoders + width * inputs, *biases = readouts + width * outputs;
        R* transposed = reinterpret_cast<R*>(biases + width);
        std::fill(later, biases + width, Vector{});
        transpose(layer.matrix, width, transposed);
        collect_offset(layer, block, into.offset);
        OuterProducts<R> products(width, errors, into.matrix);
        for (long t = horizon - 1; t >= 0; --t) {
            const Vector *h = states + t * width * V, *before = t ? h - width * V : nullptr;
            const Vector *x = block.x + t * inputs * V, *dy = block.y + t * outputs * V;
            Vector* e = products.next();
            for (long i = 0; i < width; ++i)
                back_through_unit(layer, i, t ? before + i * V : nullptr, h + i * V, x, dy, later + i * V,
                                  whole + i * V, e + i * V, encoders, readouts, biases);
            if (t == 0) break;
            rows_times_states(
                transposed, width, e, [&](long i, int v) { return Carried ? whole[i * V + v] : Vector{}; },
                [&](long i, int v, Vector sum) { later[i * V + v] = sum; });
            products.add(before, t == 1);
        }
        for (long i = 0; i < width; ++i) {
            into.bias[i] += sum<R>(biases[i]);
            for (long k = 0; k < inputs; ++k) into.encoder[i * inputs + k] += sum<R>(encoders[i * inputs + k]);
            for (long o = 0; o < outputs; ++o) into.readout[o * width + i] += sum<R>(readouts[i * outputs + o]);
        }
    }

private:
    static void read_out(const Layer<R>& layer, const Vector* shown, Vector* y) {
        for (long o = 0; o < layer.outputs; ++o) {
            Vector even[V], odd[V] = {};  // two sums, so that one need not wait for the other
            for (int v = 0; v < V; ++v) even[v] = layer.offset[o] - Vector{};
            const R* readout = layer.readout + o * layer.width;
            long j = 0;
            for (; j + 2 <= layer.width; j += 2)
                for (int v = 0; v < V; ++v) {
                    even[v] += readout[j] * shown[j * V + v];
                    odd[v] += readout[j + 1] * shown[(j + 1) * V + v];
                }
            if (j < layer.width)
                for (int v = 0; v < V; ++v) even[v] += readout[j] * shown[j * V + v];
            for (int v = 0; v < V; ++v) y[o * V + v] = even[v] + odd[v];
        }
    }

    static void back_through_unit(const Layer<R>& layer, long i, const Vector* before, const Vector* h, const Vector* x,
                                  const Vector* dy, const Vector* later, Vector* whole, Vector* e, Vector* encoders,
                                  Vector* readouts, Vector* biases) {
        const long inputs = layer.inputs, outputs = layer.outputs;
        Vector shown[V], arriving[V] = {}, error[V], total{};
        for (int v = 0; v < V; ++v) shown[v] = Tau::template value<R>(h[v]);
        for (long o = 0; o < outputs; ++o) {
            Vector product{};
            for (int v = 0; v < V; ++v) {
                arriving[v] += layer.readout[o * layer.width + i] * dy[o * V + v];
                product += dy[o * V + v] * shown[v];
            }
            readouts[i * outputs + o] += product;
        }
        for (int v = 0; v < V; ++v) {
            const Vector carried = Carried && before ? before[v] : Vector{};
            whole[v] = later[v] + Tau::template slope<R>(shown[v], Vector{}) * arriving[v];
            e[v] = error[v] = Sigma::template slope<R>(h[v], carried) * whole[v];
            total += error[v];
        }
        biases[i] += total;
        for (long k = 0; k < inputs; ++k) {
            Vector product{};
            for (int v = 0; v < V; ++v) product += error[v] * x[k * V + v];
            encoders[i * inputs + k] += product;
        }
    }
};
