"""The heads of networks as data: what each gives, how it is recognised by its class, and who asks it what.

A head is added here, by one record in `HEADS`. Where it is asked in a new way, its evaluator is a file of its own in
`layerscope.evaluation`; where it learns in a new way, its objective is one in `layerscope.tuning.objectives`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from layerscope.models.load import Model


@dataclass(frozen=True)
class Head:
    """One kind of head. Classes of rooms above are named as `file:Class`, so that none of them is imported here."""

    name: str  # what `Model.head` says
    words: str  # what it gives, as it is said after a model's name
    endings: tuple[str, ...] = ()  # how the names of network classes end that have it; the longest that fits counts
    evaluators: Mapping[str, str] = field(default_factory=dict)  # for each kind of task, who asks: in `evaluation`
    tasks: str = ""  # the tasks that it goes with, in words
    objective: str = ""  # by what a cut model is healed: in `tuning.objectives`
    outputs: Literal["labels", "choices", "vocabulary", "width", ""] = ""  # what it gives a number for
    classifier: bool = False  # whether it gives one answer for a text, as the heads that `ls.tune` trains
    causal: bool = False  # whether it goes on from a text, token by token
    opener: str = ""  # the Auto class of transformers that opens it
    pipeline_tag: str = ""  # what the hub calls what it does


HEADS = {
    head.name: head
    for head in (
        Head(
            "classes",
            "gives classes or a number for a text",
            ("ForSequenceClassification",),
            dict.fromkeys(("single", "pair"), "classification:ClassificationEvaluator"),
            "texts or pairs with labels",
            "classification:ClassificationObjective",
            "labels",
            classifier=True,
            opener="AutoModelForSequenceClassification",
            pipeline_tag="text-classification",
        ),
        Head(
            "choices",
            "gives one of several choices",
            ("ForMultipleChoice",),
            {"choice": "classification:ClassificationEvaluator"},
            "texts with choices",
            "classification:ClassificationObjective",
            "choices",
            classifier=True,
            opener="AutoModelForMultipleChoice",
            pipeline_tag="multiple-choice",
        ),
        Head(
            "tags",
            "gives a tag for every token",
            ("ForTokenClassification",),
            {"tags": "tagging:TaggingEvaluator"},
            "words with tags (tags=, --tags; ewt-upos)",
            "tokens:TokenObjective",
            "labels",
            opener="AutoModelForTokenClassification",
            pipeline_tag="token-classification",
        ),
        Head(
            "spans",
            "gives the place of an answer in a text",
            ("ForQuestionAnswering", "ForQuestionAnsweringSimple"),
            opener="AutoModelForQuestionAnswering",
            pipeline_tag="question-answering",
        ),
        Head(
            "masked",
            "gives the words that are masked in a text",
            (
                "ForMaskedLM",
                "WithLMHeadModel",  # XLM's and Flaubert's
                "BertForPreTraining",  # and whether two texts follow one another
                "AlbertForPreTraining",
            ),
            {"text": "masked_lm:MaskedLMEvaluator"},
            "running text (kind='text', --kind text; wikitext)",
            "tokens:TokenObjective",
            "vocabulary",
            opener="AutoModelForMaskedLM",
            pipeline_tag="fill-mask",
        ),
        Head(
            "permuted",  # it predicts words in any order, through a second stream of its own
            "gives words in any order (permutation language modelling)",
            ("XLNetLMHeadModel",),
        ),
        Head(
            "next",
            "gives the next token of a text",
            ("ForCausalLM", "LMHeadModel"),
            {"text": "perplexity:PerplexityEvaluator", "choice": "multiple_choice:MultipleChoiceEvaluator"},
            "running text (kind='text', --kind text; wikitext), or texts with choices",
            "tokens:TokenObjective",
            "vocabulary",
            causal=True,
            opener="AutoModelForCausalLM",
            pipeline_tag="text-generation",
        ),
        Head("replaced", "tells which tokens of a text were replaced", ("ElectraForPreTraining",)),
        Head("other", "has a head of another kind"),
        Head(
            "none",
            "has no head",
            (),
            {"pair": "embedding_similarity:EmbeddingSimilarityEvaluator"},
            "pairs with a number as their label (stsb)",
            "embeddings:EmbeddingObjective",
            "width",
            opener="AutoModel",
            pipeline_tag="feature-extraction",
        ),
    )
}
# The kinds of task: what is said of one after its name, and the heads that it goes with.
TASKS = {
    "single": ("has one text per row", "a classifier; train one with layerscope tune (ls.tune)"),
    "pair": (
        "has two texts per row",
        "a classifier (train one with layerscope tune, ls.tune) or, where the label is a number, a bare encoder or "
        "a model of sentence-transformers",
    ),
    "choice": ("has choices", "a model with a head for choices, or a causal language model"),
    "tags": ("has a tag for every word", "a model for token classification"),
    "text": ("is running text", "a causal or a masked language model"),
}
# Names of classes that only tasks on pairs of texts have (inference, paraphrases, questions asked twice), as they are
# spelled without capitals, with underscores. "neutral" is not one of them: classes of sentiment are called so too.
PAIR_LABELS = frozenset(
    {
        *("entailment", "not_entailment", "contradiction", "entails", "contradicts", "supports", "refutes"),
        *("equivalent", "not_equivalent", "paraphrase", "not_paraphrase", "paraphrases", "not_paraphrases"),
        *("duplicate", "not_duplicate", "is_duplicate", "semantically_equivalent", "not_semantically_equivalent"),
    }
)


def head_of(network: Any) -> str:
    """The name of a network's head, one of `HEADS`."""
    if network.base_model is network:
        return "none"
    name = type(network).__name__
    fitting = [(len(ending), head.name) for head in HEADS.values() for ending in head.endings if name.endswith(ending)]
    return max(fitting)[1] if fitting else "other"


def output_count(model: Model) -> int:
    """The count of numbers that the head of a model gives for a text or a token; 0 where that depends on the text."""
    given, config = HEADS[model.head].outputs, model.network.config
    if given == "labels":
        return int(config.num_labels)
    return model.width if given == "width" else int(config.vocab_size) if given == "vocabulary" else 0


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
