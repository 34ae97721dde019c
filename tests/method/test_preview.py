"""`epida preview`: what it refuses."""

from pathlib import Path

import pytest

from epida_ray.classify import create
from epida_ray.core.errors import RequestError
from epida_ray.method.preview import preview


@pytest.mark.parametrize(
    ("select", "said"), [("ppl+cem", "language model of ppl"), ("divergence", "no teacher to compare with")]
)
def test_scores_that_need_more_than_a_classifier_are_refused_by_name(tmp_path: Path, select: str, said: str) -> None:
    create("linear", ("a", "b")).save(tmp_path)
    options = {"classifier": str(tmp_path), "label": "a"}
    with pytest.raises(RequestError, match=f"--select .*{said}.*use another score.*--select rem"):
        preview("where is my parcel today?", select=select, **options)
    assert preview("where is my parcel today?", select="rem+cem", **options).scores is not None
