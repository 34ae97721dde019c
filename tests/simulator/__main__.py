"""python -m tests.simulator --schedules 100000: play schedules on all cores; 0 violations are expected.

With --bugs, old bugs are put back one by one, and each has to be found within 10,000 schedules.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time

from tests.simulator.hunt import hunt
from tests.simulator.patches import BUGS
from tests.simulator.schedules import seeded


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, help="play this one")
    parser.add_argument("--bug", type=int, choices=sorted(BUGS), help="put this old bug back")
    parser.add_argument("--bugs", action="store_true", help="put all old bugs back, one by one")
    given = parser.parse_args()
    if given.seed is not None:
        print(f"{seeded(given.seed, given.bug):,} operations, no violation")
        return 0
    status = 0
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        began = time.monotonic()
        if not given.bugs:
            played, operations, violation = hunt(pool, given.schedules, given.bug)
            print(
                f"{played:,} schedules, {operations:,} operations in {time.monotonic() - began:.0f} s: "
                f"{violation or '0 violations'}"
            )
            return int(bool(violation))
        for bug in sorted(BUGS):
            played, _, violation = hunt(pool, min(given.schedules, 10_000), bug)
            status |= not violation
            print(f"bug {bug}: {f'found in schedule {played:,}: {violation}' if violation else 'NOT FOUND'}")
        pool.terminate()
    return status


if __name__ == "__main__":
    sys.exit(main())
