// The plain types that every part of the scheduler shares: ids, fixed sizes, a request as it comes in, and the errors.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hash.hpp"

namespace deepinfer {

using Token = std::int32_t;
using Block = std::int32_t;      // index of a cache block
using Slot = std::int32_t;       // index into every per-slot table of the device
using Step = std::int64_t;       // steps are numbered from 0 in the order in which they are planned
using RequestId = std::int64_t;  // chosen by the caller, never reused

// What is computed again at a prefix hit, because sliding windows are not kept with the blocks ("replay"). Rows are
// counted back from the first row that must be right.
struct PrefixRules {
    std::int32_t key_rows;      // for the keys that rows after the hit write to blocks
    std::int32_t kept_rows;     // for rows where the decoder half begins
    std::int32_t logit_rows;    // for rows in the midst of the decoder half
    std::int32_t history_rows;  // tokens before a replay that a plan repeats
};

// Sizes fixed for the life of a scheduler.
struct Limits {
    std::int32_t max_slots;
    std::int32_t num_blocks;
    std::int32_t block_size;                 // native tokens a block
    std::int32_t max_step_tokens;            // rows a step
    std::int32_t max_length;                 // positions a sequence may have
    std::int32_t max_drafts;                 // drafts a decode segment may carry
    std::optional<PrefixRules> prefix = {};  // none: no block outlives its request
};

struct Request {
    RequestId id;
    std::vector<Token> prompt;
    std::int64_t max_new_tokens;
    std::int64_t min_new_tokens;
    std::vector<Token> stop_tokens;
    std::int32_t decoder_start;  // first position whose row is kept
    bool prompt_logits;
    std::optional<Hash> cache_key = {};  // requests of one key share blocks; without one, none
};

enum class Refusal { invalid, prompt_too_long, too_large };

// A request that cannot be served. It fails alone.
class RequestRefused : public std::runtime_error {
  public:
    RequestRefused(Refusal reason, const std::string& message) : std::runtime_error(message), reason(reason) {}

    const Refusal reason;
};

// An invariant of ours does not hold.
class InvariantError : public std::logic_error {
  public:
    using std::logic_error::logic_error;
};

inline void require(bool holds, const char* invariant) {
    if (!holds) throw InvariantError(invariant);
}

}  // namespace deepinfer
