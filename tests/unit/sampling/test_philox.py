"""The counter generator against its published vectors and an integer implementation, and the noise made from it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sampling_oracle import gumbel, philox

from deepinfer_core.ops.philox import Stream, gumbel_noise, gumbel_noise_at, philox4x32, uniform

words = st.integers(0, 2**32 - 1)


def tensors(values: list[int]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor([value]) for value in values)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_published_vectors(counter: list[int], key: list[int], expected: list[int]) -> None:
    assert [word.item() for word in philox4x32(tensors(counter), tensors(key))] == expected


@given(st.lists(words, min_size=4, max_size=4), st.lists(words, min_size=2, max_size=2))
def test_any_counter_equals_the_integer_implementation(counter: list[int], key: list[int]) -> None:
    assert [word.item() for word in philox4x32(tensors(counter), tensors(key))] == philox(counter, key)


def test_uniforms_are_never_0_or_1() -> None:
    ends = uniform(torch.tensor([0, 2**32 - 1]))
    assert ends.tolist() == [2.0**-33, 1.0 - 2.0**-33]
    assert ends.dtype == torch.float64


@given(st.integers(0, 2**64 - 1), st.integers(0, 1000), st.integers(0, 2**20), st.integers(1, 70))
def test_noise_is_keyed_by_seed_sample_position_and_token(seed: int, sample: int, position: int, vocab: int) -> None:
    pattern = torch.tensor([seed - 2**64 if seed >= 2**63 else seed])
    noise = gumbel_noise(pattern, torch.tensor([sample]), torch.tensor([position]), vocab)
    expected = [gumbel(seed, sample, position, token) for token in range(vocab)]
    torch.testing.assert_close(noise, torch.tensor([expected]).float(), rtol=1e-6, atol=1e-6)


def test_noise_of_chosen_tokens_is_that_of_all() -> None:
    seed, sample, position = torch.tensor([5, -6]), torch.tensor([0, 3]), torch.tensor([9, 70])
    tokens = torch.randint(0, 997, (2, 40), generator=torch.Generator().manual_seed(1))
    whole = gumbel_noise(seed, sample, position, 997)
    assert torch.equal(gumbel_noise_at(seed, sample, position, tokens), whole.gather(1, tokens))


@pytest.mark.parametrize("stream", [Stream.DRAFT, Stream.ACCEPT, Stream.RESIDUAL])
def test_streams_of_one_position_are_unrelated(stream: Stream) -> None:
    at = torch.tensor([1]), torch.tensor([0]), torch.tensor([4])
    pair = torch.cat([gumbel_noise(*at, 4000), gumbel_noise(*at, 4000, stream)])
    assert abs(torch.corrcoef(pair)[0, 1].item()) < 5 / math.sqrt(4000)


def test_noise_has_the_gumbel_mean_and_variance() -> None:
    noise = gumbel_noise(torch.arange(50), torch.zeros(50, dtype=torch.int64), torch.arange(50), 2000).double()
    assert abs(noise.mean().item() - 0.5772156649) < 5 * math.sqrt(math.pi**2 / 6 / noise.numel())
    assert abs(noise.var().item() - math.pi**2 / 6) < 0.05
