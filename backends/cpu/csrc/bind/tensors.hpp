// What the Python face needs of torch: tensors as plain memory in, fresh tensors out. Only tensors.cpp sees torch's own
// headers, so that nothing else depends on its version.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace deepinfer_cpu {

namespace py = pybind11;

enum class Dtype { F32, I32, I64, Bool, Stored };  // Stored: whatever bytes a weight or a pool is made of

// A tensor's memory, contiguous and of one dtype: the tensor's own where it is like that already, else a copy.
class Input {
  public:
    Input(py::handle tensor, Dtype dtype);

    template <class T>
    const T* data() const {
        return static_cast<const T*>(data_);
    }
    bool is_copy() const { return static_cast<bool>(copy_); }
    int64_t dims() const { return dims_; }
    int64_t size(int64_t dim) const { return sizes_[dim < 0 ? dim + dims_ : dim]; }
    int64_t numel() const;
    std::vector<int64_t> sizes() const { return {sizes_, sizes_ + dims_}; }

  private:
    py::object copy_;  // keeps the memory where it is not the caller's
    const void* data_;
    const int64_t* sizes_;
    int64_t dims_;
};

// The same where None stands for nothing: no data.
class Optional {
  public:
    Optional(py::handle tensor, Dtype dtype) {
        if (!tensor.is_none()) input_.emplace(tensor, dtype);
    }

    template <class T>
    const T* data() const {
        return input_ ? input_->data<T>() : nullptr;
    }
    int64_t size(int64_t dim) const { return input_ ? input_->size(dim) : 0; }

  private:
    std::optional<Input> input_;
};

// A new tensor on the host, whatever dtype and device the program made torch's defaults. Not initialised.
class Output {
  public:
    Output(const std::vector<int64_t>& sizes, Dtype dtype = Dtype::F32);

    template <class T = float>
    T* data() const {
        return static_cast<T*>(data_);
    }
    py::object tensor() const { return tensor_; }
    // The tensor in the dtype that `like` is, or has where it is a tensor.
    py::object as(py::handle like) const;

  private:
    py::object tensor_;
    void* data_;
};

// The memory of a tensor that a kernel writes to: contiguous, of one-byte numbers or of what the caller says it holds.
uint8_t* writable(py::handle tensor);

}  // namespace deepinfer_cpu
