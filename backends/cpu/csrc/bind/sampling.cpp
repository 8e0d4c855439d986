// The Python face of masks, penalties, the draw and logprobs.
#include "arguments.hpp"

namespace deepinfer_cpu {

void bind_sampling(py::class_<Table>& c) {
    c.def(
        "sample_tokens",
        [](const Table& k, Address logits, int64_t n, int64_t vocab, Address temperature, Address min_p, Address seed,
           Address sample, Address position, Address out) {
            k->sample_tokens(at<const float>(logits), n, vocab, at<const float>(temperature), at<const float>(min_p),
                             at<const int64_t>(seed), at<const int64_t>(sample), at<const int64_t>(position),
                             at<int64_t>(out));
        },
        Release());
    c.def(
        "apply_token_mask",
        [](const Table& k, Address logits, int64_t n, int64_t vocab, Address mask, Address out) {
            k->apply_token_mask(at<const float>(logits), n, vocab, at<const int32_t>(mask), at<float>(out));
        },
        Release());
    c.def(
        "apply_penalties",
        [](const Table& k, Address logits, int64_t n, int64_t vocab, Address prompt_seen, Address counts,
           Address repetition, Address presence, Address frequency, Address out) {
            k->apply_penalties(at<const float>(logits), n, vocab, at<const uint8_t>(prompt_seen),
                               at<const int32_t>(counts), at<const float>(repetition), at<const float>(presence),
                               at<const float>(frequency), at<float>(out));
        },
        Release());
    c.def(
        "top_logprobs",
        [](const Table& k, Address logits, int64_t n, int64_t vocab, Address tokens, int64_t top, Address logprob,
           Address rank, Address ids, Address values) {
            k->top_logprobs(at<const float>(logits), n, vocab, at<const int64_t>(tokens), top, at<float>(logprob),
                            at<int32_t>(rank), at<int64_t>(ids), at<float>(values));
        },
        Release());
    c.def(
        "verify_drafts",
        [](const Table& k, Address target, Address drafts, Address num_drafts, int64_t n, int64_t width,
           Address counts) {
            k->verify_drafts(at<const int64_t>(target), at<const int64_t>(drafts), at<const int32_t>(num_drafts), n,
                             width, at<int32_t>(counts));
        },
        Release());
}

}  // namespace deepinfer_cpu
