// The module deepinfer_cpu._kernels: the kernels of one instruction set as a Table, and the number of threads.
#include "bind/arguments.hpp"
#include "parallel.hpp"

using namespace deepinfer_cpu;

PYBIND11_MODULE(_kernels, m) {
    m.doc() = "The CPU kernels; see deepinfer_cpu/kernels/. Import torch first.";
    m.def("set_threads", &set_threads);
    m.def("threads", &threads);
    py::class_<Table> table(m, "Table");
    table.def(py::init<const std::string&>(), py::arg("isa") = "");
    table.def_property_readonly("isa", &Table::isa);
    bind_matrices(table);
    bind_attention(table);
    bind_streams(table);
    bind_rows(table);
    bind_lookup(table);
    bind_sampling(table);
}
