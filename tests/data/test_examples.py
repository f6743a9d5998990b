"""Examples know what they are, whole or in part."""

import numpy as np
import pandas
from own_data import write

import layerscope as ls


def test_the_fingerprint_changes_with_any_text_or_label(tmp_path):
    def of(**columns):
        return ls.task(pandas.DataFrame({"text": ["a b", "c d"], "label": [0, 1], **columns})).split().fingerprint

    assert of() == of()
    assert len({of(), of(text=["a b", "c e"]), of(text=["ab", " c d"]), of(label=[1, 0])}) == 4


def test_taking_some_keeps_identity(tmp_path):
    examples = ls.task(write(tmp_path / "a.csv")).split()
    part = examples.take(np.array([1, 3]))
    assert part.rows.tolist() == [1, 3]
    assert part.labels.tolist() == [0, 1]
    assert part.fingerprint == examples.fingerprint
