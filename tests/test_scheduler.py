"""The small scheduler: vLLM's rule in known cases, and what must hold in every case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.errors import LabError
from helpers.scheduler import Request, ask, run, schedule

LENGTH, LIMIT = st.integers(1, 60), st.integers(1, 40)
WORKLOADS = st.lists(st.tuples(LENGTH, st.integers(1, 20), st.integers(0, 30)), min_size=1,
                     max_size=10)


def requests_of(workload):
    return [Request(f"r{k}", *one) for k, one in enumerate(workload)]


def by_request(steps):
    names = {name for step in steps for name in step.tokens}
    return {name: [step.tokens[name] for step in steps if name in step.tokens] for name in names}


def test_running_requests_come_first_then_those_that_wait():
    running = [Request("decodes", 5, 9, computed=7), Request("prefills", 50, 9, computed=20)]
    waiting = [Request("first", 10, 1), Request("second", 10, 1), Request("third", 10, 1)]
    assert schedule(running, waiting, token_budget=45, max_num_seqs=4) == {
        "decodes": 1, "prefills": 30, "first": 10, "second": 4}
    assert schedule(running, waiting, token_budget=45, max_num_seqs=3) == {
        "decodes": 1, "prefills": 30, "first": 10}
    assert schedule(running, waiting, token_budget=20, max_num_seqs=8) == {
        "decodes": 1, "prefills": 19}
    assert schedule([], [], token_budget=20, max_num_seqs=8) == {}


def test_a_long_prompt_goes_in_chunks_beside_a_running_answer():
    steps = run([Request("answer", 4, 12), Request("long", 20, 1, arrives=2)],
                token_budget=8, max_num_seqs=2)
    assert by_request(steps) == {"answer": [4] + [1] * 11, "long": [7, 7, 6]}
    assert [step.prefill for step in steps[:6]] == [
        ("answer",), (), ("long",), ("long",), ("long",), ()]


def test_a_place_is_free_in_the_step_after_the_last_token():
    steps = run([Request("a", 3, 2), Request("b", 3, 1)], token_budget=8, max_num_seqs=1)
    assert [step.tokens for step in steps] == [{"a": 3}, {"a": 1}, {"b": 3}]
    assert [step.waiting for step in steps] == [("b",), ("b",), ()]


def test_time_in_which_nobody_is_there_has_no_steps():
    steps = run([Request("late", 3, 1, arrives=9), Request("early", 3, 1)],
                token_budget=8, max_num_seqs=1)
    assert [step.number for step in steps] == [0, 9]
    assert run([], token_budget=8, max_num_seqs=1) == []


def test_the_requests_stay_as_they_are():
    requests = [Request("a", 3, 2)]
    run(requests, token_budget=8, max_num_seqs=1)
    assert requests == [Request("a", 3, 2)]


@pytest.mark.parametrize("limits", [{"token_budget": 0, "max_num_seqs": 1},
                                    {"token_budget": 1, "max_num_seqs": 0}])
def test_limits_under_which_nothing_runs_are_refused(limits):
    with pytest.raises(LabError, match="Nothing can run"):
        run([Request("a", 3, 2)], **limits)


@given(WORKLOADS, LIMIT, st.integers(1, 6))
def test_budget_and_places_are_never_exceeded(workload, budget, places):
    for step in run(requests_of(workload), token_budget=budget, max_num_seqs=places):
        assert 0 < sum(step.tokens.values()) <= budget
        assert len(step.tokens) <= places and min(step.tokens.values()) > 0


@given(WORKLOADS, LIMIT, st.integers(1, 6))
def test_every_request_ends_with_exactly_its_tokens(workload, budget, places):
    given_out = by_request(run(requests_of(workload), token_budget=budget, max_num_seqs=places))
    for request in requests_of(workload):
        assert sum(given_out[request.name]) == request.prompt + request.output - 1


@given(WORKLOADS, LIMIT, st.integers(1, 6))
def test_nobody_starves_and_nobody_overtakes(workload, budget, places):
    """In each step somebody gets on; requests start in the order in which they came."""
    requests = requests_of(workload)
    steps = run(requests, token_budget=budget, max_num_seqs=places)
    assert len(steps) <= sum(request.prompt + request.output - 1 for request in requests)
    started = list(dict.fromkeys(name for step in steps for name in step.tokens))
    arrives = {request.name: request.arrives for request in requests}
    assert [arrives[name] for name in started] == sorted(arrives.values())


@given(WORKLOADS, st.integers(1, 6))
def test_a_larger_budget_never_takes_more_steps_for_one_after_the_other(workload, more):
    requests = requests_of([(prompt, output, 0) for prompt, output, _ in workload])
    small, large = (len(run(requests, token_budget=budget, max_num_seqs=1))
                    for budget in (8, 8 + more))
    assert large <= small


def test_a_readers_rule_gets_copies_and_its_failure_is_told():
    def takes(running, waiting, **_):
        waiting.pop(0).computed = 9
        return {"a": 1}

    request = Request("a", 8, 4)
    waiting = [request]
    assert ask(takes, [], waiting, token_budget=4, max_num_seqs=1) == {"a": 1}
    assert waiting == [request] and request.computed == 0
    with pytest.raises(LabError, match="pop from empty list(.|\n)*0 waiting"):
        ask(takes, [], [], token_budget=4, max_num_seqs=1)


def test_requests_of_one_name_are_refused():
    with pytest.raises(LabError, match="same name"):
        run([Request("a", 8, 4)] * 2, token_budget=8, max_num_seqs=2)
