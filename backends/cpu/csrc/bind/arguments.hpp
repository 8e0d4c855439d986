// How the Python wrappers pass tensors and views: as addresses and plain tuples. deepinfer_cpu/kernels/ has checked
// dtypes, shapes and strides.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "../kernels.hpp"

namespace deepinfer_cpu {

namespace py = pybind11;

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

inline Weight weight(const WeightTuple& w) {
    const auto& [data, scale, format, out, in] = w;
    return {at<const uint8_t>(data), at<const uint8_t>(scale), static_cast<WeightFormat>(format), out, in};
}

inline Rows rows(const RowsTuple& r) {
    const auto& [slot, position, first_position, first_row, last_position, floor, count] = r;
    return {at<const int32_t>(slot),
            at<const int32_t>(position),
            at<const int32_t>(first_position),
            at<const int32_t>(first_row),
            at<const int32_t>(last_position),
            at<const int32_t>(floor),
            count};
}

inline Window window(const WindowTuple& w) {
    const auto& [pool, format, base, fresh_base, ring_rows, size] = w;
    return {at<const uint8_t>(pool), static_cast<RowFormat>(format), base, fresh_base, ring_rows, size};
}

inline Paged paged(const PagedTuple& p) {
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

using Release = py::call_guard<py::gil_scoped_release>;  // every kernel runs without the GIL

void bind_matrices(py::class_<Table>& c);
void bind_attention(py::class_<Table>& c);
void bind_rows(py::class_<Table>& c);
void bind_cache(py::class_<Table>& c);
void bind_lookup(py::class_<Table>& c);
void bind_sampling(py::class_<Table>& c);

}  // namespace deepinfer_cpu
