"""`layerscope advise`"""

from command import run_here

import layerscope as ls


def test_advice_on_the_command_line(tuned_minilm, tmp_path):
    options = ["--limit", "60", "--max-span", "1", "--evaluations", "0", "--tolerance", "0.2"]
    done = run_here(
        "advise", tuned_minilm, "--task", "pydocs", *options, "--save", tmp_path / "small", "-o", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    assert "Keep blocks" in done.stdout
    assert ls.load(str(tmp_path / "small")).depth < 6
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"advice.csv", "advice.png", "advise-record"}
