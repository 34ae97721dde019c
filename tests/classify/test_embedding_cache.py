import numpy as np

from epida_ray.classify import embedding_cache
from epida_ray.classify.embedding_cache import EmbeddingCache, key_of

KEYS = [key_of(f"text {i}") for i in range(1200)]
VECTORS = {key: np.full(3, i, np.float32) for i, key in enumerate(KEYS)}


def same(found, keys) -> bool:
    return found.keys() == set(keys) and all(np.array_equal(found[k], VECTORS[k]) for k in keys)


def test_another_cache_finds_them_on_disk(tmp_path):
    path = tmp_path / "folder" / "a.sqlite"
    EmbeddingCache(3, path).put(VECTORS)
    assert same(EmbeddingCache(3, path).get([*KEYS, *KEYS, key_of("never")]), KEYS)
    assert not EmbeddingCache(4, path).get(KEYS)  # vectors of another width are not these
    in_memory = EmbeddingCache(3)
    in_memory.put(VECTORS)
    assert same(in_memory.get(KEYS), KEYS)


def test_the_oldest_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_cache, "MEMORY_BYTES", 10 * 12)
    monkeypatch.setattr(embedding_cache, "DISK_BYTES", 100 * 12)
    cache = EmbeddingCache(3, tmp_path / "a.sqlite")
    for start in range(0, 1200, 50):
        cache.put({key: VECTORS[key] for key in KEYS[start : start + 50]})
    assert len(cache._memory) == 10
    assert same(EmbeddingCache(3, cache.path).get(KEYS), KEYS[-100:])


def test_only_some_encoders_have_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_cache, "ENCODERS", 2)
    for i in range(4):
        EmbeddingCache(3, tmp_path / f"{i}.sqlite").put({KEYS[0]: VECTORS[KEYS[0]]})
    assert len(list(tmp_path.iterdir())) == 2


def test_a_damaged_file_or_no_place_to_write_costs_only_time(tmp_path):
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"this is no database" * 100)
    cache = EmbeddingCache(3, path)
    assert not cache.get(KEYS)
    cache.put(VECTORS)
    assert same(EmbeddingCache(3, path).get(KEYS), KEYS)
    (tmp_path / "file").write_text("")
    nowhere = EmbeddingCache(3, tmp_path / "file" / "a.sqlite")
    nowhere.put(VECTORS)
    assert same(nowhere.get(KEYS), KEYS)
    assert not EmbeddingCache(3, nowhere.path).get(KEYS)
