"""The router's own process: a Ray Serve application that passes each request on to one engine.

`python -m helpers.router_app SETTINGS` (helpers.router starts it so, under a supervisor).
SETTINGS is JSON: port, engines ({"simple": address, "hard": address}) and rule (of routing.Rule).
Everything listens on 127.0.0.1 only, and lives in TMPDIR.
"""

import json
import os
import sys
import threading

import aiohttp
import ray
from ray import serve
from starlette.responses import JSONResponse, StreamingResponse

from helpers.routing import Rule

HOST = "127.0.0.1"
CHOSEN = "x-engine"  # the header of an answer that says which engine gave it
READY, FAILED = "The router is ready.", "The router failed"


def text_of(body):
    """What the asker wrote: the prompt, or the contents of the user's messages."""
    if "prompt" in body:
        return body["prompt"] if isinstance(body["prompt"], str) else ""
    said = [message.get("content") for message in body.get("messages", ())
            if message.get("role") == "user"]
    return "\n".join(text for text in said if isinstance(text, str))


@serve.deployment(max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 0})
class Router:
    """One replica: it reads a request, chooses, and hands the answer back piece by piece."""

    def __init__(self, engines, rule):
        self.engines, self.rule, self.session = engines, Rule(**rule), None
        stay_here()

    async def __call__(self, request):
        self.session = self.session or connection()
        data = await request.body()
        try:
            chosen = self.rule.engine(text_of(json.loads(data))) if data else "hard"
        except (ValueError, AttributeError):
            chosen = "hard"  # the engine will say what is wrong with it
        try:
            answer = await self.session.request(
                request.method, self.engines[chosen] + request.url.path, data=data or None,
                headers={"content-type": request.headers.get("content-type", "application/json")})
        except aiohttp.ClientError as error:
            message = f"The router cannot reach the engine for {chosen} requests: {error}"
            return JSONResponse({"error": {"message": message}}, 502, {CHOSEN: chosen})
        return passed_on(answer, {CHOSEN: chosen})


def connection():
    """A session without limits of its own, to be made in the loop that serves."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0),
                                 timeout=aiohttp.ClientTimeout(600))


def passed_on(answer, headers=None):
    """An engine's answer as a response: its status, its kind, and its body as it comes."""
    return StreamingResponse(pieces(answer), answer.status, headers,
                             media_type=answer.headers.get("content-type", "application/json"))


def stay_here():
    """Ray Serve would open a port of this replica, for calls of other nodes, to every address."""
    from ray.serve._private import replica

    listen = replica.add_port_to_grpc_server
    replica.add_port_to_grpc_server = lambda server, address: listen(
        server, address.replace("[::]", HOST))


async def pieces(answer):
    """The body as it comes. If the asker goes away, the connection to the engine is closed."""
    try:
        async for piece in answer.content.iter_any():
            yield piece
    finally:
        answer.close()


def main(settings):
    ray.init(address="local", num_cpus=2, include_dashboard=False, _node_ip_address=HOST,
             object_store_memory=80 * 2**20, _temp_dir=f"{os.environ['TMPDIR']}/ray")
    serve.start(http_options={"host": HOST, "port": settings["port"]})
    serve.run(Router.bind(settings["engines"], settings["rule"]), name="router")
    print(READY, flush=True)
    threading.Event().wait()


def run(application):
    """application(SETTINGS of the command line); what ends it is printed for the owner to read."""
    try:
        application(json.loads(sys.argv[1]))
    except Exception as problem:
        print(f"{FAILED}: {problem}", flush=True)
        raise


if __name__ == "__main__":
    run(main)
