"""docs/calibration.md has a section for each module of simulations, and each of them can be made again alone."""

import pandas
import pytest
from scripts import ROOT, script

calibration = script("benchmarks/calibration.py")
MODULES = {name: calibration.module(name) for name in calibration.names()}
FEW = 2
PAGE = (ROOT / "docs/calibration.md").read_text(encoding="utf-8")


def test_the_page_has_a_section_for_each_module_in_order():
    found = calibration.sections(PAGE)
    assert list(found) == list(MODULES) == sorted(MODULES)
    for name, module in MODULES.items():
        begin = f"## {module.TITLE}\n\n{module.TEXT.strip()}\n\n"
        assert found[name].startswith((f"{begin}| ", f"{begin}<!-- --8<-- [start:{name}] -->\n| "))
        assert f"benchmarks/calibration.py --only {name} --rounds " in found[name]
    assert calibration.page(found) == PAGE  # nothing stands outside


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if getattr(m, "SLOW", False) else n for n, m in MODULES.items()]
)
def test_a_few_rounds_give_the_table_of_the_page(name):
    slow = getattr(MODULES[name], "SLOW", False)
    frame = MODULES[name].table(1 if slow else FEW, 0)
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) > 0
    head = "| " + " | ".join(map(str, frame.columns)) + " |"
    assert head in calibration.sections(PAGE)[name]
    rows = [line for line in calibration.sections(PAGE)[name].splitlines() if line.startswith("| ")]
    assert len(rows) == len(frame) + 2
    if not slow:
        pandas.testing.assert_frame_equal(frame, MODULES[name].table(FEW, 0))  # the seed decides


@pytest.fixture
def two_modules(tmp_path, monkeypatch):
    """A folder with the modules a and b, and the page that they are written to."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(
            f"import pandas\nTITLE = 'About {name}'\nTEXT = 'It must hold.'\nROUNDS = 7\n"
            "def table(rounds, seed):\n"
            "    return pandas.DataFrame({'case': ['x|y'], 'rate': [0.05 * rounds + seed]})\n",
            encoding="utf-8",
        )
    (tmp_path / "_shared.py").write_text("raise SystemExit", encoding="utf-8")
    monkeypatch.setattr(calibration, "MODULES", tmp_path)
    monkeypatch.setattr(calibration.write, "__defaults__", (tmp_path / "page.md",))
    return tmp_path / "page.md"


def test_a_section_is_made_again_alone(two_modules, capsys):
    calibration.main(["--write"])
    first = two_modules.read_text(encoding="utf-8")
    assert first.startswith("# How far to trust it")
    assert [line for line in first.splitlines() if line.startswith("## ")] == ["## About a", "## About b"]
    assert first.count("| x\\|y | 0.350 |") == 2
    calibration.main(["--only", "a", "--rounds", "1", "--seed", "3", "--write"])
    second = calibration.sections(two_modules.read_text(encoding="utf-8"))
    assert "| x\\|y | 3.050 |" in second["a"]
    assert "--only a --rounds 1 --seed 3" in second["a"]
    assert second["b"] == calibration.sections(first)["b"]
    (two_modules.parent / "a.py").unlink()
    calibration.write({})
    assert list(calibration.sections(two_modules.read_text(encoding="utf-8"))) == ["b"]
    assert "About a" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--only", "c"], ["--rounds", "0"]])
def test_mistakes_are_sentences(two_modules, arguments, capsys):
    with pytest.raises(SystemExit):
        calibration.main(arguments)
    assert "invalid choice" in (said := capsys.readouterr().err) or "at least one simulation" in said
