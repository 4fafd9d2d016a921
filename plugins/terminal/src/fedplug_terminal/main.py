"""The command `fedplug`: starts the command line, turns errors into messages and exit codes, and ends the process."""

from __future__ import annotations

import errno
import os
import sys

# Nothing else is imported up here, nor by the package: until `program` runs, Python answers Ctrl-C with a traceback.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NoReturn

_BRIEF = ("list", "show", "check")
"""Commands that are over before their garbage could matter."""


def program() -> NoReturn:
    """`fedplug` as a process."""
    try:
        if sys.argv[1:2] and sys.argv[1] in _BRIEF:
            import gc

            from fedplug_terminal.later import put_off

            put_off("numpy")
            # Pydantic looks through every installed distribution for its plugins, a tenth of `check`'s time.
            os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
            gc.disable()  # almost all that they make are modules, which stay: there is hardly any garbage to look for
        code = main()
    except KeyboardInterrupt as stop:  # before or behind what `main` watches over
        code = _interrupted(stop)
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Ends the process without taking the interpreter apart first.

    Freeing the modules of torch object by object takes half a second; the system takes back their memory at once.
    """
    import atexit
    import contextlib
    import threading

    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # `main` has reported what is wrong with the standard output
            if stream is not None:
                stream.flush()
    os._exit(code)


def main() -> int:
    """Runs the command line.

    Returns:
        The exit code: 0 well, 1 an error the user can do something about, 2 wrong usage, 130 interrupted.
    """
    from fedplug.api.errors import FedplugError

    # The caller closed it (`>&-`): discard the output and do the work.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the process ends)
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()  # here, where an error can still be reported
        return code
    except FedplugError as error:
        from fedplug_terminal.lines import tell

        tell(str(error) if "\n" in str(error) else f"error: {error}", sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(f"\n{note}", file=sys.stderr)
        if "--json" in sys.argv[1:]:
            from fedplug_terminal.as_json import document

            print(document("error", str(error).splitlines()))
        return 1
    except KeyboardInterrupt as stop:
        return _interrupted(stop)
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough. Python would complain once more while it exits.
        sys.stdout = None
        return 1
    except OSError as error:
        # A full disk, a folder without permission: nothing that a traceback explains better.
        cause = error.strerror or str(error)
        onward = "; make room there, and repeat the command" if error.errno == errno.ENOSPC else ""
        where = f"{error.filename}{onward}" if error.filename else "perhaps of the standard output"
        print(f"error: {cause}: {where}", file=sys.stderr)
        if error.filename is None:
            sys.stdout = None
        return 1


def _cause(error: BaseException | None) -> KeyboardInterrupt | None:
    """The Ctrl-C that typer has made an exit code of; None where there was none."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _interrupted(stop: KeyboardInterrupt) -> int:
    """Says in a sentence what Ctrl-C left, unless the display of a run has; gives the exit code."""
    words = str(stop) or "Interrupted; what was saved before stays."
    if words.startswith("Interrupted"):
        print(words, file=sys.stderr)
    return 130


def _run(arguments: list[str]) -> int:
    # Importing typer takes as long as listing does, so that the plain forms of brief commands, which shells and scripts
    # call, do without. All other forms, `list --help` too, go through typer.
    command, rest = arguments[:1], arguments[1:]
    if command and command[0] in _BRIEF:
        from fedplug.recipe.catalog import Catalog
        from fedplug_runs.trust import Consent

        from fedplug_terminal.catalog import check_recipes, list_components, show_component

        words = [word for word in rest if not word.startswith("-")]
        if command == ["list"] and {*rest} - {*words} <= {"--json", "--verify"}:
            return list_components(Catalog.discover(), "--json" in rest, "--verify" in rest, words)
        if command == ["show"] and len(rest) == len(words) == 1:
            return show_component(Catalog.discover(), words[0])
        if command == ["check"] and rest and rest == words:
            return check_recipes(words, None, Catalog.discover().under(Consent(ask=True)))

    from fedplug_terminal.app import app

    try:
        app(args=arguments, prog_name="fedplug")
    except SystemExit as exit:
        if (stop := _cause(exit)) is not None:
            return _interrupted(stop)
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return 0
