// The Python face of table look-ups.
#include <limits>

#include "arguments.hpp"

namespace deepinfer_cpu {
namespace {

py::object embedding(const Table& k, py::handle tokens, py::handle matrix, py::handle dtype) {
    const Input t(tokens, Dtype::I64);
    const Weight w = weight(matrix);
    within(t, std::numeric_limits<int64_t>::min(), w.out, "embedding: token");  // below 0: padding
    const Output y({t.size(0), w.in});
    released([&] { k->embedding(t.data<int64_t>(), t.size(0), w, y.data()); });
    return y.as(dtype);
}

py::object engram_lookup(const Table& k, py::handle matrix, py::handle index, py::handle dtype) {
    const Input i(index, Dtype::I64);
    const Weight w = weight(matrix);
    within(i, 0, w.out, "engram_lookup: row");
    const Output y({i.size(0), i.size(1) * w.in});
    released([&] { k->engram_lookup(w, i.data<int64_t>(), i.numel(), y.data()); });
    return y.as(dtype);
}

py::object hash_ngrams(const Table& k, py::handle classes, py::handle multipliers, py::handle primes,
                       py::handle offsets, int64_t pad) {
    const Input c(classes, Dtype::I64), m(multipliers, Dtype::I64), p(primes, Dtype::I64), o(offsets, Dtype::I64);
    fit(m.numel(), c.size(1), "hash_ngrams: the multipliers");
    fit(o.numel(), p.numel(), "hash_ngrams: the offsets");
    const Output out({c.size(0), p.size(0)}, Dtype::I64);
    released([&] {
        k->hash_ngrams(c.data<int64_t>(), c.size(0), c.size(1), m.data<int64_t>(), p.data<int64_t>(), o.data<int64_t>(),
                       p.size(0), pad, out.data<int64_t>());
    });
    return out.tensor();
}

py::object gather_history(const Table& k, py::handle tokens, py::handle r, py::handle history, int64_t n) {
    const Input t(tokens, Dtype::I64), h(history, Dtype::I64);
    const Rows at = rows(r);
    fit(at.count, t.size(0), "gather_history: a field of Rows");
    const Output out({t.size(0), n}, Dtype::I64);
    released([&] { k->gather_history(t.data<int64_t>(), at, h.data<int64_t>(), h.size(1), n, out.data<int64_t>()); });
    return out.tensor();
}

py::object read_rows(const Table& k, py::handle pool, py::handle index, py::handle format, int64_t dim) {
    const Input bytes(pool, Dtype::Stored), i(index, Dtype::I64);
    const RowFormat stored = row_format(format);
    std::vector<int64_t> sizes = i.sizes();
    sizes.push_back(dim);
    const Output y(sizes);
    released([&] {
        k->read_rows(bytes.data<uint8_t>(), bytes.size(1), i.data<int64_t>(), i.numel(), dim, stored, y.data());
    });
    return y.tensor();
}

}  // namespace

void bind_lookup(py::class_<Table>& c) {
    c.def("embedding", &embedding);
    c.def("engram_lookup", &engram_lookup);
    c.def("hash_ngrams", &hash_ngrams);
    c.def("gather_history", &gather_history);
    c.def("read_rows", &read_rows);
}

}  // namespace deepinfer_cpu
