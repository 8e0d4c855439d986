"""Number formats: every code of every small format, rounding, saturation, and the bytes of stored rows and weights."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.interfaces.ops import RowFormat, Weight, WeightFormat
from deepinfer_core.ops.formats import (
    ceil_power_of_two,
    decode_e2m1,
    decode_e8m0,
    decode_rows,
    dequantise,
    dequantise_rows,
    encode_e2m1,
    encode_e8m0,
    encode_rows,
    row_block,
    to_e4m3,
)

INF, NAN = float("inf"), float("nan")
ALL_BYTES = torch.arange(256).to(torch.uint8)
SCALED = (RowFormat.FP8_E8M0_32, RowFormat.FP4_E4M3_16, RowFormat.FP4_E8M0_32)


def e4m3_value(code: int) -> float:
    """From the definition: sign, 4 exponent bits of bias 7, 3 mantissa bits; all ones is NaN, there is no infinity."""
    sign, exponent, mantissa = -1.0 if code & 128 else 1.0, code >> 3 & 15, code & 7
    if code & 127 == 127:
        return NAN
    return sign * (math.ldexp(8 + mantissa, exponent - 10) if exponent else math.ldexp(mantissa, -9))


def e2m1_value(code: int) -> float:
    """From the definition: sign, 2 exponent bits of bias 1, 1 mantissa bit."""
    sign, exponent, mantissa = -1.0 if code & 8 else 1.0, code >> 1 & 3, code & 1
    return sign * (math.ldexp(2 + mantissa, exponent - 2) if exponent else mantissa / 2)


def same(actual: torch.Tensor, expected: list[float]) -> bool:
    return bool(torch.equal(actual.nan_to_num(nan=-12345.0), torch.tensor(expected).nan_to_num(nan=-12345.0)))


def test_every_e8m0_code() -> None:
    assert same(decode_e8m0(ALL_BYTES), [math.ldexp(1.0, code - 127) for code in range(255)] + [NAN])


def test_e8m0_codes_survive_a_round_trip() -> None:
    assert torch.equal(encode_e8m0(decode_e8m0(ALL_BYTES)), ALL_BYTES)


def test_every_e4m3_code_as_a_row_reads_it() -> None:
    rows = torch.cat([ALL_BYTES.view(8, 32), torch.full((8, 1), 127, dtype=torch.uint8)], dim=1)
    assert same(decode_rows(rows, RowFormat.FP8_E8M0_32, 32).flatten(), [e4m3_value(code) for code in range(256)])


def test_every_e4m3_number_is_its_own_nearest() -> None:
    codes = torch.tensor([code for code in range(256) if code & 127 != 127]).to(torch.uint8)
    values = torch.tensor([e4m3_value(int(code)) for code in codes])
    assert torch.equal(to_e4m3(values).view(torch.uint8), codes)


@pytest.mark.parametrize("magnitude", [448.0, 449.0, 464.0, 480.0, 1e6, 3.4e38, INF])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_e4m3_saturates(magnitude: float, sign: float) -> None:
    assert to_e4m3(torch.tensor([sign * magnitude])).float().item() == sign * 448.0


def test_e4m3_ties_go_to_the_even_code() -> None:
    assert to_e4m3(torch.tensor([17.0, 19.0, 2.0**-10, 3 * 2.0**-10])).float().tolist() == [16.0, 20.0, 0.0, 2.0**-8]


def test_e4m3_keeps_nan() -> None:
    assert to_e4m3(torch.tensor([NAN])).float().isnan().all()


def test_every_e2m1_code() -> None:
    codes = torch.arange(16).to(torch.uint8)
    assert decode_e2m1(codes).tolist() == [e2m1_value(code) for code in range(16)]
    assert torch.equal(encode_e2m1(decode_e2m1(codes)), codes)


@pytest.mark.parametrize(
    ("tie", "rounded"),
    [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0)],
)
def test_e2m1_ties_go_to_the_even_code(tie: float, rounded: float) -> None:
    assert decode_e2m1(encode_e2m1(torch.tensor([tie, -tie]))).tolist() == [rounded, -rounded]


@given(st.floats(width=32, allow_nan=False))
def test_e2m1_is_the_nearest_number(x: float) -> None:
    code = int(encode_e2m1(torch.tensor([x])))
    magnitude = Fraction(min(abs(x), 6.0))
    distance = {other: abs(Fraction(e2m1_value(other)) - magnitude) for other in range(8)}
    best = min(distance.values())
    nearest = [other for other in range(8) if distance[other] == best]
    assert code & 7 == (nearest[0] if len(nearest) == 1 else next(other for other in nearest if other % 2 == 0))
    assert code >> 3 == (math.copysign(1.0, x) < 0)


@given(st.floats(min_value=2.0**-126, max_value=2.0**127, width=32))
def test_scale_is_the_least_power_of_two_above(x: float) -> None:
    scale = ceil_power_of_two(torch.tensor([x])).item()
    assert math.frexp(scale)[0] == 0.5
    assert scale / 2 < x <= scale


@pytest.mark.parametrize("x", [INF, NAN, 3.4e38])
def test_a_scale_beyond_e8m0_is_stored_as_nan(x: float) -> None:
    assert encode_e8m0(ceil_power_of_two(torch.tensor([x]))).item() == 255


def test_known_bytes_of_an_fp8_row() -> None:
    row = torch.zeros(1, 64)
    row[0, :3] = torch.tensor([448.0, 1.0, -2.0])
    row[0, 32] = 0.875
    expected = [0x7E, 0x38, 0xC0] + [0] * 29 + [0x7E] + [0] * 31 + [127, 127 - 9]
    assert encode_rows(row, RowFormat.FP8_E8M0_32).tolist() == [expected]


def test_known_bytes_of_an_index_key() -> None:
    row = torch.zeros(1, 32)
    row[0, :5] = torch.tensor([6.0, -0.5, 1.25, 3.5, -6.0])
    assert encode_rows(row, RowFormat.FP4_E8M0_32).tolist() == [[0x97, 0x62, 0x0F] + [0] * 13 + [127]]


def test_known_bytes_of_a_latent() -> None:
    row = torch.zeros(1, 32)
    row[0, :4] = torch.tensor([12.0, -1.0, 4.0, 3.0])
    row[0, 16] = -2700.0
    expected = [0x97, 0x34] + [0] * 6 + [0x0F] + [0] * 7 + [0x40, 0x7E]
    assert encode_rows(row, RowFormat.FP4_E4M3_16).tolist() == [expected]


@pytest.mark.parametrize("format", list(RowFormat))
def test_row_bytes_is_what_is_stored(format: RowFormat) -> None:
    assert encode_rows(torch.randn(3, 2, 96), format).shape == (3, 2, format.row_bytes(96))
    assert decode_rows(encode_rows(torch.empty(0, 96), format), format, 96).shape == (0, 96)


@pytest.mark.parametrize("format", RowFormat)
@pytest.mark.parametrize("rows", [0, 3])
def test_rows_that_do_not_lie_in_one_piece_are_stored_as_any_other(format: RowFormat, rows: int) -> None:
    wide = torch.arange(rows * 128, dtype=torch.float32).reshape(rows, 128)
    assert encode_rows(wide[:, ::2], format).tolist() == encode_rows(wide[:, ::2].clone(), format).tolist()
    assert encode_rows(wide[:, ::2], format).shape == (rows, format.row_bytes(64))


@pytest.mark.parametrize("format", list(RowFormat))
def test_zeros_stay_zeros(format: RowFormat) -> None:
    row = torch.zeros(2, 64)
    row[1, 40] = 1e4
    stored = decode_rows(encode_rows(row, format), format, 64)
    assert (stored[0] == 0).all()
    assert stored.isfinite().all()
    assert (stored != 0).sum() == 1


@pytest.mark.parametrize(
    ("format", "scale"),
    [(RowFormat.FP8_E8M0_32, 127 - 22), (RowFormat.FP4_E4M3_16, 1), (RowFormat.FP4_E8M0_32, 1)],
)
def test_a_block_of_zeros_has_the_least_scale(format: RowFormat, scale: int) -> None:
    """1e-4 / 448 rounded up to a power of two, 2^-9 and 2^-126."""
    stored = encode_rows(torch.zeros(1, 64), format)[0]
    assert stored[-(64 // row_block(format)) :].tolist() == [scale] * (64 // row_block(format))


@pytest.mark.parametrize("format", list(RowFormat))
def test_a_nan_stays_in_its_block(format: RowFormat) -> None:
    row = torch.ones(1, 96)
    row[0, 33] = NAN
    size = row_block(format)
    hit = torch.arange(96) // size == 33 // size
    assert torch.equal(decode_rows(encode_rows(row, format), format, 96)[0].isnan(), hit)


@pytest.mark.parametrize("format", list(RowFormat))
def test_infinity_never_becomes_nan(format: RowFormat) -> None:
    row = torch.randn(2, 64)
    row[0, 3], row[1, 40] = INF, -INF
    stored = decode_rows(encode_rows(row, format), format, 64)
    assert not stored.isnan().any()
    assert stored[0, 3] > 1e3
    assert stored[1, 40] < -1e3


@pytest.mark.parametrize("format", SCALED)
@given(exponent=st.integers(-20, 20), seed=st.integers(0, 2**31))
def test_error_is_at_most_half_a_step(format: RowFormat, exponent: int, seed: int) -> None:
    """fp8 keeps 4 significant bits and fp4 has steps of a third of the largest number at most, plus the scale's own."""
    reach = 0 if format is RowFormat.FP4_E4M3_16 else exponent
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(seed)) * 2.0**reach
    stored = decode_rows(encode_rows(x, format), format, 64)
    largest = torch.unflatten(x.abs(), -1, (-1, row_block(format))).amax(-1).repeat_interleave(row_block(format), -1)
    if format is RowFormat.FP8_E8M0_32:
        bound = x.abs() / 16 + largest * 2.0**-17 + 1e-4 * 2.0**-17
    else:
        bound = largest * (1 / 3 if format is RowFormat.FP4_E8M0_32 else 1 / 5)
    assert ((stored - x).abs() <= bound).all()


