"""The commands `fivegates contract ...`."""

from __future__ import annotations

import typer

from fivegates.contract.approve import approve
from fivegates.contract.new import new
from fivegates.contract.show import show
from fivegates.contract.verify_command import verify

__all__ = ["contract"]

contract = typer.Typer(
    name="contract", no_args_is_help=True,
    help="Approve a stand-in with proof: draft, measure, show, approve.")
contract.command()(new)
contract.command()(verify)
contract.command()(show)
contract.command()(approve)
