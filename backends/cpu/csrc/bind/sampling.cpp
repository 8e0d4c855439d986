// The Python face of masks, penalties, the draw and logprobs.
#include "arguments.hpp"

namespace deepinfer_cpu {
namespace {

py::object sample_tokens(const Table& k, py::handle logits, py::handle temperature, py::handle min_p, py::handle seed,
                         py::handle sample, py::handle position) {
    const Input x(logits, Dtype::F32), keys(seed, Dtype::I64), samples(sample, Dtype::I64), at(position, Dtype::I64);
    const Optional t(temperature, Dtype::F32), m(min_p, Dtype::F32);
    for (const Input* column : {&keys, &samples, &at}) fit(column->numel(), x.size(0), "sample_tokens: a key");
    if (!temperature.is_none()) fit(t.size(0), x.size(0), "sample_tokens: the temperatures");
    if (!min_p.is_none()) fit(m.size(0), x.size(0), "sample_tokens: min_p");
    const Output out({x.size(0)}, Dtype::I64);
    released([&] {
        k->sample_tokens(x.data<float>(), x.size(0), x.size(1), t.data<float>(), m.data<float>(), keys.data<int64_t>(),
                         samples.data<int64_t>(), at.data<int64_t>(), out.data<int64_t>());
    });
    return out.tensor();
}

py::object apply_token_mask(const Table& k, py::handle logits, py::handle mask) {
    const Input x(logits, Dtype::F32), m(mask, Dtype::I32);
    fit(m.numel(), x.size(0) * ((x.size(1) + 31) / 32), "apply_token_mask: the mask");
    const Output y(x.sizes());
    released([&] { k->apply_token_mask(x.data<float>(), x.size(0), x.size(1), m.data<int32_t>(), y.data()); });
    return y.tensor();
}

py::object apply_penalties(const Table& k, py::handle logits, py::handle prompt_seen, py::handle counts,
                           py::handle repetition, py::handle presence, py::handle frequency) {
    const Input x(logits, Dtype::F32), seen(prompt_seen, Dtype::Bool), c(counts, Dtype::I32), r(repetition, Dtype::F32),
        p(presence, Dtype::F32), f(frequency, Dtype::F32);
    fit(seen.numel(), x.numel(), "apply_penalties: prompt_seen");
    fit(c.numel(), x.numel(), "apply_penalties: counts");
    for (const Input* penalty : {&r, &p, &f}) fit(penalty->numel(), x.size(0), "apply_penalties: a penalty");
    const Output y(x.sizes());
    released([&] {
        k->apply_penalties(x.data<float>(), x.size(0), x.size(1), seen.data<uint8_t>(), c.data<int32_t>(),
                           r.data<float>(), p.data<float>(), f.data<float>(), y.data());
    });
    return y.tensor();
}

py::tuple top_logprobs(const Table& k, py::handle logits, py::handle tokens, int64_t top) {
    const Input x(logits, Dtype::F32), t(tokens, Dtype::I64);
    const int64_t rows = x.size(0), vocab = x.size(1), kept = std::min(top, vocab);
    fit(t.numel(), rows, "top_logprobs: the tokens");
    within(t, 0, vocab, "top_logprobs: token");
    const Output logprob({rows}), rank({rows}, Dtype::I32), ids({rows, kept}, Dtype::I64), values({rows, kept});
    released([&] {
        k->top_logprobs(x.data<float>(), rows, vocab, t.data<int64_t>(), kept, logprob.data(), rank.data<int32_t>(),
                        ids.data<int64_t>(), values.data());
    });
    return py::make_tuple(logprob.tensor(), rank.tensor(), ids.tensor(), values.tensor());
}

py::object verify_drafts(const Table& k, py::handle target, py::handle drafts, py::handle num_drafts) {
    const Input t(target, Dtype::I64), d(drafts, Dtype::I64), n(num_drafts, Dtype::I32);
    fit(n.numel(), d.size(0), "verify_drafts: the numbers of drafts");
    fit(t.numel(), d.size(0) * (d.size(1) + 1), "verify_drafts: the target's tokens");
    const Output counts({d.size(0)}, Dtype::I32);
    released([&] {
        k->verify_drafts(t.data<int64_t>(), d.data<int64_t>(), n.data<int32_t>(), d.size(0), d.size(1),
                         counts.data<int32_t>());
    });
    return counts.tensor();
}

}  // namespace

void bind_sampling(py::class_<Table>& c) {
    c.def("sample_tokens", &sample_tokens);
    c.def("apply_token_mask", &apply_token_mask);
    c.def("apply_penalties", &apply_penalties);
    c.def("top_logprobs", &top_logprobs);
    c.def("verify_drafts", &verify_drafts);
}

}  // namespace deepinfer_cpu
