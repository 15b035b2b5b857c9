"""Values to be copied exactly: numbers, codes, names, dates, paths, addresses, texts."""
import string

import words

EXTENSIONS = "txt md py csv json log toml yaml rs html pdf png sh cfg xml".split()
ENDINGS = "org com net io dev example de fr co.uk eu info".split()
LANGUAGES = "French German Spanish Italian Japanese Latin Greek Dutch Polish Turkish Swedish Arabic Hindi Korean Welsh Danish".split()
COUNTRIES = """France Spain Italy Japan Egypt Kenya Brazil Canada Poland Greece India Mexico Sweden Ghana Vietnam Portugal Austria Chile Cuba
Finland Iceland Ireland Jordan Malta Nepal Oman Qatar Serbia Turkey Uganda Yemen Zambia""".split()
UNITS = "km miles metres feet kg pounds litres gallons celsius fahrenheit hours minutes bytes grams inches".split()
HEX, UPPER, LETTERS = "0123456789abcdef", string.ascii_uppercase, string.ascii_letters


def _some(rng, alphabet, low, high):
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(low, high)))


def word(rng):
    return rng.choice([words.noun(rng), rng.choice(words.ENGLISH), words.invented(rng)])


def code(rng):
    """An identifier of no meaning, of one of many shapes."""
    kind = rng.randrange(14)
    digits = lambda low, high: _some(rng, string.digits, low, high)
    if kind < 3:
        return digits(2, 9)
    if kind == 3:
        return _some(rng, UPPER, 1, 3) + "-" + digits(2, 5)
    if kind == 4:
        return f"{_some(rng, UPPER, 1, 3)}-{digits(2, 4)}-{_some(rng, UPPER, 1, 2)}"
    if kind == 5:
        return _some(rng, UPPER, 1, 4) + digits(2, 6)
    if kind == 6:
        return digits(1, 2) + _some(rng, UPPER, 1, 2) + "-" + digits(2, 4)
    if kind == 7:
        return _some(rng, HEX, 6, 12)
    if kind == 8:
        return _some(rng, LETTERS + string.digits, 5, 10)
    if kind == 9:
        return word(rng) + rng.choice(["-", "_", ""]) + digits(1, 4)
    if kind == 10:
        return words.invented(rng) + rng.choice(["-", "_", "."]) + word(rng)
    if kind == 11:
        return "-".join(digits(2, 4) for _ in range(rng.randint(2, 3)))
    if kind == 12:
        return "#" + digits(2, 5)
    return _some(rng, UPPER + string.digits, 4, 9)


def path(rng):
    part = lambda: rng.choice([word(rng), word(rng), f"{word(rng)}-{rng.randint(1, 99)}", f"{word(rng)}_{word(rng)}"])
    parts = "/".join(part() for _ in range(rng.choice([1, 1, 2, 2, 3])))
    start = rng.choice(["/", "/", "", "~/", "./", "../", "/home/" + rng.choice(words.NAMES).lower() + "/", "/tmp/", "/var/log/", "C:/"])
    return start + parts + rng.choice(["", "", "/", *("." + e for e in rng.sample(EXTENSIONS, 3))])


def file_name(rng):
    return rng.choice([word(rng), f"{word(rng)}_{word(rng)}", f"{word(rng)}-{rng.randint(1, 99)}"]) + "." + rng.choice(EXTENSIONS)


def email(rng):
    who = rng.choice([rng.choice(words.NAMES).lower(), words.invented(rng), f"{rng.choice(words.NAMES).lower()}.{words.invented(rng)}", f"{word(rng)}{rng.randint(1, 99)}"])
    return f"{who}@{rng.choice([word(rng), words.invented(rng)])}.{rng.choice(ENDINGS)}"


def url(rng):
    return f"{rng.choice(['https://', 'https://', 'http://', 'www.', ''])}{word(rng)}.{rng.choice(ENDINGS)}{rng.choice(['', '', '/' + word(rng), '/' + word(rng) + '/' + word(rng), ':' + str(rng.randint(80, 9999))])}"


def date(rng):
    month, day, year = rng.randint(1, 12), rng.randint(1, 28), rng.randint(1950, 2031)
    name = words.MONTHS[month - 1]
    return rng.choice([f"{year}-{month:02}-{day:02}", f"{year}-{month:02}-{day:02}", f"{name} {day}", f"{day} {name}", f"{day} {name} {year}", f"{day:02}/{month:02}/{year}", f"{day}.{month}.", "tomorrow", "today",
                       f"next {rng.choice(words.DAYS)}", rng.choice(words.DAYS), f"{name} {year}"])


