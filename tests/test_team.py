"""One process alone, and the share that each of several has."""

import pytest
import torch

from layerscope.team import Team


def test_alone_everything_is_its_own():
    team = Team.current()
    assert (team.rank, team.size, team.is_main) == (0, 1, True)
    assert team.tell("x") == "x"
    rows = torch.ones(2)
    assert team.add(rows) is rows
    assert team.wait() is None
    assert list(team.share(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize(("count", "size"), [(0, 3), (2, 3), (7, 3), (9, 2)])
def test_every_part_is_somebodys_and_nobody_elses(count, size):
    shares = [list(Team(rank, size).share(count)) for rank in range(size)]
    assert sorted(place for share in shares for place in share) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_only_the_first_is_main():
    assert [Team(rank, 3).is_main for rank in range(3)] == [True, False, False]
