"""A client of three layers that each retry: a loop of two around the openai
package with its two retries, over a transport that tries once more."""

import sys
import time

import httpx2
import openai
import urllib3


class Resilient(httpx2.BaseTransport):
    """The company's own transport: urllib3, which tries a 5xx once more."""

    def __init__(self) -> None:
        self.pool = urllib3.PoolManager(retries=urllib3.Retry(
            1, status_forcelist=[500, 502, 503], allowed_methods=None,
            raise_on_status=False), timeout=0.5)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {name: value for name, value in request.headers.items()
                   if name not in ("connection", "accept-encoding")}
        try:
            answer = self.pool.request(request.method, str(request.url),
                                       body=request.read(), headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise httpx2.ReadError(str(error)) from error
        return httpx2.Response(answer.status, headers=dict(answer.headers),
                               content=answer.data)


client = openai.OpenAI(max_retries=2, http_client=httpx2.Client(
    transport=Resilient()))
for attempt in range(2):
    try:
        answer = client.chat.completions.create(
            model="gpt-4o", messages=[{"role": "user", "content": "Hello."}])
        print(answer.choices[0].message.content)
        break
    except openai.APIError as error:
        print(f"failed: {error}", file=sys.stderr)
        time.sleep(0.05)
else:
    sys.exit(1)
