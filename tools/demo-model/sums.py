"""Sums in words and signs, worked out digit by digit as at school."""
import grammar

COLUMNS = ["Ones", "Tens", "Hundreds", "Thousands", "Next"]
PLUS = ["{a}+{b}", "{a} + {b}", "{a} + {b}", "{a} plus {b}", "{a} and {b} [together]", "{a} added to {b}", "the (sum|total) of {a} and {b}"]
MINUS = ["{a}-{b}", "{a} - {b}", "{a} - {b}", "{a} minus {b}", "{a} take away {b}", "{b} subtracted from {a}", "the difference (of|between) {a} and {b}", "{a} less {b}"]
TIMES = ["{a}*{b}", "{a} * {b}", "{a} x {b}", "{a} × {b}", "{a} times {b}", "{a} multiplied by {b}", "the product of {a} and {b}"]
OVER = ["{a}/{b}", "{a} / {b}", "{a} divided by {b}", "{a} ÷ {b}"]
ASK = ["(what is|what's|how much is|how much makes|compute|calculate|work out|solve|evaluate|find|give me|tell me|i need) {}", "{} = ?", "{}=", "{} =", "{}", "{}?", "what does {} (equal|make|give|come to)", "work this out: {}", "(can|could|would|will) you (compute|calculate|solve|work out) {} [please|for me|quickly]", "tell me what {} is", "(question|exercise|problem|quiz|maths|math|sum): {}", "{} (equals|makes|gives|is)", "{}, (how much is that|what is the result|what is the answer|what does it make)",
       "(hey|hi|ok|please), (what is|what's|how much is|compute) {}", "the (answer|result|value) of {}", "do you know what {} is", "(my teacher|my son|my friend|someone) asks: {}", "if i (compute|calculate|work out) {}, what do i get", "what (number|result|answer) is {}", "(how do i|help me) (compute|calculate|solve) {}", "i need to know {}", "is {} hard for you? tell me the (result|answer)", "let x be {}. what is x"]
THING = "(coins|books|pens|eggs|sweets|stamps|cows|chairs|tickets|cards|boxes|trees|bottles|shells|toys|cats|euros|dollars|points|miles|pages|flowers|nuts|cookies|stones|marbles|oranges|pears)"
WHO = "(I|Tom|Anna|Mary|She|He|Ben|A farmer|My sister|Our class|The shop|Leo|We|You|A boy|The teacher)"
STORIES = {
    "+": [f"{WHO} (has|had|owns|have) {{a}} {{t}} and (buys|finds|receives|earns|picks|wins|collects|is given) {{b}} (more|others|more {{t}}). (How many {{t}} are there|How many is that|How many {{t}} now|What is the total|How many in all|How many altogether)?",
          "There are {a} {t} in one (box|bag|room|basket) and {b} in (another|the other). (How many {t} are there in total|How many altogether|How many are there together|What is the total)?", "{a} {t} on the table, {b} {t} on the floor. (How many {t} in all|How many together|Total)?", f"{WHO} (reads|walks|sells|counts|sees) {{a}} {{t}} (today|in the morning) and {{b}} (tomorrow|in the evening). (How many in total|How many altogether|What is the sum)?",
          "first {a} {t} came, then {b} came too. how many (are here|came|in total)?", "if you (have|take) {a} {t} and (put|add) {b} (to them|more), how many (do you have|are there)?", "a {t} costs {a} euros and another costs {b} euros. (how much do they cost together|what do both cost)?", "Ben is {a} years old. How old will he be in {b} years?", "it is {a} degrees and gets {b} degrees warmer. How warm is it?"],
    "-": [f"{WHO} (has|had|have) {{a}} {{t}} and (loses|sells|gives away|eats|breaks|throws away|spends) {{b}} [of them]. (How many {{t}} are left|How many are left|How many remain|What is left|How many {{t}} now)?", "There are {a} {t}. {b} are taken away. (How many are left|How many {t} remain)?", "of {a} {t}, {b} are (red|broken|gone|sold). how many are not?", "how many more is {a} than {b}?", "from {a} {t} {b} disappear. how many stay?", "a book has {a} pages and I read {b}. How many are left?", "subtract {b} from {a}", "take {b} (away from|from) {a}", "what is left of {a} (when|if) {b} are gone?"],
    "x": ["(There are|I see|we have) {a} (boxes|bags|rows|shelves) with {b} {t} each. (How many {t} are there|How many in total|How many is that)?", "each of {a} children has {b} {t}. (how many {t} altogether|how many in all)?", "{a} (packs|boxes) of {b} {t}, how many {t}?", "multiply {a} (by|with|and) {b}", "one {t} costs {b} euros. What do {a} cost?"],
    "/": ["divide {a} by {b}", "{a} {t} are shared by {b} children. How many does each get?", "how (often|many times) does {b} go into {a}?", "{a} {t} in {b} equal (bags|groups|rows). how many in each?"],
}
SUMS = ["add {a} (and|,|with) {b}", "add (up|together|up the numbers|the numbers) {a} and {b}", "{a} increased by {b}", "put {a} and {b} together", "how much do {a} and {b} make (together|in total)", "(total|sum): {a} and {b}", "{a} more than {b} is how much", "what (number|) is {b} more than {a}", "count {b} up from {a}", "add these: {a}, {b}"]


