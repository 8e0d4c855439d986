// The Python face of linear layers and the mixture of experts.
#include "arguments.hpp"

namespace deepinfer_cpu {
namespace {

py::object linear(const Table& k, py::handle x, py::handle matrix, bool quantise, py::handle out_dtype) {
    const Input a(x, Dtype::F32);
    const Weight w = weight(matrix);
    fit(a.size(1), w.in, "linear: a row of x");
    const Output y({a.size(0), w.out});
    released([&] { k->linear(a.data<float>(), a.size(0), w, quantise, y.data()); });
    return y.as(out_dtype.is_none() ? x : out_dtype);
}

py::object grouped_linear(const Table& k, py::handle x, py::handle matrix) {
    const Input a(x, Dtype::F32);
    const Weight w = weight(matrix);
    const int64_t groups = a.size(1);
    at_least_one(groups, "grouped_linear: the number of groups");
    fit(w.out % groups, 0, "grouped_linear: what the groups leave of the outputs");
    fit(a.size(2), w.in, "grouped_linear: a row of x");
    const Output y({a.size(0), groups, w.out / groups});
    released([&] { k->grouped_linear(a.data<float>(), a.size(0), groups, w, y.data()); });
    return y.as(x);
}

py::object lm_head(const Table& k, py::handle x, py::handle matrix) {
    const Input a(x, Dtype::F32);
    const Weight w = weight(matrix);
    fit(a.size(1), w.in, "lm_head: a row of x");
    const Output y({a.size(0), w.out});
    released([&] { k->linear(a.data<float>(), a.size(0), w, false, y.data()); });
    return y.tensor();
}

py::object gated_mlp(const Table& k, py::handle x, py::handle w1, py::handle w3, py::handle w2, float limit,
                     bool quantise) {
    const Input a(x, Dtype::F32);
    const Weight gate = weight(w1), up = weight(w3), down = weight(w2);
    fit(a.size(1), gate.in, "gated_mlp: a row of x");
    fit(up.in, gate.in, "gated_mlp: a row of w3");
    fit(up.out, gate.out, "gated_mlp: a column of w3");
    fit(down.in, gate.out, "gated_mlp: a row of w2");
    const Output y({a.size(0), down.out});
    released([&] { k->gated_mlp(a.data<float>(), a.size(0), gate, up, down, limit, quantise, y.data()); });
    return y.as(x);
}

py::object experts(const Table& k, py::handle x, py::handle order, py::handle offsets, py::handle weights,
                   py::handle w1, py::handle w3, py::handle w2, float limit, bool quantise) {
    const Input a(x, Dtype::F32), o(order, Dtype::I32), begin(offsets, Dtype::I32), routing(weights, Dtype::F32);
    const Weight gate = weight(w1), up = weight(w3), down = weight(w2);
    const int64_t count = begin.size(0) - 1;
    fit(a.size(1), gate.in, "experts: a row of x");
    fit(up.in, gate.in, "experts: a row of w3");
    fit(up.out, gate.out, "experts: a column of w3");
    fit(down.in, gate.out, "experts: a row of w2");
    fit(down.out, a.size(1), "experts: a column of w2");
    for (const Weight& stack : {gate, up, down}) fit(stack.stack, count, "experts: a stack of matrices");
    fit(routing.size(0), a.size(0), "experts: the weights' rows");
    fit(o.size(0), routing.numel(), "experts: the order");
    const Output y({o.size(0), a.size(1)});
    released([&] {
        k->experts(a.data<float>(), a.size(0), o.data<int32_t>(), begin.data<int32_t>(), routing.data<float>(),
                   routing.size(1), count, gate, up, down, limit, quantise, y.data());
    });
    return y.tensor();
}

py::tuple route(const Table& k, py::handle x, py::handle gate, py::handle bias, int64_t top_k, float scale) {
    const Input a(x, Dtype::F32), b(bias, Dtype::F32);
    const Weight w = weight(gate);
    fit(a.size(1), w.in, "route: a row of x");
    fit(b.numel(), w.out, "route: the bias");
    const Output experts({a.size(0), top_k}, Dtype::I32), weights({a.size(0), top_k});
    released([&] {
        k->route(a.data<float>(), a.size(0), w, b.data<float>(), top_k, scale, experts.data<int32_t>(), weights.data());
    });
    return py::make_tuple(experts.tensor(), weights.tensor());
}

py::tuple moe_permute(const Table& k, py::handle experts, int64_t num_experts) {
    const Input e(experts, Dtype::I32);
    const int64_t count = e.numel();
    const Output order({count}, Dtype::I32), offsets({num_experts + 1}, Dtype::I32);
    released(
        [&] { k->moe_permute(e.data<int32_t>(), count, num_experts, order.data<int32_t>(), offsets.data<int32_t>()); });
    return py::make_tuple(order.tensor(), offsets.tensor());
}

py::object moe_combine(const Table& k, py::handle y, py::handle order, int64_t top_k) {
    const Input a(y, Dtype::F32), o(order, Dtype::I32);
    at_least_one(top_k, "moe_combine: top_k");
    fit(a.size(0) % top_k, 0, "moe_combine: what top_k leaves of the rows");
    fit(o.numel(), a.size(0), "moe_combine: the order");
    const int64_t rows = a.size(0) / top_k, dim = a.size(1);
    const Output out({rows, dim});
    released([&] { k->moe_combine(a.data<float>(), o.data<int32_t>(), rows, top_k, dim, out.data()); });
    return out.tensor();
}

}  // namespace

void bind_matrices(py::class_<Table>& c) {
    c.def("linear", &linear);
    c.def("grouped_linear", &grouped_linear);
    c.def("lm_head", &lm_head);
    c.def("gated_mlp", &gated_mlp);
    c.def("experts", &experts);
    c.def("route", &route);
    c.def("moe_permute", &moe_permute);
    c.def("moe_combine", &moe_combine);
}

}  // namespace deepinfer_cpu
