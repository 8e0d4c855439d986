// One request's state in the scheduler: its committed tokens, what it holds, and how far steps in flight may take it.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "types.hpp"

namespace deepinfer {

// Tokens are counted in three ways, each an upper bound of the one before: `known` are committed on the host; the
// device's true length lies between `known` and `upper`; `limit` is where the request ends.
struct Sequence {
    Sequence(Request&& request, std::int64_t arrival, std::int32_t limit, std::int32_t drafts)
        : id(request.id),
          arrival(arrival),
          tokens(std::move(request.prompt)),
          prompt_length(static_cast<std::int32_t>(tokens.size())),
          limit(limit),
          min_new_tokens(request.min_new_tokens),
          stop_tokens(std::move(request.stop_tokens)),
          decoder_start(request.decoder_start),
          prompt_logits(request.prompt_logits),
          cache_key(request.cache_key),
          drafts(drafts) {}

    std::int32_t known() const { return static_cast<std::int32_t>(tokens.size()); }
    std::int32_t upper() const { return known() + in_flight; }
    std::int32_t room() const { return limit - upper(); }

    // Positions whose cache steps in flight, or the next prefill chunks, may write: the newest token has none yet.
    std::int32_t cached_upper() const { return decoding ? upper() - 1 : known(); }

    // Known tokens whose caches are written by steps that are planned. A resumed sequence writes its answer again.
    std::int32_t written() const { return decoding ? std::max(prefilled, known() - 1) : prefilled; }

    bool is_stop(Token token) const {
        const std::int64_t before = known() - prompt_length;
        return before >= min_new_tokens && std::ranges::find(stop_tokens, token) != stop_tokens.end();
    }

    // Fixed
    RequestId id;
    std::int64_t arrival;       // order of `add`
    std::vector<Token> tokens;  // the prompt, then every committed token
    std::int32_t prompt_length;
    std::int32_t limit;  // prompt and answer end at this many tokens
    std::int64_t min_new_tokens;
    std::vector<Token> stop_tokens;
    std::int32_t decoder_start;
    bool prompt_logits;
    std::optional<Hash> cache_key;
    std::int32_t drafts;  // drafts that its next decode segments carry at most

    std::vector<Hash> chain;  // of its leading full blocks, as far as it was needed

    // While running
    Slot slot = -1;
    std::vector<Block> blocks;      // in order of position
    std::int32_t prefilled = 0;     // known tokens whose prefill is planned, or that a hit spares
    std::int32_t replay_start = 0;  // tokens that a hit spares: the first row is at this position
    std::int32_t write_start = 0;   // tokens whose blocks are shared: rows below it write to none
    std::size_t offered = 0;        // leading blocks that the cache was offered, or that came from it
    bool decoding = false;          // all of them are
    std::int32_t in_flight = 0;     // tokens that steps in flight may add
    Step last_step = -1;            // the newest step that has rows of it
    std::int64_t stay = -1;  // number of its present stay among the running; results of an earlier one are dropped
};

}  // namespace deepinfer
