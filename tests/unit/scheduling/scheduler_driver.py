"""Drives a scheduler and a simulated device together, and checks the laws after each move."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from plan_laws import check_plan, given_blocks
from simulated_device import SimulatedDevice, StepResult, next_token

from deepinfer_core.interfaces.scheduler import FinishCode, PrefixRules, SchedulerLimits, SchedulerRequest, StepPlan
from deepinfer_core.scheduling.native import NativeScheduler

Tamper = Callable[[StepPlan], StepPlan]


def limits(
    max_slots: int = 4,
    num_blocks: int = 16,
    block_size: int = 4,
    max_step_tokens: int = 16,
    max_length: int = 64,
    max_drafts: int = 0,
    prefix: PrefixRules | None = None,
) -> SchedulerLimits:
    return SchedulerLimits(max_slots, num_blocks, block_size, max_step_tokens, max_length, max_drafts, prefix)


def expected_answer(request: SchedulerRequest, max_length: int) -> tuple[list[int], FinishCode]:
    """The answer token by token, without a scheduler."""
    tokens = request.prompt.tolist()
    room = min(request.max_new_tokens, max_length - len(tokens))
    answer: list[int] = []
    while len(answer) < room:
        answer.append(next_token(tokens + answer))
        if answer[-1] in request.stop_tokens and len(answer) > request.min_new_tokens:
            return answer, FinishCode.STOP
    return answer, FinishCode.LENGTH


class Driver:
    """The device runs each plan at once; its results wait in `in_flight` until `commit`."""

    def __init__(self, sizes: SchedulerLimits, tamper: Tamper | None = None) -> None:
        self.limits = sizes
        self.scheduler = NativeScheduler(sizes)
        self.device = SimulatedDevice(sizes, self._beginning)
        self.tamper = tamper or (lambda plan: plan)
        self.requests: dict[int, SchedulerRequest] = {}
        self.answers: dict[int, list[int]] = {}
        self.finished: dict[int, FinishCode | None] = {}  # None: aborted
        self.in_flight: deque[tuple[StepPlan, StepResult]] = deque()
        self.preempted: list[int] = []
        self.cached: dict[int, int] = {}  # tokens that each request's first stay was spared

    def add(
        self,
        prompt: int | list[int],
        max_new_tokens: int,
        *,
        min_new_tokens: int = 0,
        stop_tokens: tuple[int, ...] = (),
        decoder_start: int = 0,
        prompt_logits: bool = False,
        salt: int | None = None,
    ) -> int:
        """Queue a request with a prompt of tokens, or of so many tokens of its own; its number."""
        number = len(self.requests)
        tokens = [(number * 5 + i) % 7 for i in range(prompt)] if isinstance(prompt, int) else prompt
        request = SchedulerRequest(
            number,
            np.array(tokens, np.int32),
            max_new_tokens,
            min_new_tokens,
            stop_tokens,
            decoder_start,
            prompt_logits,
            b"" if salt is None else bytes([salt]) * 16,
        )
        self.scheduler.add(request)
        self.requests[number] = request
        self.answers[number] = []
        return number

    def plan(self) -> StepPlan | None:
        plan = self.scheduler.plan()
        self.scheduler.check()
        if plan is None:
            return None
        check_plan(plan, self.limits, self.requests)
        self._check_not_in_use(plan)
        assert not set(plan.request.tolist()) & self.finished.keys(), "a request runs after its end"
        self.preempted += plan.preempted.tolist()
        for request, tokens in zip(plan.new_slot_requests.tolist(), plan.new_slot_cached.tolist(), strict=True):
            self.cached.setdefault(request, tokens)
        plan = self.tamper(plan)
        self.in_flight.append((plan, self.device.run(plan)))
        return plan

    def _beginning(self, request: int) -> tuple[list[int], object]:
        """What a request's row may read: only requests of its own key have the same."""
        key = self.requests[request].cache_key
        return self.requests[request].prompt.tolist() + self.answers[request], key or request

    def _check_not_in_use(self, plan: StepPlan) -> None:
        for _, result in self.in_flight:
            assert not result.blocks & given_blocks(plan, self.limits), (
                "a block that a step in flight uses is given out"
            )
            assert not result.slots & set(plan.new_slots.tolist()), "a slot in use by a step in flight is given out"

    def commit(self) -> None:
        plan, result = self.in_flight.popleft()
        committed = self.scheduler.commit(plan.step, result.tokens, result.counts)
        self.scheduler.check()
        assert committed.request.tolist() == plan.request[plan.sample_start >= 0].tolist()
        rows = zip(committed.request, committed.accepted, committed.finish, result.tokens, strict=True)
        for request, accepted, finish, tokens in rows:
            assert accepted == 0 or int(request) not in self.finished, "an answer grows after its end"
            self.answers[int(request)] += tokens[:accepted].tolist()
            if finish != FinishCode.NONE:
                assert int(request) not in self.finished, "a request ends twice"
                self.finished[int(request)] = FinishCode(finish)

    def abort(self, request: int) -> None:
        self.scheduler.finish(request)
        self.scheduler.check()
        self.finished.setdefault(request, None)

    def step(self, depth: int = 0) -> bool:
        """Plan once and commit all but the newest `depth` steps; when nothing can run, commit one. False when idle."""
        if self.plan() is None:
            if not self.in_flight:
                return False
            self.commit()
        while len(self.in_flight) > depth:
            self.commit()
        return True

    def drain(self, depth: int = 0, at_most: int = 10_000) -> None:
        """Step until nothing is left, then check every answer and that all has come back."""
        steps = 0
        while self.step(depth):
            steps += 1
            assert steps < at_most, "no end in sight"
        self.check_answers()
        self.check_idle()

    def check_answers(self) -> None:
        for number, request in self.requests.items():
            answer, code = expected_answer(request, self.limits.max_length)
            if self.finished[number] is None:
                assert self.answers[number] == answer[: len(self.answers[number])]
            else:
                assert (self.answers[number], self.finished[number]) == (answer, code)

    def check_idle(self) -> None:
        stats = self.scheduler.stats()
        assert (stats.waiting, stats.running, stats.used_blocks) == (0, 0, 0)
        assert stats.free_blocks + stats.cached_blocks == self.limits.num_blocks
        assert stats.free_slots == self.limits.max_slots
