"""torch computes with another number of threads inside a block, and with as many as before after it."""

import subprocess
import sys

import pytest
import torch

from epida_ray.classify.threads import torch_threads


def test_the_number_before_comes_back_even_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


def test_torch_is_not_loaded_for_it() -> None:
    code = (
        "import sys\n"
        "from epida_ray.classify.threads import torch_threads\n"
        "with torch_threads(1): print('torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert shown.stdout == "False\n", shown.stderr
