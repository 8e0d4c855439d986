"""Admission: what a request may be, and how one that may not is refused."""

from __future__ import annotations

from typing import Any

import pytest
from engine_texts import END, EOS, VOCAB, ids, tokenizer
from fake_model import DECODER_ROWS, IMAGE, INFO
from made_tokenizers import byte_level

from deepinfer_core.api.errors import PromptTooLong, RequestError, UnsupportedRequest
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.engine.admission import MAX_LOGPROB_ENTRIES, Admission, Admitted
from deepinfer_core.engine.request import Request
from deepinfer_core.text.tokenizer import Tokenizer

CONTEXT = 32


def admission(**options: Any) -> Admission:
    defaults = {"max_length": CONTEXT, "decoder_rows": DECODER_ROWS, "seed": 0}
    seams = (options.pop("tokenizer", tokenizer()), options.pop("constraints", {}), options.pop("processors", {}))
    return Admission(INFO, *seams, **{**defaults, **options})


def admit(prompt: Any = (2, 3), **params: Any) -> Admitted:
    given = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": tuple(prompt)}
    return admission().admit(Request("r", params=SamplingParams(**params), **given))


def test_text_is_encoded() -> None:
    assert admit("abc 7").prompt.tolist() == ids("abc 7")


@pytest.mark.parametrize("prompt", ["", ()])
def test_an_empty_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(RequestError, match="the prompt is empty"):
        admit(prompt)


@pytest.mark.parametrize("request_fields", [{}, {"prompt": "a", "prompt_token_ids": (2,)}])
def test_a_prompt_is_either_text_or_ids(request_fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="exactly one"):
        admission().admit(Request("r", **request_fields))


@pytest.mark.parametrize("max_tokens", [0, 1, 2, None])
@pytest.mark.parametrize(("length", "fits"), [(CONTEXT - 1, True), (CONTEXT, False), (CONTEXT + 1, False)])
def test_a_prompt_must_leave_room_for_one_token(length: int, fits: bool, max_tokens: int | None) -> None:
    for prompt in ([2] * length, "a" * length):
        if fits:
            assert admit(prompt, max_tokens=max_tokens).max_new_tokens == (0 if max_tokens == 0 else 1)
        else:
            with pytest.raises(PromptTooLong, match=f"{length} tokens and the context {CONTEXT}"):
                admit(prompt, max_tokens=max_tokens)


