"""Build of the Python extension: the C core is compiled into it.

What is fixed is in pyproject.toml; this file finds the C sources (listed in
core/SOURCES, shared with meson.build) and cJSON.

Environment: FIVEGATES_SANITIZE=1 (address and undefined), FIVEGATES_COVERAGE=1,
FIVEGATES_DEBUG=1 (-O0 -g and assertions).
"""

import os
import pathlib
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).parent


def listed(*patterns: str) -> "list[str]":
    found = {path.relative_to(ROOT).as_posix()
             for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(found)


def switch(name: str) -> bool:
    return os.environ.get("FIVEGATES_" + name, "0") not in ("", "0")


def core_sources() -> "list[str]":
    lines = (ROOT / "core/SOURCES").read_text(encoding="utf-8").split()
    return [path for path in lines if (ROOT / path).is_file()]


def pkg_config(what: str) -> "list[str] | None":
    tool = os.environ.get("PKG_CONFIG", "pkg-config")
    try:
        out = subprocess.run([tool, what, "libcjson"], check=True,
                             capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return shlex.split(out)


class BuildExt(build_ext):
    """build_ext that asks pkg-config for cJSON when it really compiles, and
    compiles as many files at once as there are processors, those of the core
    once for both extensions."""

    def build_extensions(self) -> None:
        compile_files = self.compiler.compile
        made: "dict[str, list[str]]" = {}  # source: object files

        def compile_each(sources: "list[str]", **options: object) -> "list[str]":
            new = [source for source in sources if source not in made]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = pool.map(
                    lambda source: compile_files([source], **options), new)
                made.update(zip(new, objects))
            return [path for source in sources for path in made[source]]

        self.compiler.compile = compile_each
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        cflags, libs = pkg_config("--cflags"), pkg_config("--libs")
        if cflags is None or libs is None:
            sys.exit("fivegates: building it needs pkg-config and the headers "
                     "of cJSON; on Debian: apt-get install pkg-config "
                     "libcjson-dev")
        ext.extra_compile_args = ext.extra_compile_args + cflags
        ext.extra_link_args = ext.extra_link_args + libs
        super().build_extension(ext)


compile_args = ["-std=c11", "-fvisibility=hidden"]
link_args = ["-lm"]
if switch("DEBUG"):
    compile_args += ["-O0", "-g", "-UNDEBUG"]
if switch("SANITIZE"):
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
             "-fno-omit-frame-pointer", "-g"]
    compile_args += flags
    link_args += flags
if switch("COVERAGE"):
    compile_args += ["--coverage", "-O0"]
    link_args += ["--coverage"]

# The same for both: an object file of the core serves either.
common = {
    "depends": listed("core/*/*.h", "bindings/python/src/*.h", "core/*/*.inc"),
    "include_dirs": ["core/include", "core/src", "core/card", "core/host",
                     "core/drill", "bindings/python/src"],
    "define_macros": [("_GNU_SOURCE", "1"), ("Py_LIMITED_API", "0x030A0000")],
    "py_limited_api": True,
}

core = Extension(
    "fivegates._core",
    sources=[
        *listed("bindings/python/src/*.c"),
        *core_sources(),
        *listed("core/host/fg_host*.c"),
    ],
    extra_compile_args=list(compile_args),
    extra_link_args=link_args,
    **common,
)

drill = Extension(
    "fivegates._drill",
    sources=[
        "bindings/python/src/drill/fgpy_drill.c",
        *core_sources(),
        *(path for path in listed("core/drill/fg_drill*.c")
          if not path.endswith("_main.c")),
    ],
    extra_compile_args=list(compile_args),
    extra_link_args=["-pthread", *link_args],
    **common,
)

setup(
    ext_modules=[core, drill],
    cmdclass={"build_ext": BuildExt},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
