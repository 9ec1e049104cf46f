"""The course's questions as a class would send them: a table of requests, and what each loses.

    asked = questions.course(per_passage=4)
    asked = questions.losses(asked, reference=full, other=fp8)
"""

from pathlib import Path

import pandas as pd
import yaml

from helpers import client, quality

DATA = Path(__file__).parent.parent / "data" / "passages"


def course(*, per_passage=7):
    """The questions of all passages, open ones first: passage, question, text.

    text: what is sent. Every second question of a passage comes with the passage before it, the
    others alone; which of them, alternates from passage to passage.
    per_passage: at most so many of each passage's two open and five closed questions.
    """
    rows = []
    for place, path in enumerate(sorted(DATA.glob("*.yaml"))):
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
        for number, each in enumerate([*read["open"], *read["questions"]][:per_passage]):
            before = f"{read['passage']}\n\n" if (number + place) % 2 else ""
            rows.append({"passage": path.stem, "question": each["question"],
                         "text": f"{before}Question: {each['question']}\nAnswer:"})
    return pd.DataFrame(rows)


def losses(asked, *, reference, other, max_tokens=32, concurrency=16):
    """What each question loses on `other`: the table with answer, tokens, again and loss.

    The reference engine answers (temperature 0). Then both say how likely they find that answer:
    loss = mean over its tokens of nll(other) - nll(reference), in nats a token. again: the same of
    the reference against itself, scored once more, which is the control. Questions whose answer
    has no token are left out.
    """
    rows = client.streams(reference, list(asked.text), max_tokens=max_tokens,
                          concurrency=concurrency)
    asked = asked.assign(answer=rows.text.to_numpy(), tokens=rows.output_tokens.to_numpy())
    asked = asked[asked.answer.str.strip() != ""]
    texts = dict(zip(asked.index, asked.text + asked.answer, strict=True))
    nll = pd.DataFrame({
        name: quality.token_nll(server, texts, concurrency=concurrency).set_index(
            ["text", "place"]).nll
        for name, server in (("reference", reference), ("again", reference), ("other", other))})
    means = pd.DataFrame({index: at.tail(int(asked.tokens[index])).mean()
                          for index, at in nll.groupby(level="text")}).T
    return asked.assign(loss=means.other - means.reference,
                        again=means.again - means.reference).reset_index(drop=True)
