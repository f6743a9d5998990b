"""The paper's figures and tables as files, and the page that shows them in its order beside claims."""

import math

import pandas
import pytest

from layerscope.recipes.claims import claims
from layerscope.recipes.layout import PaperTable
from layerscope.recipes.paper_page import beside, in_order, latex, markdown, numbers_in, write_paper
from layerscope.recipes.recipe import read_recipe
from tests.helpers.figures import panels


@pytest.fixture
def table():
    rows = [
        {"method": "linear", "task": "sst2", "mean": 4.25, "deviation": 2.63, "n": 4, "reason": ""},
        {"method": "linear", "task": "rte_2", "mean": math.nan, "deviation": math.nan, "n": 0, "reason": "it is gone."},
    ]
    note = "Of 50 % of the seeds."
    return PaperTable(
        "table6", "Table 6. Maps", "The paper finds: Linear.", pandas.DataFrame(rows), ("method",), ("task",), note
    )


def test_a_table_in_markdown_and_latex(table):
    text = markdown(table)
    assert text.startswith(
        "Table 6. Maps\n\n| method | sst2 | rte_2 |\n| --- | --- | --- |\n| linear | 4.25 ± 2.63 | - |"
    )
    assert text.endswith("Of 50 % of the seeds.\nEmpty: linear, rte_2: it is gone.\n")
    tex = latex(table)
    assert r"linear & 4.25 $\pm$ 2.63 & - \\" in tex
    assert r"method & sst2 & rte\_2 \\" in tex
    assert r"Of 50 \% of the seeds." in tex


def test_files_and_page(table, tmp_path):
    """The claim that rests on a figure stands beside it, with how often it held."""
    claim = next(claim for claim in claims() if claim.name == "tuning makes the blocks")
    verdicts = pandas.DataFrame({"claim": [claim.name] * 3, "verdict": ["holds", "holds", "undecided"]})
    write_paper(tmp_path, "A <paper>", {"fig1": panels("<b>")}, {"table6": table}, [claim], verdicts, {})
    assert (tmp_path / "figures" / "fig1.pdf").read_bytes()[:4] == b"%PDF"
    assert (tmp_path / "figures" / "fig1.png").read_bytes()[1:4] == b"PNG"
    assert pandas.read_csv(tmp_path / "tables" / "table6.csv")["reason"].fillna("").tolist() == ["", "it is gone."]
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "holds in 2, undecided in 1" in page
    assert page.index('id="fig1"') < page.index('id="table6"')
    assert "A &lt;paper&gt;" in page
    assert "<b>of" not in page.replace("<b>holds", "")
    assert "The paper finds: Linear." in page
    assert "it is gone" in page


def test_places_in_a_paper_are_read_in_its_order():
    assert numbers_in("section 4.1, figures 12 and 13, table 6") == ["fig12", "fig13", "table6"]
    assert numbers_in("figures 6 and 7 (SST-2), 15 and 16 (MNLI); appendix A.1, figure 8") == ["fig6", "fig7", "fig8"]
    assert in_order(["norms", "fig10", "fig9", "areas"]) == ["fig9", "fig10", "norms", "areas"]


def test_a_claim_without_a_number_stands_beside_what_its_experiment_shows():
    by_name = {claim.name: claim for claim in claims()}
    xie, wu = read_recipe("xie2022"), read_recipe("wu2020")
    inferred = by_name["nu beats mutual information (our inference)"]
    layouts = {**xie.figures, **xie.tables}
    assert beside(inferred, list(layouts), layouts) == ["table1"]  # the only one with mutual information
    assert beside(inferred, ["fig3", "fig6"], layouts) == ["fig3"]
    saves = by_name["freezing half of the blocks at the bottom saves half of back-propagation"]
    layouts = {**wu.figures, **wu.tables}
    assert beside(saves, list(layouts), layouts) == ["table1"]


def test_every_claim_stands_beside_a_figure_or_table():
    for claim in claims():
        recipe = read_recipe(claim.paper)
        layouts = {**recipe.figures, **recipe.tables}
        assert beside(claim, list(layouts), layouts), claim.name


def test_what_has_no_number_keeps_its_order_before_the_tables(table, tmp_path):
    figures = {"zeal": panels("z"), "age": panels("a")}
    write_paper(tmp_path, "A", figures, {"table4": table}, [], pandas.DataFrame(columns=["claim", "verdict"]), {})
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.index('id="zeal"') < page.index('id="age"') < page.index('id="table4"')
