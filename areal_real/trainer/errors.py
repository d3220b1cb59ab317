"""What can go wrong in training, as a user can act on it."""

from interfaces.errors import TestbedError


class TrainingError(TestbedError):
    """A step cannot be trained: numbers that are not finite, or tokens that do not fit the model."""

    exit_code = 6


class CheckpointError(TestbedError):
    """A checkpoint cannot be written or read; the last whole one is left as it was."""

    exit_code = 6


class TrainerDied(TestbedError):  # noqa: N818
    """The trainer process is gone or hangs; a new one can resume from the last checkpoint."""

    exit_code = 6
