"""fivegates inside other libraries' retry hooks and middleware.

| module | for | hook |
| --- | --- | --- |
| adapters.tenacity | tenacity 8.3 and later | retry, wait, stop, before |
| adapters.urllib3 | urllib3 2 | a Retry of one request |
| adapters.requests | requests | an HTTPAdapter |
| adapters.aiohttp | aiohttp 3.12 and later | a client middleware |
| adapters.botocore | boto3, botocore: bedrock-runtime | needs-retry |
| adapters.anthropic | anthropic 0.108 and later | a middleware |
| adapters.langchain | langchain 1: agents | an agent's middleware |
| adapters.litellm | litellm: Router | a logger that gates and tells |

Each is imported by itself, and imports its library. What it cannot see is in
its docstring.
"""

from fivegates.adapters.guard import current_attempt

__all__ = ["current_attempt"]
