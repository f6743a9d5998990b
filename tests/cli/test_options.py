"""Options that several commands share."""

from command import run_here


def test_names_in_angle_brackets_are_not_lost():
    assert "garden:NAME" in run_here("specialty", "--help").stdout
