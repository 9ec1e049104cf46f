"""Why a request failed, and what to do next, as the one exception of the course."""

import json
import urllib.request

from helpers.errors import LabError


def explain(server, what, error):
    """The LabError for a request that failed with this error text; `what` is its first line."""
    log = server.log_tail(20) if hasattr(server, "log_tail") else ""
    if error.startswith("HTTP 404") or error == "Not Found":  # vllm bench keeps the words only
        return LabError(what, cause=f"{server.model!r} is not served there. {_served(server)}",
                        fix="Ask for a name that is served.")
    if error.startswith("HTTP 4"):
        return LabError(what, cause="The engine refused the request, for the reason above.",
                        fix="Change the request: its length, or a field that is not known.")
    if "no connection" in error:
        return LabError(what, cause="Nothing listens there: the server has ended or never started.",
                        fix="Start it again: server = serve(...).", log=log)
    return LabError(what, cause="The engine may have stopped, or have more to do than it can.",
                    fix="Try one request: client.stream(server, 'Hello', max_tokens=4). If that "
                        "fails too, start the server again.", log=log)


def _served(server):
    """What the server's own list of models says."""
    try:
        with urllib.request.urlopen(f"{server.url}/v1/models", timeout=5) as answer:
            names = [model["id"] for model in json.load(answer)["data"]]
        return f"It serves: {', '.join(names)}."
    except (OSError, ValueError, KeyError):
        return "It does not say what it serves."
