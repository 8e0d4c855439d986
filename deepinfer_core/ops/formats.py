"""Number formats: E8M0, E4M3 and E2M1, and the bytes of cached rows and stored weights that are made of them.

Plain torch on any device. Formats: OCP Microscaling v1.0 and OCP FP8; scale and tie rules: the V4.1 checkpoint format.
"""

from __future__ import annotations

import torch
from torch import Tensor

from deepinfer_core.interfaces.ops import RowFormat, Weight, WeightFormat

E4M3_MAX = 448.0
E2M1_MAX = 6.0
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # by code; bit 3 is the sign
WEIGHT_BLOCK = 32  # rows and columns that share a scale in an fp8 weight; columns in an fp4 one
MAX_FLOAT32 = torch.finfo(torch.float32).max

# Midpoints between neighbouring magnitudes: a tie goes to the even code.
_TIES_DOWN = (0.25, 1.25, 2.5, 5.0)
_TIES_UP = (0.75, 1.75, 3.5)

_BLOCKS = {
    RowFormat.F32: 1,
    RowFormat.BF16: 1,
    RowFormat.FP8_E8M0_32: 32,
    RowFormat.FP4_E4M3_16: 16,
    RowFormat.FP4_E8M0_32: 32,
}


def row_block(format: RowFormat) -> int:
    """How many neighbouring numbers of a row share a scale."""
    return _BLOCKS[format]


def decode_e8m0(codes: Tensor) -> Tensor:
    """uint8 -> float32 of the same shape: code e is 2^(e - 127), 255 is NaN."""
    bits = codes.to(torch.int32) << 23
    bits = bits.masked_fill(codes == 0, 0x00400000)  # 2^-127 is subnormal
    return bits.masked_fill(codes == 255, 0x7FC00000).view(torch.float32)


def encode_e8m0(scale: Tensor) -> Tensor:
    """Powers of two in float32 -> uint8. Zero and 2^-127 give code 0; infinity and NaN give 255."""
    return ((scale.contiguous().view(torch.int32) >> 23) & 255).to(torch.uint8)


def ceil_power_of_two(x: Tensor) -> Tensor:
    """The least power of two that is >= x, for float32 x > 0, from the exponent bits; never below 2^-126.

    Beyond 2^127, and for NaN, infinity: as an E8M0 scale that is NaN.
    """
    bits = x.contiguous().view(torch.int32)
    exponent = ((bits >> 23) & 255) + ((bits & 0x7FFFFF) != 0).to(torch.int32)
    return (exponent.clamp(1, 255) << 23).view(torch.float32)


def to_e4m3(x: Tensor) -> Tensor:
    """float8_e4m3fn, nearest even, saturating at +-448: only a NaN becomes NaN."""
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def encode_e2m1(x: Tensor) -> Tensor:
    """uint8 codes 0..15 of the nearest E2M1 numbers, saturating at +-6. Bit 3 is the sign, also of zero."""
    magnitude = x.abs()
    code = torch.signbit(x).to(torch.uint8) << 3
    for tie in _TIES_DOWN:
        code = code + (magnitude > tie).to(torch.uint8)
    for tie in _TIES_UP:
        code = code + (magnitude >= tie).to(torch.uint8)
    return code


def decode_e2m1(codes: Tensor) -> Tensor:
    """Codes 0..15 -> float32."""
    values = torch.tensor(E2M1_VALUES, dtype=torch.float32, device=codes.device)
    return torch.cat([values, -values])[codes.long()]