@pytest.mark.parametrize("format", [RowFormat.FP8_E8M0_32, RowFormat.FP4_E8M0_32])
@given(seed=st.integers(0, 2**31), exponent=st.integers(-10, 20))
def test_storing_what_was_read_changes_nothing(format: RowFormat, seed: int, exponent: int) -> None:
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(seed)) * 2.0**exponent
    once = decode_rows(encode_rows(x, format), format, 64)
    assert torch.equal(decode_rows(encode_rows(once, format), format, 64), once)


def fp8_weight(out: int, inner: int) -> Weight:
    data = torch.randn(out, inner).to(torch.float8_e4m3fn)
    scale = torch.randint(120, 130, (-(-out // 32), -(-inner // 32))).to(torch.uint8)
    return Weight(data, WeightFormat.FP8, scale)


def test_fp8_weight_has_a_scale_for_each_32_by_32_also_at_ragged_edges() -> None:
    weight = fp8_weight(70, 40)
    assert weight.scale is not None
    values = dequantise(weight)
    for i, j in ((0, 0), (31, 31), (32, 31), (31, 32), (69, 39)):
        scale = 2.0 ** (int(weight.scale[i // 32, j // 32]) - 127)
        assert values[i, j] == weight.data[i, j].float() * scale


def test_fp4_weight_has_the_even_column_in_the_low_nibble() -> None:
    data = torch.full((2, 32), 0x21, dtype=torch.uint8)
    weight = Weight(data, WeightFormat.FP4, torch.tensor([[127, 128], [126, 127]], dtype=torch.uint8))
    values = dequantise(weight)
    assert weight.in_features == 64
    assert values[0, :4].tolist() == [0.5, 1.0, 0.5, 1.0]
    assert values[0, 32:34].tolist() == [1.0, 2.0]
    assert values[1, :2].tolist() == [0.25, 0.5]


def test_plain_weights_are_only_widened() -> None:
    data = torch.randn(3, 5)
    assert torch.equal(dequantise(Weight(data, WeightFormat.F32)), data)
    assert torch.equal(dequantise(Weight(data.bfloat16(), WeightFormat.BF16)), data.bfloat16().float())


def test_a_stack_is_its_matrices() -> None:
    parts = [fp8_weight(64, 96) for _ in range(3)]
    scales = [part.scale for part in parts if part.scale is not None]
    stack = Weight(torch.stack([p.data for p in parts]), WeightFormat.FP8, torch.stack(scales))
    assert torch.equal(dequantise(stack), torch.stack([dequantise(part) for part in parts]))


@pytest.mark.parametrize("format", list(WeightFormat))
def test_rows_of_a_weight_are_its_rows(format: WeightFormat) -> None:
    weight = {
        WeightFormat.F32: Weight(torch.randn(70, 64), WeightFormat.F32),
        WeightFormat.BF16: Weight(torch.randn(70, 64).bfloat16(), WeightFormat.BF16),
        WeightFormat.FP8: fp8_weight(70, 64),
        WeightFormat.FP4: Weight(
            torch.randint(0, 256, (70, 32)).to(torch.uint8), format, torch.randint(120, 130, (70, 2)).to(torch.uint8)
        ),
    }[format]
    index = torch.tensor([[69, 0], [31, 32]])
    assert torch.equal(dequantise_rows(weight, index), dequantise(weight)[index])
