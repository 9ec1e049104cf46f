"""Reads an engine's log and says what happened, why, and what to do: the text of an error."""

import re
import signal

from helpers.errors import LabError

# What the engine's own words mean, and what to do about it. The first that matches counts.
ADVICE = [
    (r"unrecognized arguments: (?P<what>.*)",
     "This vLLM has no such flag: {what}. It may be misspelt, or from another release.",
     "Correct it; `vllm serve --help=all` lists every flag."),
    (r"argument (?P<what>--\S+): .*",
     "The value given for {what} is not one that vLLM takes.",
     "Correct it; `vllm serve --help=all` lists the choices."),
    (r"No common block size for (?P<what>\d+)",
     "No attention backend of this machine takes a block size of {what}.",
     "On a CPU use a multiple of 32, or leave block_size out."),
    (r"less than requested memory for kv",
     "The KV cache asked for is larger than the memory that is free.",
     "Ask for less with kv_cache_memory_bytes, or end other programs."),
    (r"KV cache is needed, which is larger than the available",
     "The KV cache is too small for even one request of max_model_len tokens.",
     "Raise kv_cache_memory_bytes (or gpu_memory_utilization), or lower max_model_len."),
    (r"No available memory for the cache blocks|Free memory on device",
     "The weights leave no room for a KV cache within the memory budget.",
     "Raise gpu_memory_utilization, end other programs on the GPU, or take a smaller model."),
    (r"out of memory|OutOfMemoryError|Cannot allocate memory|DefaultCPUAllocator",
     "The device has no memory left.",
     "End other programs, or lower kv_cache_memory_bytes or gpu_memory_utilization."),
    (r"[Aa]ddress already in use",
     "Another program took the port first.", "Call serve(...) again: it takes another port."),
    (r"FP8 KV cache on CPU requires|fp8e4nv not supported",
     "This processor cannot keep a KV cache at 8 bits.",
     "Leave kv_cache_dtype out, or take a machine with AVX-512, or a GPU from Ada on."),
    (r"scaled_fp8_quant\(\) expected at most 0",
     "This build of vLLM declares the operation that rounds to FP8, but does not have it.",
     "Serve an FP8 or INT8 checkpoint, or go to a machine whose vLLM has it: a GPU's."),
    (r"No space left on device", "The disk is full.", "Free some space."),
    (r"ModuleNotFoundError|ImportError|PackageNotFoundError",
     "The environment is not complete.", "Run `make clean setup`."),
]
PHASES = [
    ("Application startup complete", "answering"),
    ("Starting vLLM server", "opening the port"),
    ("Capturing CUDA graphs", "recording CUDA graphs, then a last warm-up"),
    ("KV cache size", "KV cache allocated"),
    ("for vLLM's torch.compile", "compiling the model"),
    ("Loading weights took", "weights loaded"),
    ("Model loading took", "weights loaded"),
    ("Loading model from scratch", "loading weights"),
    ("Starting to load model", "loading weights"),
    ("Initializing a V1 LLM engine", "starting the engine core"),
    ("non-default args", "reading the configuration"),
]
LINES_SHOWN = 8  # log lines shown with an error
NOISE = re.compile(  # frames and carets; usage; what is no reason; our own questions
    r"\s{2,}|\s*[\^~|+-]+$|Traceback \(most|usage: "
    r"|.*(DeprecationWarning|resource_tracker|See root cause|\"GET /(health|metrics|v1/models))")


def phase(log):
    """What the engine is doing now, in a few words."""
    return next((words for mark, words in PHASES if mark in log), "importing vLLM")


def reason(log):
    """The engine's own reason: its last error message that is not about another error."""
    found = None
    for line in log.splitlines():
        line = re.sub(r"^\(\w+ pid=\d+\)\s*", "", line)
        line = re.sub(r"^(ERROR|CRITICAL) [\d-]+ [\d:]+ \[[^]]*\]\s*", "", line)
        match = re.match(r"(?:[\w.]*(?:Error|Exception): |[\w .]+: error: )(.+)", line)
        if match and not re.search("See (root cause|stack trace)|EngineDeadError", line):
            found = re.sub(r"^Worker failed with error '(.*?)'?(, please.*)?$", r"\1", match[1])
    return found


def failed_start(log, code):
    """LabError for an engine that ended before it was ready. code: its exit status."""
    return _error("The engine ended before it was ready", log, code)


def died(log, code):
    """LabError for an engine that ended after it was ready; log: since it was last well."""
    return _error("The engine died while it was serving", log, code, " Then call serve(...) again.")


def too_slow(limit_s, log):
    """LabError for an engine that was not ready within its limit."""
    return LabError(
        f"The engine was not ready within {limit_s:g} s, and was stopped ({phase(log)}).",
        cause="A slow disk, a busy machine, or too little memory.",
        fix="End other programs, or call serve(..., start_limit_s=...) with a longer limit.",
        log=last_lines(log),
    )


def not_ours(port, holder, log):
    """LabError for a port on which another program answers."""
    return LabError(
        f"On port {port} it is {holder} that answers, not this engine.",
        cause="That program took the port at the same moment.",
        fix="Call serve(...) again: it takes another port.", log=last_lines(log),
    )


def _error(what, log, code, then=""):
    said = reason(log)
    cause, fix = _advice(said, log, code)
    what = f"{what}{_ending(code)}." + (f" It said: {said}" if said else "")
    return LabError(what, cause=cause, fix=fix + then, log=last_lines(log))


def _advice(said, log, code):
    for pattern, cause, fix in ADVICE:
        match = re.search(pattern, said or log)
        if match:
            return cause.format(**match.groupdict()), fix
    if (code and (code < 0 or code > 128)) or re.search("EngineDeadError|died unexpectedly", log):
        return ("It, or its core, was killed from outside; often because the machine ran out of "
                "memory.", "End other programs, or give it less with kv_cache_memory_bytes.")
    return "Not one that the course knows.", "Read the log lines below."


def _ending(code):
    """How a process ended: exit status, or the signal that killed it (-N, in shells 128 + N)."""
    if not code:
        return ""
    try:
        return f" (killed by {signal.Signals(-code if code < 0 else code - 128).name})"
    except ValueError:
        return f" (exit status {code})"


def last_lines(log, n=LINES_SHOWN):
    """The log's last n lines, without traceback frames, usage text and our own health checks."""
    plain = [re.sub(r"^\(\w+ pid=\d+\) ?", "", line) for line in log.splitlines()]
    plain = [re.sub(r"^(ERROR|CRITICAL) \S+ \S+ \[\S+\] ?", "", line) for line in plain]
    kept = [line[:240] for line in plain if line.strip() and not NOISE.match(line)]
    return "\n".join(list(dict.fromkeys(kept))[-n:])