def _digits(n):
    return [int(d) for d in reversed(str(n))]


def _add(a, b):
    x, y, carry, out = _digits(a), _digits(b), 0, []
    n = max(len(x), len(y))
    for i in range(n):
        parts = [d[i] for d in (x, y) if i < len(d)] + ([1] if carry else [])
        total = sum(parts)
        carry = total >= 10 and i + 1 < n
        out.append(f"{COLUMNS[i]}: {' + '.join(map(str, parts))} = {total}" + (f", write {total % 10}, carry 1" if carry else "") + ".")
    return " ".join(out)


def _subtract(a, b):
    x, y, borrow, out = _digits(a), _digits(b), 0, []
    for i, digit in enumerate(x):
        parts = ([y[i]] if i < len(y) else []) + [1] * borrow
        rest = digit - sum(parts)
        borrow = int(rest < 0)
        shown = digit + 10 * borrow
        out.append(f"{COLUMNS[i]}: " + (f"{digit} is too small, borrow: " if borrow else "") + f"{' - '.join(map(str, [shown, *parts]))} = {rest + 10 * borrow}.")
    return " ".join(out)


def _multiply(a, b):
    """Of a number of several digits and one of one digit."""
    carry, out = 0, []
    for i, digit in enumerate(_digits(a)):
        total = digit * b + carry
        last = i + 1 == len(str(a))
        out.append(f"{COLUMNS[i]}: {digit} x {b}" + (f" + {carry}" if carry else "") + f" = {total}" + ("." if last else f", write {total % 10}, carry {total // 10}."))
        carry = total // 10
    return " ".join(out)


def _numbers(rng, sign):
    top = rng.choice([10, 20, 60, 100, 100, 100, 100, 200, 1000, 5000] if sign in "+-" else [0])
    if sign == "+":
        return rng.randint(0, top), rng.randint(0, rng.choice([top, top, 40]))
    if sign == "-":
        a, b = rng.randint(0, top), rng.randint(0, rng.choice([top, top, 40]))
        return (a, b) if a >= b or rng.random() < 0.1 else (b, a)
    if sign == "x":
        if rng.random() < 0.6:
            return rng.randint(0, 12), rng.randint(0, 12)
        return rng.randint(11, rng.choice([99, 99, 999])), rng.randint(2, 9)
    b = rng.randint(1, 12)
    return b * rng.randint(0, 12), b


def example(rng):
    """(question, answer, steps or "")"""
    sign = rng.choices("+-x/", [46, 28, 20, 6])[0]
    a, b = _numbers(rng, sign)
    steps, negative = "", False
    if sign == "+":
        result = a + b
        steps = _add(a, b) if max(a, b) >= 10 else ""
    elif sign == "-":
        result = a - b
        steps = _subtract(max(a, b), min(a, b)) if max(a, b) >= 10 else ""
        negative = result < 0
        steps += f" {b} is larger than {a}: minus {-result}." if negative else ""
    elif sign == "x":
        result = a * b
        steps = _multiply(a, b) if a > 12 else ""
    else:
        result = a // b
    if rng.random() < 0.35 and not negative:
        templates = STORIES[sign] + (SUMS if sign == "+" else [])
    else:
        templates = [ask.replace("{}", form) for ask in [rng.choice(ASK)] for form in [rng.choice({"+": PLUS, "-": MINUS, "x": TIMES, "/": OVER}[sign])]]
    while grammar.too_close(template := grammar.expand(rng, rng.choice(templates))):
        templates = [ask.replace("{}", "{a} + {b}" if sign == "+" else "{a} - {b}") for ask in ASK]
    question = template.replace("{a}", str(a)).replace("{b}", str(b)).replace("{t}", grammar.expand(rng, THING))
    question = rng.choice([question, question[0].upper() + question[1:]])
    if question[-1] not in "?=.":
        question += rng.choice(["", "", "?", "?", ".", " please", "!"])
    return question, f"{a} {sign} {b} = {result}", steps.strip()
