// The Python face of the kernels. Tensors come as addresses; deepinfer_cpu/kernels.py has checked their dtypes, shapes
// and strides. Every kernel runs without the GIL.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "kernels.hpp"
#include "parallel.hpp"

namespace py = pybind11;
using namespace deepinfer_cpu;

namespace {

using Address = uintptr_t;

// (data, scale or 0, format, out, in)
using WeightTuple = std::tuple<Address, Address, int, int64_t, int64_t>;
// (slot, position, first_position, first_row, last_position, floor, count)
using RowsTuple = std::tuple<Address, Address, Address, Address, Address, Address, int64_t>;
// (pool, format, base, fresh_base, ring_rows, window)
using WindowTuple = std::tuple<Address, int, int64_t, int64_t, int64_t, int64_t>;
// (pool, format, block_table, max_blocks, block_rows, ratio)
using PagedTuple = std::tuple<Address, int, Address, int64_t, int64_t, int64_t>;

template <class T>
T* at(Address address) {
    return reinterpret_cast<T*>(address);
}

Weight weight(const WeightTuple& w) {
    const auto& [data, scale, format, out, in] = w;
    return {at<const uint8_t>(data), at<const uint8_t>(scale), static_cast<WeightFormat>(format), out, in};
}

Rows rows(const RowsTuple& r) {
    const auto& [slot, position, first_position, first_row, last_position, floor, count] = r;
    return {at<const int32_t>(slot),
            at<const int32_t>(position),
            at<const int32_t>(first_position),
            at<const int32_t>(first_row),
            at<const int32_t>(last_position),
            at<const int32_t>(floor),
            count};
}

Window window(const WindowTuple& w) {
    const auto& [pool, format, base, fresh_base, ring_rows, size] = w;
    return {at<const uint8_t>(pool), static_cast<RowFormat>(format), base, fresh_base, ring_rows, size};
}

Paged paged(const PagedTuple& p) {
    const auto& [pool, format, table, max_blocks, block_rows, ratio] = p;
    return {at<const uint8_t>(pool),
            static_cast<RowFormat>(format),
            at<const int32_t>(table),
            max_blocks,
            block_rows,
            ratio};
}

// The kernels of one instruction set.
class Table {
  public:
    explicit Table(const std::string& isa) : kernels_(choose(isa.c_str())) {
        if (!kernels_)
            throw std::invalid_argument("this processor does not run the " + isa +
                                        " kernels, or there are none of that name");
    }

    std::string isa() const { return kernels_->isa; }
    const Kernels* operator->() const { return kernels_; }

