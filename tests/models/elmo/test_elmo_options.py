"""The options of an ELMo: published fields are read, what no network can have is refused."""

import pytest
from pydantic import ValidationError

from layerscope.models.elmo import ElmoOptions
from tests.helpers.elmo import ELMO_OPTIONS


def test_published_fields_are_read_and_others_left_alone():
    options = ElmoOptions.model_validate(ELMO_OPTIONS | {"n_train_tokens": 768648884, "dropout": 0.1})
    assert options.width == 12
    assert (options.lstm.cell_clip, options.lstm.proj_clip, options.lstm.attention_heads) == (0.4, 0.3, None)
    assert options.char_cnn.filters == ((1, 4), (2, 3), (3, 5))
    assert ElmoOptions.model_validate(options.model_dump(mode="json")) == options


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("lstm", {"projection_dim": 0}),
        ("lstm", {"n_layers": 0}),
        ("char_cnn", {"activation": "gelu"}),
        ("char_cnn", {"max_characters_per_token": 2}),
    ],
)
def test_what_no_network_can_have_is_refused(part, change):
    with pytest.raises(ValidationError, match=next(iter(change))):
        ElmoOptions.model_validate(ELMO_OPTIONS | {part: ELMO_OPTIONS[part] | change})
