"""The admission lab's own process: Ray Serve in front of engines, with bounded queues, on one node
or on two.

`python -m helpers.admission_app SETTINGS` (helpers.admission starts it so, under a supervisor).
SETTINGS is JSON: port; doors, {name: {ongoing, queued, retry_after_s}}, each at its own path, null
where there is no limit; and either engines (addresses, one a replica) on one node, or engine, which
every replica starts for itself on its own node, of two. Everything listens on 127.0.0.1 only.

It prints a line of JSON whenever the replicas that run, or the nodes, have changed.
"""

import json
import os
import time

import aiohttp
import ray
from ray import serve
from ray.cluster_utils import Cluster
from ray.serve.config import BackpressureConfig, RequestRouterConfig
from starlette.responses import JSONResponse

from helpers.router_app import HOST, READY, connection, passed_on, run, stay_here

MANY = 10_000  # requests: no limit that a class would reach
LOOK_S = 0.25  # between two looks at the replicas
# A request that waits asks the replicas again and again, by default at growing distances up to
# half a second: with so few places, they would stand empty for as long.
ASK_AGAIN = RequestRouterConfig(initial_backoff_s=0.01, backoff_multiplier=2, max_backoff_s=0.04)


@serve.deployment
class Door:
    """A replica: it hands each request to its one engine, and the answer back piece by piece."""

    def __init__(self, prefix, engines, engine):
        stay_here()
        self.prefix, self.session, self.engine = prefix, None, None
        rank = serve.get_replica_context().rank.rank % 2
        if engine:
            self.engine = start(engine, rank)
            self.address = self.engine.url  # waits for it
        else:
            self.address = engines[rank]

    async def __call__(self, request):
        self.session = self.session or connection()
        data = await request.body()
        try:
            answer = await self.session.request(
                request.method, self.address + request.url.path.removeprefix(self.prefix),
                data=data or None, headers={"content-type": "application/json"})
        except aiohttp.ClientError as error:
            return JSONResponse({"error": {"message": f"no engine: {error}"}}, 502)
        return passed_on(answer)


def start(engine, rank):
    """The engine of a replica: {"reference": {...}} or {"model": folder, "flags": {...}, "env":
    [variables of the first, of the second]}.

    It ends with the replica's process, since that is its owner.
    """
    from helpers import reference, server

    if "reference" in engine:
        return reference.serve(**engine["reference"])
    running = server.serve(engine["model"], name=f"replica-{rank}-{os.getpid()}",
                           env=engine["env"][rank], **engine["flags"])
    running.warm_up()
    return running


def door(name, limits, engines, engine):
    """A Serve application with two replicas; limits are {ongoing, queued, retry_after_s} or None.

    ongoing: requests in a replica at once.  queued: that may wait for a replica, for both
    together; the next one is refused: 429, with Retry-After.
    """
    bounds = {"max_ongoing_requests": MANY} if limits is None else {
        "max_ongoing_requests": limits["ongoing"], "max_queued_requests": limits["queued"],
        "backpressure_config": BackpressureConfig(
            status_code=429, retry_after_s=limits["retry_after_s"])}
    options = {"num_cpus": 0, "resources": {"engine": 1}}
    return Door.options(num_replicas=2, ray_actor_options=options, health_check_period_s=1,
                        request_router_config=ASK_AGAIN, **bounds).bind(f"/{name}", engines, engine)


def nodes(count, room):
    """A Ray cluster on this machine: its head, and one more node where count is 2.

    room: replicas that fit on a node.
    """
    about = {"num_cpus": 2, "resources": {"engine": room}, "node_ip_address": HOST,
             "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={
        **about, "include_dashboard": False, "temp_dir": f"{os.environ['TMPDIR']}/ray"})
    return cluster, [cluster.add_node(**about) for _ in range(count - 1)], about


def raylet(node):
    """Process id of a node's raylet."""
    return node.all_processes["raylet"][0].process.pid


def watch(cluster, others, about):
    """Print what runs whenever it changes; start a node anew in place of one that was lost."""
    seen = None
    while True:
        for at, node in enumerate(others):
            if node.all_processes["raylet"][0].process.poll() is not None:
                others[at] = cluster.add_node(wait=False, **about)
        found = {"running": running(), "nodes": [raylet(node) for node in others]}
        if found != seen:
            print(json.dumps({"at": time.perf_counter(), **found}), flush=True)
            seen = found
        time.sleep(LOOK_S)


def running():
    """Replicas that serve, over all doors."""
    return sum(deployment.replica_states.get("RUNNING", 0)
               for application in serve.status().applications.values()
               for deployment in application.deployments.values())


def main(settings):
    doors, engine = settings["doors"], settings.get("engine")
    cluster, others, about = nodes(2 if engine else 1, 1 if engine else 2 * len(doors))
    ray.init(address=cluster.address, _node_ip_address=HOST)
    serve.start(proxy_location="HeadOnly", http_options={"host": HOST, "port": settings["port"]})
    for name, limits in doors.items():
        serve.run(door(name, limits, settings.get("engines"), engine), name=name,
                  route_prefix=f"/{name}")
    print(READY, flush=True)
    watch(cluster, others, about)


if __name__ == "__main__":
    run(main)
