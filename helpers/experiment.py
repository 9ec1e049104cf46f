"""The labs' protocol: arms as data, engines resident, load interleaved, every request kept.

    arms = {"one engine": {"a": {"kv_cache_memory_bytes": pool}},
            "one engine again": "one engine",  # the same engines: how an arm differs from itself
            "two engines": {"a": {"kv_cache_memory_bytes": pool // 2},
                            "b": {"kv_cache_memory_bytes": pool // 2}}}
    fleet = experiment.start(arms, path)
    runs = experiment.run("lab01_sweep", fleet, experiment.closed_loop(lab),
                          points=lab.shared_concurrencies, repeats=lab.shared_repeats)

An engine's dict holds vLLM's flags, and may hold `model` (a folder) and `env` (variables).
"""

import contextlib
import time

import pandas as pd
import psutil

from helpers import (
    intervals,
    load,
    machine,
    memory,
    metrics,
    profile,
    results,
    rows,
    server,
    supervisor,
)
from helpers.errors import LabError
from helpers.journal import Journal
from helpers.progress import Line

FLAGS = {"max_num_seqs": 128, "enable_prefix_caching": False, "gpu_memory_utilization": 0.05}
CLIENT_LIMIT = 0.6  # of the core that the client's thread can use
PAUSE_S = 1  # on a CPU the threads of the engine that was loaded last go on spinning for a moment
PREEMPTIONS = "vllm:num_preemptions_total"


class Fleet(dict):
    """{arm: {engine: Server}}, and in .crashed {arm: why} the arms that did not start or ended.

    fleet[arm] of an arm that is not there raises LabError, with why. `in` and get() do not.
    """

    def __init__(self):
        super().__init__()
        self.crashed = {}

    def __missing__(self, arm):
        if arm not in self.crashed:
            raise LabError(f"There is no arm {arm!r}.", fix=f"The arms are {list(self)}.")
        raise LabError(f"The arm {arm!r} crashed, and what comes next needs it.",
                       cause=self.crashed[arm], fix="Its log is in results/logs. Mend that, and "
                       "run the notebook again from the cell that starts the engines.")

    def need(self, *arms):
        """Raise LabError where one of these arms, or of all, crashed; about the first that did."""
        arms = arms or (*self, *self.crashed)
        for arm in sorted(arms, key=[*self.crashed, *arms].index):
            self[arm]

    def drop(self, arm, why):
        """Note that an arm crashed, with every arm that uses its engines, and end these."""
        engines = self[arm]
        for name in [name for name in self if self[name] is engines]:
            del self[name]
            self.crashed[name] = why
        for engine in engines.values():
            engine.stop()
        print(f"Crashed, and left out: {arm}: {why}")


def start(arms, model, **flags):
    """Start the engines of all arms at once, wait for them, warm them up; returns a Fleet.

    arms: see above; an arm that is another arm's name uses that one's engines.  model: the folder
    of engines that name none.  flags: of all engines, over FLAGS; an engine's own go over these.
    An arm that cannot start is noted in .crashed. Raises LabError if none starts.
    """
    fleet = Fleet()
    try:
        for arm, engines in arms.items():
            fleet[arm] = fleet[engines] if isinstance(engines, str) else {
                name: _serve(f"{arm}, {name}", model, FLAGS | flags | settings, show=not fleet)
                for name, settings in engines.items()}
        for arm in list(fleet):
            if arm in fleet:
                _ready(fleet, arm)
    except BaseException:
        stop(fleet)
        raise
    if not fleet:
        raise LabError("No arm could be started.", cause=" ".join(fleet.crashed.values()),
                       fix="Read the logs in results/logs.")
    return fleet


def _serve(name, model, settings, show):
    settings = dict(settings)
    with contextlib.nullcontext() if show else contextlib.redirect_stdout(None):
        engine = server.serve(settings.pop("model", model), name=name,
                              env=settings.pop("env", None), **settings)
    if not show:
        print(f"Starting {name} at port {engine.port} too")
    return engine


def _ready(fleet, arm):
    try:
        for engine in fleet[arm].values():
            engine.wait()
    except LabError as error:
        fleet.drop(arm, _why(error))


def _why(error):
    return f"{error.what} {error.cause}".strip()


def stop(fleet):
    """End every engine of the fleet; calling it twice is fine."""
    for engines in fleet.values():
        for engine in engines.values():
            engine.stop()


