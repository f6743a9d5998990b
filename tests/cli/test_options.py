"""Options of the terminal that several commands share."""

import pytest

from layerscope.cli.options import aligner_options
from layerscope.errors import InputError


def test_options_of_aligners_go_to_those_that_have_them():
    assert aligner_options(None, "linear") == {}
    assert aligner_options(["linear", "inn"], "plain") == {"inn": {"start": "plain"}}
    assert set(aligner_options(None, "linear", pad=True)) >= {"identity", "procrustes"}
    with pytest.raises(InputError, match=r"--start plain is for .*, and only linear was asked for"):
        aligner_options(["linear"], "plain")
