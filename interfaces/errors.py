"""Errors a user can act on: each says where, which value, which rule and what to do."""


class TestbedError(Exception):
    """Base of every error this project raises on purpose; a command prints it without a traceback."""

    exit_code = 1


class ScenarioError(TestbedError):
    """The scenario is wrong: `file: key = value rule; remedy`."""

    exit_code = 2

    def __init__(self, where: str, key: str, value: object, rule: str, remedy: str) -> None:
        self.where, self.key, self.value, self.rule, self.remedy = where, key, value, rule, remedy
        super().__init__(f"{where}: {key} = {value!r} {rule}; {remedy}")


class StallError(TestbedError):
    """Nothing can ever happen again although the run is not over; the message names the missing credit."""

    exit_code = 3


class ProtocolError(TestbedError):
    """A backend reported something that cannot be true in the present state."""

    exit_code = 4


class TraceError(TestbedError):
    """A trace or run directory cannot be read, or does not replay."""

    exit_code = 5


class DataError(TestbedError):
    """A file of measurements cannot be read, or does not say what is asked of it."""

    exit_code = 7