def pools(fleet, config, *, within=0.01):
    """A table of every engine's KV cache: arm, engine, tokens by its own log, and bytes.

    bytes = tokens * memory.kv_bytes_per_token(config), an element of an FP8 cache having one byte.
    Raises LabError where the arms' totals differ by more than `within`.
    """
    table = pd.DataFrame([
        {"arm": arm, "engine": name, "tokens": engine.kv_cache_tokens,
         "bytes": engine.kv_cache_tokens * memory.kv_bytes_per_token(
             config, dtype_bytes=element_bytes(engine))}
        for arm, engines in fleet.items() for name, engine in engines.items()])
    totals = table.groupby("arm").bytes.sum()
    if totals.max() > (1 + within) * totals.min():
        raise LabError(f"The arms' caches are not equal: {totals.to_dict()} bytes.",
                       cause="Arms with unequal caches say nothing about the arms.",
                       fix="Give each arm's engines shares of one kv_cache_memory_bytes.")
    return table


def element_bytes(engine):
    """Bytes of one number in an engine's KV cache, from its flags: 1 for FP8, else 2."""
    flags = engine.settings[3]
    return 1 if str(flags.get("kv_cache_dtype", "auto")).startswith("fp8") else 2


def closed_loop(lab):
    """load(servers, point, seed): `point` requests in flight in all, shared out equally, random
    prompts of the profile's lengths, shared_rounds for each that is in flight."""
    def measure(servers, point, seed):
        return load.together(servers, input_len=lab.input_len, output_len=lab.output_len,
                             concurrency=point, seed=seed,
                             num_prompts=lab.shared_rounds * point)
    return measure


def order(arms, repeats):
    """[(repeat, arm)]: every second repeat has the arms the other way round (A B B A ...)."""
    return [(repeat, arm) for repeat in range(repeats)
            for arm in (list(arms)[::-1] if repeat % 2 else list(arms))]


def balanced(arms, points, repeats):
    """Turns of all arms at all points: [(repeat, place of the point, arm)], arms as in `order`."""
    return [(repeat, place, arm) for repeat in range(repeats) for place in range(len(points))
            for at, arm in order(arms, repeats) if at == repeat]


def run(name, fleet, measure, *, points, repeats, **about):
    """Measure every arm at every point, `repeats` times in balanced order; one row a request.

    measure: function(servers, point, seed) -> requests with column `engine`. The seed is
    [repeat, point's place]: all arms get the same prompts, each repeat others.
    Columns added: arm, repeat, concurrency (the point); of the engine in that turn preemptions and
    engine_cpu_s (CPU seconds of its processes); of the turn wall_s, client_cpu_s, client_share (of
    one core), client_ok (at most CLIENT_LIMIT), gpu_busy (0 to 1; NaN without a GPU).
    Every point runs once before and is not kept, but for one repeat, which is a lead and no result.
    A finished turn is on the disk: run again with the same arms, it goes on with the next. An arm
    that crashes has a row with outcome 'error' (and `fleet.need` says so). Recorded as `name` at
    the end; about: its header.
    """
    turns = balanced(fleet, points, repeats)
    journal = Journal(name, {"turns": turns, "points": list(points), "engines": _settings(fleet)})
    frames, line = journal.frames(), Line()
    if repeats > 1 and journal.done < len(turns):
        _warm(fleet, measure, points, repeats, line)
    with machine.gpu_busy() as busy:
        for number, (repeat, place, arm) in list(enumerate(turns))[journal.done:]:
            line.update(f"{name}: {number + 1} of {len(turns)}: {arm}, {_at(points[place])}")
            if arm in fleet:
                frames.append(_turn(fleet, arm, measure, points[place], [repeat, place], busy))
                journal.keep(number, frames[-1])
    line.done(f"{name}: {len(turns)} turns in {line.elapsed_s:.0f} s")
    seen = {arm for frame in frames for arm in frame.arm}
    frames += [_crashed(arm, why) for arm, why in fleet.crashed.items() if arm not in seen]
    together = pd.concat(frames, ignore_index=True)
    together.attrs = {}
    _mark(together)
    results.record(name, together, server=_servers(fleet), points=list(points), repeats=repeats,
                   **about)
    journal.remove()
    return together


def _at(point):
    """A point in words: so many in flight, or the name of whatever else a lab varies."""
    return point if isinstance(point, str) else f"{point} in flight"


def _servers(fleet):
    return list({id(engine): engine for engines in fleet.values()
                 for engine in engines.values()}.values())


def _settings(fleet):
    """What makes the same engines again: folder, flags, names of variables."""
    return [[arm, name, path, sorted(env), flags] for arm, engines in fleet.items()
            for name, engine in engines.items() for path, _, env, flags in [engine.settings]]


