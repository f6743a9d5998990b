"""The site builds strictly, needs no network, and its references and tables are complete."""

import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys

import pytest
from filelock import FileLock

from tests.helpers.cli import ROOT, script

DOCS = ROOT / "docs"


def hook(name):
    return script(f"docs/hooks/{name}.py")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built once for all test processes."""
    pytest.importorskip("mkdocs", reason="the docs extra is not installed")
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    with FileLock(f"{folder}.lock"):
        if not (folder / "index.html").is_file():
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
            assert done.returncode == 0, done.stderr
    return folder


def test_no_page_loads_anything_from_elsewhere(site):
    loads = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//|<link\b[^>]*stylesheet[^>]*//")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert [str(page) for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []


def test_every_public_name_has_its_entry(site):
    import layerscope

    page = (site / "reference/api/index.html").read_text(encoding="utf-8")
    assert [name for name in layerscope.__all__ if f'id="ls.{name}"' not in page] == []


def test_every_command_has_its_entry(site):
    page = (site / "reference/cli/index.html").read_text(encoding="utf-8")
    for command in ("extract", "compare", "tune", "strategies", "report", "figures", "cache-ls", "cache-rm"):
        assert f'id="{command}"' in page


def test_names_in_sentences_are_links(site):
    page = (site / "glossary/index.html").read_text(encoding="utf-8")
    assert re.search(
        r'<a [^>]*href="\.\./reference/api/#ls\.layer_blocks"[^>]*><code>ls\.layer_blocks</code></a>', page
    )


def test_the_glossary_has_every_public_class():
    import layerscope

    page = (DOCS / "glossary.md").read_text(encoding="utf-8")
    classes = [name for name in layerscope.__all__ if isinstance(getattr(layerscope, name), type)]
    assert len(classes) > 20
    assert [name for name in classes if f"`ls.{name}`" not in page] == []


def test_words_of_the_code_in_the_glossary_are_classes():
    page = (DOCS / "glossary.md").read_text(encoding="utf-8").split("## Words of the code")[1]
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/layerscope").rglob("*.py"))
    names = re.findall(r"`([A-Z]\w+)`", page)
    assert {"Evaluator", "LayerSource", "Objective"} <= set(names)
    assert [name for name in names if not re.search(rf"^class {name}\b", sources, re.MULTILINE)] == []


def test_the_python_reference_finds_every_definition():
    import layerscope

    places = hook("api").places()
    assert sorted(places) == sorted(layerscope.__all__)
    for name, place in places.items():
        module, _, attribute = place.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
        assert found is inspect.unwrap(getattr(layerscope, name))  # public functions check their arguments first


def test_the_command_reference_has_every_option():
    import typer

    from layerscope.cli import app

    page, top = hook("cli").reference(), typer.main.get_command(app)
    names = top.list_commands(None)
    assert {"compare", "tune", "cache"} <= set(names)
    for name in names:
        command = top.get_command(None, name)
        section = page.split(f"\n## {name}")[1].split("\n## ")[0]
        parameters = [] if hasattr(command, "commands") else command.params
        options = [o for p in parameters for o in (*p.opts, *p.secondary_opts)]
        assert [o for o in options if o.startswith("--") and o != "--help" and o not in section] == []


def sections():
    """The text under each `###` heading of the measures page, by the names in the heading."""
    page = (DOCS / "measures.md").read_text(encoding="utf-8")
    found = {}
    for heading, text in re.findall(r"^### (`[^\n]*)\n(.*?)(?=^##)", page, flags=re.DOTALL | re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`(\w+)`", heading), text)
    return found


def test_every_measure_is_described():
    import layerscope as ls

    found, table = sections(), ls.measures()
    assert sorted(found) == sorted(table["name"])
    for _, measure in table.iterrows():
        text = " ".join(found[measure["name"]].split())
        assert all(source.strip() in text for source in measure["source"].split(";")), measure["name"]
        for part in (
            r"`.+`|\$.+\$|[Tt]he mean",
            r"Ranges?\b",
            r"Unchanged by|invariances",
            r"Cost: ",
            r"When not to use it: ",
        ):
            assert re.search(part, text), (measure["name"], part)


def test_local_links_of_the_front_pages_lead_somewhere():
    for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        targets = [t for t in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if not t.startswith("http")]
        assert [t for t in targets if not (ROOT / t).exists()] == [], page


def test_the_version_is_the_same_everywhere():
    import yaml

    import layerscope

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == layerscope.__version__
    assert f"## {layerscope.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_a_notebook_becomes_a_page(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "source": "print(1)",
            "outputs": [{"text": ["1\n"]}, {"data": {"image/png": "QUJD", "text/plain": "<Image>"}}],
        },
    ]
    path = tmp_path / "some.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    page = hook("notebooks").page(path)
    assert page.startswith(
        "# Title\ntext\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n![figure](data:image/png;base64,QUJD)"
    )
    assert "<Image>" not in page
