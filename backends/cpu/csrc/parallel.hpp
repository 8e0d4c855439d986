// The backend's worker threads and how a kernel spreads tasks over them. Which thread runs a task never changes a
// result.
#pragma once

#include <cstdint>
#include <functional>

namespace deepinfer_cpu {

// Threads that a kernel may use, the calling one included. Takes effect at the next parallel_for.
void set_threads(int count);
int threads();

// Runs task(i) for every i in [0, count), on the calling thread and the workers; returns when all are done.
// `work` estimates the scalar operations of all tasks together: a job too small to be worth sharing runs on the
// calling one. Tasks are taken one by one from a shared counter, so uneven tasks balance. Kernels call it from one
// thread at a time; a second caller waits. Throws what the first task to fail threw, once no task is running.
void parallel_for(int64_t count, int64_t work, const std::function<void(int64_t)>& task);

}  // namespace deepinfer_cpu
