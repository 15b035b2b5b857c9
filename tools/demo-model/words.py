"""Words and prose to build examples from.

English words and prose come from the documentation that ships with CPython (`pydoc_data.topics` and the docstrings of
the standard library; PSF licence). Everything else is invented.
"""
import importlib
import random
import re
import zlib

MODULES = """argparse asyncio calendar cmd codecs collections configparser contextlib copy csv datetime decimal difflib
doctest email enum fractions functools gettext glob gzip heapq html http.client imaplib inspect io ipaddress itertools
json logging mailbox math optparse os pathlib pdb pickle platform plistlib pprint profile queue random re sched shelve
shlex shutil smtplib socket socketserver sqlite3 ssl statistics string subprocess tarfile tempfile textwrap threading
timeit tkinter tokenize trace traceback turtle types typing unittest urllib.request uuid wave weakref xml.dom.minidom
xml.etree.ElementTree zipfile""".split()


def _documents():
    from pydoc_data.topics import topics
    yield from topics.values()
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except Exception:  # a standard library built without this module
            continue
        seen = [module, *(value for key, value in sorted(vars(module).items()) if not key.startswith("_"))]
        for item in seen:
            doc = getattr(item, "__doc__", None)
            if isinstance(doc, str) and len(doc) > 80:
                yield doc


def _paragraphs():
    out = []
    for document in _documents():
        for block in re.split(r"\n\s*\n", document):
            text = " ".join(block.split())
            if len(text) > 60 and text.isascii():
                out.append(text)
    return sorted(set(out))


PARAGRAPHS = _paragraphs()
# A tenth is never trained on: it is the filler of the held-out needles.
HELD_OUT = [p for p in PARAGRAPHS if zlib.crc32(p.encode()) % 10 == 0]
TRAIN = [p for p in PARAGRAPHS if zlib.crc32(p.encode()) % 10 != 0]

_counts = {}
for _paragraph in TRAIN:
    for _word in re.findall(r"\b[a-z]{3,10}\b", _paragraph):
        _counts[_word] = _counts.get(_word, 0) + 1
ENGLISH = sorted(word for word, count in _counts.items() if count >= 3)

NAMES = """Anna Ben Carla David Elena Felix Grace Henry Ines Jonas Karin Leo Maria Noah Olga Paul Quinn Rosa Samuel Tara
Umar Vera Walter Xenia Yusuf Zoe Alice Bob Clara Daniel Emma Frank Greta Hugo Ida Jack Kim Lena Max Nina Oscar Petra
Robin Sofia Tom Ursula Victor Wendy Yara Adam Bella Chris Dora Eric Fiona George Hanna Ivan Julia Kofi Lars Mira Nadia
Owen Priya Rafael Sven Tina Amir Bianca Dmitri Esther Farid Gita Hiro Jamal Keiko Luis Mei Nora Omar Pia""".split()
CITIES = """Oslo Paris Rome Berlin Madrid London Tokyo Lima Cairo Delhi Boston Chicago Denver Seattle Toronto Sydney
Vienna Prague Dublin Lisbon Athens Warsaw Zurich Geneva Helsinki Stockholm Copenhagen Brussels Amsterdam Hamburg Munich
Milan Naples Kyoto Osaka Seoul Beijing Mumbai Nairobi Lagos Accra Santiago Bogota Quito Havana Austin Dallas Portland
Montreal Vancouver""".split() + ["New York", "San Francisco", "Los Angeles", "Cape Town", "Rio de Janeiro", "Mexico City"]
COLOURS = "red blue green yellow purple orange black white pink brown grey silver golden violet turquoise".split()
ANIMALS = "cat dog horse cow sheep goat bird fish mouse rabbit fox wolf bear deer duck goose owl frog turtle snake".split()
THINGS = """house garden box door key book lamp table chair boat train bridge tower river mountain forest island castle
shop school office kitchen window clock letter map coin ring bag bottle cup plate knife hat coat shoe bicycle car truck
plane ship engine machine robot computer phone camera radio piano violin drum painting mirror ladder hammer rope vault
safe library museum station harbour market farm mill well cave temple theatre hotel""".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()

_STARTS = "b br c cr d dr f fl g gr h j k kl l m n p pr qu r s st t tr v w z th sh ch".split()
_VOWELS = "a e i o u ai ea oo ou".split()
_ENDS = ["", "", "n", "r", "l", "s", "t", "m", "nd", "rk", "x", "ss"]


def invented(rng, syllables=None):
    """A word that means nothing, so that it can only be copied."""
    n = syllables or rng.choice([2, 2, 3])
    return "".join(rng.choice(_STARTS) + rng.choice(_VOWELS) for _ in range(n)) + rng.choice(_ENDS)


def proper(rng):
    return rng.choice([rng.choice(NAMES), rng.choice(NAMES), invented(rng).capitalize()])


def city(rng):
    return rng.choice([rng.choice(CITIES), rng.choice(CITIES), invented(rng).capitalize()])


def noun(rng):
    return rng.choice([rng.choice(THINGS), rng.choice(THINGS), rng.choice(ENGLISH), invented(rng)])


def code(rng):
    """Something to be copied exactly."""
    kind = rng.randrange(7)
    if kind < 3:
        return "".join(rng.choice("0123456789") for _ in range(rng.choice([3, 4, 4, 4, 5, 6])))
    if kind == 3:
        return "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789") for _ in range(rng.choice([4, 5, 6, 8])))
    if kind == 4:
        return rng.choice(ENGLISH) + "-" + rng.choice(ENGLISH)
    if kind == 5:
        return invented(rng).capitalize()
    return rng.choice(ENGLISH)


def time_of_day(rng):
    return rng.choice([f"{rng.randint(1, 12)} {rng.choice(['am', 'pm'])}", f"{rng.randint(0, 23)}:{rng.choice(['00', '15', '30', '45'])}"])


def sentence(rng):
    """Grammatical nonsense."""
    the = lambda: f"the {rng.choice([rng.choice(COLOURS) + ' ', '', '', 'old ', 'small ', 'quiet '])}{noun(rng)}"
    verb = rng.choice("saw found moved opened carried painted watched followed cleaned counted forgot described left crossed repaired sold kept".split())
    place = rng.choice(["near", "behind", "in", "on", "beside", "above", "under", "after", "before"])
    subject = rng.choice([proper(rng), the(), the()])
    return f"{subject[0].upper()}{subject[1:]} {verb} {the()} {place} {the()}."

