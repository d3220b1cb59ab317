"""Prompts that are generated again and again and never train: work that a policy throws away for ever."""

from interfaces.actions import Generate

MANY = 5
"""Starts after the first from which a prompt that never trained counts as starving."""


class Starvation:
    """Follows the prompts that were started more than once, until they train."""

    def __init__(self) -> None:
        self._again: dict[int, int] = {}
        """Starts after the first, by prompt."""
        self._restarts: dict[int, int] = {}
        """The same by rollout, for those that went back to token 0."""
        self._prompt: dict[int, int] = {}
        """Of each rollout that is not a first start."""

    def restarted(self, action: Generate) -> None:
        """A rollout starts from token 0 once more, or its prompt was given back and is generated again."""
        times = action.attempt
        if not times:
            times = self._restarts[action.rollout] = self._restarts.get(action.rollout, 0) + 1
        prompt = self._prompt[action.rollout] = action.prompt
        self._again[prompt] = max(times, self._again.get(prompt, 0))

    def trained(self, rollouts: tuple[int, ...]) -> None:
        """These did not starve after all."""
        if not self._prompt:
            return
        for rollout in rollouts:
            prompt = self._prompt.pop(rollout, None)
            if prompt is not None:
                self._again.pop(prompt, None)
                self._restarts.pop(rollout, None)

    def summary(self) -> dict[str, int]:
        """Prompts that starve, and how often the worst of them was started."""
        starving = [times for times in self._again.values() if times >= MANY]
        return {"prompts": len(starving), "most_starts": max(starving, default=0) + bool(starving)}
