"""Reading torch's traces: made-up ones of a GPU and a CPU, of which every time is known."""

import gzip
import json

import pytest

from helpers import trace
from helpers.errors import LabError

BASE_NS = 1_700_000_000_000_000_000


def event(cat, name, ts, dur, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}


def mark(contexts, batch, ts, dur=10):
    return event("user_annotation", f"execute_context_{contexts}(9)_generation_{batch}({batch})",
                 ts, dur)


def made(*events):
    return {"baseTimeNanoseconds": BASE_NS,
            "traceEvents": [{"ph": "M", "name": "process_name"}, *events]}


def gpu(slow=1):
    """A prefill and three decode steps of 8, each one graph of two kernels, then a sampling kernel
    outside of it. Kernels run after the mark has ended: only the correlation tells whose they are.
    """
    events = [mark(2, 0, 0), event("cuda_runtime", "cudaLaunchKernel", 2, 1, correlation=1),
              event("kernel", "nvjet_tst_128x64_gemm", 20, 50, 7, correlation=1)]
    for step in range(3):
        at, number = 100 + 100 * step, 10 + 10 * step
        events += [
            mark(0, 8, at), event("gpu_user_annotation", "execute_context_0(0)_generation_8(8)",
                                  at + 12, 60),
            event("cuda_runtime", "cudaGraphLaunch", at + 2, 5, correlation=number),
            event("cuda_driver", "cuLaunchKernel", at + 50, 1, correlation=number + 1),
            event("kernel", "nvjet_tst_64x8_gemm", at + 12, 20 * slow, 7, correlation=number),
            event("kernel", "flash_fwd_splitkv_kernel", at + 37, 10 * slow, 7,
                  correlation=number),
            event("kernel", "argmax_kernel", at + 70, 5, 7, correlation=number + 1),
            event("gpu_memcpy", "Memcpy DtoH", at + 80, 2, 7, correlation=5000 + step)]
    return made(*events)


def cpu():
    """Two decode steps of 4 in which operators call others, and another thread's do not count."""
    events = []
    for at in (100, 200):
        events += [mark(0, 4, at, 60), event("cpu_op", "_C::onednn_mm", at + 5, 20),
                   event("cpu_op", "aten::empty", at + 6, 2),
                   event("cpu_op", "vllm::unified_attention_with_output", at + 30, 10),
                   event("cpu_op", "aten::mul", at + 31, 3),
                   event("cpu_op", "aten::add", at + 30, 25, 99),
                   event("cpu_op", "aten::argmax", at + 70, 9)]  # after the mark: sampling
    return made(*events)


def test_a_gpu_step_is_its_graph():
    steps = trace.steps(gpu())
    assert list(steps.columns) == trace.COLUMNS
    assert steps.kind.tolist() == ["prefill", "decode", "decode", "decode"]
    assert steps.graph.tolist() == [False, True, True, True]
    decode = steps[steps.kind == "decode"]
    assert decode.batch.tolist() == [8] * 3
    assert decode.span_s.tolist() == pytest.approx([35e-6] * 3)  # 12 to 47, without the argmax
    assert decode.busy_s.iloc[0] == pytest.approx(37e-6)  # 20 + 10 + 5, and the copy
    assert decode.period_s.iloc[0] == pytest.approx(100e-6)
    assert steps.period_s.isna().tolist() == [False, False, False, True]
    assert decode.start_s.iloc[0] == pytest.approx(1.7e9 + 112e-6, abs=1e-6)
    assert decode.matrices_s.iloc[0] == pytest.approx(20e-6)
    assert decode.attention_s.iloc[0] == pytest.approx(10e-6)


def test_a_longer_graph_shows():
    slow = trace.steps(gpu(slow=2))
    assert slow.span_s.iloc[1] == pytest.approx(45e-6)  # 12 to 57: 37 + 20
    assert slow.busy_s.iloc[1] == pytest.approx(52e-6)  # 12 to 52, 37 to 57, 70 to 75, the copy


def test_a_cpu_step_is_the_operators_that_nothing_called():
    steps = trace.steps(cpu())
    assert steps.graph.tolist() == [False, False]
    assert steps.span_s.tolist() == pytest.approx([35e-6] * 2)  # 5 to 40
    assert steps.busy_s.tolist() == pytest.approx([30e-6] * 2)
    assert steps.matrices_s[0] == pytest.approx(20e-6)
    assert steps.attention_s[0] == pytest.approx(10e-6)
    assert steps.other_s[0] == 0


def test_typical_is_one_step_from_its_first_piece_on():
    work = trace.typical(gpu())
    assert work.name.tolist()[:2] == ["nvjet_tst_64x8_gemm", "flash_fwd_splitkv_kernel"]
    assert work.start_s.tolist()[:3] == pytest.approx([0, 25e-6, 58e-6])
    assert set(work.part) == {"matrices", "attention", "other"}
    assert len(trace.typical(cpu())) == 2


def test_steps_of_no_requests_do_not_count():
    quiet = gpu()
    quiet["traceEvents"].append(mark(0, 0, 420))
    quiet["traceEvents"].append(event("kernel", "fill", 425, 1, 7))
    assert len(trace.steps(quiet)) == 4


@pytest.mark.parametrize(("given", "says"), [
    (made(event("cpu_op", "aten::add", 1, 1)), "no steps"),
    (made(mark(0, 4, 0)), "nothing that computes"),
    # a GPU's, of which the profiler saw the calls and no kernel: its operators are not its work
    (made(mark(0, 4, 0), event("cpu_op", "aten::mm", 1, 2),
          event("cuda_runtime", "cudaGraphLaunch", 2, 1, correlation=1)), "nothing that computes")
])
def test_a_trace_without_what_is_needed_says_so(given, says):
    with pytest.raises(LabError, match=says):
        trace.steps(given)


def test_no_decode_step_no_typical_one():
    with pytest.raises(LabError, match="no decode step"):
        trace.typical(made(mark(1, 0, 0), event("cpu_op", "aten::add", 1, 1)))


def test_a_file_is_read_whole_or_refused(tmp_path):
    path = tmp_path / "x.pt.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(gpu()).encode()))
    assert len(trace.steps(trace.load(path))) == 4
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LabError, match="cannot be read"):
        trace.load(path)


def test_detailed_marks_are_read_too():
    assert trace.STEP.search("execute_9_context_1(sq5sk5)_generation_3(sq3sk9)").groups() == \
        ("1", "3")


@pytest.mark.parametrize(("starts", "ends", "length"), [
    ([0, 1, 10], [5, 3, 11], 6), ([0], [2], 2), ([0, 2], [2, 4], 4)])
def test_covered(starts, ends, length):
    assert trace.covered(starts, ends) == length


@pytest.mark.parametrize(("name", "part"), [
    ("_C::onednn_mm", "matrices"), ("aten::mm", "matrices"), ("sm90_xmma_gemm_bf16", "matrices"),
    ("vllm::unified_attention_with_output", "attention"), ("reshape_and_cache_flash", "cache"),
    ("vllm::unified_kv_cache_update", "cache"), ("aten::silu", "other"), ("Memcpy DtoH", "other")])
def test_part(name, part):
    assert trace.part(name) == part
