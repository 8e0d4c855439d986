// Tensors by torch's C++ interface: reading or making one costs some hundred nanoseconds, through Python ten times
// that.
#include "tensors.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <stdexcept>
#include <string>

namespace deepinfer_cpu {
namespace {

at::ScalarType scalar_type(Dtype dtype) {
    switch (dtype) {
        case Dtype::F32:
            return at::kFloat;
        case Dtype::I32:
            return at::kInt;
        case Dtype::I64:
            return at::kLong;
        case Dtype::Bool:
            return at::kBool;
        case Dtype::Stored:
            return at::kByte;
    }
    __builtin_unreachable();
}

const at::Tensor& unpack(py::handle object) {
    if (!THPVariable_Check(object.ptr()))
        throw py::type_error("a kernel takes a tensor here, not " + std::string(Py_TYPE(object.ptr())->tp_name));
    return THPVariable_Unpack(object.ptr());
}

py::object wrap(const at::TensorBase& tensor) {
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
}

}  // namespace

Input::Input(py::handle object, Dtype dtype) {
    const at::Tensor* tensor = &unpack(object);
    if (dtype == Dtype::Stored) {
        if (!tensor->is_contiguous()) throw std::invalid_argument("stored weights, scales and pools are contiguous");
    } else if (tensor->scalar_type() != scalar_type(dtype) || !tensor->is_contiguous()) {
        copy_ = wrap(tensor->to(scalar_type(dtype)).contiguous());
        tensor = &unpack(copy_);
    }
    data_ = tensor->const_data_ptr();
    sizes_ = tensor->sizes().data();
    dims_ = tensor->dim();
}

int64_t Input::numel() const {
    int64_t count = 1;
    for (int64_t i = 0; i < dims_; ++i) count *= sizes_[i];
    return count;
}

Output::Output(const std::vector<int64_t>& sizes, Dtype dtype) {
    const at::TensorBase tensor = at::detail::empty_cpu(sizes, scalar_type(dtype));
    data_ = tensor.mutable_data_ptr();
    tensor_ = wrap(tensor);
}

py::object Output::as(py::handle like) const {
    const at::ScalarType wanted =
        THPDtype_Check(like.ptr()) ? reinterpret_cast<THPDtype*>(like.ptr())->scalar_type : unpack(like).scalar_type();
    const at::Tensor& own = unpack(tensor_);
    return own.scalar_type() == wanted ? tensor_ : wrap(own.to(wanted));
}

uint8_t* writable(py::handle object) {
    const at::Tensor& tensor = unpack(object);
    if (!tensor.is_contiguous()) throw std::invalid_argument("a pool is contiguous");
    return static_cast<uint8_t*>(tensor.mutable_data_ptr());
}

}  // namespace deepinfer_cpu
