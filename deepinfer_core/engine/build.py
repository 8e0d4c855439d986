"""Putting an engine together: backend, device, ops, model, caches, scheduler. What can be refused beforehand is refused
in `checks.py`, what an engine does once built is in `engine.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.api.config import build_record
from deepinfer_core.api.errors import ConfigError, PluginError
from deepinfer_core.cache.layout import CacheLayout, CacheRequest, fit_cache
from deepinfer_core.cache.pools import allocate_pools
from deepinfer_core.engine.admission import Admission
from deepinfer_core.engine.checks import BuildPlan, check_build
from deepinfer_core.engine.engine import Engine, EngineParts
from deepinfer_core.engine.runner import Runner
from deepinfer_core.engine.tables import DeviceTables, history_rows, past_tokens
from deepinfer_core.interfaces.model import ModelContext
from deepinfer_core.interfaces.scheduler import PrefixRules, SchedulerLimits
from deepinfer_core.ops.table import OpTable, resolve
from deepinfer_core.parallel.placement import IdentityPlacement
from deepinfer_core.parallel.topology import Topology
from deepinfer_core.plugin.choose import choose_backend
from deepinfer_core.plugin.registry import NATIVE_SCHEDULER
from deepinfer_core.sampling.sampler import Sampler
from deepinfer_core.sampling.table import SamplingTable
from deepinfer_core.scheduling.native import NativeScheduler
from deepinfer_core.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from deepinfer_core.api.config import EngineConfig, Environment
    from deepinfer_core.interfaces.backend import Device
    from deepinfer_core.interfaces.cache import CacheSpec
    from deepinfer_core.interfaces.model import Model, ModelInfo
    from deepinfer_core.interfaces.observer import Observer
    from deepinfer_core.interfaces.scheduler import Scheduler
    from deepinfer_core.plugin.loader import Plugins
    from deepinfer_core.plugin.registry import Registry


@dataclass(frozen=True, slots=True)
class Built:
    """An engine ready to serve, and what a user should know of it."""

    engine: Engine
    device: Device
    info: ModelInfo
    tokenizer: Tokenizer | None
    layout: CacheLayout
    max_length: int
    report: tuple[str, ...]  # one sentence each: the backend and why, and whatever runs on a reference

    def close(self) -> None:
        self.engine.close()
        self.device.close()


def build_engine(
    config: EngineConfig,
    environment: Environment,
    plugins: Plugins,
    observers: Sequence[Observer] = (),
    *,
    wrap_device: Callable[[Device], Device] = lambda device: device,
) -> Built:
    """Everything from an option to a loaded model. `observers` join those that plugins registered; `wrap_device` may
    stand something between the engine and its device, as a benchmark does.

    Raises `ConfigError`, `PluginError` or `CheckpointError`, each saying what to change.
    """
    registry = plugins.registry
    choice = choose_backend(registry, config.backend, environment, build_record())
    unread = environment.unread(plugins.managers)
    plan = check_build(config, registry, choice.backend.name, choice.backend.capabilities())
    tokenizer = Tokenizer.from_folder(plan.folder)
    device = wrap_device(choice.backend.open(config.device_index))
    try:
        ops = resolve(device.kernels())
        fallbacks = _fallbacks(ops, choice.backend.name)
        if config.strict and (problems := (*unread, *fallbacks)):
            raise ConfigError(f"strict is on and not everything runs as it should: {'; '.join(problems)}")
        watching = [*observers, *(registry.observers[name] for name in registry.observers)]
        builder = _Builder(config, plan, device, ops, tokenizer, registry, watching)
        engine, layout = builder.build()
    except BaseException:
        device.close()
        raise
    report = (*unread, *choice.lines, *fallbacks, *_prefix_lines(config, plan))
    return Built(engine, device, plan.info, tokenizer, layout, plan.max_length, report)


class _Builder:
    """Makes the parts of one engine on an open device."""

    def __init__(
        self,
        config: EngineConfig,
        plan: BuildPlan,
        device: Device,
        ops: OpTable,
        tokenizer: Tokenizer | None,
        registry: Registry,
        observers: Sequence[Observer],
    ) -> None:
        self._config = config
        self._plan = plan
        self._device = device
        self._ops = ops
        self._tokenizer = tokenizer
        self._registry = registry
        self._observers = observers
        self._admission = Admission(
            plan.info,
            tokenizer,
            registry.constraints,
            registry.processors,
            max_length=plan.max_length,
            decoder_rows=plan.decoder_rows,
            seed=config.seed,
        )

    def build(self) -> tuple[Engine, CacheLayout]:
        model = self._load()
        layout = self._layout(model.cache_spec())
        slots, vocab_size = layout.slots, self._admission.vocab_size
        ring = history_rows(self._plan.info, max_drafts=0)
        torch_device = self._device.torch_device
        sampling = SamplingTable(slots, vocab_size, torch_device)
        runner = Runner(
            model,
            allocate_pools(model.cache_spec(), layout, torch_device),
            DeviceTables(slots, -(-self._plan.max_length // layout.block_size), ring, torch_device),
            Sampler(self._ops, vocab_size, self._config.logprobs_mode, self._registry.processors),
            sampling,
            torch_device,
        )
        parts = EngineParts(
            admission=self._admission,
            scheduler=self._scheduler(layout),
            runner=runner,
            queue=self._device.queue(),
            sampling=sampling,
            tokenizer=self._tokenizer,
            history_rows=ring,
            overlap=self._config.overlap,
            replay=self._config.replay,
            observers=self._observers,
        )
        return Engine(parts), layout

    def _load(self) -> Model:
        plan, device = self._plan, self._device
        context = ModelContext(
            ops=self._ops,
            device=device.torch_device,
            expert_communicator=device.communicator(Topology().group("ep", 0)),
            placement=IdentityPlacement(plan.info.num_experts),
            options=plan.options,
        )
        return plan.factory.load(plan.folder, plan.checkpoint_config, context)

    def _layout(self, spec: CacheSpec) -> CacheLayout:
        free, _ = self._device.memory()
        return fit_cache(
            spec,
            CacheRequest(
                slots=self._config.max_running,
                block_size=self._config.block_size,
                step_tokens=self._config.max_step_tokens,
                max_length=self._plan.max_length,
                cache_tokens=self._config.cache_tokens,
                memory_share=self._config.cache_memory,
                free_bytes=free,
            ),
        )

    def _scheduler(self, layout: CacheLayout) -> Scheduler:
        limits = SchedulerLimits(
            max_slots=layout.slots,
            num_blocks=layout.num_blocks,
            block_size=layout.block_size,
            max_step_tokens=self._config.max_step_tokens,
            max_length=self._plan.max_length,
            prefix=prefix_rules(self._config, self._plan),
        )
        name = self._config.scheduler
        if name == NATIVE_SCHEDULER:
            return NativeScheduler(limits)
        make = self._registry.schedulers[name]
        try:
            return make(limits)
        except Exception as error:
            raise PluginError(f"scheduler {name!r} could not be made: {type(error).__name__}: {error}") from error


def prefix_rules(config: EngineConfig, plan: BuildPlan) -> PrefixRules | None:
    """What a prefix hit computes again; None where prefixes are not cached."""
    reach = plan.info.reach
    if not config.prefix_cache or reach is None:
        return None
    if config.replay == "bounded" and plan.info.decoder_rows:
        rows = plan.info.decoder_rows
        return PrefixRules(key_rows=rows, kept_rows=0, logit_rows=rows, history_rows=past_tokens(plan.info))
    return PrefixRules(reach.keys, reach.kept, reach.logits, past_tokens(plan.info))


def _prefix_lines(config: EngineConfig, plan: BuildPlan) -> tuple[str, ...]:
    """Why prompts with equal beginnings may still find nothing in the prefix cache."""
    rules = prefix_rules(config, plan)
    if rules is None:
        missing = config.prefix_cache and plan.info.reach is None
        return ("the prefix cache is off: the model does not say how far its windows reach",) if missing else ()
    rows = rules.key_rows if plan.decoder_rows else rules.logit_rows
    if rows + config.block_size <= plan.max_length:
        return ()
    return (
        f"the prefix cache has no use: {config.replay} replay computes {rows} tokens of every hit again and the "
        f"context is {plan.max_length}",
    )


def _fallbacks(ops: OpTable, name: str) -> tuple[str, ...]:
    if not ops.fallbacks:
        return ()
    return (f"backend {name} has no kernel for {', '.join(ops.fallbacks)}: their references run in its place",)
