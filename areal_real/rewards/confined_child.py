"""Runs code and its tests under limits: `python -I confined_child.py DIRECTORY`, the request on stdin.

Prints the request's secret if everything ran to its end: code that merely exits has not passed.
"""

import json
import sys
from pathlib import Path

CPU_S, MEMORY_BYTES, FILE_BYTES = 5, 512 << 20, 1 << 20


def main() -> None:
    """Read a request, confine, run."""
    sys.path.insert(0, str(Path(__file__).parent))
    from confinement import confine  # type: ignore[import-not-found]  # noqa: PLC0415 (isolated)

    request = json.loads(sys.stdin.read())
    try:
        confine(Path(sys.argv[1]), cpu_s=CPU_S, memory_bytes=MEMORY_BYTES, file_bytes=FILE_BYTES)
    except OSError as error:
        sys.exit(f"cannot confine: {error}")
    secret = request.pop("secret")
    output, sys.stdout = sys.stdout, sys.stderr
    space: dict[str, object] = {"__name__": "answer"}
    exec(compile(request["code"], "answer.py", "exec"), space)
    exec(compile(request["tests"], "tests.py", "exec"), space)
    output.write(secret)
    output.flush()


if __name__ == "__main__":
    main()
