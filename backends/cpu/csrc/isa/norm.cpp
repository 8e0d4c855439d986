// RMS norm and rotary position embedding.
#include <cmath>

#include "../parallel.hpp"
#include "dot.hpp"
#include "tables.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {

void rms_norm(const float* x, int64_t rows, int64_t dim, const float* weight, float eps, float* y) {
    for (int64_t t = 0; t < rows; ++t, x += dim, y += dim) {
        const float factor = 1.0f / std::sqrt(sum_squares(x, dim) / float(dim) + eps);
        for (int64_t d = 0; d < dim; ++d) y[d] = weight[d] * (x[d] * factor);
    }
}

void apply_rope(const float* x, int64_t rows, int64_t heads, int64_t dim, const int32_t* position,
                const float* inv_freq, int64_t rotated, bool inverse, float* y) {
    const int64_t pairs = rotated / 2, plain = dim - rotated;
    std::vector<float> cosine(static_cast<size_t>(pairs)), sine(static_cast<size_t>(pairs));
    for (int64_t t = 0; t < rows; ++t) {
        for (int64_t i = 0; i < pairs; ++i) {
            const float angle = float(position[t]) * inv_freq[i];
            cosine[size_t(i)] = std::cos(angle);
            sine[size_t(i)] = inverse ? -std::sin(angle) : std::sin(angle);
        }
        for (int64_t h = 0; h < heads; ++h, x += dim, y += dim) {
            std::copy(x, x + plain, y);
            for (int64_t i = 0; i < pairs; ++i) {
                const float even = x[plain + 2 * i], odd = x[plain + 2 * i + 1];
                y[plain + 2 * i] = even * cosine[size_t(i)] - odd * sine[size_t(i)];
                y[plain + 2 * i + 1] = odd * cosine[size_t(i)] + even * sine[size_t(i)];
            }
        }
    }
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
