import numpy as np

from epida_ray.generate import draws


def test_a_row_depends_on_its_seed_alone() -> None:
    many = draws.rows([5, 6, 2**64 - 1], 10)
    assert many[1] == draws.rows([6], 10)[0]
    assert len(set(map(tuple, many))) == 3
    assert all(0 <= number < 1 << draws.BITS for row in many for number in row)


def test_a_row_goes_on_where_it_ends() -> None:
    short = draws.endless(9, draws.rows([9], 3)[0])
    long = draws.endless(9, draws.rows([9], 400)[0])
    assert [short() for _ in range(2000)] == [long() for _ in range(2000)]


def test_the_numbers_are_uniform() -> None:
    numbers = np.array(draws.rows(range(1000), 50))
    counts = np.bincount((numbers % 10).ravel(), minlength=10)
    assert abs(counts - 10_000).max() < 400
    assert abs(np.corrcoef(numbers[:, 0], numbers[:, 1])[0, 1]) < 0.1
    assert abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.1
