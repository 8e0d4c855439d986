"""Requests through the whole engine: the answers are those of the model's definition, and errors are their own."""

from __future__ import annotations

from typing import Any

import pytest
from engine_kit import ROOMY, Sizes, expected_greedy, greedy, make_kit, request, run, solo
from engine_texts import VOCAB, ids, tokenizer
from fake_model import EOS, INFO, FakeModel, expected_logits
from fake_model import VOCAB as HEAD

from deepinfer_core.api.errors import GenerationError, PromptTooLong, RequestError, RequestTooLarge
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.engine.request import Request


def prompt_of(length: int, start: int = 0) -> list[int]:
    return [(3 * i + 5 * start + length) % 50 + 8 for i in range(length)]


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("length", [1, 2, 5, 6, 7, 13, 40])
def test_a_greedy_answer_follows_the_definition(length: int, overlap: bool) -> None:
    output = solo(greedy(prompt_of(length), max_tokens=20), Sizes(overlap=overlap))
    assert output.error is None
    assert list(output.outputs[0].token_ids) == expected_greedy(prompt_of(length), 20)


@pytest.mark.parametrize("decoder_rows", [0, 3, 10])
def test_bounded_prefill_is_the_models_own_however_it_is_cut(decoder_rows: int) -> None:
    prompt = prompt_of(15)
    for step_tokens in (2, 7, 64):
        output = solo(greedy(prompt, max_tokens=8), Sizes(step_tokens=step_tokens, decoder_rows=decoder_rows))
        assert list(output.outputs[0].token_ids) == expected_greedy(prompt, 8, decoder_rows)
        assert output.prefill == ("exact" if decoder_rows == 0 else "bounded")


def test_an_answer_fills_the_context_and_no_more() -> None:
    output = solo(greedy(prompt_of(60), max_tokens=None, ignore_eos=True))
    assert len(output.outputs[0].token_ids) == ROOMY.max_length - 60
    assert output.outputs[0].finish_reason == "length"


def test_end_of_sequence_ends_after_min_tokens_and_is_kept() -> None:
    bias = dict.fromkeys(EOS, 50.0)
    output = solo(greedy([9, 10], max_tokens=32, min_tokens=4, logit_bias=bias))
    (answer,) = output.outputs
    assert len(answer.token_ids) == 5
    assert not set(answer.token_ids[:4]) & set(EOS)
    assert answer.token_ids[4] in EOS
    assert (answer.finish_reason, answer.stop_reason) == ("stop", None)


def test_answers_of_one_request_differ_repeat_and_come_in_order() -> None:
    one = request([9, 10, 11], n=4, seed=5, max_tokens=12, ignore_eos=True)
    output = solo(one)
    assert [answer.index for answer in output.outputs] == [0, 1, 2, 3]
    assert len({answer.token_ids for answer in output.outputs}) == 4
    assert solo(one).outputs == output.outputs


def test_more_answers_than_slots_run_in_waves() -> None:
    one = request([9, 10, 11], n=9, seed=5, max_tokens=6)
    assert solo(one, Sizes(slots=2)).outputs == solo(one).outputs


def test_a_drawn_seed_is_reported_and_gives_the_same_answer() -> None:
    output = solo(request([9, 10], max_tokens=10))
    assert solo(request([9, 10], max_tokens=10, seed=output.seed)).outputs == output.outputs


def test_scoring_alone_gives_no_token() -> None:
    prompt = prompt_of(9)
    output = solo(request(prompt, max_tokens=0, prompt_logprobs=2, n=2))
    assert [(answer.token_ids, answer.finish_reason) for answer in output.outputs] == [((), "length")] * 2
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    assert len(output.prompt_logprobs) == 9


def test_no_tokens_and_no_scores_needs_no_step() -> None:
    kit = make_kit()
    (output,) = run(kit, [request([9], max_tokens=0, logprobs=1)])
    assert (output.outputs[0].token_ids, output.outputs[0].logprobs) == ((), ())
    assert kit.queue.submitted == 0


