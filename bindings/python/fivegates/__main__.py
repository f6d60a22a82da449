"""python -m fivegates, and the command `fivegates`."""

import sys


def main() -> None:
    try:
        try:
            from fivegates.cli import run
        except ModuleNotFoundError as exc:  # typer, rich or PyYAML
            if exc.name and exc.name.partition(".")[0] == "fivegates":
                raise
            sys.exit(f"fivegates: the command line needs {exc.name}; "
                     f"pip install {exc.name}")
        run()
    except KeyboardInterrupt:  # while modules are read, or before a command runs
        sys.exit(130)


if __name__ == "__main__":
    main()
