// How the Python face turns the core's views into the kernels' own. Sizes are checked here; a view must outlive the
// call, as the caller's objects do.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "../kernels.hpp"
#include "tensors.hpp"

namespace deepinfer_cpu {

Weight weight(py::handle w);  // a deepinfer_core Weight; of a stack the view is that of the first matrix
Rows rows(py::handle r);
Window window(py::handle view);
Paged paged(py::handle view);
RowFormat row_format(py::handle format);

// A kernel reads as far in one argument as another is wide: what does not fit together is refused, never read past.
inline void fit(std::int64_t width, std::int64_t expected, const char* what) {
    if (width != expected)
        throw std::invalid_argument(std::string(what) + " has " + std::to_string(width) + " numbers and " +
                                    std::to_string(expected) + " are needed");
}

inline void at_least_one(std::int64_t number, const char* what) {
    if (number < 1) throw std::invalid_argument(std::string(what) + " is " + std::to_string(number) + ": at least 1");
}

// Ids from `first` on of rows of a table that has `count` of them.
inline void within(const Input& ids, std::int64_t first, std::int64_t count, const char* what) {
    const auto* id = ids.data<std::int64_t>();
    for (std::int64_t i = 0; i < ids.numel(); ++i)
        if (id[i] < first || id[i] >= count)
            throw std::invalid_argument(std::string(what) + " " + std::to_string(id[i]) + " is not one of " +
                                        std::to_string(count));
}

// Runs a kernel without the GIL.
template <class Kernel>
void released(const Kernel& kernel) {
    const py::gil_scoped_release release;
    kernel();
}

// The kernels of one instruction set.
class Table {
  public:
    explicit Table(const std::string& isa);

    std::string isa() const { return kernels_->isa; }
    const Kernels* operator->() const { return kernels_; }

  private:
    const Kernels* kernels_;
};

void bind_matrices(py::class_<Table>& c);
void bind_attention(py::class_<Table>& c);
void bind_streams(py::class_<Table>& c);
void bind_rows(py::class_<Table>& c);
void bind_lookup(py::class_<Table>& c);
void bind_sampling(py::class_<Table>& c);

}  // namespace deepinfer_cpu
