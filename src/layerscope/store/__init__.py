"""Artifacts: keys, atomic writes, checksums, locks."""

from layerscope.store.artifacts import Entry, Store, full_disk
from layerscope.store.files import is_sealed, seal, sync, whole_file, write_bytes, write_json, write_text
from layerscope.store.folders import atomic_folder, check_free
from layerscope.store.keys import digest, json_text
from layerscope.store.places import home
from layerscope.store.producers import Artifact, NoKey, keys_of, produce_all
from layerscope.store.reading import (
    Saved,
    TensorFile,
    inside,
    is_whole,
    open_tensors,
    parse_json,
    read_json,
    read_object,
    read_value,
    shaped,
)
from layerscope.store.staging import clear, clear_everywhere, discard, is_staging, settled

__all__ = [
    "Artifact",
    "Entry",
    "NoKey",
    "Saved",
    "Store",
    "TensorFile",
    "atomic_folder",
    "check_free",
    "clear",
    "clear_everywhere",
    "digest",
    "discard",
    "full_disk",
    "home",
    "inside",
    "is_sealed",
    "is_staging",
    "is_whole",
    "json_text",
    "keys_of",
    "open_tensors",
    "parse_json",
    "produce_all",
    "read_json",
    "read_object",
    "read_value",
    "seal",
    "settled",
    "shaped",
    "sync",
    "whole_file",
    "write_bytes",
    "write_json",
    "write_text",
]
