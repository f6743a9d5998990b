"""The papers."""

import tempfile
from pathlib import Path

from tests.helpers.data import two_class_frame
from tests.helpers.models import SMALL, save_random
from tests.key_table.call import ENGINE, Call


def _words(seed):
    """A folder with texts of two classes."""
    folder = Path(tempfile.mkdtemp())
    for split in ("train", "validation"):
        two_class_frame(48, seed).to_csv(folder / f"{split}.csv", index=False)
    return str(folder)


def _saved(seed):
    return str(save_random(Path(tempfile.mkdtemp()), "bert", seed=seed, **SMALL))


_ONE = _saved(0)

CALLS = {
    "reproduce": Call(
        {"paper": "ren2023", "only": "norms", "models": {"s0": _saved(0)}, "tasks": [_words(0)], "profile": "smoke"},
        {
            "paper": ({"paper": "phang2021", "only": "fig4"}, {"paper": "xie2022", "only": "table10"}),
            "only": {"only": "table3"},
            "models": {"models": {"s0": _saved(1)}},
            "tasks": {"tasks": [_words(1)]},
            "seeds": ({"paper": "phang2021", "only": "fig4"}, {"paper": "phang2021", "only": "fig4", "seeds": [1]}),
            "profile": {"profile": "offline"},
            "dtype": {"dtype": "bfloat16"},
        },
        {
            "out": {"out": "elsewhere"},
            **ENGINE,
            "gpus": {"gpus": 0.5},
            "names": ({"models": {"ours": _ONE}}, {"models": [_ONE], "names": ["ours"]}),  # two ways to say it
            "device": {"device": "cpu"},
        },
    )
}
