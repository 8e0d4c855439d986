// The Python face of cache rows and activation quantisation.
#include "arguments.hpp"

namespace deepinfer_cpu {
namespace {

void write_rows(const Table& k, py::handle pool, py::handle x, py::handle dest, py::handle format) {
    const Input bytes(pool, Dtype::Stored), a(x, Dtype::F32), d(dest, Dtype::I64);
    uint8_t* out = writable(pool);
    const RowFormat stored = row_format(format);
    fit(d.numel(), a.size(0), "write_rows: the destinations");
    released(
        [&] { k->write_rows(out, bytes.size(1), a.data<float>(), a.size(0), a.size(1), d.data<int64_t>(), stored); });
}

void copy_rows(const Table& k, py::handle pool, py::handle source, py::handle dest) {
    const Input bytes(pool, Dtype::Stored), s(source, Dtype::I64), d(dest, Dtype::I64);
    uint8_t* out = writable(pool);
    fit(s.numel(), d.numel(), "copy_rows: the sources");
    released([&] { k->copy_rows(out, bytes.size(1), s.data<int64_t>(), d.data<int64_t>(), d.size(0)); });
}

py::object fake_quant(const Table& k, py::handle x, py::handle format) {
    const Input a(x, Dtype::F32);
    const RowFormat stored = row_format(format);
    const int64_t dim = a.size(-1);
    const Output y(a.sizes());
    released([&] { k->fake_quant(a.data<float>(), dim ? a.numel() / dim : 0, dim, stored, y.data()); });
    return y.as(x);
}

}  // namespace

void bind_rows(py::class_<Table>& c) {
    c.def("write_rows", &write_rows);
    c.def("copy_rows", &copy_rows);
    c.def("fake_quant", &fake_quant);
}

}  // namespace deepinfer_cpu
