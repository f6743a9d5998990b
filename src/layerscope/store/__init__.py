"""Artifacts: keys, atomic writes, checksums, locks."""

from layerscope.store.artifacts import Entry, Store, home
from layerscope.store.files import atomic_folder, check_free, sync, whole_file, write_bytes, write_json, write_text
from layerscope.store.keys import digest

__all__ = [
    "Entry",
    "Store",
    "atomic_folder",
    "check_free",
    "digest",
    "home",
    "sync",
    "whole_file",
    "write_bytes",
    "write_json",
    "write_text",
]
