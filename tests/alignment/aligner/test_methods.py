"""The registry of aligners: names without imports, order, options, widths."""

import subprocess
import sys
from pathlib import Path

import pytest

import layerscope.alignment.aligners
from layerscope.alignment.aligner import (
    by_place,
    check_methods,
    make,
    of_any_widths,
    options_of,
    usable,
    with_option,
)
from layerscope.errors import InputError
from layerscope.registry import ALIGNERS


def test_every_file_is_a_method():
    files = Path(layerscope.alignment.aligners.__file__).parent.glob("*.py")
    assert sorted(ALIGNERS) == sorted(file.stem for file in files if file.stem != "__init__")


def test_names_are_listed_without_importing_a_method():
    code = "import sys; from layerscope.registry import ALIGNERS; list(ALIGNERS); print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_the_order_goes_from_floors_to_networks():
    known = ["identity", "mean", "procrustes", "linear", "cca", "svcca", "inn", "mlp"]
    assert [method for method in by_place() if method in known] == known
    assert sorted(by_place()) == list(ALIGNERS)


def test_options_are_those_of_the_class():
    assert options_of("linear") == ["strength"]
    assert options_of("procrustes") == ["scale", "pad"]
    assert options_of("mean") == []
    assert {"inn", "mlp"} <= {*with_option("start")}
    assert not {"linear", "cca"} & {*with_option("start")}
    assert with_option("pad") == [method for method in by_place() if ALIGNERS[method].same_width]
    assert with_option("nothing of the kind") == []


def test_which_methods_map_between_widths():
    assert usable(8, 8) == by_place()
    assert usable(8, 4) == of_any_widths()
    padded = usable(8, 4, {"inn": {"pad": True}, "procrustes": {"scale": False}})
    assert padded == [method for method in by_place() if method in (*of_any_widths(), "inn")]


def test_mistakes_are_sentences():
    with pytest.raises(InputError, match=r"no alignment method 'procrustean'.*Did you mean 'procrustes'"):
        make("procrustean", 0, {})
    with pytest.raises(InputError, match="no alignment method 'pwcca'"):
        check_methods(["pwcca"], None)
    check_methods(["pwcca"], {"linear": {}}, "pwcca")
    with pytest.raises(InputError, match="no alignment method 'pwcca'"):
        check_methods(None, {"pwcca": {}}, "pwcca")