@pytest.mark.parametrize("step_tokens", [1, 3, 64])
def test_prompt_logprobs_are_those_of_the_logits(step_tokens: int) -> None:
    prompt = prompt_of(11)
    output = solo(request(prompt, max_tokens=2, seed=1, prompt_logprobs=HEAD), Sizes(step_tokens=step_tokens))
    assert output.prompt_logprobs is not None
    for place in range(1, len(prompt)):
        scores = expected_logits(prompt[:place], 0).log_softmax(-1)[0]
        scored = output.prompt_logprobs[place]
        assert scored is not None
        assert scored.chosen.token_id == prompt[place]
        assert scored.chosen.logprob == pytest.approx(float(scores[prompt[place]]), abs=1e-5)
        assert scored.chosen.rank == 1 + int((scores > scores[prompt[place]]).sum())
        assert [one.token_id for one in scored.top] == scores.argsort(descending=True, stable=True).tolist()
        assert [one.rank for one in scored.top] == list(range(1, HEAD + 1))


def test_logprobs_have_the_number_that_each_request_asked_for() -> None:
    wanted = [None, 0, 1, 5]
    outputs = run(make_kit(), [greedy(prompt_of(5, i), logprobs=k, max_tokens=4) for i, k in enumerate(wanted)])
    for output, k in zip(outputs, wanted, strict=True):
        (answer,) = output.outputs
        if k is None:
            assert answer.logprobs is None
            continue
        assert answer.logprobs is not None
        assert [one.chosen.token_id for one in answer.logprobs] == list(answer.token_ids)
        assert all(one.chosen.rank == 1 and len(one.top) == k for one in answer.logprobs)
        assert answer.cumulative_logprob == pytest.approx(sum(one.chosen.logprob for one in answer.logprobs))


def test_padding_of_the_head_is_never_sampled_or_ranked() -> None:
    kit = make_kit(tokenizer=tokenizer())
    params: dict[str, Any] = {"max_tokens": 30, "ignore_eos": True, "logprobs": VOCAB, "prompt_logprobs": VOCAB}
    outputs = run(
        kit, [greedy(prompt_of(6), **params), *(request(prompt_of(4, i), seed=i, **params) for i in range(4))]
    )
    for output in outputs:
        assert output.error is None
        assert output.prompt_logprobs is not None
        scored = [*(output.outputs[0].logprobs or ()), *(one for one in output.prompt_logprobs if one is not None)]
        assert max(output.outputs[0].token_ids) < VOCAB
        assert all(other.token_id < VOCAB for one in scored for other in one.top)


def test_texts_come_back_with_their_answers() -> None:
    kit = make_kit(tokenizer=tokenizer())
    one = Request("r", prompt="abc 12", params=SamplingParams(temperature=0.0, max_tokens=12, logprobs=1))
    (output,) = run(kit, [one])
    assert (output.prompt, list(output.prompt_token_ids)) == ("abc 12", ids("abc 12"))
    (answer,) = output.outputs
    assert answer.text == tokenizer().decode(answer.token_ids)
    assert answer.logprobs is not None
    assert [scored.chosen.text for scored in answer.logprobs] == [tokenizer().token_text(t) for t in answer.token_ids]


def neighbours() -> list[Request]:
    return [greedy(prompt_of(7, i), f"n{i}", max_tokens=9) for i in range(3)]


def unused_token() -> int:
    """A token that no neighbour has."""
    used = {token for i in range(3) for token in (*prompt_of(7, i), *expected_greedy(prompt_of(7, i), 9))}
    return min(set(range(2, 59)) - used - set(EOS))


POISON = unused_token()


def assert_only(outputs: list[RequestOutput], error: type[RequestError], match: str) -> None:
    """The middle one of the outputs has the error, and its neighbours are as if it had never been."""
    bad = outputs.pop(2)
    assert isinstance(bad.error, error)
    assert match in str(bad.error)
    assert (bad.request_id, bad.outputs) == ("bad", ())
    for output, one in zip(outputs, neighbours(), strict=True):
        assert output.outputs == solo(one).outputs


