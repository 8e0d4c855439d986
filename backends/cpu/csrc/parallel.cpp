// A pool of persistent workers that sleep on an atomic between jobs. They spin a little first, since the next kernel of
// a step usually follows within microseconds.
#include "parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace deepinfer_cpu {
namespace {

constexpr int kSpins = 2000;
constexpr int64_t kWorthWaking = 1 << 18;  // scalar operations: some tens of microseconds

struct Job {
    const std::function<void(int64_t)>* task;
    int64_t count;
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error{};  // of the first task that failed; written by the thread that set `failed`

    void work() {
        try {
            for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) (*task)(i);
        } catch (...) {
            next.store(count);  // the other threads end too
            if (!failed.exchange(true)) error = std::current_exception();
        }
    }
};

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

class Pool {
  public:
    void resize(int workers) {
        if (workers == static_cast<int>(workers_.size())) return;
        stopping_.store(true);
        announce();
        for (auto& worker : workers_) worker.join();
        workers_.clear();
        stopping_.store(false);
        for (int i = 0; i < workers; ++i) workers_.emplace_back([this, seen = generation_.load()] { loop(seen); });
    }

    void run(Job& job) {
        job_ = &job;
        busy_.store(static_cast<int>(workers_.size()));
        announce();
        job.work();
        wait_idle();
        if (job.error) std::rethrow_exception(job.error);
    }

  private:
    void announce() {
        generation_.fetch_add(1);
        generation_.notify_all();
    }

    void wait_idle() {
        for (int left = busy_.load(); left != 0; left = busy_.load()) await_change(busy_, left);
    }

    template <class Value>
    static void await_change(std::atomic<Value>& flag, Value old) {
        for (int i = 0; i < kSpins; ++i) {
            if (flag.load(std::memory_order_acquire) != old) return;
            pause();
        }
        flag.wait(old);
    }

    void loop(uint64_t seen) {
        for (;;) {
            await_change(generation_, seen);
            seen = generation_.load();
            if (stopping_.load()) return;
            job_->work();
            if (busy_.fetch_sub(1) == 1) busy_.notify_one();
        }
    }

    std::vector<std::thread> workers_;
    std::atomic<uint64_t> generation_{0};
    std::atomic<int> busy_{0};
    std::atomic<bool> stopping_{false};
    Job* job_ = nullptr;
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
    if (wanted == 1 || count <= 1 || work < kWorthWaking) {
        for (int64_t i = 0; i < count; ++i) task(i);
        return;
    }
    std::lock_guard<std::mutex> lock(s.mutex);
    s.pool.resize(wanted - 1);
    Job job{&task, count};
    s.pool.run(job);
}

}  // namespace deepinfer_cpu
