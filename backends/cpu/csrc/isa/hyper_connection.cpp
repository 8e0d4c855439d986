// Hyper-connections: the mixing weights of a row's residual streams, their collapse into a layer's input and the
// expansion of its output; and the Engram gate, which works on the same streams.
#include <cmath>

#include "../parallel.hpp"
#include "dot.hpp"
#include "tables.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {
namespace {

float sigmoid(float x) {
    return 1.0f / (1.0f + std::exp(-x));
}

void add_scaled(float* total, const float* x, float factor, int64_t count) {
    for (int64_t i = 0; i < count; ++i) total[i] += factor * x[i];
}

void divide_rows(float* c, int64_t n, float eps) {
    for (int64_t i = 0; i < n; ++i) {
        float total = 0;
        for (int64_t j = 0; j < n; ++j) total += c[i * n + j];
        for (int64_t j = 0; j < n; ++j) c[i * n + j] /= total + eps;
    }
}

void divide_columns(float* c, int64_t n, float eps) {
    for (int64_t j = 0; j < n; ++j) {
        float total = 0;
        for (int64_t i = 0; i < n; ++i) total += c[i * n + j];
        for (int64_t i = 0; i < n; ++i) c[i * n + j] /= total + eps;
    }
}

// Softmax over each row of c, then alternating normalisation, columns first (Sinkhorn).
void sinkhorn(float* c, int64_t n, float eps, int64_t iterations) {
    for (int64_t i = 0; i < n; ++i) {
        float most = c[i * n], total = 0;
        for (int64_t j = 1; j < n; ++j) most = std::max(most, c[i * n + j]);
        for (int64_t j = 0; j < n; ++j) total += c[i * n + j] = std::exp(c[i * n + j] - most);
        for (int64_t j = 0; j < n; ++j) c[i * n + j] = c[i * n + j] / total + eps;
    }
    divide_columns(c, n, eps);
    for (int64_t i = 1; i < iterations; ++i) {
        divide_rows(c, n, eps);
        divide_columns(c, n, eps);
    }
}

}  // namespace

void hc_mixes(const float* streams, int64_t rows, int64_t n, int64_t dim, const float* fn, const float* base,
              const float* scale, float norm_eps, float hc_eps, int64_t iterations, float* pre, float* post,
              float* comb) {
    const int64_t width = n * dim, count = (2 + n) * n;
    parallel_for((rows + 3) / 4, rows * width * count, [&](int64_t task) {
        const int64_t first = task * 4, here = std::min<int64_t>(4, rows - first);
        std::vector<float> mixes(static_cast<size_t>(4 * count));
        const float* x[4];
        float* out[4];
        for (int64_t r = 0; r < here; ++r) {
            x[r] = streams + (first + r) * width;
            out[r] = mixes.data() + r * count;
        }
        dot_all(x, here, fn, width, count, width, out);
        for (int64_t r = 0; r < here; ++r) {
            const float* m = out[r];
            const int64_t t = first + r;
            const float factor = 1.0f / std::sqrt(sum_squares(x[r], width) / float(width) + norm_eps);
            for (int64_t i = 0; i < n; ++i) {
                pre[t * n + i] = sigmoid(m[i] * factor * scale[0] + base[i]) + hc_eps;
                post[t * n + i] = 2.0f * sigmoid(m[n + i] * factor * scale[1] + base[n + i]);
            }
            for (int64_t i = 0; i < n * n; ++i)
                comb[t * n * n + i] = m[2 * n + i] * factor * scale[2] + base[2 * n + i];
            sinkhorn(comb + t * n * n, n, hc_eps, iterations);
        }
    });
}

void hc_collapse(const float* streams, const float* pre, int64_t rows, int64_t n, int64_t dim, float* y) {
    parallel_for((rows + 15) / 16, rows * n * dim, [&](int64_t task) {
        for (int64_t t = task * 16; t < std::min(rows, task * 16 + 16); ++t) {
            float* total = y + t * dim;
            std::fill(total, total + dim, 0.0f);
            for (int64_t k = 0; k < n; ++k) add_scaled(total, streams + (t * n + k) * dim, pre[t * n + k], dim);
        }
    });
}

void hc_expand(const float* y, const float* streams, const float* post, const float* comb, int64_t rows, int64_t n,
               int64_t dim, float* out) {
    parallel_for((rows + 15) / 16, rows * n * n * dim, [&](int64_t task) {
        for (int64_t t = task * 16; t < std::min(rows, task * 16 + 16); ++t)
            for (int64_t k = 0; k < n; ++k) {  // stream k takes the sum over j of comb[j, k] * stream j, and post_k * y
                float* total = out + (t * n + k) * dim;
                std::fill(total, total + dim, 0.0f);
                for (int64_t j = 0; j < n; ++j)
                    add_scaled(total, streams + (t * n + j) * dim, comb[(t * n + j) * n + k], dim);
                add_scaled(total, y + t * dim, post[t * n + k], dim);
            }
    });
}

void engram_gate(const float* streams, const float* key, const float* value, const float* q_weight,
                 const float* k_weight, int64_t rows, int64_t n, int64_t dim, float eps, float* out) {
    for (int64_t t = 0; t < rows; ++t, value += dim)
        for (int64_t k = 0; k < n; ++k) {
            const float *x = streams + (t * n + k) * dim, *y = key + (t * n + k) * dim;
            float dot = 0;
            for (int64_t d = 0; d < dim; ++d) dot += x[d] * (q_weight[k * dim + d] * k_weight[k * dim + d]) * y[d];
            const float norms = 1.0f / std::sqrt(sum_squares(x, dim) / float(dim) + eps) *
                                (1.0f / std::sqrt(sum_squares(y, dim) / float(dim) + eps));
            dot *= norms / std::sqrt(float(dim));
            const float gate = sigmoid(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot));
            for (int64_t d = 0; d < dim; ++d) out[(t * n + k) * dim + d] = x[d] + gate * value[d];
        }
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
