"""What a network's head answers, told by its class: classes, choices, tags, spans, tokens, or nothing at all."""

from __future__ import annotations

from typing import Any

# What a head gives for a text; the first ending that fits counts.
_ENDINGS = (
    ("ForSequenceClassification", "classes"),
    ("ForMultipleChoice", "choices"),
    ("ForTokenClassification", "tags"),
    ("ForQuestionAnswering", "spans"),
    ("ForQuestionAnsweringSimple", "spans"),
    ("ForMaskedLM", "masked"),
    ("WithLMHeadModel", "masked"),  # XLM's and Flaubert's
    ("XLNetLMHeadModel", "permuted"),  # it predicts words in any order, through a second stream of its own
    ("ForCausalLM", "next"),
    ("LMHeadModel", "next"),
    ("BertForPreTraining", "masked"),  # and whether two texts follow one another
    ("AlbertForPreTraining", "masked"),
    ("ElectraForPreTraining", "replaced"),
)
WORDS = {
    "classes": "gives classes or a number for a text",
    "choices": "gives one of several choices",
    "tags": "gives a tag for every token",
    "spans": "gives the place of an answer in a text",
    "masked": "gives the words that are masked in a text",
    "permuted": "gives words in any order (permutation language modelling)",
    "next": "gives the next token of a text",
    "replaced": "tells which tokens of a text were replaced",
    "other": "has a head of another kind",
    "none": "has no head",
}
VOCABULARY = ("masked", "next")  # heads with an output for each token of the vocabulary, position by position


def head_of(network: Any) -> str:
    """The kind of a network's head, one of `WORDS`."""
    if network.base_model is network:
        return "none"
    name = type(network).__name__
    return next((kind for ending, kind in _ENDINGS if name.endswith(ending)), "other")


def class_of(config: Any) -> Any:
    """The transformers class that a config names (`architectures`), or None where transformers has it not."""
    import transformers

    for name in getattr(config, "architectures", None) or ():
        kind = getattr(transformers, str(name), None)
        if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel):
            wanted = getattr(kind, "config_class", None)
            if isinstance(wanted, type) and isinstance(config, wanted):
                return kind
    return None
