"""`ls.save`: writes a standard checkpoint, which is reopened and compared before success is claimed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from layerscope.cutting.cut import cache_fault, refuse_adapters
from layerscope.cutting.model_card import card, score_entries
from layerscope.errors import InputError, ModelError
from layerscope.evaluation.score import Score
from layerscope.models import Model
from layerscope.models.architecture import accepted_inputs, evaluating
from layerscope.models.checkpoints import quiet
from layerscope.models.devices import weight
from layerscope.models.extras import extras, made_up, parameter_count, saved_weights
from layerscope.models.fingerprint import fingerprint
from layerscope.models.lineage import BASE, ORIGIN, RECORD, TRAINED, converted_from, learned, trained
from layerscope.models.load import load_whole, reopen, short
from layerscope.models.replay import caches_off
from layerscope.models.selfcheck import close, primary
from layerscope.models.shards import narrow, tensor_places
from layerscope.models.sources import folder_of
from layerscope.models.weight_files import INDEX, weight_files
from layerscope.store import atomic_folder, check_free, read_object, write_json, write_text
from layerscope.version import __version__

_TEXTS = (
    ("A short text.", "And what is said of it."),
    ("The film is slow at first, but its last half hour is worth the wait and the ticket.", "It ends well."),
    ("Numbers, such as 12 or 3.5, and names, such as Ada Lovelace, are read too.", "Nobody is named."),
)


def save(model: Any, path: str | Path, *, scores: Score | Sequence[Score] = ()) -> Path:
    """Write a checkpoint that plain transformers opens: safetensors, config, tokenizer, a card.

    It is reopened as a new object before it gets its name: every tensor must be there and equal, none may be missing or
    left over, and its logits on real texts must be the model's.

    Args:
        model: A model, or what `ls.load` takes.
        path: The folder. An existing one is replaced only if layerscope saved it, and never that of the model.
        scores: Scores for the card, of `ls.evaluate` or `advice.score`; a score of other weights is refused.

    Returns:
        The folder.

    Example:
        >>> import tempfile, layerscope as ls
        >>> folder = ls.save(ls.truncate("garden:bert-s0", 2), f"{tempfile.mkdtemp()}/smaller")
        >>> ls.load(folder).depth
        2
    """
    opened, target = load_whole(model, "saving"), Path(path)
    measured = [scores] if isinstance(scores, Score) else list(scores)
    refuse_adapters(opened)
    _refuse_lost_heads(opened)
    check_free(target, RECORD, folder_of(opened))
    with atomic_folder(target, RECORD) as folder:
        with quiet():
            write_network(opened, folder)
            if opened.tokenizer is not None:
                # A fast tokenizer keeps the settings of its last call, and what is saved must not depend on them.
                if getattr(opened.tokenizer, "is_fast", False):
                    opened.tokenizer.backend_tokenizer.no_truncation()
                    opened.tokenizer.backend_tokenizer.no_padding()
                opened.tokenizer.save_pretrained(folder)
        describe(opened, folder, measured)
        _compare(opened, folder)
    return target


def write_network(model: Model, folder: Path) -> None:
    """Write the weights in the float type that they had on disk, the config, and the files of its embedding."""
    network = model.network
    weights, dtype = saved_weights(network)
    network.save_pretrained(folder, state_dict=weights)
    if dtype != network.dtype:
        files = weight_files(folder, model.name)
        for file in files:
            narrow(file, dtype, but=extras(network).tensors)
        if len(files) > 1:
            index = read_object(folder / INDEX, error=ModelError)
            index["metadata"]["total_size"] = sum(place.size for f in files for place in tensor_places(f).values())
            write_json(folder / INDEX, index)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    write_json(path, config)
    if model.embedding is not None:
        model.embedding.write(folder)


def _refuse_lost_heads(model: Model) -> None:
    """Raise ModelError about a head that was not opened, and so cannot be written as it should be."""
    held = extras(model.network)
    if held.named is not None and held.tensors:
        raise ModelError(
            f"{model.name} names the class {held.named} in its config.json (architectures), which transformers does "
            f"not have, so its head was not opened and would be lost: {len(held.tensors)} tensors, such as "
            f"{min(held.tensors)}. Name a class there that transformers has and that holds them, or open the "
            "checkpoint with its own code and give that network."
        )


def describe(
    model: Model, folder: Path, scores: Sequence[Score] = (), training: Mapping[str, Any] | None = None
) -> None:
    """Write the record and the card of a checkpoint in its folder; `training` is what it went through last."""
    if training is not None:
        setattr(model.network, TRAINED, [*trained(model.network), dict(training)])
    record = _record(model, scores)
    write_json(folder / RECORD, record)
    write_text(folder / "README.md", card(model, record, model.tokenizer is not None))


def describe_folder(
    model: Model, folder: Path, *, depth: int, parameters: int, files: str, scores: Sequence[Score] = ()
) -> None:
    """Write the same for a checkpoint whose weights are not in memory: `files` is the hash of what was written."""
    record = {
        "layerscope": __version__,
        "weights": "",
        "files": files,
        "family": model.architecture.family,
        "depth": depth,
        "parameters": parameters,
        **_lineage(model.network),
        "scores": [{**entry, "weights": ""} for score in scores for entry in score_entries(score)],
    }
    write_json(folder / RECORD, record)
    write_text(folder / "README.md", card(model, record, any(folder.glob("tokenizer*"))))


def _record(model: Model, scores: Sequence[Score]) -> dict[str, Any]:
    """Return what the checkpoint is made from, and what was measured of these very weights."""
    weights = fingerprint(model)
    for score in scores:
        if score.weights != weights:
            raise InputError(
                f"A score on {score.row['task']} is of other weights than those of {model.name}, so it does not go on "
                "its card; evaluate the model that is saved."
            )
    return {
        "layerscope": __version__,
        "weights": weights,
        "family": model.architecture.family,
        "depth": model.depth,
        "parameters": parameter_count(model.network),
        **_lineage(model.network),
        "scores": [entry for score in scores for entry in score_entries(score)],
    }


def _lineage(network: Any) -> dict[str, Any]:
    """Return where a network comes from; folders are called by their names, not by where they lie on this machine."""
    base, file = getattr(network, BASE, None), converted_from(network)
    steps = [{**step, "from": short(str(step["from"]))} for step in getattr(network, ORIGIN, [])]
    return {
        "base": None if base is None else base.model_dump(exclude_none=True),
        "steps": steps,
        **({} if file is None else {"converted": file}),
        "learned": learned(network),
        "training": trained(network),
    }


def _compare(model: Model, folder: Path) -> None:
    """Reopen the folder and compare; raise ModelError if anything is not as it was."""
    again = reopen(model, folder)
    if type(again.network) is not type(model.network):
        raise ModelError(
            f"The checkpoint of {model.name} reopens as {type(again.network).__name__} where it was a "
            f"{type(model.network).__name__}; it was not saved."
        )
    before, after = model.network.state_dict(), again.network.state_dict()
    drawn = made_up(model.network) & made_up(again.network)  # in no file, and used by nothing
    # What was equal to its file is shared.
    read = [k for k in before.keys() & after.keys() - drawn if before[k].data_ptr() != after[k].data_ptr()]

    def is_equal(name: str) -> bool:
        """Whether a tensor is as it was; those that wait on the host or the disk are fetched from there."""
        was, found = (weight(each.network, name, held[name]) for each, held in ((model, before), (again, after)))
        return was is not None and found is not None and torch.equal(was, found.to(was.device))

    wrong = sorted(before.keys() ^ after.keys()) or sorted(name for name in read if not is_equal(name))
    if wrong:
        raise ModelError(
            f"The checkpoint of {model.name} reopens with other weights ({len(wrong)} tensors, such as {wrong[0]}); "
            "it was not saved."
        )
    kept, found = extras(model.network).tensors, extras(again.network).tensors
    if set(kept) != set(found):
        lost = sorted(set(kept) ^ set(found))
        raise ModelError(
            f"The checkpoint of {model.name} reopens without all tensors of its other heads ({len(lost)}, such as "
            f"{lost[0]}); it was not saved."
        )
    made, found_again = model.embedding, again.embedding
    if made is not None and made.files and (found_again is None or found_again.spec() != made.spec()):
        raise ModelError(f"The checkpoint of {model.name} makes other embeddings when reopened; it was not saved.")
    if cache_fault(model) is None and (fault := cache_fault(again)):
        raise ModelError(
            f"The checkpoint of {model.name} cannot run with its cache on when reopened: {fault}; it was not saved."
        )
    for inputs, same in zip(_inputs(model), _inputs(again), strict=True):
        if inputs.keys() != same.keys() or not all(torch.equal(inputs[k], same[k]) for k in inputs):
            raise ModelError(f"The tokenizer of {model.name} reopens as another one; nothing was saved.")
        if not close(_answer(again, inputs), _answer(model, inputs)):
            raise ModelError(f"The checkpoint of {model.name} gives other outputs when reopened; it was not saved.")


def _inputs(model: Model) -> list[dict[str, torch.Tensor]]:
    """Return real texts as the model reads them, one per batch: no padding is needed."""
    if model.tokenizer is None:
        from layerscope.models.selfcheck import probe_inputs

        return [probe_inputs(model, rows=1)]
    limit, accepted = min(model.positions or 64, 64), accepted_inputs(model.network.base_model)
    batches = []
    for text, pair in _TEXTS:
        batch = model.tokenizer(text, pair, truncation=True, max_length=limit, return_tensors="pt")
        if int(batch["input_ids"].max()) >= model.vocabulary:
            raise ModelError(
                f"The tokenizer of {model.name} gives token {int(batch['input_ids'].max())}, and the model has "
                f"{model.vocabulary} token embeddings; they do not belong together, and it was not saved. Open the "
                "model with its own tokenizer (tokenizer=)."
            )
        names = ("input_ids", "attention_mask", "token_type_ids")
        inputs = {n: batch[n].to(model.device) for n in names if n in batch and n in accepted}
        types = inputs.get("token_type_ids")
        if types is not None and model.token_types is not None and int(types.max()) >= model.token_types:
            inputs.pop("token_type_ids")
        batches.append({n: v[None] for n, v in inputs.items()} if model.multiple_choice else inputs)
    return batches


def _answer(model: Model, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.inference_mode(), evaluating(model.network), caches_off(model.network):
        return primary(model.network(**inputs))
