"""The learner: one model, one optimizer, training steps on samples. In-process; see also `process.py`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from areal_real.tokens import Sample
from areal_real.trainer.checkpoint import TrainerState, check_whole, read_optimizer, write_checkpoint
from areal_real.trainer.checks import check_finite, check_samples
from areal_real.trainer.errors import TrainingError
from areal_real.trainer.losses import NEEDS_PROXIMAL, token_losses, token_mean
from areal_real.trainer.packing import Row, microbatches, pack, rows_of
from areal_real.trainer.policy_model import (
    load_model,
    token_entropies,
    token_logits,
    token_logprobs,
    weights_of,
)
from areal_real.trainer.step_stats import StepStats, StepTotals
from areal_real.weight_file import write_weights
from interfaces.rollout import PolicyVersion
from interfaces.scenario import Scenario


def _nothing() -> None:
    pass


class Learner:
    """Trains a causal LM by the objective of `real.loss`; version v becomes v + 1 with each finished step.

    A step is `trainer.minibatches` optimizer steps over the rollouts in an order that seed and version
    determine, so a resumed run trains as the killed one would have. Within an optimizer step each response
    token weighs 1 / (response tokens of its minibatch, masked ones included), however the micro-batches are
    cut.

    A step may come in parts (`last=False`, streaming): their gradients add up without a denominator, and the
    one optimizer step at the end divides them by the response tokens of all parts: exactly the gradient of
    the whole batch in one minibatch. `trainer.minibatches` does not apply then.
    """

    def __init__(self, model_dir: Path, scenario: Scenario, *, resume_from: Path | None = None) -> None:
        """Load the model, or the checkpoint `resume_from` of it.

        Raises:
            TrainingError: no model there that can be trained, or the scenario contradicts itself.
            CheckpointError: the checkpoint is missing or not whole.
        """
        self.scenario = scenario
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype: torch.dtype = getattr(torch, scenario.real.dtype)
        """Of matrix products and of published weights; the weights in training are float32."""
        self.version: PolicyVersion = 0
        _refuse_contradictions(scenario)
        self._needs_proximal = scenario.real.loss.objective in NEEDS_PROXIMAL
        self.model_dir = model_dir
        if resume_from is not None:
            self.version = check_whole(resume_from).version
        self.model = load_model(resume_from or model_dir, self.device)
        if scenario.trainer.activation_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        chosen = scenario.real.optimizer
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=chosen.learning_rate, betas=(chosen.beta1, chosen.beta2),
            eps=chosen.epsilon, weight_decay=chosen.weight_decay,
        )  # fmt: skip
        if resume_from is not None:
            read_optimizer(resume_from, self.model, self.optimizer)
        self._totals: StepTotals | None = None
        self._written: PolicyVersion = -1
        self._before: tuple[PolicyVersion, dict[str, torch.Tensor]] | None = None
        """Weights that the latest step started from, if they were not written by then."""

    def step(
        self,
        samples: Sequence[Sample],
        version: PolicyVersion,
        mask_below: PolicyVersion | None = None,
        *,
        last: bool = True,
        last_segment: bool = False,
        progress: Callable[[], None] = _nothing,
    ) -> StepStats | None:
        """Train on whole groups, starting from `version`.

        Args:
            samples: rollouts of the step, or of a part of it.
            version: must be the version that the weights have.
            mask_below: tokens of an older version are left out of the loss.
            last: the step ends here; False: more parts follow, and weights do not change yet.
            last_segment: of each rollout only the tokens of its newest version count in the loss.
            progress: called after each micro-batch.

        Returns:
            Statistics of the whole step; None when it goes on.

        Raises:
            TrainingError: the samples cannot be trained, or a number is not finite. Weights are then as the
                last whole optimizer step left them.
        """
        if version != self.version:
            raise TrainingError(
                f"asked to train from version {version}, but the weights have version {self.version}"
            )
        config = self.model.config.get_text_config()
        positions = getattr(config, "max_position_embeddings", None)
        check_samples(samples, version, config.vocab_size, positions)
        if self._totals is None:
            self._keep_unwritten()
        streaming = self._totals is not None or not last
        capacity = self.scenario.trainer.max_tokens_per_microbatch
        totals = self._totals or StepTotals(version, capacity)
        totals.add_samples(list(samples))
        rows = rows_of(samples, self.scenario.real.loss, mask_below, last_segment=last_segment)
        try:
            if streaming:
                self._accumulate(rows, 1, totals, progress)
            else:
                self._minibatch_steps(rows, totals, progress)
            if streaming and last:
                self._optimize(totals, rows, denominator=totals.tokens)
        except TrainingError:
            self.optimizer.zero_grad()
            self._totals = None
            raise
        self._totals = None if last else totals
        if not last:
            return None
        self.version += 1
        return totals.stats()

    def save_weights(self, path: Path, version: PolicyVersion) -> None:
        """Write the weights of a version, in the type that replicas compute in, for them to load.

        Args:
            path: of the file.
            version: the present one; or the one before, if it was not written until now.

        Raises:
            WeightFileError: the file cannot be written.
            TrainingError: the weights of that version are gone.
        """
        if version == self.version:
            weights = weights_of(self.model)
        elif self._before is not None and self._before[0] == version:
            weights = self._before[1]
        else:
            raise TrainingError(
                f"version {version} cannot be published: the weights have version {self.version}"
            )
        write_weights(path, {name: weight.to(self.dtype) for name, weight in weights.items()}, version)
        self._written = version

    def save_checkpoint(self, directory: Path) -> None:
        """Write weights and optimizer whole to a directory, or leave everything as it was.

        The directory is itself a model in Hugging Face format. The two latest checkpoints beside it stay.

        Raises:
            CheckpointError: it cannot be written, or a step is only half trained.
        """
        write_checkpoint(directory, self.model, self.optimizer, TrainerState(self.version), self.model_dir)

    def _keep_unwritten(self) -> None:
        """A publish may be decided while the next step runs already; those weights must still be there."""
        self._before = None
        if self._written != self.version:
            kept = {name: weight.to("cpu", copy=True) for name, weight in weights_of(self.model).items()}
            self._before = (self.version, kept)

    def _minibatches(self, rows: Sequence[Row]) -> list[list[Row]]:
        numbers = np.random.default_rng((self.scenario.run.seed, self.version))
        order = numbers.permutation(len(rows))
        parts = np.array_split(order, min(self.scenario.trainer.minibatches, len(rows)))
        return [[rows[index] for index in part] for part in parts]

    def _minibatch_steps(self, rows: Sequence[Row], totals: StepTotals, progress: Callable[[], None]) -> None:
        """One optimizer step a minibatch, all of them around the policy that the step starts from."""
        minibatches = self._minibatches(rows)
        if self._needs_proximal:
            self._recompute_proximal([row for batch in minibatches[1:] for row in batch], progress)
        for minibatch in minibatches:
            tokens = sum(len(row.response_ids) for row in minibatch)
            self._accumulate(minibatch, tokens, totals, progress)
            self._optimize(totals, minibatch)

    def _recompute_proximal(self, rows: Sequence[Row], progress: Callable[[], None]) -> None:
        """Log-probs of all rows under the weights that the step starts from."""
        temperature = self.scenario.real.temperature
        with torch.no_grad():
            for batch in microbatches(rows, self.scenario.trainer):
                packed = pack(batch, self.device)
                logits = token_logits(self.model, packed, self.dtype)
                logprobs_N = token_logprobs(logits, packed.targets_N, temperature)
                check_finite("proximal log-prob", logprobs_N, batch, packed.owners)
                ends = np.cumsum([len(row.response_ids) for row in batch])
                for row, part in zip(batch, np.split(logprobs_N.cpu().numpy(), ends[:-1]), strict=True):
                    row.proximal = part
                progress()

    def _accumulate(
        self, rows: Sequence[Row], denominator: int, totals: StepTotals, progress: Callable[[], None]
    ) -> None:
        """Add the gradient of the sum of token losses, divided by `denominator`.

        Rows without proximal log-probs are those that train before the first optimizer step: their proximal
        policy is the present one.
        """
        temperature = self.scenario.real.temperature
        for batch in microbatches(rows, self.scenario.trainer):
            packed = pack(batch, self.device)
            logits = token_logits(self.model, packed, self.dtype)
            current_N = token_logprobs(logits, packed.targets_N, temperature)
            proximal_N = packed.proximal_N if packed.proximal_N is not None else current_N.detach()
            losses = token_losses(
                current_N, proximal_N=proximal_N, behaviour_N=packed.behaviour_N,
                advantages_N=packed.advantages_N, mask_N=packed.mask_N, loss=self.scenario.real.loss,
            )  # fmt: skip
            check_finite("loss of a token", losses.losses_N.detach(), batch, packed.owners)
            token_mean(losses.losses_N, denominator).backward()
            totals.add_microbatch(packed, losses, current_N, token_entropies(logits, temperature))
            progress()

    def _optimize(self, totals: StepTotals, rows: Sequence[Row], denominator: int = 1) -> None:
        """Clip the gradient and move the weights."""
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        if denominator != 1:
            for parameter in parameters:
                assert parameter.grad is not None
                parameter.grad /= denominator
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.scenario.real.optimizer.gradient_clip))
        if not np.isfinite(norm):
            named = ", ".join(str(row.rollout) for row in rows[:8]) + (" …" if len(rows) > 8 else "")
            raise TrainingError(
                f"gradient norm is {norm} over rollouts {named}; the weights are as they were before this "
                "optimizer step. Lower real.optimizer.learning_rate"
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        totals.add_optimizer_step(norm)


def _refuse_contradictions(scenario: Scenario) -> None:
    """Raise TrainingError for what a scenario may ask of the simulator, but not of this trainer."""
    trainer, objective = scenario.trainer, scenario.real.loss.objective
    if objective in NEEDS_PROXIMAL and not trainer.recompute_proximal:
        raise TrainingError(
            f"trainer.recompute_proximal = false, but real.loss.objective = {objective!r} is centred on the "
            'proximal policy; set it to true, or choose the objective "ppo"'
        )
    gpus = max(scenario.cluster.trainer_gpus, trainer.tensor_parallel * trainer.pipeline_parallel)
    if gpus > 1:
        raise TrainingError(
            f"the scenario trains on {gpus} GPUs, but the real trainer is one process on one device; set "
            "cluster.trainer_gpus, trainer.tensor_parallel and trainer.pipeline_parallel to 1, or simulate it"
        )
