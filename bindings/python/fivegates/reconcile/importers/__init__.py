"""The exports `fivegates reconcile` reads, each in the module of its family."""

from __future__ import annotations

from fivegates.reconcile.importers import (clouds, gateways, labs, requests)

__all__ = ["FORMATS"]

FORMATS = (*requests.FORMATS, *labs.FORMATS, *clouds.FORMATS,
           *gateways.FORMATS)
