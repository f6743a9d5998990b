"""What the README and the tour say is there, is there. Their code runs in test_packages.py and in docs/."""

import re

from tests.helpers.cli import README, ROOT

TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")


def test_the_tour_names_every_task_and_family():
    from layerscope.data.registry import registry

    assert all(f"`{name}`" in TOUR for name in registry())
    for family in ("BERT", "RoBERTa", "ALBERT", "ELECTRA", "DeBERTa", "DistilBERT", "XLNet", "GPT-2", "ModernBERT"):
        assert family in TOUR


def test_the_wheels_of_the_readme_are_those_that_are_built():
    import layerscope_garden

    import layerscope

    for package in (layerscope, layerscope_garden):
        assert f"dist/{package.__name__}-{package.__version__}-py3-none-any.whl" in README


def test_the_readme_names_commands_and_targets_that_exist():
    import typer

    from layerscope.cli import app

    commands = set(typer.main.get_command(app).list_commands(None))
    code = " ".join(map("".join, re.findall(r"```sh\n(.*?)```|`([^`\n]+)`", README, flags=re.DOTALL)))
    named = re.findall(r"\blayerscope ([a-z-]+)", code)
    assert len(named) > 10
    assert set(named) <= commands
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {"demo", "test", "dist", "docs"} <= set(re.findall(r"\bmake ([a-z-]+)", code)) <= set(targets)
