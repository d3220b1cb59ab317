"""A set of prompt numbers that takes little memory when nearly all are in it."""


class PromptSet:
    """A set of prompts in which nearly everything below some mark is."""

    __slots__ = ("_above", "_below", "_gaps")

    def __init__(self) -> None:
        self._below = 0
        self._above: set[int] = set()
        self._gaps: set[int] = set()

    def __contains__(self, prompt: int) -> bool:
        return (prompt < self._below and prompt not in self._gaps) or prompt in self._above

    def add(self, prompt: int) -> None:
        """Put a prompt in."""
        self._gaps.discard(prompt)
        if prompt >= self._below:
            self._above.add(prompt)
            self._advance()

    def skip(self, prompt: int) -> None:
        """This prompt may never come: the mark does not wait for it."""
        if prompt not in self:
            self._gaps.add(prompt)
            self._advance()

    def forget(self, prompt: int) -> None:
        """What was done to this prompt is undone: it may come again."""
        self._above.discard(prompt)
        self._gaps.add(prompt)
        self._advance()

    def _advance(self) -> None:
        while self._below in self._above or self._below in self._gaps:
            self._above.discard(self._below)
            self._below += 1
