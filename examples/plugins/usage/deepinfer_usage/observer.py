"""An observer runs on the engine's thread: it does little, waits for nothing and raises nothing."""

import logging

from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.interfaces.observer import Phase
from deepinfer_core.interfaces.scheduler import SchedulerStats

logger = logging.getLogger(__name__)


class UsageObserver:
    """Logs what each request cost. Shown with DEEPINFER_LOG=info."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.answer_tokens = 0

    def on_phase(self, phase: Phase) -> None:
        pass

    def on_step(self, step: int, rows: int, stats: SchedulerStats) -> None:
        pass

    def on_finish(self, output: RequestOutput) -> None:
        prompt = len(output.prompt_token_ids)
        answer = sum(len(one.token_ids) for one in output.outputs)
        self.prompt_tokens += prompt
        self.answer_tokens += answer
        logger.info("%s: %d prompt tokens, %d answer tokens", output.request_id, prompt, answer)
