"""What a user may be told. The message is the whole story: what is wrong and what to do next."""


class EpidaError(Exception):
    """A failure with a message for the user; the command line prints it without a traceback."""

    exit_status = 1


class RequestError(EpidaError):
    """The request was wrong; nothing was started. Exit status 2."""

    exit_status = 2


class RunError(EpidaError):
    """The run failed: says what failed, what is kept and how to resume. Exit status 1."""
