"""The methods of tuning by name; listing them imports none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.registry import Registry

if TYPE_CHECKING:
    from layerscope.tuning.method import Method

METHODS: Registry[Method] = Registry("layerscope.tuning.methods", "method")
