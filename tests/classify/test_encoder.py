import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from epida_ray.classify import create, load
from epida_ray.classify.checkpoint import MINILM_PACKAGE
from epida_ray.classify.encoder import Encoder
from epida_ray.classify.examples import Kept, make_examples
from epida_ray.classify.saving import read_tensors
from epida_ray.classify.sentence import SentenceEncoder
from epida_ray.classify.training import TrainingOptions
from epida_ray.classify.tuning import BATCH, balanced_batch, contrastive_loss
from epida_ray.core.errors import RequestError, RunError
from epida_ray.method.schedule import Schedule
from epida_ray.method.trainer import LabelledRows, LearnOptions, RoundTrainer
from tests.classify import tiny

LABELS = ("fruit", "tool")
FRUIT = ["i want a pear", "the apple is good", "a plum , please", "cherry", "is it a melon ?", "the grape today"]
TOOL = ["i want a hammer", "the saw is good", "a drill , please", "pliers", "is it a wrench ?", "the chisel today"]
TEXTS, Y = FRUIT + TOOL, np.repeat([0, 1], 6)
ONES = np.ones(12)
ODD = [*TEXTS, "", "saw " * 100, "хорошо", "\ud800"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Directories of tiny networks, by kind."""
    folder = tmp_path_factory.mktemp("networks")

    def saved(kind: str = "bert"):
        return folder / kind if (folder / kind).exists() else tiny.transformer(kind, folder / kind)

    return saved


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EPIDA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embeddings"


def sentence_directory(source, target, pooling="mean_tokens", more=(), **files):
    """Copy a network and describe it as sentence-transformers does."""
    shutil.copytree(source, target)
    kinds = ["Transformer", "Pooling", *more]
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (target / "modules.json").write_text(json.dumps(modules))
    (target / "1_Pooling").mkdir()
    (target / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
    for name, content in files.items():
        (target / f"{name}.json").write_text(json.dumps(content))
    return target


def plain(path, texts, pooling="mean") -> np.ndarray:
    """Embed with transformers alone, a text at a time."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, network = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path).eval()
    rows = []
    for text in texts:
        clean = text.encode("utf-8", "replace").decode()
        with torch.inference_mode():
            inputs = tokenizer(clean, truncation=True, return_tensors="pt", return_token_type_ids=False)
            hidden = network(**inputs).last_hidden_state[0]
        vector = {"mean": hidden.mean(dim=0), "cls": hidden[0], "max": hidden.amax(dim=0), "lasttoken": hidden[-1]}
        rows.append(torch.nn.functional.normalize(vector[pooling], dim=0).numpy())
    return np.stack(rows)


def test_names_of_classes_are_texts_of_them(saved, own_cache, tmp_path):
    plain_one, named = (Encoder(saved(), LABELS, label_names=use) for use in (False, True))
    plain_one.fit([*TEXTS, "fruit", "This text is about fruit.", "tool", "This text is about tool."],
                  np.append(Y, [0, 0, 1, 1]), np.ones(16), 0)  # fmt: skip
    named.fit(TEXTS, Y, ONES, 0)
    assert np.array_equal(named.predict_proba(ODD), plain_one.predict_proba(ODD))
    named.save(tmp_path / "model")
    assert load(tmp_path / "model").label_names


@pytest.mark.parametrize("kind", ["bert", "xlnet", "roberta", "distilbert"])
def test_any_network_embeds_by_the_mean_over_its_tokens(saved, kind):
    ours = SentenceEncoder(str(saved(kind)), cache=False).embed(ODD)
    np.testing.assert_allclose(ours, plain(saved(kind), ODD), atol=1e-5)


@pytest.mark.parametrize(("name", "pooling"), [("cls_token", "cls"), ("max_tokens", "max"), ("lasttoken", "lasttoken")])
def test_the_pooling_of_the_checkpoint_is_used(saved, tmp_path, name, pooling):
    path = sentence_directory(saved(), tmp_path / "model", name)
    np.testing.assert_allclose(SentenceEncoder(str(path)).embed(ODD), plain(path, ODD, pooling), atol=1e-5)


def test_length_and_prompt_of_the_checkpoint_are_used(saved, tmp_path):
    prompts = {"prompts": {"query": "please "}, "default_prompt_name": "query"}
    path = sentence_directory(
        saved(), tmp_path / "model", sentence_bert_config={"max_seq_length": 8}, config_sentence_transformers=prompts
    )
    encoder, bare = SentenceEncoder(str(path)), SentenceEncoder(str(saved()))
    assert encoder.max_length == 8 and bare.max_length == 64
    np.testing.assert_allclose(encoder.embed(["a saw"]), bare.embed(["please a saw"]), atol=1e-6)
    long = [" ".join(["saw"] * n) for n in (20, 30)]
    assert np.array_equal(*encoder.embed(long))


def test_what_cannot_be_embedded_with_is_refused(saved, tmp_path):
    dense = sentence_directory(saved(), tmp_path / "dense", more=["Dense"])
    with pytest.raises(RequestError, match="has a Dense module"):
        SentenceEncoder(str(dense))
    weighted = sentence_directory(saved(), tmp_path / "weighted", "weightedmean_tokens")
    with pytest.raises(RequestError, match="pools by weightedmean_tokens; one of mean"):
        SentenceEncoder(str(weighted))
    for options in ({"tune": "some"}, {"steps": 0}, {"strength": 0.0}, {"learning_rate": -1.0}):
        with pytest.raises(RequestError):
            Encoder(saved(), LABELS, **options)


def test_a_text_has_the_same_bits_in_any_batch(saved):
    texts = [*ODD, *(f"i want number {i}" for i in range(40))]
    encoders = [SentenceEncoder(str(saved()), cache=False, token_budget=budget) for budget in (4096, 64)]
    together = [encoder.embed(texts) for encoder in encoders]
    alone = np.concatenate([SentenceEncoder(str(saved()), cache=False).embed([text]) for text in texts])
    assert np.array_equal(together[0], alone) and np.array_equal(together[1], alone)


def test_embeddings_are_computed_once_and_found_by_the_next_process(saved, own_cache, monkeypatch):
    computed: list[int] = []
    tokenize = SentenceEncoder.tokenize

    def counted(self, texts):
        computed.append(len(texts))
        return tokenize(self, texts)

    monkeypatch.setattr(SentenceEncoder, "tokenize", counted)
    first = SentenceEncoder(str(saved()))
    x = first.embed([*TEXTS, *TEXTS])
    assert sum(computed) == 12 and len(list(own_cache.glob("*.sqlite"))) == 1
    computed.clear()
    assert np.array_equal(first.embed(TEXTS), x[:12])
    assert np.array_equal(SentenceEncoder(str(saved())).embed(TEXTS[::-1]), x[11::-1])
    assert not computed
    SentenceEncoder(str(saved()), max_length=4).embed(TEXTS[:1])
    SentenceEncoder(str(saved()), prompt="please ").embed(TEXTS[:1])
    assert sum(computed) == 2  # another length or prompt gives other embeddings


def test_a_tuned_encoder_forgets_and_leaves_no_file(saved, own_cache):
    classifier = Encoder(saved(), LABELS, tune="contrastive", steps=2, learning_rate=1e-2)
    before = classifier.embed(TEXTS)
    files = {path: path.read_bytes() for path in own_cache.iterdir()}
    classifier.fit(TEXTS, Y, ONES, 0)
    assert not np.allclose(classifier.embed(TEXTS), before, atol=1e-4)
    assert {path: path.read_bytes() for path in own_cache.iterdir()} == files


def test_a_frozen_encoder_publishes_its_head_alone(saved):
    classifier = Encoder(saved(), LABELS)
    network = classifier.encoder.weights()
    classifier.fit(TEXTS, Y, ONES, 0)
    assert {k: v.shape for k, v in classifier.state().items()} == {"weight": (2, 32), "bias": (2,), "temperature": ()}
    assert all(np.array_equal(network[k], v) for k, v in classifier.encoder.weights().items())
    tuned = Encoder(saved(), LABELS, tune="full", steps=2)
    assert sum(k.startswith("encoder/") for k in tuned.state()) == len(network)
    for one, other in ((classifier, tuned), (tuned, classifier)):
        with pytest.raises(RequestError, match="one encoder is frozen and the other is tuned"):
            one.load_state(other.state())


@pytest.mark.parametrize("tune", ["contrastive", "full"])
def test_tuning_separates_the_classes_once(saved, tune):
    classifier = Encoder(saved(), LABELS, tune=tune, steps=30, learning_rate=3e-3)

    def apart() -> float:
        cos = classifier.embed(TEXTS) @ classifier.embed(TEXTS).T
        return float(cos[Y[:, None] == Y].mean() - cos[Y[:, None] != Y].mean())

    before = apart()
    classifier.fit(TEXTS, Y, ONES, 0)
    assert apart() > before + 0.2
    weights = classifier.encoder.weights()
    classifier.fit(TEXTS, Y, ONES, 0)
    assert all(np.array_equal(weights[k], v) for k, v in classifier.encoder.weights().items())


@pytest.mark.parametrize("tune", ["contrastive", "full"])
def test_every_tuning_starts_from_the_weights_of_the_model_and_learns_all_texts(saved, tune):
    def encoder() -> Encoder:
        return Encoder(saved(), LABELS, tune=tune, steps=5, learning_rate=3e-3, retune=True)

    def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
        return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)

    noisy, y, weights = [*TEXTS, *(f"{text} today" for text in TEXTS)], np.append(Y, Y), np.ones(24)
    first, fresh, clean = encoder(), encoder(), encoder()
    first.fit(FRUIT + TOOL[::-1], 1 - Y, ONES, 0)  # another first round leaves no trace
    first.fit(noisy, y, weights, 0)
    fresh._tuned = 1  # the second tuning draws other batches than the first
    fresh.fit(noisy, y, weights, 0)
    assert same(first.state(), fresh.state())
    clean._tuned = 1
    clean.fit(TEXTS, Y, ONES, 0)
    assert not same(clean.encoder.weights(), fresh.encoder.weights())
    tuned, head = first.encoder.weights(), first._head.weight
    first.refit(TEXTS, Y, ONES, 0)
    assert same(first.encoder.weights(), tuned) and first._tuned == 2
    assert not np.array_equal(first._head.weight, head)


