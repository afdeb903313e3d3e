// Threads that run one function together, phase by phase.
//
// A phase hands out ranges of its items as threads come for them, and is over when all items are
// done, not when all threads have been there: a thread that lost its core between two phases holds
// up nobody, and skips what it missed. Waiting spins for some microseconds, about the length of a
// phase, and then sleeps in the kernel: an idle engine burns nothing, and on a busy machine a
// waiting thread gives its core to the one that it waits for.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace quire {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Return once `word` differs from `seen`.
inline void await_change(const std::atomic<uint32_t>& word, uint32_t seen) {
    constexpr int kSpins = 1000;  // 20 to 50 us
    for (int spin = 0; spin < kSpins; ++spin) {
        if (word.load(std::memory_order_acquire) != seen) return;
        relax();
    }
    word.wait(seen, std::memory_order_acquire);
}

class Team;

// One thread's part in a run. All threads go through the same phases in the same order.
class Worker {
  public:
    Worker(Team& team, int index) : index(index), team_(team) {}

    // Call body(i) for every i in [0, count), shared among the threads; returns when all are done.
    template <class Body>
    void each(int64_t count, Body&& body);

    // The same with the length of the ranges: 1 where items differ much in cost.
    template <class Body>
    void each_range(int64_t count, int64_t length, Body&& body);

    const int index;

  private:
    Team& team_;
    uint32_t phase_ = 0;
};

class Team {
  public:
    explicit Team(int num_threads) : size(num_threads) {
        for (int index = 1; index < size; ++index)
            threads_.emplace_back([this, index] { serve(index); });
    }

    ~Team() {
        stopping_.store(true, std::memory_order_relaxed);
        announce();
        for (std::thread& thread : threads_) thread.join();
    }

    // Call body(worker) on this thread and on all others that come in time.
    template <class Body>
    void run(Body&& body) {
        context_ = &body;
        entry_ = [](void* context, Worker& worker) { (*static_cast<Body*>(context))(worker); };
        claimed_.store(0, std::memory_order_relaxed);
        phase_.store(0, std::memory_order_relaxed);
        gate_.store(kOpen, std::memory_order_release);
        announce();
        Worker worker(*this, 0);
        body(worker);
        gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
        while (const uint32_t inside = gate_.load(std::memory_order_acquire))
            await_change(gate_, inside);
    }

    const int size;

  private:
    friend class Worker;
    using Entry = void (*)(void*, Worker&);
    static constexpr uint32_t kOpen = 1u << 31;

    void announce() {
        job_.fetch_add(1, std::memory_order_release);
        job_.notify_all();
    }

    void serve(int index) {
        for (uint32_t seen = 0;;) {
            await_change(job_, seen);
            seen = job_.load(std::memory_order_acquire);
            if (stopping_.load(std::memory_order_relaxed)) return;
            if (!enter()) continue;
            Worker worker(*this, index);
            entry_(context_, worker);
            gate_.fetch_sub(1, std::memory_order_acq_rel);
            gate_.notify_all();
        }
    }

    // Be counted among those inside, unless the run is over.
    bool enter() {
        uint32_t gate = gate_.load(std::memory_order_acquire);
        while (gate & kOpen) {
            if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) return true;
        }
        return false;
    }

    // Take up to `length` items of a phase; false when none are left, or the phase is over.
    bool claim(uint32_t phase, int64_t count, int64_t length, int64_t& begin) {
        uint64_t claimed = claimed_.load(std::memory_order_acquire);
        while (claimed >> 32 == phase) {
            begin = static_cast<int64_t>(claimed & 0xffffffffu);
            if (begin >= count) return false;
            if (claimed_.compare_exchange_weak(claimed, claimed + length,
                                               std::memory_order_acq_rel))
                return true;
        }
        return false;
    }

    // Whoever finishes the last item opens the next phase.
    void finish(uint32_t phase, int64_t items, int64_t count) {
        if (done_.fetch_add(items, std::memory_order_acq_rel) + items < count) return;
        done_.store(0, std::memory_order_relaxed);
        claimed_.store(uint64_t{phase + 1} << 32, std::memory_order_release);
        phase_.store(phase + 1, std::memory_order_release);
        phase_.notify_all();
    }

    void await_end(uint32_t phase) {
        for (;;) {
            const uint32_t current = phase_.load(std::memory_order_acquire);
            if (current > phase) return;
            await_change(phase_, current);
        }
    }

    alignas(64) std::atomic<uint32_t> job_{0};
    alignas(64) std::atomic<uint32_t> gate_{0};      // kOpen, and the number of workers inside
    alignas(64) std::atomic<uint64_t> claimed_{0};   // phase << 32 | items handed out
    alignas(64) std::atomic<int64_t> done_{0};       // items of the phase that are finished
    alignas(64) std::atomic<uint32_t> phase_{0};     // what waiting threads look at
    std::atomic<bool> stopping_{false};
    Entry entry_ = nullptr;
    void* context_ = nullptr;
    std::vector<std::thread> threads_;
};

template <class Body>
void Worker::each(int64_t count, Body&& body) {
    constexpr int64_t kRangesPerThread = 4;
    each_range(count, std::max<int64_t>(1, count / (team_.size * kRangesPerThread)), body);
}

template <class Body>
void Worker::each_range(int64_t count, int64_t length, Body&& body) {
    if (count == 0) return;
    const uint32_t phase = phase_++;
    for (int64_t begin; team_.claim(phase, count, length, begin);) {
        const int64_t end = std::min(begin + length, count);
        for (int64_t i = begin; i < end; ++i) body(i);
        team_.finish(phase, end - begin, count);
    }
    team_.await_end(phase);
}

}  // namespace quire

struct QuireTeam : quire::Team {
    using quire::Team::Team;
};
