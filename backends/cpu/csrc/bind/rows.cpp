// The Python face of cache rows and activation quantisation.
#include "arguments.hpp"

namespace deepinfer_cpu {

void bind_cache(py::class_<Table>& c) {
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

}  // namespace deepinfer_cpu
