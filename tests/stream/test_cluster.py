from __future__ import annotations

import pytest

from epida_ray.errors import RequestError
from epida_ray.stream.cluster import _check_reachable


@pytest.mark.parametrize("address", ["h" * 70 + ":6379", "127.0.0.1:99999", "127.0.0.1:1"])
def test_an_address_that_nobody_can_answer_at_is_one_line(address: str) -> None:
    with pytest.raises(RequestError, match="no Ray at --address") as caught:
        _check_reachable(address)
    assert "\n" not in str(caught.value)
