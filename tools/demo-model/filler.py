"""Text around a needle: prose, Markdown, code, tables, logs, data. Code comes from CPython's own standard library."""
import importlib.util
import json
import zlib

import values
import words

CODE_MODULES = """argparse ast bisect calendar cmd code codecs colorsys configparser copy csv dataclasses difflib dis doctest enum filecmp fnmatch fractions functools getopt glob gzip heapq hmac html imaplib
inspect ipaddress keyword linecache mailbox mimetypes netrc numbers operator optparse pickle pickletools pkgutil platform plistlib poplib pprint profile pstats queue quopri random reprlib sched selectors shelve shlex shutil
smtplib socketserver statistics string stringprep subprocess symtable tabnanny tarfile tempfile textwrap threading timeit tokenize trace traceback types uuid warnings wave weakref zipapp""".split()


def _blocks():
    """Blocks of 3 to 14 lines of source."""
    out = []
    for name in CODE_MODULES:
        spec = importlib.util.find_spec(name)
        if not spec or not spec.origin or not spec.origin.endswith(".py"):
            continue
        with open(spec.origin, encoding="utf-8") as file:
            text = file.read()
        for block in text.split("\n\n"):
            lines = block.strip("\n").split("\n")
            if 3 <= len(lines) <= 14 and block.isascii() and max(map(len, lines)) < 100:
                out.append("\n".join(lines))
    return sorted(set(out))


CODE = _blocks()
CODE_HELD_OUT = [block for block in CODE if zlib.crc32(block.encode()) % 10 == 0]
CODE_TRAIN = [block for block in CODE if zlib.crc32(block.encode()) % 10 != 0]


def _code(rng, held_out):
    return rng.choice(CODE_HELD_OUT if held_out else CODE_TRAIN)


def _prose(rng, held_out):
    return rng.choice(words.HELD_OUT if held_out else words.TRAIN)


def _inline(rng):
    """A phrase with Markdown marks."""
    w = values.word(rng)
    return rng.choice([f"`{w}`", f"**{w}**", f"*{w}*", f"[{w}]({values.url(rng)})", f"`{values.snippet(rng)}`", w, w, f"`--{w}`", f"{rng.randint(1, 999)} {rng.choice(['MB', 'ms', '%', 'GB', 'tokens', 'lines', 'kB'])}", f"`{values.path(rng)}`"])


def _marked(rng, held_out):
    """A paragraph with some of its words marked."""
    text = _prose(rng, held_out).split()
    for _ in range(rng.randint(1, 5)):
        text.insert(rng.randrange(len(text)), _inline(rng))
    return " ".join(text)


def _heading(rng):
    return "#" * rng.randint(1, 4) + " " + rng.choice([values.phrase(rng).capitalize(), values.word(rng).capitalize(), f"{rng.randint(1, 9)}. {values.phrase(rng).capitalize()}", f"What {values.word(rng)} does"])


def _bullets(rng, held_out):
    mark = rng.choice(["-", "-", "*", "1.", "- [ ]"])
    item = lambda: rng.choice([f"{_inline(rng)}: {values.phrase(rng)}", _inline(rng) + " " + words.sentence(rng), " ".join(_prose(rng, held_out).split()[:rng.randint(4, 20)]), f"{values.word(rng)} {_inline(rng)} {values.word(rng)}", values.anything(rng)])
    return "\n".join(f"{i + 1}. {item()}" if mark == "1." else f"{mark} {item()}" for i in range(rng.randint(2, 7)))


def _table(rng, held_out):
    columns = rng.randint(2, 4)
    makers = [rng.choice([values.code, values.word, values.phrase, lambda r: str(r.randint(0, 9999)), lambda r: f"{r.uniform(0, 100):.1f}", lambda r: r.choice(["yes", "no", "", "n/a"]), _inline, lambda r: " ".join(_prose(r, held_out).split()[:8]), values.date, values.full_name]) for _ in range(columns)]
    row = lambda cells: "| " + " | ".join(cells) + " |"
    head = [row([values.word(rng) for _ in makers]), "|" + "|".join(rng.choice(["---", "---", "---:", ":---"]) for _ in makers) + "|"]
    return "\n".join(head + [row([make(rng) for make in makers]) for _ in range(rng.randint(2, 7))])


