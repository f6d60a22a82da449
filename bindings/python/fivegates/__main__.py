"""python -m fivegates, and the command `fivegates`."""

import sys


def main() -> None:
    try:
        from fivegates.cli import run
    except ModuleNotFoundError as exc:  # typer, rich or PyYAML
        if exc.name and exc.name.partition(".")[0] == "fivegates":
            raise
        sys.exit(f"fivegates: the command line needs {exc.name}; "
                 f"pip install {exc.name}")
    except KeyboardInterrupt:  # while its modules are read
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
