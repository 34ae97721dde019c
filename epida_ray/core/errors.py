"""Errors that a user sees. The message is the whole story: what is wrong and what to do next."""


class EpidaError(Exception):
    """A failure with a message for the user; the command line prints it without a traceback."""

    exit_status = 1


class RequestError(EpidaError):
    """The request is wrong, and nothing was started. Exit status 2."""

    exit_status = 2


class RunError(EpidaError):
    """The run failed: what failed, what is kept and how to resume. Exit status 1."""


class TooManyRejected(RunError):
    """More rows were rejected than --max-rejected allows. Resuming does not help; the message says what does."""


class TakenOver(RunError):
    """Another process owns the run now; this one must not write any more."""


class TransientError(RunError):
    """Storage failed again and again; what was being read or written stays undone, and the same command resumes."""