  private:
    const Kernels* kernels_;
};

void bind_matrices(py::class_<Table>& c) {
    using Release = py::call_guard<py::gil_scoped_release>;
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

void bind_attention(py::class_<Table>& c) {
    using Release = py::call_guard<py::gil_scoped_release>;
    c.def(
        "sparse_attention",
        [](const Table& k, Address q, int64_t heads, int64_t dim, const RowsTuple& r, const WindowTuple& w,
           const std::optional<PagedTuple>& entries, Address selected, int64_t top_k, Address sink, float scale,
           Address out) {
            const Paged view = entries ? paged(*entries) : Paged{};
            k->sparse_attention(at<const float>(q), heads, dim, rows(r), window(w), entries ? &view : nullptr,
                                at<const int32_t>(selected), top_k, at<const float>(sink), scale, at<float>(out));
        },
        Release());
    c.def(
        "index_scores",
        [](const Table& k, Address q, Address weights, int64_t heads, int64_t dim, const PagedTuple& keys,
           const RowsTuple& r, int64_t num_entries, Address scores) {
            k->index_scores(at<const float>(q), at<const float>(weights), heads, dim, paged(keys), rows(r), num_entries,
                            at<float>(scores));
        },
        Release());
    c.def(
        "select_blocks",
        [](const Table& k, Address scores, int64_t n, int64_t num_entries, Address visible, int64_t block_size,
           int64_t top_blocks, Address keep) {
            k->select_blocks(at<const float>(scores), n, num_entries, at<const int32_t>(visible), block_size,
                             top_blocks, at<uint8_t>(keep));
        },
        Release());
    c.def(
        "select_topk",
        [](const Table& k, Address scores, int64_t n, int64_t num_entries, int64_t top_k, Address blocks,
           int64_t num_blocks, int64_t block_size, Address selected) {
            k->select_topk(at<const float>(scores), n, num_entries, top_k, at<const uint8_t>(blocks), num_blocks,
                           block_size, at<int32_t>(selected));
        },
        Release());
}

void bind_rows(py::class_<Table>& c) {
    using Release = py::call_guard<py::gil_scoped_release>;
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

void bind_cache(py::class_<Table>& c) {
    using Release = py::call_guard<py::gil_scoped_release>;
    c.def(
        "write_rows",
        [](const Table& k, Address pool, int64_t row_bytes, Address x, int64_t n, int64_t dim, Address dest,
           int format) {
            k->write_rows(at<uint8_t>(pool), row_bytes, at<const float>(x), n, dim, at<const int64_t>(dest),
                          static_cast<RowFormat>(format));
        },
        Release());
    c.def(
        "copy_rows",
        [](const Table& k, Address pool, int64_t row_bytes, Address source, Address dest, int64_t n) {
            k->copy_rows(at<uint8_t>(pool), row_bytes, at<const int64_t>(source), at<const int64_t>(dest), n);
        },
        Release());
    c.def(
        "fake_quant",
        [](const Table& k, Address x, int64_t n, int64_t dim, int format, Address y) {
            k->fake_quant(at<const float>(x), n, dim, static_cast<RowFormat>(format), at<float>(y));
        },
        Release());
    c.def(
        "compress_kv",
        [](const Table& k, Address u, Address gate, int64_t dim, Address pending, const RowsTuple& r, int64_t ratio,
           int64_t ring_rows, Address out) {
            k->compress_kv(at<const float>(u), at<const float>(gate), dim, at<const uint8_t>(pending), rows(r), ratio,
                           ring_rows, at<float>(out));
        },
        Release());
}

void bind_lookup(py::class_<Table>& c) {
    using Release = py::call_guard<py::gil_scoped_release>;
    c.def(
        "embedding",
        [](const Table& k, Address tokens, int64_t n, const WeightTuple& w, Address y) {
            k->embedding(at<const int64_t>(tokens), n, weight(w), at<float>(y));
        },
        Release());
    c.def(
        "engram_lookup",
        [](const Table& k, const WeightTuple& w, Address index, int64_t n, Address y) {
            k->engram_lookup(weight(w), at<const int64_t>(index), n, at<float>(y));
        },
        Release());
    c.def(
        "hash_ngrams",
        [](const Table& k, Address classes, int64_t rows, int64_t n, Address multipliers, Address primes,
           Address offsets, int64_t columns, int64_t pad, Address out) {
            k->hash_ngrams(at<const int64_t>(classes), rows, n, at<const int64_t>(multipliers),
                           at<const int64_t>(primes), at<const int64_t>(offsets), columns, pad, at<int64_t>(out));
        },
        Release());
    c.def(
        "gather_history",
        [](const Table& k, Address tokens, const RowsTuple& r, Address history, int64_t history_rows, int64_t n,
           Address out) {
            k->gather_history(at<const int64_t>(tokens), rows(r), at<const int64_t>(history), history_rows, n,
                              at<int64_t>(out));
        },
        Release());
    c.def(
        "read_rows",
        [](const Table& k, Address pool, int64_t row_size, Address index, int64_t n, int64_t dim, int format,
           Address y) {
            k->read_rows(at<const uint8_t>(pool), row_size, at<const int64_t>(index), n, dim,
                         static_cast<RowFormat>(format), at<float>(y));
        },
        Release());
}

void bind_sampling(py::class_<Table>& c) {
    using Release = py::call_guard<py::gil_scoped_release>;
    c.def(
        "sample_tokens",
        [](const Table& k, Address logits, int64_t n, int64_t vocab, Address temperature, Address min_p, Address seed,
           Address sample, Address position, Address out) {
            k->sample_tokens(at<const float>(logits), n, vocab, at<const float>(temperature), at<const float>(min_p),
                             at<const int64_t>(seed), at<const int64_t>(sample), at<const int64_t>(position),
                             at<int64_t>(out));
        },
        Release());
    c.def(
        "apply_token_mask",
        [](const Table& k, Address logits, int64_t n, int64_t vocab, Address mask, Address out) {
            k->apply_token_mask(at<const float>(logits), n, vocab, at<const int32_t>(mask), at<float>(out));
        },
        Release());
    c.def(
        "apply_penalties",
        [](const Table& k, Address logits, int64_t n, int64_t vocab, Address prompt_seen, Address counts,
           Address repetition, Address presence, Address frequency, Address out) {
            k->apply_penalties(at<const float>(logits), n, vocab, at<const uint8_t>(prompt_seen),
                               at<const int32_t>(counts), at<const float>(repetition), at<const float>(presence),
                               at<const float>(frequency), at<float>(out));
        },
        Release());
    c.def(
        "top_logprobs",
        [](const Table& k, Address logits, int64_t n, int64_t vocab, Address tokens, int64_t top, Address logprob,
           Address rank, Address ids, Address values) {
            k->top_logprobs(at<const float>(logits), n, vocab, at<const int64_t>(tokens), top, at<float>(logprob),
                            at<int32_t>(rank), at<int64_t>(ids), at<float>(values));
        },
        Release());
    c.def(
        "verify_drafts",
        [](const Table& k, Address target, Address drafts, Address num_drafts, int64_t n, int64_t width,
           Address counts) {
            k->verify_drafts(at<const int64_t>(target), at<const int64_t>(drafts), at<const int32_t>(num_drafts), n,
                             width, at<int32_t>(counts));
        },
        Release());
}

}  // namespace

PYBIND11_MODULE(_kernels, m) {
    m.doc() = "CPU kernels over raw addresses; see deepinfer_cpu/kernels.py";
    m.def("set_threads", &set_threads);
    m.def("threads", &threads);
    py::class_<Table> table(m, "Table");
    table.def(py::init<const std::string&>(), py::arg("isa") = "");
    table.def_property_readonly("isa", &Table::isa);
    bind_matrices(table);
    bind_attention(table);
    bind_rows(table);
    bind_cache(table);
    bind_lookup(table);
    bind_sampling(table);
}
