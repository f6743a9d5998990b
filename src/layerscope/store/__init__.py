"""Artifacts: keys, atomic writes, checksums, locks."""

from layerscope.store.artifacts import Entry, Store, home
from layerscope.store.files import (
    atomic_folder,
    check_free,
    is_sealed,
    seal,
    sync,
    whole_file,
    write_bytes,
    write_json,
    write_text,
)
from layerscope.store.keys import digest
from layerscope.store.producers import Artifact, NoKey, keys_of, produce_all

__all__ = [
    "Artifact",
    "Entry",
    "NoKey",
    "Store",
    "atomic_folder",
    "check_free",
    "digest",
    "home",
    "is_sealed",
    "keys_of",
    "produce_all",
    "seal",
    "sync",
    "whole_file",
    "write_bytes",
    "write_json",
    "write_text",
]
