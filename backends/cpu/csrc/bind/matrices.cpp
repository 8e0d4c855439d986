// The Python face of linear layers and the mixture of experts.
#include "arguments.hpp"

namespace deepinfer_cpu {

void bind_matrices(py::class_<Table>& c) {
    c.def(
        "linear",
        [](const Table& k, Address x, int64_t n, const WeightTuple& w, bool quantise, Address y) {
            k->linear(at<const float>(x), n, weight(w), quantise, at<float>(y));
        },
        Release());
    c.def(
        "grouped_linear",
        [](const Table& k, Address x, int64_t n, int64_t groups, const WeightTuple& w, Address y) {
            k->grouped_linear(at<const float>(x), n, groups, weight(w), at<float>(y));
        },
        Release());
    c.def(
        "gated_mlp",
        [](const Table& k, Address x, int64_t n, const WeightTuple& w1, const WeightTuple& w3, const WeightTuple& w2,
           float limit, bool quantise, Address y) {
            k->gated_mlp(at<const float>(x), n, weight(w1), weight(w3), weight(w2), limit, quantise, at<float>(y));
        },
        Release());
    c.def(
        "experts",
        [](const Table& k, Address x, int64_t n, Address order, Address offsets, Address weights, int64_t top_k,
           int64_t count, const WeightTuple& w1, const WeightTuple& w3, const WeightTuple& w2, float limit,
           bool quantise, Address y) {
            k->experts(at<const float>(x), n, at<const int32_t>(order), at<const int32_t>(offsets),
                       at<const float>(weights), top_k, count, weight(w1), weight(w3), weight(w2), limit, quantise,
                       at<float>(y));
        },
        Release());
    c.def(
        "route",
        [](const Table& k, Address x, int64_t n, const WeightTuple& gate, Address bias, int64_t top_k, float scale,
           Address experts, Address weights) {
            k->route(at<const float>(x), n, weight(gate), at<const float>(bias), top_k, scale, at<int32_t>(experts),
                     at<float>(weights));
        },
        Release());
    c.def(
        "moe_permute",
        [](const Table& k, Address experts, int64_t n, int64_t count, Address order, Address offsets) {
            k->moe_permute(at<const int32_t>(experts), n, count, at<int32_t>(order), at<int32_t>(offsets));
        },
        Release());
    c.def(
        "moe_combine",
        [](const Table& k, Address y, Address order, int64_t n, int64_t top_k, int64_t dim, Address out) {
            k->moe_combine(at<const float>(y), at<const int32_t>(order), n, top_k, dim, at<float>(out));
        },
        Release());
}

}  // namespace deepinfer_cpu