def test_a_text_that_cannot_fit_is_refused_before_it_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding blocks every other request for seconds a megabyte."""
    refusing = admission(tokenizer=byte_level())
    monkeypatch.setattr(Tokenizer, "encode", None)
    with pytest.raises(PromptTooLong, match=f"the prompt has 5000000 bytes, .* or more, and the context {CONTEXT}"):
        refusing.admit(Request("r", prompt="a" * 5_000_000))


@pytest.mark.parametrize("max_tokens", [None, 10_000])
def test_the_answer_is_cut_to_the_context(max_tokens: int | None) -> None:
    assert admit([2] * 20, max_tokens=max_tokens).max_new_tokens == CONTEXT - 20


def test_min_tokens_must_fit_the_context() -> None:
    with pytest.raises(RequestError, match="min_tokens = 13 .* leaves 12"):
        admit([2] * 20, max_tokens=None, min_tokens=13)


@pytest.mark.parametrize("token", [-1, INFO.vocab_size, 2**40, True, 1.0, "a", None])
def test_a_prompt_token_outside_the_vocabulary_is_refused(token: Any) -> None:
    with pytest.raises(RequestError, match="prompt token 1 is"):
        admit([2, token])


def test_the_head_may_be_wider_than_the_tokenizer() -> None:
    """Ids of the padding may be fed, for they have embeddings; they are never sampled or ranked."""
    assert admit([VOCAB]).prompt.tolist() == [VOCAB]
    assert admission().vocab_size == VOCAB
    assert admission(tokenizer=None).vocab_size == INFO.vocab_size
    with pytest.raises(RequestError, match="allowed_token_ids names token 59"):
        admit(allowed_token_ids=[VOCAB])


def test_images_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedRequest, match="prompt token 1 stands for an image"):
        admit([2, IMAGE])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"stop_token_ids": [INFO.vocab_size]}, "stop_token_ids names token 61"),
        ({"logit_bias": {INFO.vocab_size: 1.0}}, "logit_bias names token 61"),
        ({"allowed_token_ids": [2, 2**30]}, "allowed_token_ids names token"),
        ({"logprobs": VOCAB + 1}, "logprobs = 60"),
        ({"prompt_logprobs": VOCAB + 1}, "prompt_logprobs = 60"),
        ({"allowed_token_ids": [2], "bad_words": ["a"]}, "leave no token"),
        ({"allowed_token_ids": [EOS, END], "min_tokens": 1}, "min_tokens forbids every token"),
        ({"constraint": {"regex": "a", "choice": ["a"]}}, "one kind"),
        ({"constraint": {}}, "one kind"),
    ],
)
def test_parameters_are_checked_against_the_model(params: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        admit(**params)


@pytest.mark.parametrize("field", ["logprobs", "prompt_logprobs"])
def test_the_whole_vocabulary_may_be_ranked(field: str) -> None:
    assert admit(**{field: VOCAB}).sampling.params == SamplingParams(**{field: VOCAB})


@pytest.mark.parametrize(
    ("prompt_length", "params"),
    [
        (1, {"n": 64, "logprobs": 50, "max_tokens": 10_000}),
        (1, {"n": 1024, "logprobs": 0, "max_tokens": None}),
        (1 << 19, {"prompt_logprobs": VOCAB}),
    ],
)
def test_logprobs_are_capped_before_anything_is_allocated(prompt_length: int, params: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"at most {MAX_LOGPROB_ENTRIES}"):
        admission(max_length=1 << 20).admit(
            Request("r", prompt_token_ids=(2,) * prompt_length, params=SamplingParams(**params))
        )


def test_every_token_of_the_vocabulary_may_stand_in_a_prompt() -> None:
    """Added and special ones, the last one of the head too."""
    tokens = [token for token in range(INFO.vocab_size) if token != IMAGE]
    assert admission(max_length=128).admit(Request("r", prompt_token_ids=tuple(tokens))).prompt.tolist() == tokens


@pytest.mark.parametrize("token", [10**400, 10**5000], ids=["400 digits", "5000 digits"])
def test_a_token_of_any_size_is_refused_in_few_words(token: int) -> None:
    with pytest.raises(RequestError, match="^prompt token 1 is .*: this model's tokens are 0 to 60") as caught:
        admit([2, token])
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("fields", "params", "place"),
    [
        ({"prompt": "ab\ud83d"}, {}, "prompt holds a lone surrogate U\\+D83D at character 2"),
        ({"prompt": "a"}, {"stop": ["x", "\udc00"]}, "stop\\[1\\] holds a lone surrogate U\\+DC00 at character 0"),
        ({"prompt": "a"}, {"bad_words": ["\ud83d"]}, "bad_words\\[0\\] holds"),
    ],
)
def test_half_a_surrogate_pair_is_refused_with_its_place(
    fields: dict[str, str], params: dict[str, Any], place: str
) -> None:
    with pytest.raises(RequestError, match=place):
        admission().admit(Request("r", **fields, params=SamplingParams(**params)))


@pytest.mark.parametrize(
    ("fields", "params", "name"),
    [
        ({"prompt": "a"}, {}, "prompt"),
        ({"prompt_token_ids": (2,)}, {"stop": "x"}, "stop"),
        ({"prompt_token_ids": (2,)}, {"bad_words": ["x"]}, "bad_words"),
        ({"prompt_token_ids": (2,)}, {"constraint": {"toy": 1}}, "constraint"),
    ],
)
def test_without_a_tokenizer_texts_are_refused_by_name(
    fields: dict[str, Any], params: dict[str, Any], name: str
) -> None:
    bare = admission(tokenizer=None, constraints={"toy": object()})
    with pytest.raises(UnsupportedRequest, match=f"{name}.* no tokenizer.json"):
        bare.admit(Request("r", **fields, params=SamplingParams(**params)))


def test_a_constraint_nobody_enforces_is_refused_by_its_kind() -> None:
    with pytest.raises(UnsupportedRequest, match="constraint kind 'regex' is not enforced by any installed plugin"):
        admit(constraint={"regex": "a"})
    with pytest.raises(UnsupportedRequest, match=r"did you mean 'regex'\?; enforced: json, regex; install"):
        admission(constraints={"json": object(), "regex": object()}).admit(
            Request("r", prompt_token_ids=(2,), params=SamplingParams(constraint={"regexp": "a"}))
        )


def test_params_of_another_type_are_refused() -> None:
    with pytest.raises(RequestError, match="params is a dict"):
        admission().admit(Request("r", prompt_token_ids=(2,), params={"n": 2}))  # type: ignore[arg-type]


def test_a_given_seed_is_kept_and_others_are_drawn() -> None:
    assert admit(seed=0).sampling.seed == 0
    drawn = [one.sampling.seed for one in map(admission(seed=None).admit, [Request("r", prompt_token_ids=(2,))] * 20)]
    assert len(set(drawn)) == 20
    assert max(drawn) >= 2**32  # of 64 bits: below that once in 2**640


def test_drawn_seeds_follow_the_base_seed() -> None:
    def draw(base: int) -> list[int]:
        one = admission(seed=base)
        return [one.admit(Request("r", prompt_token_ids=(2,))).sampling.seed for _ in range(3)]

    assert draw(5) == draw(5) != draw(6)


@pytest.mark.parametrize(
    ("length", "start"), [(1, 0), (DECODER_ROWS, 0), (DECODER_ROWS + 1, 1), (30, 30 - DECODER_ROWS)]
)
def test_bounded_prefill_begins_at_a_constant_of_the_request(length: int, start: int) -> None:
    assert admit([2] * length).decoder_start == start
    assert admit([2] * length, prompt_logprobs=0).decoder_start == 0
    assert admission(decoder_rows=0).admit(Request("r", prompt_token_ids=(2,) * length)).decoder_start == 0


def test_every_end_token_stops_unless_ignored() -> None:
    assert admit(stop_token_ids=[40, EOS]).stop_tokens == (EOS, END, 40)
    assert admit(stop_token_ids=[40], ignore_eos=True).stop_tokens == (40,)
