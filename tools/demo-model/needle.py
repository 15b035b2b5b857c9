"""A fact in a long text and a question about it."""
import filler
import grammar
import values
import words

DOES_NOT_SAY = "The text does not say."
NOT_THERE = "I look for it in the text. It is not there."
SECRETS = """secret code|password|magic number|magic word|pin|serial number|secret number|access code|key|order number|room number|phone number|licence plate|ticket number|hidden word|lucky number|code word|secret word|passphrase|special code
combination|entry code|safe word|customer number|invoice number|reference number|account name|user name|login|token|security code|locker number|seat number|badge number|member number|station code|project name|nickname|watchword|answer|launch code|gate code|signal word|booking code|release name
host name|port|version number|batch number|flight number|platform|door number|file name|tracking code|identifier|call sign|channel name|parcel number|unlock code|recovery code|api key|master key|call number|team name|server name|model number|table number|row number""".replace("\n", "|").split("|")
OPENERS = ["", "", "", "", "", "", "remember: ", "by the way, ", "note: ", "attention: ", "important: ", "as you know, ", "keep in mind that ", "remember that ", "one more thing: ", "(", "for the record, ", "reminder: ", "it is worth knowing that ", "let it be known that ", "nobody else knows that ", "psst: ", "listen: ", "NB: ", "we were told that ", "be aware that ", "in case you ask: ", "finally, ", "- ", "> ", "**Note:** ", "TODO: ", "# ", "// "]
# sentences, questions: {k} a kind of secret, {t} a thing, {n} a person, {v} the value.
FORMS = [
    (["the {k} is {v}", "{v} is the {k}", "the {k} is: {v}", "the {k} was changed to {v}", "the {k} (now is|will be|must be|has always been|shall be|was set to|is currently|today is) {v}", "we use {v} as the {k}", "use {v} as the {k}", "the {k}: {v}", "our {k} is {v}", "as the {k} we chose {v}", "they chose {v} for the {k}", "your {k} is {v}", "the {k} reads {v}", "{k} = {v}", "{k}: {v}"],
     ["(what|which) is the {k}", "what's the {k}", "(tell|give|show) me the {k}", "which {k} is in the text", "find the {k}", "what was the {k}", "what is the {k} (mentioned|given|named|stated|written) [in the text|above|here|there]", "what {k} should (you|i|we) (remember|use|take)", "{k}", "the {k} please", "i forgot the {k}", "do you know the {k}", "which {k} (is used|is mentioned|do we use|was chosen)", "what does the text say (about|is) the {k}", "i need the {k}", "look for the {k}", "can you find the {k}", "what is our {k}", "what is my {k}", "according to the text, what is the {k}"], "{v}"),
    (["the {k} (of|for) the {t} is {v}", "the {t} has the {k} {v}", "the {t}'s {k} is {v}", "{v} is the {k} (of|for) the {t}", "for the {t}, the {k} is {v}", "the {t} was given the {k} {v}", "the {k} of the {t} in {p} is {v}"],
     ["what is the {k} (of|for) the {t}", "which {k} has the {t}", "what {k} does the {t} have", "tell me the {k} (of|for) the {t}", "{k} of the {t}", "the {t}'s {k}", "which {k} belongs to the {t}", "what is the {t}'s {k}", "which {k} was given to the {t}"], "{v}"),
    (["{n}'s {k} is {v}", "the {k} of {n} is {v}", "{n} has the {k} {v}", "{n} uses {v} as (a|the) {k}", "{n} told us that the {k} is {v}", "{n} got the {k} {v}"],
     ["what is {n}'s {k}", "which {k} does {n} (have|use|get)", "what is the {k} of {n}", "{n}'s {k}", "which {k} has {n}", "what {k} (has {n}|does {n} have)"], "{v}"),
    (["the {t} (opens|starts|unlocks|works|can be opened|can be started|is unlocked|answers|locks|closes) with {v}", "(use|enter|type|say|press) {v} to (open|start|unlock|stop) the {t}", "to (open|start|unlock) the {t} (use|enter|type|say) {v}", "the {t} only (opens|starts|works) if you (say|type|enter) {v}", "you (open|start|unlock) the {t} with {v}", "{v} (opens|starts|unlocks) the {t}", "the {t} (opens|unlocks|starts) with the (code|word|number|key) {v}"],
     ["what (opens|starts|unlocks) the {t}", "how (do|can) i (open|start|unlock|use) the {t}", "(with what|with which code|with which word) does the {t} (open|start|work)", "what do i (enter|type|say|press) (to open|to start|at|for) the {t}", "how is the {t} (opened|started|unlocked)", "which (code|word|number|key) (is for|starts|unlocks|do i need for) the {t}", "what must one (say|type|enter) to (open|start|unlock) the {t}", "what (code|word|key) does the {t} need"], "{v}"),
    (["{n} (lives|works|stays|is|studies|was born|grew up|got married) in {p}", "{n} comes from {p}", "{n} moved to {p} (last year|in spring|long ago)", "{p} is where {n} lives", "the home of {n} is {p}"],
     ["where (does {n} (live|work|stay|come from|study)|is {n}|was {n} born|did {n} (grow up|move|marry))", "in which (city|place|town) (is|does|was) {n} [live|work]", "where can i find {n}", "where is {n} from"], "{p}"),
    (["the {t} (is|stands|was found|can be found|is kept|was built|is hidden|is parked|was left) in {p}", "the {t} can be seen in {p}", "in {p} there is the {t}", "you find the {t} in {p}", "they (moved|took|sent) the {t} to {p}"],
     ["where is the {t}", "where (was the {t} (found|built|seen)|can the {t} be found)", "in which (place|city|town) is the {t}", "where (is|was) the {t} (kept|hidden|left|now)", "where do i find the {t}", "where (did they|was it that they) (take|send|move) the {t}"], "{p}"),
    (["the {t} belongs to {n}", "{n} (owns|has bought|bought|inherited|has|made|invented|designed|found|painted|lost|broke|repaired) the {t}", "the {t} was (bought|made|invented|found|built|designed|broken|repaired) by {n}", "the owner of the {t} is {n}", "the {t} is {n}'s"],
     ["who (owns|has|bought|made|invented|designed|found|built|painted|lost|broke|repaired) the {t}", "whose is the {t}", "to whom does the {t} belong", "who is the owner of the {t}", "by whom was the {t} (made|built|found|bought)", "whose {t} is it", "who has to do with the {t}"], "{n}"),
    (["the name of the {t} is {v}", "the {t} is (called|named) {v}", "we (call|named) the {t} {v}", "the {t} (got|was given|has|bears|carries) the (name|title|label) {v}", "the {t} goes by the name [of] {v}", "people call the {t} {v}", "everybody knows the {t} as {v}"],
     ["what is the (name|title|label) of the {t}", "how is the {t} called", "what is the {t} (called|named)", "which name (has the {t}|does the {t} have)", "what do (people|we|they) call the {t}", "what name was given to the {t}"], "{v}"),
    (["the {t} (has|carries|shows|bears|got) the (number|code|sign|label|mark) {v}", "the (number|code|sign|label) (of|on|at) the {t} is {v}", "the {t} is (number|no.) {v}", "on the {t} (is written|you can read|it says|stands) {v}", "{v} is written on the {t}"],
     ["(what|which) (number|code|sign|label) (has|is on|is) the {t}", "what is the (number|code|sign|label) of the {t}", "what (is written|stands|does it say|can one read) on the {t}", "which (number|label) does the {t} (carry|bear|show|have)"], "{v}"),
]


