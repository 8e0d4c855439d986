"""Nothing reads what no live request has written: NaN in all of it before every step changes no bit of any answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from engine_kit import EXACT_REPLAY, Sizes, make_kit, request, run
from poison import poison_every_step
from test_tiny_v41 import open_tiny

from deepinfer_core.api.errors import GenerationError
from deepinfer_core.api.llm import LLM
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.engine.request import Request
from deepinfer_cpu.backend import CpuBackend

TIGHT = {"cache_tokens": 96, "max_step_tokens": 16, "max_running": 4, "prefix_cache": False}


def requests() -> list[Request]:
    """Prompts shorter and longer than window, ring, group and block; answers that end early, late and in waves."""
    settings: list[dict[str, Any]] = [
        {"temperature": 0.0, "logprobs": 3},
        {"seed": 1, "n": 3, "max_tokens": 34, "ignore_eos": True},
        {"seed": 2, "top_k": 9, "logprobs": 512},
        {"seed": 3, "prompt_logprobs": 512, "max_tokens": 0},
        {"temperature": 0.0, "prompt_logprobs": 2},
        {"temperature": 0.0, "logprobs": 0, "allowed_token_ids": range(100, 400)},
    ]
    lengths = [1, 2, 15, 33, 50, 70]
    return [
        Request(str(i), prompt_token_ids=tuple((7 * i + 11 * k * k + k) % 500 for k in range(length)), params=params)
        for i, length, params in (
            (i, length, SamplingParams(**{"max_tokens": 8, **setting}))
            for i, (length, setting) in enumerate(zip(lengths, settings, strict=True))
        )
    ]


def answers(llm: LLM) -> dict[str, RequestOutput]:
    return {output.request_id: output for output in llm.stream(requests())}


@pytest.mark.parametrize("activation_quant", ["off", "checkpoint"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_poison_changes_no_bit(dtype: str, activation_quant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    promised = CpuBackend.capabilities  # its kernels know bfloat16, which it does not promise
    monkeypatch.setattr(CpuBackend, "capabilities", lambda self: replace(promised(self), dtypes=(dtype,)))
    assert_unchanged(dtype=dtype, activation_quant=activation_quant)


def assert_unchanged(**options: Any) -> None:
    with open_tiny(**{**TIGHT, **options}) as llm:
        clean = answers(llm)
    with open_tiny(**{**TIGHT, **options}) as llm:
        poisoner = poison_every_step(llm.engine)
        poisoned = answers(llm)
    assert poisoner.rows > 0
    assert llm.engine.stats().preemptions > 0
    for name, expected in clean.items():
        assert poisoned[name].error is expected.error is None
        assert poisoned[name].outputs == expected.outputs
        assert poisoned[name].prompt_logprobs == expected.prompt_logprobs


@pytest.mark.parametrize("activation_quant", ["off", "checkpoint"])
def test_poison_in_one_written_row_is_felt(activation_quant: str) -> None:
    """Were it not, the test above would prove nothing."""
    with open_tiny(activation_quant=activation_quant, prefix_cache=False) as llm:
        poison_every_step(llm.engine, too_much=1)
        (output,) = llm.generate([[5, 6, 7]], SamplingParams(temperature=0.0, max_tokens=3))
    assert isinstance(output.error, GenerationError)


@pytest.mark.parametrize(("step_tokens", "overlap"), [(2, True), (64, False)])
def test_poison_between_aborts_and_preemptions(overlap: bool, step_tokens: int) -> None:
    sizes = Sizes(slots=4, blocks=11, block_size=4, step_tokens=step_tokens, overlap=overlap)
    asked = [request(range(8 + i, 8 + i + 3 * i + 1), max_tokens=12, seed=i, logprobs=2, n=1 + i % 2) for i in range(6)]
    clean = run(make_kit(sizes), asked)

    kit = make_kit(sizes)
    poison_every_step(kit.engine)
    keys = [kit.engine.add(one) for one in asked]
    done: dict[int, RequestOutput] = {}
    for _ in range(3):
        doomed = kit.engine.add(request(range(9, 20), max_tokens=9, seed=1))
        done |= {finished.key: finished.output for finished in kit.engine.step()}
        kit.engine.abort(doomed)
    while kit.engine.has_unfinished():
        done |= {finished.key: finished.output for finished in kit.engine.step()}
    for key, expected in zip(keys, clean, strict=True):
        assert done[key].outputs == expected.outputs
    kit.assert_idle()


@pytest.mark.parametrize("activation_quant", ["off", "checkpoint"])
def test_poison_around_prefix_hits(activation_quant: str) -> None:
    """Cached blocks stay whole; all else that no live request has written is NaN, a replay's windows before its first
    row among it."""
    sizes = {"max_step_tokens": 48, "max_running": 2, "cache_tokens": 640, "activation_quant": activation_quant}
    base = [(13 * k * k + 5 * k) % 500 for k in range(170)]
    prompts = [base, base[:160], [*base[:150], *base[:9]], base]
    params = SamplingParams(temperature=0.0, max_tokens=6, logprobs=3, ignore_eos=True)
    with open_tiny(**{**sizes, "prefix_cache": False}) as llm:
        clean = [llm.generate([prompt], params)[0].outputs for prompt in prompts]
    with open_tiny(**sizes) as llm:
        poisoner = poison_every_step(llm.engine, keep_filled=True)
        poisoned = [llm.generate([prompt], params)[0] for prompt in prompts]
    assert poisoner.rows > 0
    assert [output.outputs for output in poisoned] == clean
    assert all(output.num_cached_tokens > 0 for output in poisoned[1:])


@pytest.mark.parametrize(("step_tokens", "overlap"), [(16, True), (64, False)])
def test_poison_around_cached_prefixes(overlap: bool, step_tokens: int) -> None:
    """Blocks that a later request may share are kept, and nothing else; eviction and preemption among them."""
    sizes = Sizes(slots=4, blocks=16, block_size=4, step_tokens=step_tokens, overlap=overlap)
    asked = [request(range(8, 16 + 3 * i), max_tokens=12, seed=i, logprobs=2, n=1 + i % 2) for i in range(8)]
    clean = run(make_kit(sizes), asked)
    kit = make_kit(replace(sizes, prefix=EXACT_REPLAY))
    poison_every_step(kit.engine, keep_filled=True)
    for _ in range(2):
        assert [output.outputs for output in run(kit, asked)] == [output.outputs for output in clean]
    stats = kit.engine.stats()
    assert min(stats.hit_tokens, stats.evictions, stats.preemptions) > 0
    kit.assert_idle()
