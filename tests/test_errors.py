"""Errors are sentences with the near names in them."""

from layerscope.errors import InputError, LayerscopeError


def test_every_error_is_a_layerscope_error():
    assert issubclass(InputError, LayerscopeError)
    assert issubclass(InputError, ValueError)
