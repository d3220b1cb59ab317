"""How long micro-batches of unequal size take through a pipeline of equal stages.

A micro-batch takes the same time on every stage. With m equal ones both schedules take the time of
`m + stages - 1`; with unequal ones the stages of 1F1B, which work on different micro-batches at the same
moment, wait for each other again and again. That, more than filling the pipeline, is what badly cut
micro-batches cost.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def forward_only(microbatch_s: Floats, stages: int) -> Floats:
    """Time of each rank for a forward pass, shape (ranks,): `sum + (stages - 1) * longest`.

    `microbatch_s` has shape (ranks, micro-batches), 0 where a rank has fewer. Exact for jobs that take the
    same time on each machine of a row (proportionate flow shop; Pinedo, "Scheduling", 2016, section 6.1).
    """
    busy: Floats = microbatch_s.sum(axis=1) + (stages - 1) * microbatch_s.max(axis=1)
    return busy


def one_f_one_b(microbatch_s: Floats, count: Ints, stages: int, forward_share: float) -> Floats:
    """Time of each rank for forward and backward under the 1F1B schedule, shape (ranks,).

    Stage s runs `stages - s - 1` forwards, then one forward and one backward in turn, then the remaining
    backwards (Narayanan et al., arXiv 2104.04473). A forward waits for the stage before, a backward for the
    stage after. Round k holds forward k of every stage and the backward that follows it, number
    `k - (stages - s - 1)`: forwards of a round are a max-plus scan over stages, backwards need the round
    before.

    Args:
        microbatch_s: forward plus backward of each micro-batch on one stage, shape (ranks, micro-batches).
        count: micro-batches of each rank, which stand first in its row; shape (ranks,).
        stages: pipeline-parallel stages.
        forward_share: part of a micro-batch's time that is its forward.
    """
    if stages == 1:
        return forward_only(microbatch_s, 1)
    ranks, most = microbatch_s.shape
    stage = np.arange(stages)
    clock = np.zeros((ranks, stages))
    for k in range(most + stages - 1):
        before = clock
        if k < most:
            forward = forward_share * microbatch_s[:, k, None]
            ready = np.maximum.accumulate(clock - stage * forward, axis=1) + (stage + 1) * forward
            clock = np.where(k < count[:, None], ready, clock)
        first = max(0, stages - 1 - k)
        last = min(stages, stages - 1 - k + most)  # stages whose backward exists in this round
        number = k - (stages - 1 - stage[first:last])
        start = clock[:, first:last].copy()
        after = before[:, first + 1 : last + 1]
        start[:, : after.shape[1]] = np.maximum(start[:, : after.shape[1]], after)
        done = start + (1 - forward_share) * microbatch_s[:, number]
        clock = clock.copy()
        clock[:, first:last] = np.where(number < count[:, None], done, clock[:, first:last])
    finished: Floats = clock.max(axis=1)
    return finished
