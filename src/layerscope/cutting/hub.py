"""`ls.push`: uploads a checkpoint that layerscope saved to the hub, with its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layerscope.cutting.model_card import PLACE
from layerscope.errors import InputError, LayerscopeError, ModelError, first_line
from layerscope.models.lineage import RECORD, Lineage
from layerscope.models.load import CARD
from layerscope.models.sources import ADAPTER, TUNED
from layerscope.models.weight_files import folder_files
from layerscope.store import read_json

# Weights of an earlier model would be opened in place of these, or beside them.
_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", "adapter_config.json")


class PublishError(LayerscopeError):
    """The hub would not take what was to be put there."""


def push(
    folder: str | Path, repo: str, *, private: bool = True, message: str | None = None, token: str | None = None
) -> str:
    """Put a checkpoint that layerscope saved on the Hugging Face hub, with its card and `layerscope.json`.

    The repository is made where it is not there yet: private, unless asked otherwise. One that is public already is not
    written to unless `private=False` says that this is meant.

    Args:
        folder: What `ls.save`, `ls.cut_folder` or `ls.tune(.., out=..)` wrote.
        repo: Where to put it: `name` (yours) or `organization/name`.
        private: Whether only you and your organization may read it.
        message: What the change is called there.
        token: An access token, where you are not logged in (`hf auth login`, or `HF_TOKEN`).

    Returns:
        The address of the repository.

    Example:
        >>> import tempfile, layerscope as ls
        >>> folder = ls.save(ls.truncate("garden:bert-s0", 2), f"{tempfile.mkdtemp()}/smaller")
        >>> try:
        ...     ls.push(folder, "not/a/name")
        ... except ls.LayerscopeError as error:
        ...     print(error)
        'not/a/name' is not the name of a repository on the hub; write name, or organization/name.
    """
    place = _checkpoint(Path(folder))
    check_push(repo, private=private, token=token)

    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api = HfApi(token=token)
    files = {path.relative_to(place).as_posix(): path for path in folder_files(place, place, deep=True)}
    try:
        made = api.create_repo(repo, private=private, exist_ok=True)
        stale = [name for name in api.list_repo_files(made.repo_id) if name.endswith(_WEIGHTS) and name not in files]
        parts: list[Any] = [CommitOperationDelete(path_in_repo=name) for name in stale]
        for name, path in files.items():
            content: str | bytes = str(path)
            if name == CARD:  # its code opens the model from the hub there
                content = path.read_text(encoding="utf-8").replace(f'"{PLACE}"', f'"{made.repo_id}"').encode()
            parts.append(CommitOperationAdd(path_in_repo=name, path_or_fileobj=content))
        api.create_commit(made.repo_id, parts, commit_message=message or "Upload a checkpoint of layerscope")
    except Exception as error:  # the hub's client raises whatever its HTTP library does
        raise PublishError(f"{folder} could not be put on the hub as {repo}: {_hub_message(error)}.") from error
    return str(made)


def check_push(repo: str, *, private: bool = True, token: str | None = None) -> None:
    """Raise InputError or PublishError where a repository cannot be written to: before the work, not after it."""
    from huggingface_hub import HfApi, constants, get_token
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError:
        raise InputError(
            f"{repo!r} is not the name of a repository on the hub; write name, or organization/name."
        ) from None
    if constants.HF_HUB_OFFLINE:
        raise PublishError(f"{repo} cannot be written to: HF_HUB_OFFLINE is set; unset it to put something on the hub.")
    if not (token or get_token()):
        raise PublishError(
            f"To put a model on the hub as {repo}, log in with a token that may write (hf auth login), or set HF_TOKEN."
        )
    api = HfApi(token=token)
    try:
        existing = api.repo_info(repo if "/" in repo else f"{api.whoami()['name']}/{repo}")
    except RepositoryNotFoundError:
        return
    except Exception as error:
        raise PublishError(f"{repo} cannot be written to: {_hub_message(error)}.") from error
    if private and not existing.private:
        raise PublishError(
            f"{existing.id} is there already, and everyone may read it; give another name, or say that it is meant to "
            "be public (private=False, --public)."
        )


def _checkpoint(folder: Path) -> Path:
    """Return the folder with the checkpoint: the given one, or the one in the folder of a training."""
    place = folder / TUNED if (folder / TUNED / RECORD).is_file() else folder
    if not (place / RECORD).is_file():
        if (folder / ADAPTER).is_dir():
            raise ModelError(
                f"{folder} holds an adapter and no whole checkpoint, so there is nothing that opens by itself; tune "
                "with a method that gives one (finetune, lora)."
            )
        raise ModelError(
            f"{folder} is not a checkpoint that layerscope saved (it has no {RECORD}); save it with ls.save."
        )
    read_json(place / RECORD, Lineage, error=ModelError, way_out="save the model again")
    return place


def _hub_message(error: Exception) -> str:
    """Return the hub's error message in one line."""
    from huggingface_hub.errors import HfHubHTTPError

    answer = getattr(error, "response", None)
    if isinstance(error, HfHubHTTPError) and answer is not None and answer.status_code in (401, 403):
        return "your token may not write there; make one that may, and log in with hf auth login"
    return first_line(error)
