"""Folders whose files are shown beside them, as links into them, so that one exchange changes all that is seen.

`out/compare-record` holds what a command wrote; `out/cka.csv` is a relative link to `compare-record/cka.csv`. The
folder is exchanged in one step, and whoever follows the links sees all files of one run. Links to files that only the
new folder has are made before the exchange, and those to files that only the earlier one had are removed after it: at
any other moment they lead nowhere, so that a reader finds no file. The staging folder lists them, and whoever clears it
removes those that still lead nowhere. Where a file system has no links, copies take their place, written last.
"""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from layerscope.store.atomic import LINKS, alone_in, atomic_folder, sync_all, take_name

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # of a file system that has none


@contextmanager
def linked_folder(
    target: Path, marker: str, names: Collection[str] = (), *, plain: Collection[str] = (), adding: bool = False
) -> Iterator[Path]:
    """Give a folder to write into, as `atomic_folder` does; `names` of what it holds are shown beside it as links.

    A name that is taken by somebody else is left alone. `plain` are those that an earlier run left as files or folders
    of their own, which links replace. With `adding`, the files of the earlier folder that are still shown are kept.
    """
    publish = partial(_publish, marker=marker, names=names, plain=plain, adding=adding)
    with atomic_folder(target, marker, publish) as folder:
        yield folder


def taken(target: Path, names: Iterable[str], plain: Collection[str] = ()) -> list[str]:
    """Return the names beside a folder that are somebody else's: neither links into the folder nor among `plain`."""
    return [
        name
        for name in names
        if os.path.lexists(place := target.parent / name)
        and not _leads_into(place, target)
        and (name not in plain or place.is_symlink())
    ]


def left_plain(target: Path, names: Collection[str]) -> list[str]:
    """Return the names beside a folder of files that an earlier run left there, not as links, but as files.

    Earlier versions did, and so it is where a file system has no links. Where some of the names are links into the
    folder, a file is an earlier run's only if it is what the folder has: somebody may have put another in its place.
    """
    files = [name for name in names if (place := target.parent / name).is_file() and not place.is_symlink()]
    if not any(_leads_into(target.parent / name, target) for name in names):
        return files
    return [name for name in files if _same(target.parent / name, target / name)]


def _same(place: Path, shown: Path) -> bool:
    """Return whether a file is what the folder beside it shows under its name; so it is where that has none."""
    return not shown.is_file() or filecmp.cmp(place, shown, shallow=False)


def _leads_into(place: Path, target: Path) -> bool:
    """Return whether a path is the link that shows a folder's file of that name."""
    return place.is_symlink() and os.readlink(place) == f"{target.name}/{place.name}"


def _publish(
    folder: Path, target: Path, *, marker: str, names: Collection[str], plain: Collection[str], adding: bool
) -> None:
    """Rename a finished folder to `target`, and show its files beside it."""
    with alone_in(target.parent):
        copied = [name for name in plain if (place := target.parent / name).exists() and not place.is_symlink()]
        if adding:
            names = [*names, *_kept(folder, target, {marker, *names})]
        mine = [name for name in names if name not in taken(target, names, plain)]
        if not _note_links(folder.parent / LINKS, target, {*mine, *copied}):
            take_name(folder, target)
            _copy(folder.parent, target, mine, copied)
            return
        if copied:
            _replace_copies(folder, target, marker, copied)
        for name in mine:
            if not os.path.lexists(target.parent / name):
                os.symlink(f"{target.name}/{name}", target.parent / name)
        take_name(folder, target)


def _kept(folder: Path, target: Path, written: Collection[str]) -> list[str]:
    """Copy what the earlier folder shows and the new one does not write; return the names."""
    earlier = sorted(os.listdir(target)) if target.is_dir() else []
    kept = [name for name in earlier if name not in written and (target.parent / name).exists()]
    for name in kept:
        shutil.copy2(target / name, folder / name)
    sync_all(folder)
    return kept


def _note_links(notes: Path, target: Path, names: Collection[str]) -> bool:
    """List, as links in the staging folder, those that are there or will be; False where there can be no links."""
    notes.mkdir()
    with os.scandir(target.parent) as entries:
        there = {entry.name for entry in entries if entry.is_symlink() and _leads_into(Path(entry.path), target)}
    try:
        for name in {*there, *names}:
            os.symlink(f"{target.name}/{name}", notes / name)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True


def _replace_copies(folder: Path, target: Path, marker: str, names: Collection[str]) -> None:
    """Put links in the place of what an earlier run left beside its folder, with the same to be seen through them."""
    staging = folder.parent
    earlier = staging / "earlier"
    if target.is_dir():
        shutil.copytree(target, earlier, symlinks=True)
    else:
        earlier.mkdir()
        shutil.copy2(folder / marker, earlier)
    for name in names:
        _copy_one(target.parent / name, earlier / name)
    sync_all(earlier)
    take_name(earlier, target)
    for k, name in enumerate(names):
        link = staging / f"link-{k}"
        os.symlink(f"{target.name}/{name}", link)
        take_name(link, target.parent / name)


def _copy(staging: Path, target: Path, names: Collection[str], before: Collection[str]) -> None:
    """Put copies beside a folder, where no links can be made, and take away those that an earlier run left."""
    for k, name in enumerate(names):
        copy = staging / f"copy-{k}"
        _copy_one(target / name, copy)
        sync_all(copy)
        take_name(copy, target.parent / name)
    for name in before:
        if name not in names:
            with suppress(FileNotFoundError):
                (target.parent / name).rename(staging / f"gone-{name}")


def _copy_one(source: Path, target: Path) -> None:
    """Copy a file or a folder over one of that name."""
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)
    else:
        shutil.copy2(source, target)
