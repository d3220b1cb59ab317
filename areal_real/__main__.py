"""`areal-real`: the command line of the real backend. Also `python -m areal_real`."""

import sys

import typer

from areal_real.commands.compare import compare
from areal_real.commands.doctor import doctor
from areal_real.commands.eval import evaluate
from areal_real.commands.profile import profile
from areal_real.commands.run import resume, run
from interfaces.errors import TestbedError

app = typer.Typer(
    name="areal-real",
    help="Run an asynchronous LLM reinforcement-learning schedule on vLLM and PyTorch.",
    epilog="Start with:  areal-real doctor",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (run, resume, compare):
    app.command()(command)
app.command("eval")(evaluate)
app.command()(profile)
app.command()(doctor)


def main() -> None:
    """Run the command line; what a user can act on is one message on stderr and an exit code."""
    try:
        app()
    except TestbedError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