def time_of_day(rng):
    return rng.choice([words.time_of_day(rng), f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}", "noon", f"{rng.randint(1, 12)}{rng.choice(['am', 'pm'])}", f"{rng.randint(1, 12)} o'clock"])


def full_name(rng):
    return rng.choice([words.proper(rng), f"{words.proper(rng)} {words.invented(rng).capitalize()}", f"Dr. {words.invented(rng).capitalize()}", f"{rng.choice(words.NAMES)} {rng.choice(words.NAMES)}", f"Ms {words.invented(rng).capitalize()}"])


def place(rng):
    return rng.choice([words.city(rng), words.city(rng), words.invented(rng).capitalize(), f"{rng.choice(['North', 'West', 'Port', 'Saint', 'New', 'Lake'])} {words.invented(rng).capitalize()}",
                       f"the {rng.choice(words.THINGS)}", rng.choice(COUNTRIES), f"{words.invented(rng).capitalize()} Street {rng.randint(1, 99)}"])


def phrase(rng):
    the = lambda: " ".join(word(rng) for _ in range(rng.randint(1, 3)))
    return rng.choice([the(), the(), f"the {rng.choice(words.COLOURS)} {word(rng)}", f"{word(rng)} {rng.choice(['for', 'of', 'in', 'with', 'and'])} {word(rng)}", f"{words.proper(rng)} {word(rng)}"])


def snippet(rng):
    """A bit of program, pattern or command."""
    a, b, n = word(rng), word(rng), rng.randint(0, 99)
    return rng.choice([f"{a}({b}, {n})", f"grep -r {a} {b}/", f"rm {a}.{b}", f"{a} = {n}", f"print({a})", f"[{n}, {n + 1}]", f"{a} > {n}", f"{a}.*{b}", f"echo {a} {b}", f"{a} | sort", f"let {a} = {b};", f"if {a}: {b}",
                       f"make {a}", f"git log --{a}", f"DROP {a}", f"import {a}", f"{a} AND {b}", f"^{a}[0-9]+$", f"{a}->{b}", f"{a}::{b}", f"x{n} * {n}", f"({n} + {n + 7}) / {rng.randint(2, 9)}"])


def expression(rng):
    return rng.choice(["{} + {}", "{} * {}", "{} - {}", "{}+{}", "{} / {}", "({} + 3) * {}", "sqrt({}) + {}", "{} % {}"]).format(rng.randint(1, 999), rng.randint(1, 999))


def symbol(rng):
    return _some(rng, UPPER, 3, 4)


def text(rng):
    return rng.choice([words.sentence(rng), phrase(rng), words.sentence(rng).rstrip(".").lower(), rng.choice(["see you at ", "please buy ", "do not forget ", "I am late, start with ", "happy birthday, ", "meet me at "]) + phrase(rng)])


def phone(rng):
    return rng.choice(["+{} {} {}", "0{}{}-{}", "{}-{}-{}"]).format(rng.randint(10, 99), rng.randint(100, 999), rng.randint(1000, 99999))


def anything(rng):
    return rng.choice([code, code, word, word, full_name, place, path, email, url, date, phrase, file_name, symbol, time_of_day, snippet])(rng)


def one_of(*choices):
    return lambda rng: rng.choice(choices)


KINDS = {
    "city": words.city, "place": place, "country": one_of(*COUNTRIES), "name": full_name, "person": full_name, "word": word, "thing": words.noun, "phrase": phrase, "text": text, "code": code, "path": path,
    "file": file_name, "email": email, "url": url, "date": date, "time": time_of_day, "day": one_of(*words.DAYS), "month": one_of(*words.MONTHS), "language": one_of(*LANGUAGES), "colour": one_of(*words.COLOURS),
    "symbol": symbol, "snippet": snippet, "expression": expression, "unit": one_of(*UNITS), "phone": phone, "animal": one_of(*words.ANIMALS), "anything": anything,
    "count": lambda rng: rng.choice([rng.randint(1, 12), rng.randint(1, 100), rng.randint(1, 5000)]), "small": lambda rng: rng.randint(1, 30), "percentage": lambda rng: rng.randint(0, 100), "year": lambda rng: rng.randint(1800, 2035),
    "amount": lambda rng: rng.choice([rng.randint(1, 999), round(rng.uniform(0, 500), 2), round(rng.uniform(0, 50), 1)]), "flag": lambda rng: rng.random() < 0.5,
}
