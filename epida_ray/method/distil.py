"""What `epida distil` checks before the teacher labels anything."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from epida_ray.core.errors import RequestError
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.reader import ShardReader
from epida_ray.method.prepare import read_labelled, split_known


def evaluation_rows(
    file: str, columns: Columns, encoding: str, delimiter: str | None, labels: Sequence[str], reporter: Reporter
) -> pa.Table:
    """Return the rows of --eval as `text` and `label`, as the teacher's labelled texts have them.

    Raise RequestError when no row has one of the teacher's labels: better now than after a whole pool is labelled.
    """
    plan = plan_inputs(file, columns, encoding, delimiter=delimiter)
    for line in plan.remarks():
        reporter.say(line)
    rows, rejected = read_labelled(plan)
    good, unknown = split_known(rows, labels)
    if not good:
        raise RequestError(f"--eval: no row can be used; the first: {(rejected + unknown)[0].reason}")
    reader = ShardReader(plan)
    return pa.concat_tables(reader.read(shard).select(["text", "label"]) for shard in plan.shards())
