"""`docs/accuracy.md`: hits beside misses, what was fitted beside what was predicted."""

from collections.abc import Sequence

from areal_sim.validation.predict import Scored
from areal_sim.validation.protocol import Protocol
from areal_sim.validation.refit import LeftOut
from areal_sim.validation.score import Score, score

HEAD = """# How accurate are the predictions?

Written by `areal-sim validate --page docs/accuracy.md`; every number in the tables is computed by it (with
`--refit` it also has leave-one-out errors of what was fitted).
The protocol, with every published number, its run and its doubts, is one file:
`scenarios/measured/protocol.toml`.

![predicted against published](images/accuracy_scatter.svg)
![errors by regime](images/accuracy_by_regime.svg)

A filled dot is a prediction, a hollow one was fitted on, a grey one is in doubt. Rows in doubt are shown and
not scored.
"""

MISSES = """## What misses, and why

- **Fig. 5c and Table 7 beyond eta = 2**: the prediction is flat, since the trainer is busy all the time from
  there on. The paper still gains 4 to 11 %. Nothing in the model lets a busy trainer gain from more
  staleness.
- **Table 1**: only the ratio is meant; the predicted cluster is faster than the paper's. The trainer's
  efficiency here is what the paper's own Fig. 6a measures (300 to 450 TFLOP/s a GPU), while Fig. 5c and
  Table 1 imply about 120 to 160. For 32B no measured decode steps exist for eight GPUs a replica, so the
  roofline answers.
- **v0.2 step times**: the same excess speed in absolute terms. The synchronous step times of 1.5B follow
  26,283 s / GPUs + 176 s: 176 s that no GPU shortens, of which the longest rollout explains about 85 s.
- **verl, synchronous**: its totals say 499, 374 and 323 s a step for the first 200 steps on 32, 64 and 128
  GPUs. Steps 200 to 400 on 32 GPUs take twice as long as those before, which no other row of the table shows,
  and window means of single phases do not add up to the step: every row is compared by the mean of its first
  200 steps. The model shows by itself why 128 GPUs hardly help: the longest response takes as long as before.
- **Weight sync**: bytes over links. What resharding a mixture of experts costs is not in it.
"""

REMOVE = "`areal-sim validate --without ROW` leaves a row out and fits again what was fitted on it.\n"


def page(plan: Protocol, scored: Sequence[Scored], left_out: Sequence[LeftOut]) -> str:
    """The page as Markdown."""
    parts = [
        HEAD,
        "## Summary\n",
        _summary(scored),
        "## What was fitted, on what\n",
        _parameters(plan, scored, left_out),
    ]
    for suite, title in (
        ("areal", "The AReaL paper and its predecessors (H800)"),
        ("other", "Other systems"),
    ):
        rows = [s for s in scored if s.row.suite == suite]
        if rows:
            parts += [f"## {title}\n", _rows(rows)]
    doubts = [s for s in scored if s.row.suspect]
    if doubts:
        parts += ["## Rows in doubt\n", "\n".join(f"- {s.row.what}: {s.row.suspect}." for s in doubts) + "\n"]
    return "\n".join([*parts, MISSES])


def _summary(scored: Sequence[Scored]) -> str:
    lines = ["| suite | predicted | within goal | mean error | worst | rank correlation | pairs in order |"]
    lines.append("|---|---|---|---|---|---|---|")
    suites = list(dict.fromkeys(s.row.suite for s in scored))
    for suite in suites:
        found = score([s for s in scored if s.row.suite == suite])
        if found is not None:
            lines.append(f"| {suite} | {_cells(found)} |")
    return "\n".join(lines) + "\n"


def _cells(found: Score) -> str:
    correlation = "" if found.rank_correlation is None else f"{found.rank_correlation:.2f}"
    worst = f"{found.worst.error:+.1%} ({found.worst.row.what})"
    pairs = f"{found.pairs_in_order} of {found.pairs}"
    return f"{found.rows} | {found.hits} | {found.mape:.1%} | {worst} | {correlation} | {pairs}"


def _parameters(plan: Protocol, scored: Sequence[Scored], left_out: Sequence[LeftOut]) -> str:
    lines = ["| pair | parameter | value | fitted on | because |", "|---|---|---|---|---|"]
    for p in plan.parameter:
        on = ", ".join(p.fitted_on)
        lines.append(f"| {p.pair} | {p.name} | {p.value:g} {p.unit} | {on} | {p.why} |")
    pairs = len({p.pair for p in plan.parameter})
    number = f"{len(plan.parameter)} free parameters for {pairs} pairs of hardware and engine"
    text = [f"{number}, none for a scenario.\n"]
    text += ["\n".join(lines) + "\n"]
    errors = {s.row.id: s.error for s in scored}
    if left_out:
        text.append("Leave one out: the parameters fitted again without a row, and that row predicted.\n")
        rows = ["| row | error in the fit | error when left out | parameters then |", "|---|---|---|---|"]
        for entry in left_out:
            left = "not identifiable without it" if entry.error is None else f"{entry.error:+.1%}"
            then = ", ".join(f"{name} {value:.3g}" for name, value in (entry.values or {}).items())
            rows.append(f"| {entry.row.id} | {errors[entry.row.id]:+.1%} | {left} | {then} |")
        text.append("\n".join(rows) + "\n")
    text.append(REMOVE)
    return "\n".join(text)


def _rows(scored: Sequence[Scored]) -> str:
    lines = ["| | published | predicted | error | goal | |", "|---|---|---|---|---|---|"]
    for s in scored:
        note = (
            "fitted" if s.in_calibration else "in doubt" if s.row.suspect else "hit" if s.hit else "**miss**"
        )
        numbers = f"{s.row.published:.4g} | {s.predicted:.4g} | {s.error:+.1%} | {s.row.limit:.0%}"
        lines.append(f"| {s.row.what} | {numbers} | {note} |")
    return "\n".join(lines) + "\n"
