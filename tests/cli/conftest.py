"""A small model and small data for commands."""

import pytest
import zoo


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return zoo.save(tmp_path_factory.mktemp("model"), "bert")


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("review,stars\nthe file is good,5\na value,1\nnot this list,1\n")
    return path


@pytest.fixture
def labelled(tmp_path):
    folder = tmp_path / "words"
    folder.mkdir()
    for split, count in (("train", 24), ("validation", 12)):
        rows = [f"the {'file' if i % 2 else 'list'} is {i},{'file' if i % 2 else 'list'}" for i in range(count)]
        (folder / f"{split}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return folder
