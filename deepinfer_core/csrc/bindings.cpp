// The Python module deepinfer_core._native: conversions only. Its types are in deepinfer_core/_native.pyi.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheduler.hpp"
#include "step_layout.hpp"

namespace py = pybind11;
using namespace deepinfer;

namespace {

// No silent conversion: another dtype is a TypeError.
using Int32Array = py::array_t<std::int32_t, py::array::c_style>;

template <typename T>
std::span<const T> view(const py::array_t<T, py::array::c_style>& array) {
    return {array.data(), static_cast<std::size_t>(array.size())};
}

// An array over the vector's memory; `owner` keeps it alive.
template <typename T>
py::array_t<T> array_over(const std::vector<T>& values, const py::object& owner) {
    return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data(), owner);
}

template <typename T>
py::capsule owner_of(std::unique_ptr<T> value) {
    return py::capsule(value.release(), [](void* pointer) { delete static_cast<T*>(pointer); });
}

py::dict to_python(std::unique_ptr<StepPlan> plan) {
    const StepPlan& p = *plan;
    const py::capsule owner = owner_of(std::move(plan));
    py::dict fields;
    fields["step"] = p.step;
    fields["request"] = array_over(p.request, owner);
    fields["slot"] = array_over(p.slot, owner);
    fields["kind"] = array_over(p.kind, owner);
    fields["first_position"] = array_over(p.first_position, owner);
    fields["num_rows"] = array_over(p.num_rows, owner);
    fields["drafts"] = array_over(p.drafts, owner);
    fields["decoder_start"] = array_over(p.decoder_start, owner);
    fields["sample_start"] = array_over(p.sample_start, owner);
    fields["tokens"] = array_over(p.tokens, owner);
    fields["segment"] = array_over(p.segment, owner);
    fields["offset"] = array_over(p.offset, owner);
    fields["kept"] = array_over(p.kept, owner);
    fields["kept_first"] = array_over(p.kept_first, owner);
    fields["replay_start"] = array_over(p.replay_start, owner);
    fields["write_start"] = array_over(p.write_start, owner);
    fields["logit_rows"] = array_over(p.logit_rows, owner);
    fields["new_slots"] = array_over(p.new_slots, owner);
    fields["new_slot_requests"] = array_over(p.new_slot_requests, owner);
    fields["new_slot_cached"] = array_over(p.new_slot_cached, owner);
    fields["past_slot"] = array_over(p.past_slot, owner);
    fields["past_position"] = array_over(p.past_position, owner);
    fields["past_token"] = array_over(p.past_token, owner);
    fields["table_slot"] = array_over(p.table_slot, owner);
    fields["table_index"] = array_over(p.table_index, owner);
    fields["table_block"] = array_over(p.table_block, owner);
    fields["max_end"] = p.max_end;
    fields["preempted"] = array_over(p.preempted, owner);
    return fields;
}

py::dict to_python(std::unique_ptr<Committed> committed) {
    const Committed& c = *committed;
    const py::capsule owner = owner_of(std::move(committed));
    py::dict fields;
    fields["request"] = array_over(c.request, owner);
    fields["accepted"] = array_over(c.accepted, owner);
    fields["finish"] = array_over(c.finish, owner);
    return fields;
}

py::dict to_python(const Stats& stats) {
    py::dict fields;
    fields["waiting"] = stats.waiting;
    fields["running"] = stats.running;
    fields["free_blocks"] = stats.free_blocks;
    fields["used_blocks"] = stats.used_blocks;
    fields["cached_blocks"] = stats.cached_blocks;
    fields["free_slots"] = stats.free_slots;
    fields["preemptions"] = stats.preemptions;
    fields["queried_tokens"] = stats.queried_tokens;
    fields["hit_tokens"] = stats.hit_tokens;
    fields["replayed_tokens"] = stats.replayed_tokens;
    fields["evictions"] = stats.evictions;
    return fields;
}