def test_tuning_that_diverges_stops(saved):
    with pytest.raises(RunError, match="not finite at tuning step .* below 1e"):
        Encoder(saved(), LABELS, tune="full", learning_rate=1e38).fit(TEXTS, Y, ONES, 0)


def test_contrastive_loss_by_its_equation():
    random = torch.Generator().manual_seed(0)
    x, t = torch.randn(6, 4, generator=random), torch.eye(2)[[0, 1, 0, 1, 1, 0]]
    near, far = [], []
    for i in range(6):
        for j in range(i + 1, 6):
            cos = float(torch.cosine_similarity(x[i], x[j], dim=0))
            (near if torch.equal(t[i], t[j]) else far).append((1 - cos) ** 2 if torch.equal(t[i], t[j]) else cos**2)
    assert float(contrastive_loss(x, t)) == pytest.approx(np.mean(near) + np.mean(far), rel=1e-5)
    assert float(contrastive_loss(t + 1e-9, t)) == pytest.approx(0, abs=1e-6)


def test_batches_have_as_many_rows_of_each_class():
    random = np.random.default_rng(0)
    label, weights = np.repeat([0, 1, 2], [90, 9, 1]), np.ones(100)
    weights[:80] = 0
    rows = balanced_batch(label, weights, random)
    assert sorted(np.bincount(label[rows]).tolist()) == [10, 11, 11] and rows.min() >= 80
    many = balanced_batch(np.arange(300) % 100, np.ones(300), random)
    assert len(many) == BATCH and len(set(many % 100)) == BATCH // 2


