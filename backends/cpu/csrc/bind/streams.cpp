// The Python face of norms, rotary embedding, hyper-connections and the Engram gate.
#include "arguments.hpp"

namespace deepinfer_cpu {

void bind_rows(py::class_<Table>& c) {
    c.def(
        "rms_norm",
        [](const Table& k, Address x, int64_t n, int64_t dim, Address weight, float eps, Address y) {
            k->rms_norm(at<const float>(x), n, dim, at<const float>(weight), eps, at<float>(y));
        },
        Release());
    c.def(
        "apply_rope",
        [](const Table& k, Address x, int64_t n, int64_t heads, int64_t dim, Address position, Address inv_freq,
           int64_t rotated, bool inverse, Address y) {
            k->apply_rope(at<const float>(x), n, heads, dim, at<const int32_t>(position), at<const float>(inv_freq),
                          rotated, inverse, at<float>(y));
        },
        Release());
    c.def(
        "hc_mixes",
        [](const Table& k, Address streams, int64_t rows, int64_t n, int64_t dim, Address fn, Address base,
           Address scale, float norm_eps, float hc_eps, int64_t iterations, Address pre, Address post, Address comb) {
            k->hc_mixes(at<const float>(streams), rows, n, dim, at<const float>(fn), at<const float>(base),
                        at<const float>(scale), norm_eps, hc_eps, iterations, at<float>(pre), at<float>(post),
                        at<float>(comb));
        },
        Release());
    c.def(
        "hc_collapse",
        [](const Table& k, Address streams, Address pre, int64_t rows, int64_t n, int64_t dim, Address y) {
            k->hc_collapse(at<const float>(streams), at<const float>(pre), rows, n, dim, at<float>(y));
        },
        Release());
    c.def(
        "hc_expand",
        [](const Table& k, Address y, Address streams, Address post, Address comb, int64_t rows, int64_t n, int64_t dim,
           Address out) {
            k->hc_expand(at<const float>(y), at<const float>(streams), at<const float>(post), at<const float>(comb),
                         rows, n, dim, at<float>(out));
        },
        Release());
    c.def(
        "engram_gate",
        [](const Table& k, Address streams, Address key, Address value, Address q_weight, Address k_weight,
           int64_t rows, int64_t n, int64_t dim, float eps, Address out) {
            k->engram_gate(at<const float>(streams), at<const float>(key), at<const float>(value),
                           at<const float>(q_weight), at<const float>(k_weight), rows, n, dim, eps, at<float>(out));
        },
        Release());
}

}  // namespace deepinfer_cpu
