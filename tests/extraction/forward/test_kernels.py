from contextlib import suppress

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from layerscope.extraction.forward import kernels_for_any_shape

flags = torch.backends.cuda


def test_attention_is_not_cudnns_until_the_block_ends():
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]):
        with suppress(ZeroDivisionError), kernels_for_any_shape():
            assert not flags.cudnn_sdp_enabled()
            assert flags.math_sdp_enabled()
            with kernels_for_any_shape():
                assert not flags.cudnn_sdp_enabled()
            assert not flags.cudnn_sdp_enabled()
            raise ZeroDivisionError
        assert flags.cudnn_sdp_enabled()


@pytest.mark.parametrize("allowed", [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION])
def test_what_someone_has_chosen_stays(allowed):
    with sdpa_kernel([allowed]):
        before = flags.cudnn_sdp_enabled(), flags.flash_sdp_enabled(), flags.math_sdp_enabled()
        with kernels_for_any_shape():
            assert (flags.cudnn_sdp_enabled(), flags.flash_sdp_enabled(), flags.math_sdp_enabled()) == before
