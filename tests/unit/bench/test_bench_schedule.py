"""The measurement runs what it says it runs. How long it takes is not asserted."""

import pytest

from deepinfer_core.bench.schedule import measure_schedule, render


@pytest.mark.parametrize("running", [1, 16, 70])
def test_a_cost_is_given_for_each_number_of_running_requests(running: int) -> None:
    costs = measure_schedule([running], steps=130)
    assert [(cost.running, cost.prefix_cache, cost.steps) for cost in costs] == [
        (running, False, 130),
        (running, True, 130),
    ]
    for cost in costs:
        assert min(cost.plan, cost.build, cost.commit) > 0
        assert max(cost.plan, cost.build, cost.commit) < cost.total <= cost.total_p99


def test_the_table_has_a_line_for_each_cost() -> None:
    assert [line.split()[0] for line in render(measure_schedule([1, 3], steps=30)).splitlines()] == [
        "running",
        *("1", "1"),
        *("3", "3"),
    ]
