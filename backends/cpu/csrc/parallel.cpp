// A pool of persistent workers that sleep on an atomic between jobs. They spin a little first, since the next kernel of
// a step usually follows within microseconds. A job never waits for a worker that has not taken a task of it: where
// waking one takes longer than the job, the calling thread has done all tasks by then.
#include "parallel.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace deepinfer_cpu {
namespace {

using Task = std::function<void(int64_t)>;

constexpr int kSpins = 2000;
constexpr int64_t kWorthSharing = 1 << 19;  // scalar operations: some twenty microseconds
constexpr int32_t kStop = -1;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

class Pool {
  public:
    void resize(int workers) {
        if (workers == static_cast<int>(workers_.size())) return;
        publish(kStop);
        for (auto& worker : workers_) worker.join();
        workers_.clear();
        left_.store(0);
        for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { loop(); });
    }

    void run(const Task& task, int32_t count) {
        task_ = &task;
        count_ = count;
        done_.store(0, std::memory_order_relaxed);
        publish(count);
        work();
        for (int32_t done = done_.load(std::memory_order_acquire); done != count;
             done = done_.load(std::memory_order_acquire))
            await_change(done_, done);
        if (std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
    }

  private:
    void publish(int32_t left) {
        left_.store(left, std::memory_order_release);
        left_.notify_all();
    }

    // Takes one of the tasks that are left, if any. Until it is reported to `finish`, the job's fields stay.
    bool take(int64_t& task) {
        int32_t left = left_.load(std::memory_order_relaxed);
        while (left > 0)
            if (left_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel)) {
                task = count_ - left;
                return true;
            }
        return false;
    }

    void finish(int32_t tasks) {
        const int32_t count = count_;
        if (done_.fetch_add(tasks, std::memory_order_acq_rel) + tasks == count) done_.notify_one();
    }

    void work() {
        for (int64_t task; take(task);) {
            int32_t finished = 1;
            try {
                (*task_)(task);
            } catch (...) {
                if (const int32_t untaken = left_.exchange(0, std::memory_order_acq_rel); untaken > 0)
                    finished += untaken;
                std::lock_guard<std::mutex> lock(failing_);
                if (!error_) error_ = std::current_exception();
            }
            finish(finished);
        }
    }

    static void await_change(std::atomic<int32_t>& flag, int32_t old) {
        for (int i = 0; i < kSpins; ++i) {
            if (flag.load(std::memory_order_acquire) != old) return;
            pause();
        }
        flag.wait(old, std::memory_order_acquire);
    }

    void loop() {
        for (;;) {
            await_change(left_, 0);
            if (left_.load(std::memory_order_acquire) == kStop) return;
            work();
        }
    }

    std::vector<std::thread> workers_;
    std::atomic<int32_t> left_{0};  // tasks of the job that nobody has taken, or kStop
    std::atomic<int32_t> done_{0};  // tasks of the job that have ended
    // The job: written while no task is left to take.
    const Task* task_ = nullptr;
    int32_t count_ = 0;
    std::mutex failing_;
    std::exception_ptr error_{};  // of the first task that failed
};

struct State {
    std::mutex mutex;  // one kernel at a time
    std::atomic<int> threads{std::max(1, static_cast<int>(std::thread::hardware_concurrency()))};
    Pool pool;
};

// Never destroyed: a thread may still be inside a kernel when the process exits.
State* instance = nullptr;

// A forked child has none of the workers, and the mutex may have been held: it starts anew.
[[maybe_unused]] void start_anew() {
    const int threads = instance->threads.load();
    instance = new State;
    instance->threads.store(threads);
}

State& state() {
    static const bool made = [] {
        instance = new State;
#if defined(__unix__) || defined(__APPLE__)
        pthread_atfork(nullptr, nullptr, start_anew);
#endif
        return true;
    }();
    static_cast<void>(made);
    return *instance;
}

}  // namespace

void set_threads(int count) {
    state().threads.store(std::max(1, count));
}

int threads() {
    return state().threads.load();
}

void parallel_for(int64_t count, int64_t work, const std::function<void(int64_t)>& task) {
    State& s = state();
    const int wanted = s.threads.load();
    if (wanted == 1 || count <= 1 || work < kWorthSharing) {
        for (int64_t i = 0; i < count; ++i) task(i);
        return;
    }
    assert(count <= INT32_MAX);
    std::lock_guard<std::mutex> lock(s.mutex);
    s.pool.resize(wanted - 1);
    s.pool.run(task, static_cast<int32_t>(count));
}

}  // namespace deepinfer_cpu
