"""Contracts of Trainer, WeightSync, ReplayBuffer and RewardService."""

from interfaces import actions, events
from interfaces.conformance.contracts import busy, contract, fill, load, new_version, publish, train
from interfaces.conformance.dialogue import Dialogue


@contract("a training ends once, with its step")
def training_finishes(talk: Dialogue) -> None:
    """Two steps in a row."""
    for _ in range(2):
        train(talk, fill(talk, talk.backend.config.batch_size))
    talk.settle()


@contract("a step may be trained in parts; only the last one ends it", lambda c: c.streaming)
def training_in_parts(talk: Dialogue) -> None:
    """The first group, then the others."""
    first, *rest = fill(talk, talk.backend.config.batch_size)
    train(talk, [first], last=False)
    train(talk, rest)
    train(talk, fill(talk, talk.backend.config.batch_size))
    talk.settle()


@contract("a step trains although tokens of some rollouts are masked", lambda c: c.token_masks)
def masked_training(talk: Dialogue) -> None:
    """One group of version 0 is masked, the others count."""
    old = fill(talk, 1)
    version = new_version(talk)
    load(talk, version, None)
    train(talk, [*old, *fill(talk, talk.backend.config.batch_size - 1)], mask_below=version)
    talk.settle()


@contract("checkpoint and evaluation finish, after a publish that was asked for before them")
def phases_follow_the_publish(talk: Dialogue) -> None:
    """Publish, checkpoint and evaluate at once, as the core does."""
    train(talk, fill(talk, talk.backend.config.batch_size))
    step = talk.books.version - 1
    for action in (actions.Publish(talk.books.version), actions.Checkpoint(step), actions.Evaluate(step)):
        talk.ask(action)
    while talk.books.busy.total():
        event = talk.wait("checkpoint and evaluation finish")
        if isinstance(event, events.CheckpointFinished) and talk.books.publishing is not None:
            talk.fail(
                "the version is published first", f"{type(event).__name__} before WeightsPublished",
                "the trainer: writes the checkpoint before it hands out the weights",
            )  # fmt: skip
    talk.settle()


@contract("generation goes on through a checkpoint")
def generation_goes_on(talk: Dialogue) -> None:
    """A rollout started with a checkpoint under way makes tokens before that ends, if it takes long."""
    train(talk, fill(talk, talk.backend.config.batch_size))
    asked = talk.now
    talk.ask(actions.Checkpoint(talk.books.version - 1))
    rollout = talk.generate(talk.backend.replicas[0])
    talk.settle()
    end = next(line.at for line in talk.lines if isinstance(line.said, events.CheckpointFinished))
    first = talk.first_token_at[rollout]
    if first > end > asked + 2 * talk.backend.moment_s:
        expected = f"tokens while the checkpoint is written, from {asked:.3f} s to {end:.3f} s"
        talk.fail(expected, f"the first at {first:.3f} s", "the backend: generation waits for the checkpoint")


@contract("every version is published once, and in order")
def publish_is_answered(talk: Dialogue) -> None:
    """Two versions."""
    new_version(talk)
    talk.moment()
    new_version(talk)
    talk.settle()


@contract("a version that no replica has loaded may be skipped")
def load_may_skip_a_version(talk: Dialogue) -> None:
    """Publish twice, load once."""
    new_version(talk)
    load(talk, new_version(talk), None)
    fill(talk, 1)
    talk.settle()


@contract("the buffer holds what finished and was not given to the trainer")
def buffer_holds_what_finished(talk: Dialogue) -> None:
    """Fill it, train from it."""
    batch = fill(talk, talk.backend.config.batch_size)
    _holds(talk, sum(map(len, batch)), "all that finished")
    train(talk, batch)
    _holds(talk, 0, "nothing: the trainer had it")


@contract("what is discarded leaves the buffer; unknown rollouts are ignored")
def buffer_discards(talk: Dialogue) -> None:
    """A finished group, twice over, and what never was."""
    first, second = fill(talk, 2)
    talk.ask(actions.Discard(talk.finished[first[0]].group.prompt, tuple(first), (), "filtered"))
    talk.backend.buffer.discard((*first, 10**6))
    _holds(talk, len(second), "the group that was not discarded")
    talk.settle()


@contract("a rollout that is discarded while it runs is not kept when it ends", lambda c: c.abort)
def discarded_work_is_not_kept(talk: Dialogue) -> None:
    """As the core does: discard, then abort."""
    for rollout in busy(talk):
        talk.ask(actions.Discard(talk.books.members[rollout].group.prompt, (rollout,), (rollout,), "stale"))
        talk.ask(actions.Abort(rollout, talk.backend.replicas[0]))
    talk.settle()
    _holds(talk, 0, "nothing: all was discarded")


def _holds(talk: Dialogue, count: int, what: str) -> None:
    if len(talk.backend.buffer) != count:
        talk.fail(
            f"{count} rollouts in the buffer: {what}", f"{len(talk.backend.buffer)}", "the replay buffer"
        )


@contract("every finished rollout gets exactly one reward: with its end, or after it")
def rewards_follow(talk: Dialogue) -> None:
    """Many at once."""
    fill(talk, 2 * talk.backend.config.batch_size)
    talk.settle()


@contract("shared GPUs change role when asked, and generate again afterwards", lambda c: c.colocated)
def roles_switch(talk: Dialogue) -> None:
    """A synchronous step on one set of GPUs."""
    batch = fill(talk, talk.backend.config.batch_size)
    _switch(talk, "train")
    train(talk, batch)
    version = publish(talk)
    _switch(talk, "generate")
    load(talk, version, None)
    fill(talk, 1)
    talk.settle()


def _switch(talk: Dialogue, role: str) -> None:
    talk.ask(actions.SwitchRole(role))
    talk.until(lambda: talk.books.switching is None, "RoleSwitched")