@pytest.mark.parametrize(
    ("prompt", "params", "error", "match"),
    [
        ((), {}, RequestError, "empty"),
        ((5,) * 64, {}, PromptTooLong, "64"),
        ((5, HEAD), {}, RequestError, "prompt token 1"),
        ((5,), {"allowed_token_ids": (HEAD,)}, RequestError, "allowed_token_ids"),
    ],
)
def test_a_request_that_is_refused_fails_alone(
    prompt: tuple[int, ...], params: dict[str, Any], error: type[RequestError], match: str
) -> None:
    requests = neighbours()
    requests.insert(2, request(prompt, "bad", **params))
    assert_only(run(make_kit(), requests), error, match)


def test_a_request_larger_than_the_cache_is_refused_with_both_numbers() -> None:
    kit = make_kit(Sizes(blocks=8))
    requests = neighbours()
    requests.insert(2, request(prompt_of(30), "bad", max_tokens=10))
    assert_only(run(kit, requests), RequestTooLarge, "10")
    kit.assert_idle()


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("n", [1, 3])
def test_logits_that_are_not_numbers_fail_one_request(overlap: bool, n: int) -> None:
    kit = make_kit(Sizes(overlap=overlap), model=FakeModel(poison_token=POISON))
    requests = neighbours()
    requests.insert(2, request([11, POISON], "bad", n=n, max_tokens=9))
    place = "after 0 tokens of the answer" if n == 1 else "for one of the 3 answers"
    assert_only(run(kit, requests), GenerationError, place)
    kit.assert_idle()


def test_which_answer_fails_first_shows_in_no_error() -> None:
    """Of many answers some fail, after more or fewer tokens; which of them is first depends on the room."""
    one = request([11, 12], "bad", n=12, seed=3, max_tokens=30, ignore_eos=True)
    texts = set()
    for sizes in (ROOMY, Sizes(slots=1), Sizes(slots=3, step_tokens=2), Sizes(slots=12, overlap=False)):
        (output,) = run(make_kit(sizes, model=FakeModel(poison_token=POISON)), [one])
        assert isinstance(output.error, GenerationError)
        texts.add(str(output.error))
    assert len(texts) == 1


def test_prompt_logits_that_are_not_numbers_fail_the_request() -> None:
    kit = make_kit(model=FakeModel(poison_token=POISON))
    requests = neighbours()
    requests.insert(2, request([11, POISON, 12], "bad", prompt_logprobs=1, max_tokens=4))
    assert_only(run(kit, requests), GenerationError, "before prompt token 2")


class BrokenTokenizer:
    """A tokenizer that cannot decode answers that begin with one of its tokens, or any answer at all."""

    vocab_size = INFO.vocab_size
    byte_level = True

    def __init__(self, bad: int | None) -> None:
        self._bad = bad

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        if self._bad is None or tokens[:1] == [self._bad]:
            raise ValueError("no such character")
        return ""


def test_a_tokenizer_that_fails_on_one_answer_fails_that_request_alone() -> None:
    one = greedy(prompt_of(8), "bad", max_tokens=3)
    bad = solo(one).outputs[0].token_ids[0]
    assert all(solo(other).outputs[0].token_ids[0] != bad for other in neighbours())
    kit = make_kit(tokenizer=BrokenTokenizer(bad))
    requests = neighbours()
    requests.insert(2, one)
    assert_only(run(kit, requests), GenerationError, "ValueError: no such character")


@pytest.mark.parametrize("max_tokens", [0, 6])
def test_a_request_whose_answers_all_fail_fails_once(max_tokens: int) -> None:
    kit = make_kit(tokenizer=BrokenTokenizer(None))
    key = kit.engine.add(request([9, 10], n=3, max_tokens=max_tokens, seed=1))
    finished = kit.engine.step()
    kit.engine.abort(key)
    finished += kit.engine.step()
    assert [one.key for one in finished] == [key]
    assert isinstance(finished[0].output.error, GenerationError)
    kit.engine.settle()
    kit.assert_idle()
