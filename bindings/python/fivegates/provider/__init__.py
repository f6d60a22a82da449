"""A provider of language models on loopback that fails as its script says.

Provider is the server, read_script() reads a script, FAULTS has every fault.
The command is `fivegates provider`. Needs h11 (the extra "provider").
"""

from fivegates.provider.journal import Effect, Journal, Record
from fivegates.provider.registry import FAULTS, Fault, Param, Step, step_of
from fivegates.provider.script import Script, plain_script, read_script
from fivegates.provider.server import Provider
from fivegates.provider.settings import SettingsError, read_file, read_value

__all__ = ["Effect", "FAULTS", "Fault", "Journal", "Param", "Provider",
           "Record", "Script", "SettingsError", "Step", "plain_script",
           "read_file", "read_script", "read_value", "step_of"]
