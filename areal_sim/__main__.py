"""`areal-sim`: the command line of the simulator. Also `python -m areal_sim`."""

import sys

import typer

from areal_sim.commands.calibrate import calibrate
from areal_sim.commands.check import check
from areal_sim.commands.compare import compare
from areal_sim.commands.lengths import lengths
from areal_sim.commands.plan import plan
from areal_sim.commands.replay import replay
from areal_sim.commands.report import report
from areal_sim.commands.run import run
from areal_sim.commands.scenarios import scenarios
from areal_sim.commands.sensitivity import sensitivity
from areal_sim.commands.sweep import sweep
from areal_sim.commands.trace import trace
from areal_sim.commands.validate import validate
from areal_sim.commands.zoo import zoo
from interfaces.errors import TestbedError

app = typer.Typer(
    name="areal-sim",
    help="Predict what an asynchronous LLM reinforcement-learning schedule does on a given cluster.",
    epilog="Start with:  areal-sim run areal/table7",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (
    run,
    compare,
    sweep,
    plan,
    zoo,
    report,
    trace,
    check,
    calibrate,
    lengths,
    replay,
    sensitivity,
    validate,
    scenarios,
):
    app.command()(command)


def _with_ray_address(arguments: list[str]) -> list[str]:
    """A bare `--ray`, whose address may be left out, gets the address that means "find or start one"."""
    full: list[str] = []
    for index, argument in enumerate(arguments):
        following = arguments[index + 1 : index + 2]
        bare = argument == "--ray" and (not following or following[0].startswith("-"))
        full.append("--ray=auto" if bare else argument)
    return full


def main() -> None:
    """Run the command line; what a user can act on is one message on stderr and an exit code."""
    try:
        app(_with_ray_address(sys.argv[1:]))
    except TestbedError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
