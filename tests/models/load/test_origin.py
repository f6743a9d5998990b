"""The base of a model: its name, its revision and the licence that its card states."""

import os

import pytest

from layerscope.models.load import base_of, licence, short
from layerscope.models.sources import Source

SHA = "0123456789abcdef0123456789abcdef01234567"


def test_a_revision_in_the_cache_of_the_hub(tmp_path):
    folder = tmp_path / "models--org--a--name" / "snapshots" / SHA
    folder.mkdir(parents=True)
    for source in (Source("org/a--name", "v2"), Source(str(folder))):
        base = base_of(source, folder)
        assert (base.name, base.hub, base.revision) == ("org/a--name", True, SHA)


def test_folders_packages_and_twins(tmp_path):
    (tmp_path / "mine").mkdir()
    base = base_of(Source(str(tmp_path / "mine")), tmp_path / "mine")
    assert (base.name, base.hub, base.revision) == ("mine", False, None)
    assert not base_of(Source("garden:bert-s0"), tmp_path).hub
    assert base_of(Source(str(tmp_path / "mine"), random=True), tmp_path).name == "random:mine"
    assert base_of(Source("org/name", "v1"), tmp_path).revision == "v1"
    assert short("org/name") == "org/name"


@pytest.mark.parametrize(
    ("card", "stated"),
    [
        ("---\nlicense: mit\n---\n", {"license": "mit"}),
        ("---\nlicense: [mit, gpl]\n---\n", {"license": ["mit", "gpl"]}),
        ("---\nlicense: 3\n---\n", {}),
        ("---\nlanguage: en\n---\nMIT licence", {}),
        ("---\nlicense: [mit\n---\n", {}),
        # Values that YAML cannot make anything of, and lists without end.
        ("---\nlicense: mit\ndate: 2020-13-45\n---\n", {}),
        ('---\nlicense: !!int ""\nlicense_name: !!timestamp "x"\n---\n', {}),
        ("---\n? [a]\n: b\nlicense: mit\nsizes: !!bool x\n---\n", {}),
        (f"---\nlicense: mit\nx: {'[' * 3000}{']' * 3000}\n---\n", {}),
        (f"---\nlicense: mit\nx: {'{a: ' * 3000}\n---\n", {}),
        ('---\nlicense: "\\uD800"\n---\n', {}),
        ("---\nlicense: &a [*a]\n---\n", {}),
        ("---\n- license\n---\n", {}),
        ("---\n\n---\n", {}),
        ("no data", {}),
    ],
)
def test_a_licence_is_what_the_card_states(card, stated, tmp_path):
    assert licence(tmp_path) == {}
    (tmp_path / "README.md").write_text(card)
    assert licence(tmp_path) == stated
    assert base_of(Source(str(tmp_path)), tmp_path).model_dump(include=set(stated)) == stated


def test_a_pipe_is_no_card(tmp_path):
    os.mkfifo(tmp_path / "README.md")
    assert licence(tmp_path) == {}
