// The Python face of norms, rotary embedding, hyper-connections and the Engram gate.
#include "arguments.hpp"

namespace deepinfer_cpu {
namespace {

py::object rms_norm(const Table& k, py::handle x, py::handle weight, float eps) {
    const Input a(x, Dtype::F32), w(weight, Dtype::F32);
    fit(w.numel(), a.size(1), "rms_norm: the weight");
    const Output y(a.sizes());
    released([&] { k->rms_norm(a.data<float>(), a.size(0), a.size(1), w.data<float>(), eps, y.data()); });
    return y.as(x);
}

py::object apply_rope(const Table& k, py::handle x, py::handle position, py::handle inv_freq, bool inverse) {
    const Input a(x, Dtype::F32), p(position, Dtype::I32), f(inv_freq, Dtype::F32);
    const int64_t heads = a.dims() == 3 ? a.size(1) : 1;
    fit(p.numel(), a.size(0), "apply_rope: the positions");
    const Output y(a.sizes());
    released([&] {
        k->apply_rope(a.data<float>(), a.size(0), heads, a.size(-1), p.data<int32_t>(), f.data<float>(), 2 * f.size(0),
                      inverse, y.data());
    });
    return y.as(x);
}

py::tuple hc_mixes(const Table& k, py::handle streams, py::handle fn, py::handle base, py::handle scale, float norm_eps,
                   float hc_eps, int64_t iterations) {
    const Input a(streams, Dtype::F32), m(fn, Dtype::F32), b(base, Dtype::F32), s(scale, Dtype::F32);
    const int64_t rows = a.size(0), n = a.size(1), mixes = (2 + n) * n;
    fit(m.numel(), mixes * n * a.size(2), "hc_mixes: fn");
    fit(b.numel(), mixes, "hc_mixes: base");
    fit(s.numel(), 3, "hc_mixes: scale");
    const Output pre({rows, n}), post({rows, n}), comb({rows, n, n});
    released([&] {
        k->hc_mixes(a.data<float>(), rows, n, a.size(2), m.data<float>(), b.data<float>(), s.data<float>(), norm_eps,
                    hc_eps, iterations, pre.data(), post.data(), comb.data());
    });
    return py::make_tuple(pre.tensor(), post.tensor(), comb.tensor());
}

py::object hc_collapse(const Table& k, py::handle streams, py::handle pre) {
    const Input a(streams, Dtype::F32), p(pre, Dtype::F32);
    fit(p.numel(), a.size(0) * a.size(1), "hc_collapse: pre");
    const Output y({a.size(0), a.size(2)});
    released([&] { k->hc_collapse(a.data<float>(), p.data<float>(), a.size(0), a.size(1), a.size(2), y.data()); });
    return y.as(streams);
}

py::object hc_expand(const Table& k, py::handle y, py::handle streams, py::handle post, py::handle comb) {
    const Input a(y, Dtype::F32), x(streams, Dtype::F32), p(post, Dtype::F32), c(comb, Dtype::F32);
    const int64_t weights = x.size(0) * x.size(1);
    fit(a.numel(), x.size(0) * x.size(2), "hc_expand: y");
    fit(p.numel(), weights, "hc_expand: post");
    fit(c.numel(), weights * x.size(1), "hc_expand: comb");
    const Output out(x.sizes());
    released([&] {
        k->hc_expand(a.data<float>(), x.data<float>(), p.data<float>(), c.data<float>(), x.size(0), x.size(1),
                     x.size(2), out.data());
    });
    return out.as(streams);
}

py::object engram_gate(const Table& k, py::handle streams, py::handle key, py::handle value, py::handle q_weight,
                       py::handle k_weight, float eps) {
    const Input x(streams, Dtype::F32), y(key, Dtype::F32), v(value, Dtype::F32), q(q_weight, Dtype::F32),
        w(k_weight, Dtype::F32);
    const Output out(x.sizes());
    released([&] {
        k->engram_gate(x.data<float>(), y.data<float>(), v.data<float>(), q.data<float>(), w.data<float>(), x.size(0),
                       x.size(1), x.size(2), eps, out.data());
    });
    return out.as(streams);
}

}  // namespace

void bind_streams(py::class_<Table>& c) {
    c.def("rms_norm", &rms_norm);
    c.def("apply_rope", &apply_rope);
    c.def("hc_mixes", &hc_mixes);
    c.def("hc_collapse", &hc_collapse);
    c.def("hc_expand", &hc_expand);
    c.def("engram_gate", &engram_gate);
}

}  // namespace deepinfer_cpu
