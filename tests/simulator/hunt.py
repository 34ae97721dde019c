"""Many schedules on all cores, up to the first violation."""

from __future__ import annotations

from multiprocessing.pool import Pool

from tests.simulator.schedules import Violation, seeded

CHUNK = 250


def _play(job: tuple[int, int, int | None]) -> tuple[int, int, str]:
    """Play these seeds; return how many there were, their operations, and the first violation."""
    first, count, bug = job
    operations = 0
    for seed in range(first, first + count):
        try:
            operations += seeded(seed, bug)
        except Violation as violation:
            return seed - first + 1, operations, str(violation)
    return count, operations, ""


def hunt(pool: Pool, schedules: int, bug: int | None) -> tuple[int, int, str]:
    """Play so many schedules; return how many were played, their operations, and the first violation."""
    jobs = ((first, min(CHUNK, schedules - first), bug) for first in range(0, schedules, CHUNK))
    played = operations = 0
    for number, done, violation in pool.imap(_play, jobs):
        played, operations = played + number, operations + done
        if violation:
            return played, operations, violation
    return played, operations, ""