def pack_pairs(codes: Tensor) -> Tensor:
    """Codes [..., 2m] -> uint8 [..., m], the even index in the low nibble."""
    pairs = torch.unflatten(codes, -1, (codes.shape[-1] // 2, 2))
    return pairs[..., 0] | (pairs[..., 1] << 4)


def unpack_pairs(packed: Tensor) -> Tensor:
    """uint8 [..., m] -> codes [..., 2m]."""
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)


def encode_rows(x: Tensor, format: RowFormat) -> Tensor:
    """[..., d] -> uint8 [..., format.row_bytes(d)]. d must be a multiple of `row_block(format)`.

    An infinite number saturates; a NaN makes its whole block NaN, whatever the format.
    """
    x = x.float().clone(memory_format=torch.contiguous_format)  # `contiguous` leaves zero rows as they are
    if format is RowFormat.F32:
        return x.view(torch.uint8)
    if format is RowFormat.BF16:
        return x.bfloat16().view(torch.uint8)
    size = row_block(format)
    blocks = torch.unflatten(x, -1, (x.shape[-1] // size, size))
    largest = blocks.abs().amax(-1, keepdim=True).clamp(max=MAX_FLOAT32)
    scale, codes = _block_scales(largest, format)
    scaled = blocks / scale
    if format is RowFormat.FP8_E8M0_32:
        data = to_e4m3(scaled).view(torch.uint8).flatten(-2)
    else:
        data = pack_pairs(encode_e2m1(scaled).flatten(-2))
    return torch.cat([data, codes.squeeze(-1)], dim=-1)


def _block_scales(largest: Tensor, format: RowFormat) -> tuple[Tensor, Tensor]:
    """The scale of each block from its largest magnitude, as float32 and as stored bytes.

    The E8M0 scales multiply by the float32 reciprocal, the E4M3 scale divides: a kernel must do the same to give the
    same bytes.
    """
    if format is RowFormat.FP4_E4M3_16:
        stored = to_e4m3(largest.clamp(min=E2M1_MAX * 2.0**-9) / E2M1_MAX)
        return stored.float(), stored.view(torch.uint8)
    fp8 = format is RowFormat.FP8_E8M0_32
    floor, top = (1e-4, E4M3_MAX) if fp8 else (E2M1_MAX * 2.0**-126, E2M1_MAX)
    reciprocal = torch.tensor(1.0 / top, dtype=torch.float32, device=largest.device)
    scale = ceil_power_of_two(largest.clamp(min=floor) * reciprocal)
    return scale, encode_e8m0(scale)


def decode_rows(stored: Tensor, format: RowFormat, dim: int) -> Tensor:
    """uint8 [..., row bytes] -> float32 [..., dim]."""
    if format is RowFormat.F32:
        return stored.contiguous().view(torch.float32)
    if format is RowFormat.BF16:
        return stored.contiguous().view(torch.bfloat16).float()
    size = row_block(format)
    split = stored.shape[-1] - dim // size
    data, codes = stored[..., :split], stored[..., split:].contiguous()
    if format is RowFormat.FP8_E8M0_32:
        values = data.contiguous().view(torch.float8_e4m3fn).float()
    else:
        values = decode_e2m1(unpack_pairs(data))
    scale = codes.view(torch.float8_e4m3fn).float() if format is RowFormat.FP4_E4M3_16 else decode_e8m0(codes)
    return values * scale.repeat_interleave(size, dim=-1)


def dequantise(weight: Weight) -> Tensor:
    """float32 [..., out, in] of a weight or a stack of weights."""
    if weight.format in (WeightFormat.F32, WeightFormat.BF16):
        return weight.data.float()
    assert weight.scale is not None, f"a {weight.format.value} weight has scales"
    scale = decode_e8m0(weight.scale).repeat_interleave(WEIGHT_BLOCK, dim=-1)[..., : weight.in_features]
    if weight.format is WeightFormat.FP4:
        return decode_e2m1(unpack_pairs(weight.data)) * scale
    return weight.data.float() * scale.repeat_interleave(WEIGHT_BLOCK, dim=-2)[..., : weight.out_features, :]


def dequantise_rows(weight: Weight, index: Tensor) -> Tensor:
    """float32 [..., in]: the rows `index[...]` of a single weight, without reading the others."""
    index = index.long()
    if weight.format in (WeightFormat.F32, WeightFormat.BF16):
        return weight.data[index].float()
    assert weight.scale is not None, f"a {weight.format.value} weight has scales"
    fp8 = weight.format is WeightFormat.FP8
    data = weight.data.view(torch.uint8)[index]
    scale = decode_e8m0(weight.scale[index // WEIGHT_BLOCK if fp8 else index])
    values = data.view(torch.float8_e4m3fn).float() if fp8 else decode_e2m1(unpack_pairs(data))
    return values * scale.repeat_interleave(WEIGHT_BLOCK, dim=-1)[..., : weight.in_features]
