"""fivegates inside the retry hooks of other libraries.

| module | for | hook |
| --- | --- | --- |
| adapters.tenacity | tenacity 8.3 and later | retry, wait, stop, before |
| adapters.urllib3 | urllib3 2 | a Retry of one request |
| adapters.requests | requests | an HTTPAdapter |
| adapters.aiohttp | aiohttp 3.12 and later | a client middleware |
| adapters.botocore | boto3, botocore: bedrock-runtime | needs-retry |

Each is imported by itself, and imports its library. What it cannot see is in
its docstring.
"""

from fivegates.adapters.guard import current_attempt

__all__ = ["current_attempt"]
