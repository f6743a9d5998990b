"""docs/calibration.md has a section for each module of simulations, and each of them can be made again alone."""

import pandas
import pytest

from tests.helpers.cli import ROOT, script

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


def rates(section, column, **where):
    """The least and the largest number of a column of a section's table, over the rows that have these values."""
    lines = [line for line in calibration.sections(PAGE)[section].splitlines() if line.startswith("| ")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    frame = pandas.DataFrame(rows, columns=head)
    for name, value in where.items():
        frame = frame[frame[name] == value]
    found = pandas.to_numeric(frame[column])
    return found.min(), found.max()


def test_the_short_answer_has_the_rates_of_the_simulations():
    text = (ROOT / "docs/trust.md").read_text(encoding="utf-8")
    sure, guessed = {"rule": "confidence 0.9"}, {"rule": "no bound", "rows": "872"}
    assert f"it lost more in {rates('advice', 'outside', **sure)[1]:.1%} of the simulations at worst" in text
    low, high = rates("advice", "outside", **guessed)
    assert f"it lost more in {low:.0%} to {high:.0%}" in text
    tutorial = " ".join((ROOT / "docs/tutorials/cut.md").read_text(encoding="utf-8").split())
    assert f"outside it in {100 * low:.0f} to {100 * high:.0f} % of the cases" in tutorial
    low, high = rates("similarity_intervals", "interval covers", measure="cka_debiased")
    assert f"95% intervals held the truth in {low:.0%} to {high:.0%} |" in text
    assert rates("similarity_intervals", "interval covers", measure="cka")[1] == 0
    many = [rates("windows_of_texts", "interval covers", texts=count) for count in ("10", "20", "40", "200")]
    low, high = min(least for least, _ in many), max(most for _, most in many)
    assert f"95% intervals held the truth in {low:.0%} to {high:.0%} with 10 texts or more" in text
    assert (
        f"held it in {rates('windows_of_texts', 'interval covers', texts='5')[0]:.0%}, and the result says so" in text
    )
    low, high = rates("similarity_chance", "a pair below .05")
    assert f"p ≤ .05 in {low:.0%} to {high:.0%} where nothing was shared" in text
    low, high = rates("similarity_words", "interval covers")
    assert f"95% intervals held the truth in {low:.0%} to {high:.0%} | believe it: pairs of words" in text
    gradual = [rates("blocks", f"{n} layers", wanted="at most .08")[1] for n in (7, 13, 25)]
    assert f"p < .05 in at most {max(gradual):.1%} where change was gradual" in text
    single = [rates("blocks", f"{n} layers", matrix="one larger step")[0] for n in (7, 13, 25)]
    assert f"missed in {1 - max(single):.0%} to {1 - min(single):.0%}" in text
    assert rates("nu_trust", "trusted", labels="true") == (10, 10)
    assert rates("nu_trust", "trusted", labels="shuffled") == (0, 0)
    low, high = rates("aligner_error", "over texts")
    assert f"95% intervals over texts held the truth in {low:.0%} to {high + 1e-9:.0%}" in text
    assert rates("agreement", "covers")[0] >= 0.95
    for rows, removed in (("872", 0.2), ("16000", 2.8)):
        assert round(rates("advice", "removed", shape="cliff", rows=rows, **sure)[0], 1) == removed


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
    assert first.startswith("# Calibration\n")
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
