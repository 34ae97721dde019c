import numpy as np
import pytest

from epida_ray.classify import load
from epida_ray.classify.cnn import CNN
from epida_ray.classify.vectors import resolve
from epida_ray.core.errors import RequestError

WORDS = ["good", "bad", "über", "the"]
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3) / 7


def text(header: str = "") -> bytes:
    lines = [f"{w} {' '.join(repr(float(x)) for x in row)}" for w, row in zip(WORDS, TABLE, strict=True)]
    return (header + "\n".join(lines) + "\n").encode()


def binary() -> bytes:
    return b"4 3\n" + b"".join(w.encode() + b" " + row.tobytes() + b"\n" for w, row in zip(WORDS, TABLE, strict=True))


@pytest.fixture(params=["glove.txt", "w2v.txt", "w2v.bin", "table.npy"])
def path(request, tmp_path):
    path = tmp_path / request.param
    match request.param:
        case "glove.txt":
            path.write_bytes(text())
        case "w2v.txt":
            path.write_bytes(text("4 3\n"))
        case "w2v.bin":
            path.write_bytes(binary())
        case "table.npy":
            np.save(path, TABLE)
            path.with_suffix(".vocab").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return path


def test_every_format_gives_the_same_vectors(path):
    vectors = resolve(str(path))
    assert vectors.dimension == 3 and path.name in vectors.describe()
    np.testing.assert_allclose(vectors.rows(["über", "good"]), TABLE[[2, 0]])
    assert np.abs(vectors.rows(["unknown"])).max() > 0


def test_a_saved_model_finds_its_vectors_or_says_what_is_missing(path, tmp_path):
    cnn = CNN(("a", "b"), vectors=str(path), channels=4)
    cnn.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(["the good , the bad"]), cnn.predict_proba(["the good , the bad"]))
    if path.suffix == ".npy":
        np.save(path, TABLE + 1)
    else:
        path.write_bytes(
            text().replace(b"bad", b"worse") if path.suffix == ".txt" else binary().replace(b"bad", b"sad")
        )
    with pytest.raises(RequestError, match="other word vectors"):
        load(tmp_path / "model")
    path.unlink()
    with pytest.raises(RequestError, match="no word vectors"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("cut.bin", binary()[:-5], "word 4 of 4"),
        ("odd.bin", b"hello", "cannot be read"),
        ("huge.bin", b"999999999999 3\n", "header"),
        ("ragged.txt", text() + b"more 1 2\n", "line 5 has 2 numbers"),
        ("words.txt", b"good x y z\n", "cannot be read"),
        ("empty.txt", b"", "no word vectors"),
        ("lonely.npy", b"", "cannot be read"),
    ],
)
def test_damaged_files(tmp_path, name, content, match):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=match):
        resolve(str(tmp_path / name))


def test_a_table_without_its_words(tmp_path):
    np.save(tmp_path / "t.npy", TABLE)
    with pytest.raises(RequestError, match=r"t\.vocab"):
        resolve(str(tmp_path / "t.npy"))
    (tmp_path / "t.vocab").write_text("one\ntwo\n")
    with pytest.raises(RequestError, match="2 words"):
        resolve(str(tmp_path / "t.npy"))
    np.save(tmp_path / "t.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(RequestError, match="cannot be read"):
        resolve(str(tmp_path / "t.npy"))
