"""A little language for many wordings of one thing, and the check that keeps held-out wordings out of training.

(a|b|c) is one of them, [a] is a or nothing; both nest. What is in {braces} is left for later.
"""
import functools
import re

_GROUP = re.compile(r"[(\[]([^()\[\]]*)[)\]]")


def expand(rng, template):
    """One of the wordings of a template."""
    def choose(match):
        if match[0][0] == "[" and rng.random() < 0.5:
            return ""
        return rng.choice(match[1].split("|"))
    before = None
    while before != template:
        before, template = template, _GROUP.sub(choose, template)
    return " ".join(template.split()) if "\n" not in template else template


def _bag(text):
    return frozenset(re.findall(r"[a-z0-9]+", text.lower().replace("'", "")))


# Words too many questions share to say that two are alike, and what people put around any question.
_DECORATION = frozenset("so hey hi hello ok okay please and now well sorry then exactly just".split())


@functools.lru_cache(maxsize=1)
def _held_out():
    import about
    import heldout
    questions = [q for part in about.HELD_OUT.values() for q in part] + heldout.GREETINGS + heldout.UNKNOWN + [q for _, q in heldout.NEEDLES]
    questions += [ask for *_, asks in heldout.TOOLS for ask in asks] + [question for _, question, *_ in heldout.RESULTS]
    return [(bag, bag - _DECORATION) for bag in map(_bag, questions) if len(bag - _DECORATION) > 1]


@functools.lru_cache(maxsize=1)
def _held_out_sums():
    import heldout
    return {_core(form) for form in heldout.ARITHMETIC}


def _core(text):
    return tuple(word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _DECORATION)


@functools.lru_cache(maxsize=200_000)
def too_close(question):
    """Whether a question has nearly the words of a held-out one (four in five of those of both).

    Sums have few words, so they are only too close if they have the same ones in the same order.
    """
    words = _bag(question)
    if "{a}" in question:
        return _core(question) in _held_out_sums()
    for bag, core in _held_out():
        for mine, other in ((words, bag), (words - _DECORATION, core)):
            common = len(mine & other)
            if common >= 0.8 * (len(mine) + len(other) - common):
                return True
    return False


def wording(rng, templates):
    """One wording of one of the templates that is not held out."""
    while True:
        text = expand(rng, rng.choice(templates))
        if not too_close(text):
            return text


@functools.lru_cache(maxsize=1)
def _held_out_requests():
    import heldout
    return [re.compile(re.sub(r"\\\{\w+\\\}", ".+", re.escape(ask.rstrip(".?"))) + r"[.?!]?", re.I) for *_, forms in heldout.TOOLS for ask in forms]


def held_out_request(text):
    """Whether a whole request, whose tool may be made up, is a held-out one with some values."""
    return any(form.fullmatch(text) for form in _held_out_requests())
