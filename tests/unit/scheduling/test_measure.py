"""The measurement runs what it says it runs. How long it takes is not asserted."""

import pytest

from deepinfer_core.scheduling.measure import measure_schedule


@pytest.mark.parametrize("running", [1, 16, 70])
def test_a_cost_is_given_for_each_number_of_running_requests(running: int) -> None:
    (cost,) = measure_schedule([running], steps=130)
    assert (cost.running, cost.steps) == (running, 130)
    assert 0 < cost.plan_median <= cost.plan_p99
    assert 0 < cost.commit_median <= cost.commit_p99