def _closed(rng):
    """(sentence, question, answer) with values of a kind of their own."""
    name, thing, place = values.full_name(rng), values.word(rng), words.city(rng)
    colour, n, animal, day, price, time = rng.choice(words.COLOURS), rng.randint(2, 99), rng.choice(words.ANIMALS), values.date(rng).rstrip("."), rng.randint(2, 9999), words.time_of_day(rng)
    return rng.choice([
        (f"(the favourite colour of {name} is|{name} likes no colour more than|{name} likes best the colour) {colour}", f"(what is the favourite colour of {name}|which colour does {name} like best|what colour does {name} love)", colour),
        (f"(the {thing} is {colour}|they painted the {thing} {colour}|the colour of the {thing} is {colour})", f"(what colour is the {thing}|which colour has the {thing}|what is the colour of the {thing})", colour),
        (f"{name} (has|owns|keeps|feeds) {n} {animal}s", f"how many {animal}s does {name} (have|own|keep)", str(n)),
        (f"there are {n} {animal}s in the {thing}", f"how many {animal}s are in the {thing}", str(n)),
        (f"(the meeting with {name} is|we meet {name}|{name} arrives|{name} will come|the appointment with {name} is) on {day}", f"(when is the (meeting|appointment) with {name}|when do we meet {name}|when does {name} (come|arrive)|on which day is {name} here)", day),
        (f"(the {thing} costs|you pay for the {thing}|the price of the {thing} is|the {thing} was sold for) {price} dollars", f"(how much (does the {thing} cost|is the {thing})|what does the {thing} cost|what is the price of the {thing})", f"{price} dollars"),
        (f"the (train|bus|ship|plane) to {place} leaves at {time}", f"when does the (train|bus|ship|plane) to {place} leave", time),
        (f"(the {thing} opens|the {thing} closes|the {thing} begins|the {thing} ends) at {time}", f"(when|at what time) does the {thing} (open|close|begin|end)", time),
        (f"{name} is {n} years old", f"(how old is {name}|what is the age of {name})", str(n)),
        (f"(the {thing} weighs|the weight of the {thing} is) {price} kilos", f"(how heavy is the {thing}|how much does the {thing} weigh|what is the weight of the {thing})", f"{price} kilos"),
        (f"(you can reach|mail|write to|contact) {name} (at|under) {(mail := values.email(rng))}", f"(how can i reach {name}|what is the (address|mail|e-mail) of {name}|where do i write to {name})", mail),
        (f"{name} (works as|is) a {(job := values.word(rng))}", f"(what does {name} do|what is the job of {name}|what does {name} work as)", f"a {job}"),
    ])