def test_balance_gives_rare_classes_their_due(saved):
    texts, y = [*FRUIT * 5, TOOL[0]], np.array([0] * 30 + [1])
    p = []
    for balance in (False, True):
        classifier = Encoder(saved(), LABELS, strength=1.0)
        examples = make_examples(texts, y, 2, balance=balance)
        classifier.fit(examples.texts, examples.y, examples.weights, 0)
        p.append(classifier.predict_proba(TOOL)[:, 1].mean())
    assert p[1] > 2 * p[0]


@pytest.mark.parametrize("tune", ["none", "contrastive"])
def test_a_saved_directory_loads_everywhere(saved, tune, tmp_path):
    source = sentence_directory(saved(), tmp_path / "source", sentence_bert_config={"max_seq_length": 16})
    classifier = Encoder(source, LABELS, tune=tune, steps=2, prompt="please ")
    classifier.fit(TEXTS, Y, ONES, 0)
    classifier.save(tmp_path / "model")
    again = load(tmp_path / "model", LABELS)
    assert isinstance(again, Encoder) and again.tune == tune and again.encoder.max_length == 16
    assert np.array_equal(again.predict_proba(ODD), classifier.predict_proba(ODD))
    prompted = [f"please {text}" for text in TEXTS]
    np.testing.assert_allclose(plain(tmp_path / "model", prompted), again.embed(TEXTS), atol=1e-5)
    assert not [p for p in (tmp_path / "model").rglob("*") if p.suffix in (".bin", ".pkl", ".pt") or p.name[0] == "."]
    again.fit(TEXTS, Y, ONES, 0)  # what was tuned is not tuned again
    np.testing.assert_allclose(again.predict_proba(ODD), classifier.predict_proba(ODD), atol=1e-5)
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, again.embed(TEXTS), atol=1e-5)


