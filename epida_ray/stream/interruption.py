"""An orderly end of a run that is refused or interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter
from epida_ray.runs.run import Run


@contextmanager
def interruptible(run: Run, reporter: Reporter | None = None) -> Iterator[None]:
    """End the run in order on Ctrl-C and SIGTERM: what is done is kept, and the message says how to resume.

    With a reporter the message comes at once. Use that inside `connected`: `ray job stop` gives a driver a second or
    two, and leaving Ray can take longer.
    """
    try:
        yield
    except RequestError as error:
        if run.manifest.status != "finished" and not run.manifest.done.shards and run.manifest.best is None:
            # nothing is done, so a corrected request may use the directory; `epida status` shows the problem
            run.save(status="preparing", problem=str(error))
        raise
    except KeyboardInterrupt:
        run.save(status="interrupted", **(run.progress() if run.totals.shards else {}))
        kept = f"what is done is kept in {run.storage.location}; run the same command again to resume"
        if reporter is not None:
            reporter.say(f"stopping: {kept}")
        raise RunError(f"interrupted; {kept}") from None
