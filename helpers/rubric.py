"""Marks an open answer by what it states: facts that it must state, errors that it must not make.

Pure. A rubric is a dict, such as an entry under `open` in data/passages/bees.yaml:
    facts:   [{states: a sentence, words: [[stem, ...], ...], about: a topic}]
    errors:  [{claims: a sentence, words: [[stem, ...], ...], unless: [stem, ...], negated: true}]
    topics:  {topic: [stem, ...]}      where an answer has to tell several things apart
A part of an answer states a fact if each group has a stem that fits: a word of the part starts
with it or, for a stem of several words, they start words that follow each other. What counts as a
part is said at `parts`. Nothing is weighed and nothing learnt: a reader can see why an answer was
marked as it was. `about`, `unless`, `negated` and `topics` may be left out.
"""

import re

NEGATION = (r"\b(?:not|never|no|none|nor|neither|without|cannot|\w+n't"
            r"|(?:do|does|did|is|are|ca|wo)nt)\b")
HARMLESS = r"\bnot (?:only|just|until|simply)\b|\bno (?:sooner|doubt)\b"
OTHERWISE = r"\b(?:if|unless)\b|^without\b"  # says what would be otherwise, and so what is
POINTS_BACK = r"\b(?:it|its|they|them|some|this|that|these|those|there)\b"
NAMES_WHAT_WAS_SAID = r"(?:so )?(?:this|that|it|which)(?: step| process| part)?(?: is|'s| was)\b"
CUT = r"[,;:()]|\s[-–—]+\s|(?= (?:but|while|whereas|although|though|because|so|which|yet)\b)"
ASIDE = (r"\b(?:between|after|before|than|from|unlike|for|once|following"
         r"|(?:step|stage|part) (?:of|in|to|towards))(?: the)? $")


def mark(answer, rubric):
    """{'right': bool, 'facts': how many it states, 'missing': [...], 'errors': [...]}.

    Right: every fact is stated, and no error made. The lists hold their sentences.
    """
    said = parts(answer, rubric.get("topics"))
    missing = [fact["states"] for fact in rubric["facts"] if not _states(said, fact)]
    errors = [error["claims"] for error in rubric.get("errors") or [] if _claims(answer, error)]
    return {"right": not missing and not errors, "facts": len(rubric["facts"]) - len(missing),
            "missing": missing, "errors": errors}


def parts(answer, topics=None):
    """{None or topic: [parts]}: what is looked through for facts, without what it denies.

    Without topics: sentences, one that points back ('it', 'some') read with the two before it.
    With topics: one part each, all that is said of it. A sentence is cut at commas, at words such
    as 'while', and where a topic is named. A piece that names none goes with the one before; where
    a sentence begins with such a piece ('when it lands it is called ...'), with the one after.
    """
    if topics:
        pieces = _by_topic(_sentences(answer), topics)
        return {topic: [" ".join(said)] for topic, said in pieces.items()}
    sentences = [_affirmed(sentence) for sentence in _sentences(answer)]
    return {None: [" ".join(sentences[max(0, at - 2):at + 1])
                   if re.search(POINTS_BACK, sentence) else sentence
                   for at, sentence in enumerate(sentences)]}


def _states(said, fact):
    return any(_has(part, fact["words"]) and not _has(part, [fact.get("unless", [])])
               for part in said[fact.get("about")])


def _claims(answer, error):
    """Errors are looked for in each sentence by itself."""
    for sentence in _sentences(answer):
        denies = error.get("negated", False)
        text = sentence if denies else _affirmed(sentence)
        if _has(text, error["words"]) and not (error.get("unless") and _has(
                sentence, [error["unless"]])) and (not denies or _denies(sentence)):
            return True
    return False


def _has(text, groups):
    text = re.sub(r"[^\w']+", " ", text)
    return all(any(re.search(_pattern(stem), text) for stem in stems) for stems in groups)


def _pattern(stem):
    return r"\w* ".join(rf"\b{re.escape(word)}" for word in str(stem).split())


def _sentences(answer):
    """Lower case, one a string; 'This is called ...' goes with the sentence before."""
    text = re.sub(r"[*_#\"“”]", "", answer.lower().replace("’", "'"))
    sentences = []
    for one in re.split(r"(?<=[.!?])\s+|\s*\n+\s*", text.strip()):
        if sentences and re.match(NAMES_WHAT_WAS_SAID, one):
            sentences[-1] = sentences[-1].rstrip(".!? ") + ", " + one
        else:
            sentences.append(one)
    return sentences


def _affirmed(sentence):
    """The sentence without the pieces that deny something."""
    if re.search(OTHERWISE, sentence):
        return sentence
    return ", ".join(piece.strip() for piece in re.split(CUT, sentence) if not _denies(piece))


def _denies(text):
    return bool(re.search(NEGATION, re.sub(HARMLESS, "", text)))


def _by_topic(sentences, topics):
    """{topic: its pieces} of all sentences, without those that deny something."""
    about, current = {topic: [] for topic in topics}, None
    for sentence in sentences:
        pieces = list(_pieces(sentence, topics))
        named = [topic for topic, _ in pieces]
        for at, (topic, piece) in enumerate(pieces):
            if topic is None and named[0] is None:  # in this sentence the topics come last
                topic = next(filter(None, named[at:]), None)
            current = topic or current
            if current and (re.search(OTHERWISE, sentence) or not _denies(piece)):
                about[current].append(piece)
    return about


def _pieces(sentence, topics):
    """(topic or None, piece): cut at CUT, at 'and', and before a topic, unless named in passing."""
    for piece in re.split(CUT + r"|(?= and\b)", sentence):
        topic, start = None, 0
        for at, named in _mentions(piece, topics):
            if topic not in (None, named):
                yield topic, piece[start:at]
                start = at
            topic = named
        yield topic, piece[start:]


def _mentions(piece, topics):
    """(place, topic) of each mention that is not an aside such as 'after pollination'."""
    found = [(match.start(), topic) for topic, stems in topics.items() for stem in stems
             for match in re.finditer(rf"\b{re.escape(stem)}", piece)]
    return sorted((at, topic) for at, topic in found if not re.search(ASIDE, piece[:at]))
