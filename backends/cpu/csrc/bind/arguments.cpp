// Reads the fields of deepinfer_core/interfaces/ops.py.
#include "arguments.hpp"

#include <array>
#include <stdexcept>

namespace deepinfer_cpu {
namespace {

// A field's name, made once.
class Field {
  public:
    explicit Field(const char* name) : name_(PyUnicode_InternFromString(name)) {}

    py::object of(py::handle object) const {
        PyObject* value = PyObject_GetAttr(object.ptr(), name_);
        if (!value) throw py::error_already_set();
        return py::reinterpret_steal<py::object>(value);
    }
    int64_t number(py::handle object) const { return of(object).cast<int64_t>(); }

  private:
    PyObject* name_;  // never freed
};

// The members of one of the core's enumerations in the order of views.hpp. Members live as long as the program.
template <size_t N>
class Members {
  public:
    Members(const char* enumeration, const std::array<const char*, N>& names) {
        const py::object type = py::module_::import("deepinfer_core.interfaces.ops").attr(enumeration);
        for (size_t i = 0; i < N; ++i) members_[i] = type.attr(names[i]).ptr();
    }

    int number(py::handle member) const {
        for (size_t i = 0; i < N; ++i)
            if (members_[i] == member.ptr()) return static_cast<int>(i);
        throw std::invalid_argument("unknown format " + std::string(py::repr(member)));
    }

  private:
    std::array<PyObject*, N> members_{};
};

WeightFormat weight_format(py::handle format) {
    static const Members<4> members("WeightFormat", {"F32", "BF16", "FP8", "FP4"});
    return static_cast<WeightFormat>(members.number(format));
}

// Numbers that are read where they are: a copy of another dtype would not outlive this call.
Input in_place(const py::object& tensor, Dtype dtype, const char* what) {
    const Input input(tensor, dtype);
    if (input.is_copy()) throw std::invalid_argument(std::string(what) + " must be contiguous int32");
    return input;
}

const int32_t* row_field(const Field& field, py::handle rows, int64_t count) {
    const py::object tensor = field.of(rows);
    const Input input = in_place(tensor, Dtype::I32, "a field of Rows");
    fit(input.numel(), count, "a field of Rows");
    return input.data<int32_t>();
}

}  // namespace

RowFormat row_format(py::handle format) {
    static const Members<5> members("RowFormat", {"F32", "BF16", "FP8_E8M0_32", "FP4_E4M3_16", "FP4_E8M0_32"});
    return static_cast<RowFormat>(members.number(format));
}

Weight weight(py::handle w) {
    static const Field data_field("data"), scale_field("scale"), format_field("format");
    const py::object data = data_field.of(w), scale = scale_field.of(w);
    const WeightFormat format = weight_format(format_field.of(w));
    const Input stored(data, Dtype::Stored);
    const Optional scales(scale, Dtype::Stored);
    const int64_t in = stored.size(-1) * (format == WeightFormat::FP4 ? 2 : 1);
    const int64_t stack = stored.dims() == 3 ? stored.size(0) : 1;
    return {stored.data<uint8_t>(), scales.data<uint8_t>(), format, stored.size(-2), in, stack};
}

Rows rows(py::handle r) {
    static const Field slot("slot"), position("position"), first_position("first_position"), first_row("first_row"),
        last_position("last_position"), floor("floor");
    Rows result{};
    result.count = Input(slot.of(r), Dtype::Stored).numel();
    result.slot = row_field(slot, r, result.count);
    result.position = row_field(position, r, result.count);
    result.first_position = row_field(first_position, r, result.count);
    result.first_row = row_field(first_row, r, result.count);
    result.last_position = row_field(last_position, r, result.count);
    result.floor = row_field(floor, r, result.count);
    return result;
}

Window window(py::handle view) {
    static const Field pool("pool"), format("format"), base("base"), fresh_base("fresh_base"), ring_rows("ring_rows"),
        size("window");
    const py::object bytes = pool.of(view);
    return {Input(bytes, Dtype::Stored).data<uint8_t>(),
            row_format(format.of(view)),
            base.number(view),
            fresh_base.number(view),
            ring_rows.number(view),
            size.number(view)};
}

Paged paged(py::handle view) {
    static const Field pool("pool"), format("format"), block_table("block_table"), block_rows("block_rows"),
        ratio("ratio");
    const py::object bytes = pool.of(view), tensor = block_table.of(view);
    const Input table = in_place(tensor, Dtype::I32, "the block table");
    return {Input(bytes, Dtype::Stored).data<uint8_t>(),
            row_format(format.of(view)),
            table.data<int32_t>(),
            table.size(1),
            block_rows.number(view),
            ratio.number(view)};
}

Table::Table(const std::string& isa) : kernels_(choose(isa.c_str())) {
    if (!kernels_)
        throw std::invalid_argument("this processor does not run the " + isa +
                                    " kernels, or there are none of that name");
}

}  // namespace deepinfer_cpu
