"""What a trainer is started with."""

import json
from dataclasses import dataclass
from pathlib import Path

from interfaces.scenario import Scenario

CHECKPOINT_PREFIX = "step-"


def checkpoint_path(directory: Path, step: int) -> Path:
    """Where the checkpoint after a step lies."""
    return directory / f"{CHECKPOINT_PREFIX}{step}"


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """Scenario and directories of one trainer process."""

    scenario: Scenario
    where: str
    """Path of the scenario file, for messages."""
    model_dir: Path
    """Hugging Face causal LM that training starts from."""
    weights_dir: Path
    """Where published versions are written; memory-backed where the machine has one (`/dev/shm`)."""
    checkpoints_dir: Path
    resume_from: Path | None = None
    """Checkpoint (`<checkpoints_dir>/step-N`) to go on from; None: begin at version 0."""

    def to_json(self) -> str:
        """For another process."""
        return json.dumps(
            {
                "scenario": self.scenario.model_dump_json(),
                "where": self.where,
                "model_dir": str(self.model_dir),
                "weights_dir": str(self.weights_dir),
                "checkpoints_dir": str(self.checkpoints_dir),
                "resume_from": str(self.resume_from) if self.resume_from else None,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "TrainerSettings":
        """What `to_json` wrote."""
        data = json.loads(text)
        return cls(
            scenario=Scenario.model_validate_json(data["scenario"]),
            where=data["where"],
            model_dir=Path(data["model_dir"]),
            weights_dir=Path(data["weights_dir"]),
            checkpoints_dir=Path(data["checkpoints_dir"]),
            resume_from=Path(data["resume_from"]) if data["resume_from"] else None,
        )
