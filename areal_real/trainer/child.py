"""The trainer process: `python -m areal_real.trainer.child PARENT CORES`, frames on stdin and stdout.

It reads one request at a time, answers it, and is gone within a second of its parent, whatever it does.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from areal_real.tasks.registry import find_task
from areal_real.trainer import commands
from areal_real.trainer.frames import Frame, encode, read_frame
from areal_real.trainer.sample_arrays import from_arrays
from areal_real.trainer.settings import TrainerSettings, checkpoint_path
from areal_real.weight_file import weights_path
from areal_report.parent_watch import die_with
from interfaces.errors import TestbedError


class Progress:
    """Signs of life, at most one in `EVERY_S`: each extends the deadline of the request."""

    EVERY_S = 1.0

    def __init__(self, send: Callable[[], None]) -> None:
        self._send, self._sent_at = send, time.monotonic()

    def __call__(self) -> None:
        """Something was done."""
        if time.monotonic() - self._sent_at >= self.EVERY_S:
            self._send()
            self._sent_at = time.monotonic()


class Worker:
    """Carries out requests on a learner."""

    def __init__(self, settings: TrainerSettings, progress: Callable[[], None]) -> None:
        from areal_real.trainer.evaluation import response_limit_tokens  # noqa: PLC0415 (loads torch)
        from areal_real.trainer.learner import Learner  # noqa: PLC0415

        self.settings = settings
        self._progress = progress
        scenario = settings.scenario
        self._limit_tokens = response_limit_tokens(scenario, settings.where)
        self._task = find_task(scenario.real.task, settings.model_dir, settings.where)
        self.learner: Learner = Learner(settings.model_dir, scenario, resume_from=settings.resume_from)

    def carry_out(self, frame: Frame) -> dict[str, Any]:
        """The answer to one request."""
        request = frame.head
        match request["kind"]:
            case commands.TRAIN:
                stats = self.learner.step(
                    from_arrays(frame.arrays), request["version"], request["mask_below"],
                    last=request["last"], last_segment=request["last_segment"], progress=self._progress,
                )  # fmt: skip
                return {"stats": stats.numbers() if stats else {}}
            case commands.PUBLISH:
                version = request["version"]
                self.learner.save_weights(weights_path(self.settings.weights_dir, version), version)
            case commands.CHECKPOINT:
                path = checkpoint_path(self.settings.checkpoints_dir, request["step"])
                self.learner.save_checkpoint(path)
            case commands.EVALUATE:
                return {"stats": self._evaluate()}
        return {}

    def _evaluate(self) -> dict[str, float]:
        from areal_real.trainer.evaluation import evaluate  # noqa: PLC0415

        return evaluate(
            self.learner.model, self._task, self.settings.scenario, self._limit_tokens, self._progress
        )


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the last; an error of the work is an answer too, any other ends the process."""

    def send(**head: Any) -> None:
        answers.write(encode(head))
        answers.flush()

    worker: Worker | None = None
    while (frame := read_frame(requests)) is not None and frame.head["kind"] != commands.CLOSE:
        try:
            if worker is None:
                settings = TrainerSettings.from_json(frame.head["settings"])
                worker = Worker(settings, Progress(lambda: send(progress=True)))
                send(answer={"version": worker.learner.version})
            else:
                send(answer=worker.carry_out(frame))
        except TestbedError as error:
            send(error=type(error).__name__, message=str(error))


def main() -> None:
    """Run the process."""
    die_with(int(sys.argv[1]))
    cores = {int(core) for core in sys.argv[2].split(",")}
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print goes to stderr, not among the frames
    import torch  # noqa: PLC0415 (after the watch began)

    if not torch.cuda.is_available():
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(len(cores))
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
