"""Ranks as data, and the communicator and placement of one rank."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepinfer_core.api.errors import ConfigError
from deepinfer_core.interfaces.parallel import Communicator, ExpertPlacement, Group
from deepinfer_core.parallel.communicator import OneRankCommunicator
from deepinfer_core.parallel.placement import IdentityPlacement
from deepinfer_core.parallel.topology import Topology


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    dp, cp = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    ep = draw(st.sampled_from([ep for ep in range(1, dp * cp + 1) if dp * cp % ep == 0]))
    return Topology(dp, cp, ep)


@given(topologies(), st.sampled_from(["world", "dp", "cp", "ep"]))
def test_groups_of_a_kind_cut_the_ranks_into_equal_parts(topology: Topology, name: str) -> None:
    groups = [topology.group(name, rank) for rank in range(topology.world_size)]
    assert all(group.ranks[group.rank] == rank for rank, group in enumerate(groups))
    assert {group.size for group in groups} == {topology.world_size if name == "world" else getattr(topology, name)}
    for group in groups:
        assert all(groups[rank].ranks == group.ranks for rank in group.ranks)


@given(topologies())
def test_a_data_group_and_a_context_group_share_one_rank(topology: Topology) -> None:
    for rank in range(topology.world_size):
        shared = set(topology.group("dp", rank).ranks) & set(topology.group("cp", rank).ranks)
        assert shared == {rank}


@pytest.mark.parametrize(("sizes", "message"), [((0, 1, 1), "dp = 0"), ((1, -1, 1), "cp = -1"), ((2, 3, 4), "ep = 4")])
def test_sizes_that_do_not_fit_are_refused(sizes: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Topology(*sizes)


def test_one_rank_gets_back_what_it_gave() -> None:
    communicator: Communicator = OneRankCommunicator(Group("ep"))
    x = torch.randn(3, 2)
    results = (
        communicator.all_reduce(x),
        communicator.all_gather(x),
        communicator.reduce_scatter(x),
        communicator.all_to_all(x, [3], [3]),
        communicator.broadcast(x, 0),
    )
    assert all(result is x for result in results)
    communicator.barrier()
    assert communicator.group == Group("ep")


def test_one_rank_is_not_two() -> None:
    with pytest.raises(AssertionError):
        OneRankCommunicator(Group("ep", (0, 1)))


def test_the_identity_placement_moves_no_expert() -> None:
    placement: ExpertPlacement = IdentityPlacement(8)
    experts = torch.tensor([[0, 7, -1]], dtype=torch.int32)
    assert placement.num_physical == 8
    assert placement.to_physical(3, experts) is experts
