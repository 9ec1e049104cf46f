"""The process that runs `vllm bench serve` again and again: its imports are paid once.

A line of JSON in, the flags of one run; a line of JSON out, what the tool printed and its error,
if any. The first line out, with this process's id, says that the imports are done. SIGINT ends
the run in progress, not the process.
"""

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
import traceback


def main():
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever prints goes to the log; only our lines go out
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from vllm.benchmarks import serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(prog="vllm bench serve")
    serve.add_cli_args(parser)
    print(json.dumps({"pid": os.getpid()}), file=lines)
    for line in sys.stdin:
        print(json.dumps(run(serve, parser, json.loads(line))), file=lines)


def run(serve, parser, flags):
    """Run one point; returns {report, error}: the tool's printed text, and why it failed."""
    printed, error = io.StringIO(), ""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with contextlib.redirect_stdout(printed):
            asyncio.run(serve.main_async(parser.parse_args(flags)))
    except KeyboardInterrupt:
        error = "interrupted"
    except SystemExit:
        error = "a flag was refused; see the log"
    except Exception as problem:
        traceback.print_exc()
        error = f"{type(problem).__name__}: {problem}"
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return {"report": printed.getvalue(), "error": error}


if __name__ == "__main__":
    main()
