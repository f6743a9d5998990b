"""Names cover no point and no other name."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from layerscope.drawing.render import boxes_around, overlap, place, spread_out

INSIDE = (0.0, 0.0, 400.0, 300.0)


def test_boxes_share_what_they_share():
    assert overlap((0, 0, 2, 2), (1, 1, 3, 3)) == 1
    assert overlap((0, 0, 1, 1), (1, 0, 2, 1)) == 0


def test_a_name_goes_where_it_covers_nothing():
    dots = [(x - 3.0, 97.0, x + 3.0, 103.0) for x in range(100, 200, 10)]
    box = place(boxes_around(150, 100, 80, 12, 8), dots, INSIDE)
    assert sum(overlap(box, dot) for dot in dots) == 0
    other = place(boxes_around(160, 100, 80, 12, 8), [*dots, box], INSIDE)
    assert overlap(other, box) == 0


def test_a_name_stays_inside():
    box = place(boxes_around(398, 298, 80, 12, 8), [], INSIDE)
    assert overlap(box, INSIDE) == (box[2] - box[0]) * (box[3] - box[1])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_names_of_lines_keep_their_distance_and_their_order(centres):
    placed = spread_out(centres, 0.1, 0.0, 1.0)
    order = sorted(range(len(centres)), key=lambda k: (placed[k], k))
    steps = [placed[b] - placed[a] for a, b in itertools.pairwise(order)]
    assert all(step >= 0.1 - 1e-9 for step in steps)
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in placed)
    for a in range(len(centres)):
        for b in range(len(centres)):
            if centres[a] < centres[b]:
                assert placed[a] < placed[b]


def test_what_is_apart_already_stays():
    assert spread_out([0.2, 0.8], 0.1, 0, 1) == [0.2, 0.8]
