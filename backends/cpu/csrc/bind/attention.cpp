// The Python face of attention, the indexer and key-value compression.
#include "arguments.hpp"

namespace deepinfer_cpu {
namespace {

py::object sparse_attention(const Table& k, py::handle q, py::handle r, py::handle view, py::handle entries,
                            py::handle selected, py::handle sink, float scale) {
    const Input a(q, Dtype::F32), s(sink, Dtype::F32);
    const Rows at = rows(r);
    const Window keys = window(view);
    fit(at.count, a.size(0), "sparse_attention: a field of Rows");
    fit(s.numel(), a.size(1), "sparse_attention: the sink");
    const bool sparse = !entries.is_none() && !selected.is_none();
    const Paged source = sparse ? paged(entries) : Paged{};
    const Optional chosen(sparse ? selected : py::none(), Dtype::I32);
    if (sparse) fit(chosen.size(0), a.size(0), "sparse_attention: the selection");
    const Output y(a.sizes());
    released([&] {
        k->sparse_attention(a.data<float>(), a.size(1), a.size(2), at, keys, sparse ? &source : nullptr,
                            chosen.data<int32_t>(), chosen.size(1), s.data<float>(), scale, y.data());
    });
    return y.as(q);
}

py::object index_scores(const Table& k, py::handle q, py::handle weights, py::handle keys, py::handle r,
                        int64_t num_entries) {
    const Input a(q, Dtype::F32), w(weights, Dtype::F32);
    const Paged source = paged(keys);
    const Rows at = rows(r);
    fit(at.count, a.size(0), "index_scores: a field of Rows");
    fit(w.numel(), a.size(0) * a.size(1), "index_scores: the weights");
    const Output y({a.size(0), num_entries});
    released([&] {
        k->index_scores(a.data<float>(), w.data<float>(), a.size(1), a.size(2), source, at, num_entries, y.data());
    });
    return y.tensor();
}

py::object select_blocks(const Table& k, py::handle scores, py::handle visible, int64_t block_size,
                         int64_t top_blocks) {
    const Input a(scores, Dtype::F32), v(visible, Dtype::I32);
    const int64_t entries = a.size(1);
    at_least_one(block_size, "select_blocks: block_size");
    fit(v.numel(), a.size(0), "select_blocks: visible");
    const Output keep({a.size(0), (entries + block_size - 1) / block_size}, Dtype::Bool);
    released([&] {
        k->select_blocks(a.data<float>(), a.size(0), entries, v.data<int32_t>(), block_size, top_blocks,
                         keep.data<uint8_t>());
    });
    return keep.tensor();
}

py::object select_topk(const Table& k, py::handle scores, int64_t top_k, py::handle blocks, int64_t block_size) {
    const Input a(scores, Dtype::F32);
    const Optional b(blocks, Dtype::Bool);
    at_least_one(block_size, "select_topk: block_size");
    if (!blocks.is_none()) {
        fit(b.size(0), a.size(0), "select_topk: the blocks' rows");
        fit(b.size(1), (a.size(1) + block_size - 1) / block_size, "select_topk: a row of the blocks");
    }
    const Output selected({a.size(0), top_k}, Dtype::I32);
    released([&] {
        k->select_topk(a.data<float>(), a.size(0), a.size(1), top_k, b.data<uint8_t>(), b.size(1), block_size,
                       selected.data<int32_t>());
    });
    return selected.tensor();
}

py::object compress_kv(const Table& k, py::handle u, py::handle gate, py::handle pending, py::handle r, int64_t ratio,
                       int64_t ring_rows) {
    const Input a(u, Dtype::F32), g(gate, Dtype::F32), held(pending, Dtype::Stored);
    const Rows at = rows(r);
    at_least_one(ratio, "compress_kv: ratio");
    fit(at.count, a.size(0), "compress_kv: a field of Rows");
    fit(g.numel(), a.numel(), "compress_kv: the gate");
    const Output y(a.sizes());
    released([&] {
        k->compress_kv(a.data<float>(), g.data<float>(), a.size(1), held.data<uint8_t>(), at, ratio, ring_rows,
                       y.data());
    });
    return y.tensor();
}

}  // namespace

void bind_attention(py::class_<Table>& c) {
    c.def("sparse_attention", &sparse_attention);
    c.def("index_scores", &index_scores);
    c.def("select_blocks", &select_blocks);
    c.def("select_topk", &select_topk);
    c.def("compress_kv", &compress_kv);
}

}  // namespace deepinfer_cpu
