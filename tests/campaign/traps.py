"""Traps and limits in a child: the n-th call that changes a disk, bounds of memory and files, disks of its own."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import resource
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

_ADDRESSES = 8 << 30  # what a child may ask for before it is refused: the machine is not ours alone


def limit_addresses() -> None:
    """Let an absurd allocation fail instead of the machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def limit_files(size: int) -> None:
    """`ulimit -f`: no file may grow beyond so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def lift_file_limit() -> None:
    """Let a child say how it went."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Peak:
    """The most memory that a stretch of work had beyond what there was before."""

    def __init__(self) -> None:
        self._file = Path("/proc/self/status")
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._high()

    def _high(self) -> int:
        line = next(line for line in self._file.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    @property
    def added(self) -> int:
        return self._high() - self._before


class Trap:
    """Counts what a process asks of the disk (fsync, rename, mkdir, unlink ..) and acts before the n-th."""

    CALLS = ("fsync", "rename", "replace", "link", "symlink", "mkdir", "unlink", "rmdir")
    OWN = (("layerscope.store.atomic", "exchange"),)  # what does not go through `os`

    def __init__(self, n: int, act: Callable[[str], None]) -> None:
        self.count, self._n, self._act = 0, n, act
        for name in self.CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        for module, name in self.OWN:
            if importlib.util.find_spec(module) is not None:
                home = import_module(module)
                setattr(home, name, self._counted(name, getattr(home, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self._n:
                self._act(name)
            return call(*given, **named)

        return counted


def die(_: str) -> None:
    """What a trap does for a kill."""
    os.kill(os.getpid(), signal.SIGKILL)


def mounted(folder: Path, size: int | None) -> bool:
    """Give this child a disk of its own at `folder`, of so many bytes, or without one make it read-only there."""
    libc = ctypes.CDLL(None, use_errno=True)
    private, bind, remount, read_only, recursive = 1 << 18, 4096, 32, 1, 16384
    if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, private | recursive, None):  # CLONE_NEWNS
        return False
    place = bytes(folder)
    if size is not None:
        return libc.mount(b"tmpfs", place, b"tmpfs", 0, f"size={size}".encode()) == 0
    if libc.mount(place, place, None, bind, None):
        return False
    return libc.mount(None, place, None, bind | remount | read_only, None) == 0


def unmounted(folder: Path) -> None:
    """Take a disk away again that `mounted` gave."""
    ctypes.CDLL(None).umount2(bytes(folder), 2)  # MNT_DETACH
