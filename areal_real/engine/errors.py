"""What an engine cannot recover from by itself."""

from interfaces.errors import TestbedError


class EngineError(TestbedError):
    """An engine does not start, does not answer, or died too often."""

    exit_code = 7

    def __init__(self, replica: int, what: str, remedy: str) -> None:
        self.replica, self.what, self.remedy = replica, what, remedy
        super().__init__(f"replica {replica}: {what}; {remedy}")
