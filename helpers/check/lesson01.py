"""Checks of notebooks/01_first_request.ipynb."""

import httpx

from helpers import check, study

# Each question with the words that a right answer holds.
QUIZ = {
    "What is the capital of France?": ["paris"],
    "What is 17 times 3?": ["51"],
    "How many legs does a bee have?": ["6", "six"],
    "Which planet is closest to the sun?": ["mercury"],
    "How many days are in a week?": ["7", "seven"],
    "Which metal is liquid at room temperature?": ["mercury"],
}
_replies = {}


def weights(study_weights):
    expected = study.value("study_model_parameters") * 1e6 * 2
    check.number(study_weights, expected, unit="bytes",
                 hint="parameters (the table gives millions) times bytes a parameter")


def remember(question, reply):
    """Keep and print a reply to a question of the quiz."""
    _replies[question] = reply
    print(f"{question}\n   {' '.join(reply.split())}")


def quiz_answer():
    """How many of the remembered replies hold a right answer."""
    return sum(any(word in _replies[question].lower() for word in words)
               for question, words in QUIZ.items() if question in _replies)


def quiz(right_answers):
    if check.unanswered(right_answers):
        return
    if not _replies:
        raise check.WrongAnswer("run the cell that asks the six questions first")
    check.choice(right_answers, quiz_answer(), why=f"{right_answers} of {len(QUIZ)}",
                 hint="look facts up where you are not sure; pairs of legs are not legs")


def prompt_tokens(predicted, engine, messages):
    """Sends the message, and compares the engine's own count with the prediction."""
    if check.unanswered(predicted):
        return
    body = {"model": engine.model, "messages": messages, "max_tokens": 1}
    reply = httpx.post(f"{engine.url}/v1/chat/completions", json=body, timeout=300).json()
    counted = reply["usage"]["prompt_tokens"]
    check.choice(predicted, counted, why=f"the engine counted {counted} as well",
                 hint="the template's marks count too: give /tokenize the messages, not a prompt")


def decode(by_hand, engine, ids):
    """Has the engine make as many tokens in one request, and compares them."""
    if check.unanswered(by_hand):
        return
    body = {"model": engine.model, "prompt": ids, "max_tokens": 8, "temperature": 0,
            "return_token_ids": True, "ignore_eos": True}
    reply = httpx.post(f"{engine.url}/v1/completions", json=body, timeout=300).json()
    at_once = reply["choices"][0]["token_ids"]
    check.choice(by_hand, at_once, why=f"the same eight tokens: {at_once}",
                 hint="each call needs the prompt and every token made so far, in order")
