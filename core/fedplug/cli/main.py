"""The command `fedplug`: starts the command line and turns errors into messages and exit codes."""

from __future__ import annotations

import sys

from fedplug.api.errors import FedplugError


def main() -> int:
    """Runs the command line.

    Returns:
        The exit code: 0 well, 1 an error the user can do something about, 2 wrong usage, 130 interrupted.
    """
    try:
        code = _run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where an error can still be reported
        return code
    except FedplugError as error:
        print(str(error) if "\n" in str(error) else f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough. Python would complain once more while it exits.
        sys.stdout = None
        return 1
    except OSError as error:
        # A full disk, a folder without permission: nothing that a traceback explains better.
        cause = error.strerror or str(error)
        print(f"error: {cause}: {error.filename or 'perhaps of the standard output'}", file=sys.stderr)
        if error.filename is None:
            sys.stdout = None
        return 1


def _run(arguments: list[str]) -> int:
    # typer checks arguments with pydantic, and importing both takes longer than listing does, so that the plain forms
    # of `list`, which shells and scripts call, do without. All other forms, `list --help` too, go through typer.
    if arguments[:1] == ["list"] and set(arguments[1:]) <= {"--json", "--verify"}:
        from fedplug.cli.catalog import list_components
        from fedplug.recipe.catalog import Catalog

        return list_components(Catalog.discover(), "--json" in arguments, "--verify" in arguments)

    from fedplug.cli.app import app

    try:
        app(args=arguments, prog_name="fedplug")
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return 0
