import numpy as np

from epida_ray.core.splitmix import splitmix64


def test_the_first_numbers_are_the_published_ones() -> None:
    first = splitmix64(np.array([0], np.uint64), np.arange(1, 4, dtype=np.uint64))
    assert first.tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_seeds_and_places_are_broadcast_and_wrap_around() -> None:
    seeds = np.array([5, 2**64 - 1], np.uint64)[:, None]
    table = splitmix64(seeds, np.arange(1, 9, dtype=np.uint64))
    assert table.shape == (2, 8) and len(set(table.ravel().tolist())) == 16
    assert splitmix64(seeds[1], np.array([8], np.uint64)).tolist() == table[1, 7:].tolist()
