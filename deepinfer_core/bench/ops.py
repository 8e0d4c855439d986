"""Each op at the sizes of a real decode step: the backend's kernel, its reference, torch's own products, the floor."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from deepinfer_core.api.config import EngineConfig, read_environment
from deepinfer_core.api.params import SamplingParams
from deepinfer_core.bench.bandwidth import read_bandwidth
from deepinfer_core.bench.watching import WatchedDevice, weight_bytes
from deepinfer_core.engine.build import build_engine
from deepinfer_core.engine.request import Request
from deepinfer_core.interfaces.ops import Kernel, Weight
from deepinfer_core.ops.catalogue import CATALOGUE
from deepinfer_core.ops.formats import dequantise
from deepinfer_core.plugin.loader import load_plugins

if TYPE_CHECKING:
    from deepinfer_core.interfaces.backend import Device

PROMPT_TOKENS = 64
ANSWER_TOKENS = 64  # enough that the first request still decodes when the last prompt is done
REPEATS = 15
SETTLE = 0.005  # seconds: worker threads spin for a while after a job and would take a processor from what is measured


@dataclass(frozen=True, slots=True)
class OpTime:
    """One op at one set of shapes. Times are medians in seconds; NaN where there is nothing to compare."""

    name: str
    shape: str
    calls: int  # calls of a decode step
    kernel: float
    reference: float
    torch_product: float  # the op's matrix products by torch, over weights dequantised to float32 beforehand
    floor: float  # weight bytes over read bandwidth


@dataclass(slots=True)
class _Recorder:
    """A watcher that keeps the calls of one step of `rows` rows: the first of each op and shape, and their number.

    A step begins with the embedding of its tokens.
    """

    rows: int
    recording: bool = False
    calls: dict[tuple[str, str], int] = field(default_factory=dict)
    first: dict[tuple[str, str], tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)

    def on_call(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], nanoseconds: int) -> None:
        if name == "embedding":
            self.recording = not self.first and len(args[0]) == self.rows
        if self.recording:
            key = name, _shape(args)
            self.calls[key] = self.calls.get(key, 0) + 1
            self.first.setdefault(key, (tuple(_kept(arg) for arg in args), dict(kwargs)))


def measure_ops(config: EngineConfig, batch: int) -> list[OpTime]:
    """Record one decode step of `batch` requests and replay each of its ops alone."""
    recorder = _Recorder(batch)
    environment = read_environment()
    plugins = load_plugins(environment)
    kernels: dict[str, Kernel] = {}

    def watch(device: Device) -> Device:
        kernels.update(device.kernels())
        return WatchedDevice(device, recorder)

    built = build_engine(config, environment, plugins, wrap_device=watch)
    try:
        params = SamplingParams(temperature=0.0, max_tokens=ANSWER_TOKENS, ignore_eos=True)
        for number in range(batch):
            prompt = tuple(3 + (number * 31 + i) % (built.info.vocab_size - 3) for i in range(PROMPT_TOKENS))
            prompt = tuple(3 if token == built.info.image_token_id else token for token in prompt)
            built.engine.add(Request(str(number), prompt_token_ids=prompt, params=params))
        while built.engine.has_unfinished():
            built.engine.step()
        bandwidth = read_bandwidth(built.device.torch_device)
        return [_time(key, recorder, kernels, bandwidth) for key in recorder.first]
    finally:
        built.close()


def _time(key: tuple[str, str], recorder: _Recorder, kernels: Mapping[str, Kernel], bandwidth: float) -> OpTime:
    name, shape = key
    args, kwargs = recorder.first[key]
    reference = CATALOGUE[name].reference
    kernel = kernels.get(name)
    return OpTime(
        name=name,
        shape=shape,
        calls=recorder.calls[key],
        kernel=float("nan") if kernel is None else _median(lambda: kernel(*args, **kwargs)),
        reference=_median(lambda: reference(*args, **kwargs)),
        torch_product=_torch_product(name, args),
        floor=weight_bytes(name, args) / bandwidth,
    )


def _torch_product(name: str, args: tuple[Any, ...]) -> float:
    product = torch.nn.functional.linear
    if name in ("linear", "lm_head"):
        x, matrix = args[0].float(), dequantise(args[1])
        return _median(lambda: product(x, matrix))
    if name == "grouped_linear":
        x, groups = args[0].float().transpose(0, 1).contiguous(), args[0].shape[1]
        stack = torch.unflatten(dequantise(args[1]), 0, (groups, -1)).transpose(1, 2).contiguous()
        return _median(lambda: torch.bmm(x, stack))
    if name == "gated_mlp":
        x, gate, up, down = args[0].float(), *(dequantise(weight) for weight in args[1:4])
        return _median(lambda: product(product(x, gate) * product(x, up), down))
    return float("nan")


def _median(call: Callable[[], object]) -> float:
    time.sleep(SETTLE)
    call()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _kept(arg: Any) -> Any:
    """Activations are copied; weights and pools, which are large and stay, are not."""
    return arg.clone() if isinstance(arg, Tensor) and arg.dtype is not torch.uint8 else arg


def _shape(args: Sequence[Any]) -> str:
    parts = []
    for arg in args:
        if isinstance(arg, Weight):
            parts.append(f"{arg.format.value}[{'x'.join(map(str, arg.data.shape))}]")
        elif isinstance(arg, Tensor) and arg.dtype is not torch.uint8:
            parts.append("x".join(map(str, arg.shape)) or "1")
    return " ".join(parts[:3])


def render(results: Sequence[OpTime]) -> str:
    """A table for people, the op that takes most of the step first."""
    lines = [f"{'op':18} {'calls':>5} {'kernel us':>10} {'reference':>10} {'torch':>8} {'floor':>8}  shapes"]
    for r in sorted(results, key=lambda r: -r.calls * (r.kernel if r.kernel == r.kernel else r.reference)):
        kernel, reference, product, floor = (
            f"{x * 1e6:.1f}" if x == x else "-" for x in (r.kernel, r.reference, r.torch_product, r.floor)
        )
        lines.append(f"{r.name:18} {r.calls:5d} {kernel:>10} {reference:>10} {product:>8} {floor:>8}  {r.shape}")
    return "\n".join(lines)
