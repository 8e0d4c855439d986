// The scheduler: which requests run, with which slot and blocks, and what they have committed. Continuous batching with
// chunked prefill, first come first served; the latest arrival gives way when blocks run out. One thread calls it.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "block_pool.hpp"
#include "prefix_cache.hpp"
#include "retiring.hpp"
#include "sequence.hpp"
#include "slot_pool.hpp"
#include "step_builder.hpp"
#include "step_plan.hpp"
#include "types.hpp"

namespace deepinfer {

enum class FinishCode : std::int32_t { none = 0, stop = 1, length = 2 };

// One entry for each segment of the step that sampled, in plan order.
struct Committed {
    std::vector<RequestId> request;
    std::vector<std::int32_t> accepted;
    std::vector<std::int32_t> finish;
};

struct Stats {
    std::int64_t waiting;
    std::int64_t running;
    std::int32_t free_blocks;
    std::int32_t used_blocks;
    std::int32_t cached_blocks;
    std::int32_t free_slots;
    std::int64_t preemptions;
    // Since the start, over all admissions of requests with a key:
    std::int64_t queried_tokens;   // that a hit could have covered
    std::int64_t hit_tokens;       // in blocks that were shared
    std::int64_t replayed_tokens;  // of these, computed again
    std::int64_t evictions;        // cached blocks that made room
};

class Scheduler {
  public:
    explicit Scheduler(const Limits& limits);

    // Throws RequestRefused for what can never be served.
    void add(Request request);

    // Drafts that the request's next decode segments carry at most; 0 .. max_drafts. Nothing for a request that ended.
    void set_drafts(RequestId request, std::int32_t drafts);

    // The next step, or null when nothing can run now.
    std::unique_ptr<StepPlan> plan();

    // `tokens` is [n, 1 + max_drafts], `counts` [n]. Changes nothing when it throws std::invalid_argument.
    Committed commit(Step step, std::span<const Token> tokens, std::span<const std::int32_t> counts);

    // Ends a request early. Nothing for a request that already ended.
    void finish(RequestId request);

    // Forgets what these blocks hold, or all of them. Blocks in use stay with their owners.
    void forget(std::span<const Block> blocks);
    void forget_all();

    Stats stats() const;

    // Throws InvariantError, with the counts of everything, when an invariant does not hold. Costs a pass over all.
    void check() const;

    const Limits& limits() const { return limits_; }

  private:
    // A segment of a step in flight that samples.
    struct Sample {
        RequestId request;
        std::int64_t stay;
        std::int32_t reserved;  // tokens that it may add: 1 + drafts
    };
    struct InFlight {
        Step step;
        std::vector<Sample> samples;
    };
    // Blocks that hold the beginning of a sequence, and how many of its tokens need no row.
    struct Hit {
        std::vector<Block> blocks;
        std::int32_t spared = 0;
    };
    // The first of the waiting, when it did not fit: how many blocks its hit had, and how many of them had owners.
    struct Refused {
        RequestId request;
        std::size_t found;
        std::int64_t owned;
    };

    // scheduler.cpp
    std::int32_t blocks_for(std::int32_t tokens) const;
    void refuse_unservable(const Request& request) const;
    void erase_running(const Sequence& sequence);
    void retire(Sequence& sequence);

    // planner.cpp
    void plan_decodes(StepBuilder& builder, InFlight& step);
    void plan_prefills(StepBuilder& builder, InFlight& step);
    void admit(StepBuilder& builder, InFlight& step);
    void plan_decode(Sequence& sequence, std::int64_t draft_rows, StepBuilder& builder, InFlight& step);
    void plan_chunk(Sequence& sequence, StepBuilder& builder, InFlight& step);
    bool make_room(const Sequence& sequence, std::int32_t missing);
    bool can_admit(const Sequence& sequence, std::int64_t owned) const;
    bool still_refused(Sequence& sequence) const;
    void grow(Sequence& sequence, std::int32_t tokens, StepBuilder& builder);
    void preempt_latest();
    static void expect_sample(Sequence& sequence, std::int32_t reserved, InFlight& step);
    std::int32_t budget(const StepBuilder& builder) const { return limits_.max_step_tokens - builder.num_rows(); }

    // sharing.cpp
    Hit find_hit(Sequence& sequence) const;
    std::int32_t spared_by(std::int32_t hit, const Sequence& sequence) const;
    void take(const Hit& hit, Sequence& sequence);
    void offer(Sequence& sequence);
    BlockContent content(Sequence& sequence, std::size_t index) const;

    // commit.cpp
    void refuse_results(Step step, std::span<const Token> tokens, std::span<const std::int32_t> counts) const;
    static FinishCode append(Sequence& sequence, std::span<const Token> tokens, std::int32_t& accepted);
    void trim(Sequence& sequence);

    // check.cpp
    std::string state() const;
    void check_queues() const;
    void check_sequences() const;
    void check_ownership() const;

    const Limits limits_;
    std::unique_ptr<PrefixCache> cache_;  // none where no block outlives its request
    BlockPool blocks_;
    SlotPool slots_;
    Retiring retiring_;
    std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
    std::vector<Sequence*> running_;    // in order of arrival; every one arrived before every waiting one
    std::deque<Sequence*> waiting_;     // in order of arrival
    std::optional<Refused> refused_;    // since the last admission
    std::deque<InFlight> in_flight_;    // planned and not committed, in order of steps
    std::vector<RequestId> preempted_;  // since the last step that was handed out
    Step next_step_ = 0;
    Step committed_ = -1;  // the newest committed step
    std::int64_t next_arrival_ = 0;
    std::int64_t next_stay_ = 0;
    std::int64_t preemptions_ = 0;
    std::int64_t queried_tokens_ = 0;
    std::int64_t hit_tokens_ = 0;
    std::int64_t replayed_tokens_ = 0;
};

}  // namespace deepinfer
