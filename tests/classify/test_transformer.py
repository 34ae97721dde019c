import json

import numpy as np
import pytest
import torch

from epida_ray.classify import create, load
from epida_ray.classify.checkpoint import MINILM_PACKAGE
from epida_ray.classify.examples import make_examples
from epida_ray.classify.training import Trainer, TrainingOptions, make_groups
from epida_ray.classify.transformer import Transformer
from epida_ray.core.errors import RequestError
from epida_ray.method.trainer import fit
from tests.classify import tiny

LABELS = ("fruit", "tool", "other")
TEXTS = ["i want a pear today", "", "the hammer is not good , is it ?", "melon", "saw " * 100]
KINDS = ["bert", "xlnet", "xlm-roberta"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def saved(folder):
    """Directories of plain transformers models with these labels."""

    def saved(kind: str):
        path = folder / kind
        return path if path.exists() else tiny.transformer(kind, path, LABELS)

    return saved


def plain(path, texts) -> np.ndarray:
    """What transformers alone answers, a text at a time."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForSequenceClassification.from_pretrained(path).eval()
    with torch.inference_mode():
        rows = [model(**tokenizer(t, truncation=True, return_tensors="pt", return_token_type_ids=False)) for t in texts]
    return torch.cat([torch.softmax(r.logits, dim=1) for r in rows]).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_directory_is_a_classifier(saved, kind):
    classifier = load(saved(kind))
    assert classifier.labels == LABELS and kind in classifier.describe()
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), plain(saved(kind), TEXTS), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_loads_in_plain_transformers(saved, kind, tmp_path):
    classifier = create(f"transformer:{saved(kind)}", ("yes", "no"), seed=3)
    rows = ["a pear", "a saw"] * 10, ["yes", "no"] * 10
    fit(classifier, *rows, rows, epochs=1)
    classifier.save(tmp_path)
    np.testing.assert_allclose(plain(tmp_path, TEXTS), classifier.predict_proba(TEXTS), atol=1e-5)
    names = json.loads((tmp_path / "config.json").read_text())["id2label"]
    assert names == {"0": "yes", "1": "no"}
    assert not any(p.name.startswith(".") or p.suffix == ".bin" for p in tmp_path.iterdir())


def test_the_same_labels_keep_the_head_and_others_get_a_new_one(saved):
    kept = Transformer(saved("bert"), LABELS)
    assert np.array_equal(kept.state()["classifier.weight"], load(saved("bert")).state()["classifier.weight"])
    new = [Transformer(saved("bert"), ("a", "b"), seed=s).state()["classifier.weight"] for s in (1, 1, 2)]
    assert np.array_equal(new[0], new[1]) and not np.array_equal(new[0], new[2])


def test_padding_changes_nothing(saved):
    for kind in KINDS:
        classifier = load(saved(kind))
        together = classifier.predict_proba(TEXTS)
        alone = np.concatenate([classifier.predict_proba([t]) for t in TEXTS])
        np.testing.assert_allclose(together, alone, atol=1e-5)


def test_what_is_refused(saved, tmp_path):
    import shutil

    def refused(match: str, change) -> None:
        path = tmp_path / match.replace(" ", "-").replace("*", "")
        shutil.copytree(saved("bert"), path)
        change(path)
        with pytest.raises(RequestError, match=match) as caught:
            load(path)
        assert "\n" not in str(caught.value)

    def remote_code(path):
        config = json.loads((path / "config.json").read_text())
        config["auto_map"] = {"AutoModelForSequenceClassification": "modeling.Net"}
        (path / "config.json").write_text(json.dumps(config))
        (path / "modeling.py").write_text("raise SystemExit('this code ran')")

    def no_tokenizer(path):
        for file in (*path.glob("tokenizer*"), *path.glob("special_tokens*")):
            file.unlink()

    def wrong_size(path):
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | {"hidden_size": "wide"}))

    def wrong_names(path):
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | {"id2label": ["fruit", "tool", "other"]}))

    def only_pickle(path):
        torch.save({}, path / "pytorch_model.bin")
        (path / "model.safetensors").unlink()

    def pickle_in_disguise(path):
        torch.save({}, path / "model.safetensors")

    def cut(path):
        data = (path / "model.safetensors").read_bytes()
        (path / "model.safetensors").write_bytes(data[: len(data) // 2])

    refused("code of its own", remote_code)
    refused("no tokeniser", no_tokenizer)
    refused("no transformer|cannot be loaded", wrong_size)
    refused("no transformer", wrong_names)
    refused("pytorch_model.bin", only_pickle)
    refused("is a pickle", pickle_in_disguise)
    refused("cannot be loaded as safetensors", cut)
    with pytest.raises(RequestError, match="has the labels fruit, tool, other"):
        load(saved("bert"), ("fruit", "tool"))
    with pytest.raises(RequestError, match="precision"):
        Transformer(saved("bert"), precision="int4")


def test_a_tokeniser_that_transformers_5_wrote(saved, tmp_path):
    import shutil

    shutil.copytree(saved("bert"), tmp_path, dirs_exist_ok=True)
    file = tmp_path / "tokenizer_config.json"
    options = json.loads(file.read_text()) | {"tokenizer_class": "TokenizersBackend", "backend": "tokenizers"}
    file.write_text(json.dumps(options))
    classifier = load(tmp_path)
    assert classifier.max_length == 64
    assert np.array_equal(classifier.predict_proba(TEXTS), load(saved("bert")).predict_proba(TEXTS))


def test_a_checkpoint_in_half_precision_is_read_as_float32(saved, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    AutoModelForSequenceClassification.from_pretrained(saved("bert")).to(torch.bfloat16).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(saved("bert")).save_pretrained(tmp_path)
    new = Transformer(tmp_path, ("x", "y"), seed=1)
    assert {p.dtype for p in new.model.parameters()} == {torch.float32}
    head = new.model.classifier.weight
    assert not torch.equal(head, head.bfloat16().float())
    np.testing.assert_allclose(load(tmp_path).predict_proba(TEXTS), load(saved("bert")).predict_proba(TEXTS), atol=0.01)


def test_loading_and_saving_print_nothing(saved, tmp_path, capfd):
    saved("bert")
    capfd.readouterr()
    Transformer(saved("bert"), ("x", "y")).save(tmp_path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow  # the hub client tries for a while
def test_a_name_that_cannot_be_had(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RequestError, match="no transformer 'nobody/nothing-at-all'"):
        create("transformer:nobody/nothing-at-all", LABELS)


def test_frozen_encoder_trains_the_head_alone(saved):
    classifier = Transformer(saved("bert"), freeze=True)
    before = classifier.state()
    rows = ["a pear", "a saw", "it"] * 8, list(LABELS) * 8
    fit(classifier, *rows, rows, epochs=1)
    changed = {key for key, value in classifier.state().items() if not np.array_equal(value, before[key])}
    assert changed == {"classifier.weight", "classifier.bias"}


def test_lower_layers_learn_slower(saved):
    classifier = Transformer(saved("bert"), layer_decay=0.5, head_rate=4.0)
    module = classifier.module()
    names = {id(p): name for name, p in module.named_parameters()}
    rates = {}
    for group in classifier.parameter_groups(module, 1.0, 0.01):
        for parameter in group["params"]:
            rates[names[id(parameter)]] = group["lr"]
            assert (group["weight_decay"] == 0) == (parameter.ndim < 2)
    assert rates["classifier.weight"] == 4.0
    top, low = (rates[f"bert.encoder.layer.{i}.output.dense.weight"] for i in (1, 0))
    assert 1.0 >= top > low > rates["bert.embeddings.word_embeddings.weight"] > 0
    assert len(rates) == len(names)


@pytest.mark.parametrize("kind", [*KINDS, "deberta-v2", "distilbert"])
def test_dropout_can_be_set(saved, kind):
    network = Transformer(saved(kind), dropout=0.3).model
    assert {m.p for m in network.modules() if isinstance(m, torch.nn.Dropout)} == {0.3}


def test_resume_is_exact(saved):
    def trainer() -> Trainer:
        return Trainer(Transformer(saved("bert")), TrainingOptions(batch_size=4), total_steps=9)

    texts, y = ["a pear", "a saw", "it is"] * 4, np.array([0, 1, 2] * 4)
    straight, first, resumed = trainer(), trainer(), trainer()
    groups = make_groups(Transformer(saved("bert")), make_examples(texts, y, 3))
    for _ in range(3):
        straight.train_epoch(groups)
    first.train_epoch(groups)
    resumed.load_state(first.state())
    for _ in range(2):
        resumed.train_epoch(groups)
    ours, theirs = resumed.state(), straight.state()
    assert ours.keys() == theirs.keys() and all(np.array_equal(ours[k], theirs[k]) for k in ours)


def test_int8_scores_much_like_fp32(saved):
    fp32, int8 = load(saved("bert")), Transformer(saved("bert"), precision="int8")
    if int8.device.type != "cpu":
        pytest.skip("int8 is for CPUs")
    assert "int8" in int8.describe()
    p = int8.predict_proba(TEXTS)
    np.testing.assert_allclose(p, fp32.predict_proba(TEXTS), atol=0.05)
    assert not np.array_equal(p, fp32.predict_proba(TEXTS))
    other = Transformer(saved("bert"), ("x", "y", "z"), seed=4)
    int8.load_state(other.state())
    np.testing.assert_allclose(int8.predict_proba(TEXTS), other.predict_proba(TEXTS), atol=0.05)


def test_long_texts_are_cut(saved):
    classifier = Transformer(saved("bert"), max_length=8)
    p = classifier.predict_proba(["i want a pear today please", "i want a pear today please , i want a saw"])
    assert np.array_equal(p[0], p[1])
    assert load(saved("bert")).max_length == 64
    with pytest.raises(RequestError, match="max_length"):
        Transformer(saved("bert"), max_length=2)


def test_minilm_from_its_package():
    pytest.importorskip(MINILM_PACKAGE)
    classifier = create("minilm", LABELS)
    assert classifier.labels == LABELS and classifier.max_length == 256
    assert classifier.defaults.learning_rate > Transformer.defaults.learning_rate
    p = classifier.predict_proba(["a short question ?", "another"])
    assert p.shape == (2, 3)
    a, b, c = classifier.embed(["a cheap car", "an inexpensive automobile", "the theory of numbers"])
    assert np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b) > np.dot(a, c) / np.linalg.norm(a) / np.linalg.norm(c)


@pytest.mark.parametrize("kind", ["bert", "xlnet", "xlm-roberta", "roberta", "distilbert", "deberta-v2"])
def test_mean_pooling_shows_the_head_the_mean(saved, kind, tmp_path):
    """The head alone, on the mean over the tokens, gives the logits; padding and batches change nothing."""
    cls, mean = Transformer(saved(kind)), Transformer(saved(kind), pooling="mean")
    assert cls.pooling == "cls" and not np.allclose(cls.predict_proba(TEXTS), mean.predict_proba(TEXTS), atol=1e-5)
    alone = np.concatenate([mean.predict_proba([text]) for text in TEXTS])
    np.testing.assert_allclose(mean.predict_proba(TEXTS), alone, atol=1e-5)
    np.testing.assert_allclose(mean.embed(TEXTS), cls.embed(TEXTS), atol=1e-5)
    if kind == "bert":
        logits = mean.embed(TEXTS) @ mean.model.classifier.weight.detach().numpy().T
        p = torch.softmax(torch.from_numpy(logits) + mean.model.classifier.bias.detach(), dim=1)
        np.testing.assert_allclose(mean.predict_proba(TEXTS), p, atol=1e-5)
    mean.save(tmp_path)
    assert load(tmp_path).pooling == "mean"
    assert np.array_equal(load(tmp_path).predict_proba(TEXTS), mean.predict_proba(TEXTS))
    rows = ["a pear", "a saw", "it"] * 8, list(LABELS) * 8
    fit(mean, *rows, rows, epochs=1)


def test_pooling_is_that_of_the_checkpoint(saved, tmp_path):
    import shutil

    shutil.copytree(saved("bert"), tmp_path, dirs_exist_ok=True)
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    for name in ("mean", "cls"):
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": name}))
        assert Transformer(tmp_path).pooling == name
    with pytest.raises(RequestError, match="cls or mean, not 'max'"):
        Transformer(tmp_path, pooling="max")
