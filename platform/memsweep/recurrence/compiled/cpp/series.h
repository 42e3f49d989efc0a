// A recurrence that is driven unit by unit, and shows all of its states: what stands between the layers of a deep model.
//
//     h_t = carried h_{t-1} + sigma(x_t + A h_{t-1}),   h_{-1} = 0
//
// A block of sequences is [T][M][V]; states take the place of the drive, and gradients of the drive that of those of
// the states. Complex units are pairs of rows, real and imaginary part; their gradients are conjugated, as torch's are.
#pragma once
#include "product.h"

inline namespace BLOCKS {

template <class R, class Sigma, bool Carried> struct DiagonalSeries {
    using Vector = Vec<R>;

    static long scratch(long width) { return 2 * width * V; }

    static void forward(const R* matrix, long width, long horizon, Vector* values) {
        for (long t = 0; t < horizon; ++t) {
            Vector *now = values + t * width * V, *before = now - width * V;
            for (long i = 0; i < width; ++i)
                for (int v = 0; v < V; ++v) {
                    const Vector h = t ? before[i * V + v] : Vector{};
                    const Vector answer = Sigma::template value<R>(now[i * V + v] + matrix[i] * h);
                    now[i * V + v] = Carried ? h + answer : answer;
                }
        }
    }

    static void backward(const R* matrix, long width, long horizon, const Vector* states, Vector* grads, Vector* scratch,
                         R* of_matrix) {
        Vector *later = scratch, *sums = later + width * V;
        std::fill(later, sums + width * V, Vector{});
        for (long t = horizon - 1; t >= 0; --t) {
            const Vector *now = states + t * width * V, *before = now - width * V;
            for (long i = 0; i < width; ++i)
                for (int v = 0; v < V; ++v) {
                    const long at = i * V + v;
                    const Vector h = t ? before[at] : Vector{};
                    const Vector whole = grads[t * width * V + at] + later[at];
                    const Vector e = Sigma::template slope<R>(now[at], Carried ? h : Vector{}) * whole;
                    grads[t * width * V + at] = e;
                    sums[at] += e * h;
                    later[at] = Carried ? matrix[i] * e + whole : matrix[i] * e;
                }
        }
        for (long i = 0; i < width; ++i)
            for (int v = 0; v < V; ++v) of_matrix[i] += sum<R>(sums[i * V + v]);
    }
};

template <class R, class Sigma, bool Carried> struct DenseSeries {
    using Vector = Vec<R>;

    static long scratch(long width) {
        return 2 * width * V + OuterProducts<R>::room(width) + (width * width) / Simd<R>::lanes + 1;
    }

    static void forward(const R* matrix, long width, long horizon, Vector* values) {
        for (long t = 0; t < horizon; ++t) {
            Vector *now = values + t * width * V, *before = t ? now - width * V : nullptr;
            rows_times_states(
                matrix, width, before, [&](long i, int v) { return now[i * V + v]; },
                [&](long i, int v, Vector sum) {
                    const Vector answer = Sigma::template value<R>(sum);
                    now[i * V + v] = Carried && before ? before[i * V + v] + answer : answer;
                });
        }
    }

    static void backward(const R* matrix, long width, long horizon, const Vector* states, Vector* grads, Vector* scratch,
                         R* of_matrix) {
        Vector *whole = scratch, *later = whole + width * V, *errors = later + width * V;
        R* transposed = reinterpret_cast<R*>(errors + OuterProducts<R>::room(width));
        std::fill(later, later + width * V, Vector{});
        transpose(matrix, width, transposed);
        OuterProducts<R> products(width, errors, of_matrix);
        for (long t = horizon - 1; t >= 0; --t) {
            const Vector *now = states + t * width * V, *before = t ? now - width * V : nullptr;
            Vector *grad = grads + t * width * V, *e = products.next();
            for (long k = 0; k < width * V; ++k) {
                whole[k] = grad[k] + later[k];
                grad[k] = e[k] = Sigma::template slope<R>(now[k], Carried && before ? before[k] : Vector{}) * whole[k];
            }
            if (t == 0) break;
            rows_times_states(
                transposed, width, e, [&](long i, int v) { return Carried ? whole[i * V + v] : Vector{}; },
                [&](long i, int v, Vector sum) { later[i * V + v] = sum; });
            products.add(before, t == 1);
        }
    }
};

template <class R> struct ComplexSeries {
    using Vector = Vec<R>;

    static long scratch(long width) { return 2 * width * V; }  // width counts real numbers: two for each unit

    static void forward(const R* matrix, long width, long horizon, Vector* values) {
        for (long t = 1; t < horizon; ++t) {
            Vector *now = values + t * width * V, *before = now - width * V;
            for (long i = 0; i < width; i += 2)
                for (int v = 0; v < V; ++v) {
                    const Vector re = before[i * V + v], im = before[(i + 1) * V + v];
                    now[i * V + v] += matrix[i] * re - matrix[i + 1] * im;
                    now[(i + 1) * V + v] += matrix[i] * im + matrix[i + 1] * re;
                }
        }
    }

    static void backward(const R* matrix, long width, long horizon, const Vector* states, Vector* grads, Vector* scratch,
                         R* of_matrix) {
        std::fill(scratch, scratch + width * V, Vector{});
        for (long t = horizon - 1; t > 0; --t) {
            const Vector *now = grads + t * width * V, *h = states + (t - 1) * width * V;
            Vector* before = grads + (t - 1) * width * V;
            for (long i = 0; i < width; i += 2)
                for (int v = 0; v < V; ++v) {
                    const long a = i * V + v, b = a + V;
                    before[a] += matrix[i] * now[a] + matrix[i + 1] * now[b];
                    before[b] += matrix[i] * now[b] - matrix[i + 1] * now[a];
                    scratch[a] += now[a] * h[a] + now[b] * h[b];
                    scratch[b] += now[b] * h[a] - now[a] * h[b];
                }
        }
        for (long i = 0; i < width; ++i)
            for (int v = 0; v < V; ++v) of_matrix[i] += sum<R>(scratch[i * V + v]);
    }
};

}  // namespace BLOCKS