py::object plan(Scheduler& scheduler) {
    std::unique_ptr<StepPlan> plan;
    {
        const py::gil_scoped_release unlocked;
        plan = scheduler.plan();
    }
    return plan == nullptr ? py::object(py::none()) : to_python(std::move(plan));
}

py::dict commit(Scheduler& scheduler, Step step, const Int32Array& tokens, const Int32Array& counts) {
    if (tokens.ndim() != 2 || tokens.shape(1) != 1 + scheduler.limits().max_drafts) {
        throw py::value_error("step " + std::to_string(step) + ": tokens must have the shape [n, 1 + max_drafts]");
    }
    const std::span<const std::int32_t> token_view = view(tokens);
    const std::span<const std::int32_t> count_view = view(counts);
    auto committed = std::make_unique<Committed>();
    {
        const py::gil_scoped_release unlocked;
        *committed = scheduler.commit(step, token_view, count_view);
    }
    return to_python(std::move(committed));
}

std::optional<Hash> key_of(const py::bytes& bytes) {
    const std::string_view view = bytes;
    if (view.empty()) return std::nullopt;
    Hash key;
    if (view.size() != sizeof key) throw py::value_error("cache_key must have 16 bytes, or none");
    std::memcpy(&key, view.data(), sizeof key);
    return key;
}

// (low, high): the words of SipHash-2-4-128, for tests against its published vectors.
py::tuple siphash(const py::bytes& key, const py::bytes& data) {
    const std::optional<Hash> words = key_of(key);
    if (!words) throw py::value_error("key must have 16 bytes");
    const std::string_view view = data;
    const Hash hash = siphash128(*words, std::as_bytes(std::span(view)));
    return py::make_tuple(hash.low, hash.high);
}

void add(Scheduler& scheduler, RequestId request, const Int32Array& prompt, std::int64_t max_new_tokens,
         std::int64_t min_new_tokens, std::vector<Token> stop_tokens, std::int32_t decoder_start, bool prompt_logits,
         const py::bytes& cache_key) {
    if (prompt.ndim() != 1) throw py::value_error("prompt must have one dimension");
    const std::span<const Token> tokens = view(prompt);
    scheduler.add({.id = request,
                   .prompt = {tokens.begin(), tokens.end()},
                   .max_new_tokens = max_new_tokens,
                   .min_new_tokens = min_new_tokens,
                   .stop_tokens = std::move(stop_tokens),
                   .decoder_start = decoder_start,
                   .prompt_logits = prompt_logits,
                   .cache_key = key_of(cache_key)});
}

// (buffer, sizes) of the arrays of a StepPlan; see step_layout.hpp.
py::tuple lay_out_arrays(const Int32Array& slot, const Int32Array& kind, const Int32Array& first_position,
                         const Int32Array& num_rows, const Int32Array& decoder_start, const Int32Array& sample_start,
                         const Int32Array& kept_first, const Int32Array& replay_start, const Int32Array& write_start,
                         const Int32Array& tokens, const Int32Array& segment, const Int32Array& offset,
                         const Int32Array& kept, const Int32Array& logit_rows, const Int32Array& new_slots,
                         const Int32Array& past_slot, const Int32Array& past_position, const Int32Array& past_token,
                         const Int32Array& table_slot, const Int32Array& table_index, const Int32Array& table_block,
                         const Int32Array& prompt_logit, const Int32Array& prompt_target, std::int32_t history_rows) {
    const PlanArrays plan{.slot = view(slot),
                          .kind = view(kind),
                          .first_position = view(first_position),
                          .num_rows = view(num_rows),
                          .decoder_start = view(decoder_start),
                          .sample_start = view(sample_start),
                          .kept_first = view(kept_first),
                          .replay_start = view(replay_start),
                          .write_start = view(write_start),
                          .tokens = view(tokens),
                          .segment = view(segment),
                          .offset = view(offset),
                          .kept = view(kept),
                          .logit_rows = view(logit_rows),
                          .new_slots = view(new_slots),
                          .past_slot = view(past_slot),
                          .past_position = view(past_position),
                          .past_token = view(past_token),
                          .table_slot = view(table_slot),
                          .table_index = view(table_index),
                          .table_block = view(table_block),
                          .prompt_logit = view(prompt_logit),
                          .prompt_target = view(prompt_target)};
    auto layout = std::make_unique<StepLayout>(lay_out(plan, history_rows));
    const StepLayout& made = *layout;
    const py::capsule owner = owner_of(std::move(layout));
    return py::make_tuple(array_over(made.buffer, owner), made.sizes);
}

