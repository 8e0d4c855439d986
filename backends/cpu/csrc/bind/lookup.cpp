// The Python face of table look-ups.
#include "arguments.hpp"

namespace deepinfer_cpu {

void bind_lookup(py::class_<Table>& c) {
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

}  // namespace deepinfer_cpu