@pytest.mark.parametrize("classes", range(2, 40))
def test_a_head_of_any_size_loads(tmp_path, classes):
    """The first byte of a safetensors file is a length, and can be that of a pickle."""
    from safetensors.numpy import save

    arrays = {"bias": np.zeros(classes, np.float32), "weight": np.zeros((classes, 384), np.float32)}
    (tmp_path / "head.safetensors").write_bytes(save(arrays))
    assert read_tensors(tmp_path, "head.safetensors").keys() == arrays.keys()


def test_what_a_saved_directory_says_is_checked(saved, tmp_path):
    Encoder(saved(), LABELS).save(tmp_path)
    said = json.loads((tmp_path / "epida.json").read_text())
    for change, match in (
        ({"classifier": "os:system"}, "can be transformer or encoder"),
        ({"options": 3}, "is not complete"),
    ):
        (tmp_path / "epida.json").write_text(json.dumps(said | change))
        with pytest.raises(RequestError, match=match):
            load(tmp_path)
    (tmp_path / "epida.json").write_text("{")
    with pytest.raises(RequestError, match="JSON"):
        load(tmp_path)


def test_weights_that_are_loaded_again_change_no_embedding(saved, monkeypatch):
    """A trainer goes back to the weights of a round; where they are the same, nothing is embedded anew."""
    classifier = Encoder(saved(), LABELS, tune="contrastive", steps=2)
    classifier.fit(TEXTS, Y, ONES, 0)
    state, before = classifier.state(), classifier.embed(TEXTS)
    embedded: list[str] = []
    compute = classifier.encoder._compute
    monkeypatch.setattr(classifier.encoder, "_compute", lambda texts: (embedded.extend(texts), compute(texts))[1])
    classifier.load_state(state)
    assert np.array_equal(classifier.embed(TEXTS), before) and not embedded
    changed = {k: v + 0.1 if v.dtype == np.float32 and k.startswith("encoder/") else v for k, v in state.items()}
    classifier.load_state(changed)
    assert not np.array_equal(classifier.embed(TEXTS), before) and embedded


@pytest.mark.parametrize("tune", ["none", "contrastive"])
def test_rounds(saved, tune):
    """An encoder learns in rounds, and a trainer that continues from a checkpoint ends in the same bits."""
    rows = LabelledRows([str(i) for i in range(12)], TEXTS, Y)
    kept = Kept([[f"{text} please"] for text in TEXTS])

    def trainer() -> RoundTrainer:
        classifier = Encoder(saved(), LABELS, tune=tune, steps=3, retune=tune != "none")
        return RoundTrainer(classifier, rows, rows, LearnOptions(Schedule(1, (1, 1)), TrainingOptions()))

    whole, first, second = trainer(), trainer(), trainer()
    whole.run(lambda round_: kept)
    first.train_round(0, None)
    first.train_round(1, kept)
    arrays = first.state()
    parts = [{k.partition("/")[2]: v for k, v in arrays.items() if k.startswith(p)} for p in ("trainer/", "best/")]
    second.load_state(*parts, first.progress)
    second.run(lambda round_: kept)
    assert second.progress.metrics[-1]["dev_macro_f1"] == 1.0
    ours, theirs = second.classifier.state(), whole.classifier.state()
    assert ours.keys() == theirs.keys() and all(np.array_equal(ours[k], theirs[k]) for k in ours)


def test_processes_share_the_cache(saved, own_cache):
    code = (
        "import sys; from epida_ray.classify.sentence import SentenceEncoder\n"
        "e = SentenceEncoder(sys.argv[1])\n"
        "x = [e.embed([f'i want number {i}', f'a saw {i}', f'{sys.argv[2]} {i}']) for i in range(40)]\n"
        "import hashlib, numpy; print(hashlib.sha256(numpy.stack(x)[:, :2].tobytes()).hexdigest())"
    )
    command = [sys.executable, "-c", code, str(saved())]
    running = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in ("hammer", "pear")]
    answers = [process.communicate(timeout=120)[0] for process in running]
    assert answers[0] == answers[1] and len(answers[0]) == 65
    assert all(process.returncode == 0 for process in running)
    assert len(list(own_cache.glob("*.sqlite"))) == 1


def test_minilm_is_the_default():
    pytest.importorskip(MINILM_PACKAGE)
    classifier = create("encoder", LABELS)
    assert classifier.describe().startswith("sentence encoder MiniLM-L6 (22.7 M parameters, frozen)")
    a, b, c = classifier.embed(["a cheap car", "an inexpensive automobile", "the theory of numbers"])
    assert a @ b > 0.7 > 0.3 > a @ c
    classifier.fit(TEXTS, Y, ONES, 0)
    assert classifier.predict_proba(["a banana", "a screwdriver"]).argmax(axis=1).tolist() == [0, 1]
