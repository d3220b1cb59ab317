"""Algorithm 1 of AReaL: how sequences are packed into micro-batches, simulated and real alike."""

from collections.abc import Sequence


def dynamic_microbatches(lengths: Sequence[int], capacity_tokens: int, k_min: int = 1) -> list[list[int]]:
    """Cut sequences into micro-batches of at most `capacity_tokens`: Algorithm 1 of AReaL (arXiv 2505.24298).

    Longest first; a sequence opens a micro-batch while there are fewer than `k_min` or when it fits in
    none, else it joins the fitting one with the fewest sequences (the first of equals). A sequence longer
    than the capacity gets a micro-batch of its own: sequences are never cut.

    Returns:
        Indices into `lengths`, one list a micro-batch.
    """
    batches: list[list[int]] = []
    tokens: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[index]
        fitting = [b for b, used in enumerate(tokens) if used + length <= capacity_tokens]
        if len(batches) < k_min or not fitting:
            batches.append([index])
            tokens.append(length)
        else:
            best = min(fitting, key=lambda b: len(batches[b]))
            batches[best].append(index)
            tokens[best] += length
    return batches
