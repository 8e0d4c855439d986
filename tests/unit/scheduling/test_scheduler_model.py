"""Any order of adding, planning, committing and aborting, against the simulated device."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scheduler_driver import Driver, limits
from simulated_device import VOCABULARY

from deepinfer_core.api.errors import PromptTooLong, RequestTooLarge
from deepinfer_core.interfaces.scheduler import PrefixRules

TOKEN = st.integers(0, VOCABULARY - 1)
BEGINNINGS = [[], [1, 2, 3, 4, 5, 6, 0, 1, 2, 3], [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]]  # alike in part
PROMPT = st.builds(
    lambda beginning, cut, rest: beginning[:cut] + rest,
    st.sampled_from(BEGINNINGS),
    st.integers(0, 10),
    st.lists(TOKEN, min_size=1, max_size=4),
) | st.lists(TOKEN, min_size=1, max_size=12)
RULES = st.none() | st.builds(PrefixRules, *(st.integers(0, 3) for _ in range(4)))


class SchedulerMachine(RuleBasedStateMachine):
    """Up to two steps in flight, small pools, drafts that are often wrong, prompts that begin alike."""

    @initialize(
        slots=st.integers(1, 4),
        blocks=st.integers(2, 10),
        block_size=st.integers(1, 4),
        rows=st.integers(1, 12),
        drafts=st.integers(0, 3),
        depth=st.integers(0, 2),
        prefix=RULES,
    )
    def start(
        self,
        slots: int,
        blocks: int,
        block_size: int,
        rows: int,
        drafts: int,
        depth: int,
        prefix: PrefixRules | None,
    ) -> None:
        self.driver = Driver(limits(slots, blocks, block_size, rows, max_length=24, max_drafts=drafts, prefix=prefix))
        self.depth = depth

    @rule(
        prompt=PROMPT,
        max_new_tokens=st.integers(0, 14),
        min_new_tokens=st.integers(0, 4),
        stop_tokens=st.lists(TOKEN, max_size=1).map(tuple),
        prompt_logits=st.booleans(),
        salt=st.none() | st.integers(0, 1),
        data=st.data(),
    )
    def add(
        self,
        prompt: list[int],
        max_new_tokens: int,
        min_new_tokens: int,
        stop_tokens: tuple[int, ...],
        prompt_logits: bool,
        salt: int | None,
        data: st.DataObject,
    ) -> None:
        start = data.draw(st.integers(0, len(prompt) - 1), label="decoder_start")
        total = min(len(prompt) + max_new_tokens, 24)
        fits = -(-total // self.driver.limits.block_size) <= self.driver.limits.num_blocks
        try:
            self.driver.add(
                prompt,
                max_new_tokens,
                min_new_tokens=min_new_tokens,
                stop_tokens=stop_tokens,
                decoder_start=start,
                prompt_logits=prompt_logits,
                salt=salt,
            )
        except RequestTooLarge:
            assert not fits
        except PromptTooLong:
            raise AssertionError("no prompt here fills the context") from None
        else:
            assert fits

    @rule()
    def plan(self) -> None:
        while len(self.driver.in_flight) > self.depth:
            self.driver.commit()
        self.driver.plan()

    @precondition(lambda self: self.driver.in_flight)
    @rule()
    def commit(self) -> None:
        self.driver.commit()

    @precondition(lambda self: self.driver.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.driver.abort(data.draw(st.sampled_from(sorted(self.driver.requests)), label="request"))

    @precondition(lambda self: self.driver.requests)
    @rule(data=st.data())
    def set_drafts(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.driver.requests)), label="request")
        drafts = data.draw(st.integers(0, self.driver.limits.max_drafts), label="drafts")
        self.driver.scheduler.set_drafts(request, drafts)

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        blocks = st.lists(st.integers(0, self.driver.limits.num_blocks - 1), max_size=4)
        self.driver.scheduler.forget(data.draw(st.none() | blocks, label="blocks"))

    @invariant()
    def laws_hold(self) -> None:
        if hasattr(self, "driver"):
            self.driver.scheduler.check()

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.drain(self.depth)


TestSchedulerModel = SchedulerMachine.TestCase
TestSchedulerModel.settings = settings(
    max_examples=3 * settings.default.max_examples, stateful_step_count=40, deadline=None
)