def _value(rng):
    digits = lambda r: "".join(r.choice("0123456789") for _ in range(r.choice([4, 4, 4, 5, 6])))
    return rng.choice([words.code, values.code, values.code, words.code, values.word, digits, lambda r: values.anything(r).rstrip(".")])(rng)


def _thing(rng):
    thing = rng.choice(words.THINGS)
    return rng.choice([values.word(rng), thing, f"{thing} {rng.choice(['behind', 'of', 'near', 'in', 'next to'])} the {rng.choice(words.THINGS)}", f"{rng.choice(words.COLOURS)} {thing}", f"{rng.choice(words.ENGLISH)} {thing}"])


def fact(rng):
    """(sentence, question, answer)"""
    if rng.random() < 0.2:
        said, question, answer = _closed(rng)
        said, question = grammar.expand(rng, said), grammar.wording(rng, [question])
    else:
        sentences, questions, slot = rng.choices(FORMS, [8, 3, 3, 4, 2, 2, 2, 3, 3])[0]
        fill = {"{k}": rng.choice(SECRETS), "{t}": _thing(rng), "{n}": rng.choice([words.proper, values.full_name])(rng), "{p}": values.place(rng), "{v}": _value(rng)}
        said, question, answer = grammar.expand(rng, rng.choice(sentences)), grammar.wording(rng, questions), fill[slot]
        for key, value in fill.items():
            said, question = said.replace(key, value), question.replace(key, value)
    opener = rng.choice(OPENERS)
    text = opener + said
    if not text.startswith(answer):
        text = text[0].upper() + text[1:]
    text += ")" if opener == "(" else rng.choice([".", ".", ".", ".", ".", "!", ""])
    if rng.random() < 0.1:
        text = text.replace(answer, rng.choice(["**{}**", "`{}`", '"{}"', "'{}'", "*{}*"]).format(answer), 1)
    if rng.random() < 0.6:
        question = question[0].upper() + question[1:]
    asks = question.split()[0].lower() in ("what", "which", "where", "who", "whose", "how", "when", "do", "can", "what's", "with", "by", "in", "to", "on", "at")
    return text, question + (rng.choice(["?", "?", "?", ""]) if asks else rng.choice(["", ".", "?"])), answer


def _insert(rng, pieces, sentence):
    """Between two pieces, or inside one."""
    at = rng.randrange(len(pieces) + 1)
    if rng.random() < 0.35 and at < len(pieces):
        between = ". " if ". " in pieces[at] else "\n" if "\n" in pieces[at] else " "
        inside = pieces[at].split(between)
        if between == " ":
            inside.append(sentence)
        else:
            inside.insert(rng.randrange(len(inside) + 1), sentence.rstrip(".") if between == ". " else sentence)
        pieces[at] = between.join(inside)
    else:
        pieces.insert(at, sentence)


def example(rng, n_words, held_out=False):
    """(question with its text, answer, reasoning)"""
    pieces, joiner = filler.filler(rng, n_words, held_out)
    sentence, question, answer = fact(rng)
    if rng.random() < 0.5:  # facts that nobody asks for
        for _ in range(rng.randint(1, 4)):
            other, _, value = fact(rng)
            if value != answer:
                _insert(rng, pieces, other)
    missing = rng.random() < 0.06
    if not missing:
        _insert(rng, pieces, sentence)
    text = joiner.join(pieces)
    prompt = _placed(rng, text, question)
    if missing:
        return prompt, DOES_NOT_SAY, NOT_THERE
    return prompt, answer + ".", f"The text says: {sentence}"


def _placed(rng, text, question):
    """A text with a question before or after it."""
    order = rng.randrange(8)
    if order < 3:
        return question + rng.choice(["\n\n", "\n\n", "\n\n", "\n", "\n\nText:\n", " Here is the text: ", "\n---\n", "\n\n```\n", "\n\nAnswer from this text:\n\n"]) + text
    if order < 7:
        return text + rng.choice(["\n\n", "\n\n", "\n\n", "\n", " ", "\n\nQuestion: ", "\n---\n", "\n\nQ: ", "\n\nFrom the text above: "]) + question
    return rng.choice(["Read this:\n", "Here is a document.\n\n", "Text:\n"]) + text + rng.choice(["\n\nNow answer: ", "\n\nMy question: ", "\n\n"]) + question


def dialogue(rng, n_words, n_questions):
    """[(question, answer, reasoning)]: a text with several facts, the first question with it, and the others later."""
    pieces, joiner = filler.filler(rng, n_words)
    turns, answers = [], set()
    while len(turns) < n_questions:
        sentence, question, answer = fact(rng)
        if answer in answers:
            continue
        answers.add(answer)
        if rng.random() < 0.06:
            turns.append((question, DOES_NOT_SAY, NOT_THERE))
        else:
            _insert(rng, pieces, sentence)
            turns.append((question, answer + ".", f"The text says: {sentence}"))
    (question, *rest), *others = turns
    return [(_placed(rng, joiner.join(pieces), question), *rest), *others]


if __name__ == "__main__":
    import random
    r = random.Random(5)
    for _ in range(60):
        print(fact(r))