def _warm(fleet, measure, points, repeats, line):
    """Every point once on every engine, not kept: the first batch of a size is slow."""
    distinct = {id(engines): (arm, engines) for arm, engines in fleet.items()}
    for arm, engines in distinct.values():
        for place, point in enumerate(points):
            line.update(f"Warming up: {arm}, {_at(point)}")
            try:
                measure(engines, point, [repeats, place])
            except LabError as error:
                fleet.drop(arm, _why(error))
                break
        _pause()


def _pause():
    """Let the arm before come to rest. On a GPU no thread spins, and a fifth of it is enough."""
    time.sleep(PAUSE_S if profile.current().name == "cpu" else PAUSE_S / 5)


def _turn(fleet, arm, measure, point, seed, busy):
    """One arm at one point: its requests, with the columns that `run` adds."""
    servers, about = fleet[arm], {"arm": arm, "repeat": seed[0], "concurrency": point}
    try:
        _pause()
        before, started = _counters(servers), time.perf_counter()
        requests = measure(servers, point, seed)
        clock, used = requests.attrs, _counters(servers) - before
        started = clock.get("started", started)  # without what the client prepared
    except LabError as error:
        fleet.drop(arm, _why(error))
        return _crashed(**about, why=_why(error))
    wall_s, client_cpu_s = clock["wall_s"], clock["client_cpu_s"]
    return requests.assign(
        **about, **{name: requests.engine.map(used[name]) for name in used}, wall_s=wall_s,
        client_cpu_s=client_cpu_s, client_share=client_cpu_s / wall_s,
        client_ok=client_cpu_s / wall_s <= CLIENT_LIMIT, gpu_busy=busy(started, started + wall_s))


def _counters(servers):
    """A row an engine: its preemptions so far, and the CPU seconds of its processes."""
    return pd.DataFrame({name: {
        "preemptions": engine.metrics().get(PREEMPTIONS, 0),
        "engine_cpu_s": cpu_seconds(engine)} for name, engine in servers.items()}).T


def cpu_seconds(engine):
    """CPU seconds that the processes of an engine have used so far, in user and kernel mode."""
    total = 0.0
    for pid in supervisor.session_pids(engine.pid):
        with contextlib.suppress(psutil.Error):
            total += sum(psutil.Process(pid).cpu_times()[:2])
    return total


def _crashed(arm, why, repeat=0, concurrency=0):
    row = {"arm": arm, "repeat": repeat, **rows.failed(f"crashed: {why}")}
    return rows.table([row], tool="client", settings={}).assign(concurrency=concurrency)


def _mark(runs):
    """Say so where the client was too busy: such a turn may have measured the client."""
    if (marked := runs[runs.client_ok == False]).size:  # noqa: E712 (crashed rows have None)
        turns = marked.groupby(["arm", "repeat", "concurrency"]).client_share.first()
        print(f"Marked (client_ok False): {len(turns)} turns whose client took more than "
              f"{CLIENT_LIMIT:.0%} of its core, {turns.max():.0%} at most.")


def totals(runs):
    """One row per (arm, repeat, concurrency): `metrics.points` of all its engines together.

    And preemptions and engine_cpu_s, summed over engines; wall_s, client_cpu_s, client_share,
    client_ok, gpu_busy.
    """
    keys = ["arm", "repeat", "concurrency"]
    runs = runs[~runs.error.str.startswith("crashed")]
    found = metrics.points(runs.drop(columns="engine"))
    summed = runs.groupby([*keys, "engine"])[["preemptions", "engine_cpu_s"]].first()
    shared = runs.groupby(keys)[["wall_s", "client_cpu_s", "client_share", "client_ok",
                                 "gpu_busy"]].first()
    return found.merge(summed.groupby(keys).sum().join(shared).reset_index(), on=keys)


def against(points, *, base, measure="output_tok_per_s"):
    """Each arm over `base` at each concurrency: ratio, low, high (`intervals.ratio` over repeats).

    points: of `totals`. smallest: the largest difference of "<base> again" from base in any one
    repeat, what the arm differs from itself. seen: the interval excludes 1, and the effect is
    larger than `smallest`. Both are NaN and False where there is no such arm or interval.
    """
    table = points.pivot_table(index=["concurrency", "repeat"], columns="arm", values=measure,
                               sort=False)
    rows_found = []
    for concurrency, at in table.groupby(level=0):
        again = at.get(f"{base} again")
        smallest = float("nan") if again is None else intervals.strayed(again, at[base])
        for arm in at.columns.drop(base):
            pairs = at[[arm, base]].dropna()
            value, low, high = intervals.ratio(pairs[arm], pairs[base])
            rows_found.append({"arm": arm, "concurrency": concurrency, "ratio": value, "low": low,
                               "high": high, "smallest": smallest,
                               "seen": bool((low > 1 or high < 1) and abs(value - 1) > smallest)})
    return pd.DataFrame(rows_found)