const char* error_name(Refusal reason) {
    switch (reason) {
        case Refusal::prompt_too_long:
            return "PromptTooLong";
        case Refusal::too_large:
            return "RequestTooLarge";
        case Refusal::invalid:
            break;
    }
    return "RequestError";
}

void translate(std::exception_ptr error) {
    try {
        if (error) std::rethrow_exception(error);
    } catch (const RequestRefused& refused) {
        const py::object type = py::module_::import("deepinfer_core.api.errors").attr(error_name(refused.reason));
        py::set_error(type, refused.what());
    } catch (const InvariantError& broken) {
        py::set_error(PyExc_AssertionError, broken.what());
    }
}

}  // namespace

PYBIND11_MODULE(_native, module) {
    module.doc() = "The C++ part of deepinfer_core.";
    py::register_local_exception_translator(translate);

    py::class_<Scheduler>(module, "Scheduler")
        .def(py::init([](std::int32_t max_slots, std::int32_t num_blocks, std::int32_t block_size,
                         std::int32_t max_step_tokens, std::int32_t max_length, std::int32_t max_drafts,
                         const std::optional<std::array<std::int32_t, 4>>& prefix) {
                 std::optional<PrefixRules> rules;
                 if (prefix) rules = PrefixRules{(*prefix)[0], (*prefix)[1], (*prefix)[2], (*prefix)[3]};
                 return std::make_unique<Scheduler>(
                     Limits{max_slots, num_blocks, block_size, max_step_tokens, max_length, max_drafts, rules});
             }),
             py::kw_only(), py::arg("max_slots"), py::arg("num_blocks"), py::arg("block_size"),
             py::arg("max_step_tokens"), py::arg("max_length"), py::arg("max_drafts"), py::arg("prefix"))
        .def("add", &add, py::kw_only(), py::arg("request"), py::arg("prompt"), py::arg("max_new_tokens"),
             py::arg("min_new_tokens"), py::arg("stop_tokens"), py::arg("decoder_start"), py::arg("prompt_logits"),
             py::arg("cache_key"))
        .def("set_drafts", &Scheduler::set_drafts, py::arg("request"), py::arg("drafts"))
        .def("plan", &plan)
        .def("commit", &commit, py::arg("step"), py::arg("tokens"), py::arg("counts"))
        .def("finish", &Scheduler::finish, py::arg("request"))
        .def(
            "forget",
            [](Scheduler& scheduler, const std::optional<std::vector<Block>>& blocks) {
                blocks ? scheduler.forget(*blocks) : scheduler.forget_all();
            },
            py::arg("blocks"))
        .def("stats", [](const Scheduler& scheduler) { return to_python(scheduler.stats()); })
        .def("check", &Scheduler::check);

    module.def("siphash128", &siphash, py::arg("key"), py::arg("data"));
    module.def("lay_out", &lay_out_arrays, py::arg("slot"), py::arg("kind"), py::arg("first_position"),
               py::arg("num_rows"), py::arg("decoder_start"), py::arg("sample_start"), py::arg("kept_first"),
               py::arg("replay_start"), py::arg("write_start"), py::arg("tokens"), py::arg("segment"),
               py::arg("offset"), py::arg("kept"), py::arg("logit_rows"), py::arg("new_slots"), py::arg("past_slot"),
               py::arg("past_position"), py::arg("past_token"), py::arg("table_slot"), py::arg("table_index"),
               py::arg("table_block"), py::arg("prompt_logit"), py::arg("prompt_target"), py::arg("history_rows"));
}