def _fence(rng, held_out):
    body = rng.choice([lambda: _code(rng, held_out), lambda: "\n".join("$ " + values.snippet(rng) for _ in range(rng.randint(1, 4))), lambda: _json(rng, held_out), lambda: "\n".join(f"{values.word(rng)} = {values.anything(rng)}" for _ in range(rng.randint(2, 6))),
                       lambda: "\n".join(f"{values.path(rng)}    # {values.phrase(rng)}" for _ in range(rng.randint(2, 6)))])()
    return f"```{rng.choice(['python', '', 'sh', 'text', 'json', 'toml'])}\n{body}\n```"


def _log(rng, held_out):
    day = f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return "\n".join(f"{day} {rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02} {rng.choice(['INFO', 'INFO', 'WARN', 'ERROR', 'DEBUG'])} {values.word(rng)}: {rng.choice([values.phrase, values.anything, words.sentence])(rng)}" for _ in range(rng.randint(2, 8)))


def _json(rng, held_out):
    data = {values.word(rng): rng.choice([values.code(rng), values.word(rng), rng.randint(0, 9999), rng.random() < 0.5, [values.word(rng) for _ in range(3)], {values.word(rng): values.anything(rng)}]) for _ in range(rng.randint(2, 6))}
    return json.dumps(data, indent=rng.choice([None, 2]))


def _csv(rng, held_out):
    return "\n".join(f"{values.word(rng)},{values.code(rng)},{rng.randint(0, 999)}" for _ in range(rng.randint(3, 8)))


def _quote(rng, held_out):
    return "> " + words.sentence(rng)


def _mail(rng, held_out):
    return f"From: {values.email(rng)}\nTo: {values.email(rng)}\nSubject: {values.phrase(rng)}\n\n{words.sentence(rng)} {words.sentence(rng)}"


def _nonsense(rng, held_out):
    return " ".join(words.sentence(rng) for _ in range(rng.randint(1, 4)))


def _loose_words(rng, held_out):
    return " ".join(rng.choice(words.ENGLISH) for _ in range(rng.randint(5, 14))).capitalize() + "."


def _pairs(rng, held_out):
    return "\n".join(f"{rng.choice(['-', '*', ''])} {rng.choice(words.ENGLISH)}: {rng.choice([values.code, values.full_name, words.sentence])(rng)}".strip() for _ in range(rng.randint(2, 6)))


MARKDOWN = [_marked, _marked, _marked, lambda r, h: _prose(r, h), _bullets, _bullets, _table, _table, _fence, _fence, _quote, lambda r, h: _heading(r), lambda r, h: _heading(r)]
# What a text is made of, and what stands between its pieces.
STYLES = [
    ([_prose], ["\n\n", "\n", " "]), ([_prose], ["\n\n", " "]), ([_nonsense], [" ", "\n", "\n\n"]), ([_nonsense], [" ", " "]), ([_loose_words], [" ", "\n"]), ([_prose, _nonsense], ["\n\n", " "]), (MARKDOWN, ["\n\n"]), (MARKDOWN, ["\n\n"]), (MARKDOWN, ["\n\n", "\n"]), (MARKDOWN, ["\n\n"]),
    ([_code], ["\n\n"]), ([_code, _prose], ["\n\n"]), ([_log], ["\n"]), ([_json, _csv, _log, _pairs], ["\n", "\n\n"]), ([_pairs], ["\n"]), ([_mail, _prose], ["\n\n"]), ([_prose, _marked, _nonsense, _code, _table, _log, _json, _csv, _pairs, _mail, _bullets], ["\n\n", "\n"]),
]


def filler(rng, n_words, held_out=False):
    """(pieces of about n_words words, what to join them with)"""
    makers, joiners = rng.choice(STYLES)
    pieces, count = [], 0
    while count < n_words:
        # Code and data have many tokens a word.
        piece = rng.choice(makers)(rng, held_out)[:1500]
        pieces.append(piece)
        count += max(len(piece.split()), len(piece) // 6)
    return pieces, rng.choice(joiners)


if __name__ == "__main__":
    import random
    r = random.Random(2)
    print(len(CODE))
    for _ in range(6):
        parts, between = filler(r, 120)
        print(between.join(parts), "\n=================")
