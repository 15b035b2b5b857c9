"""Tools made up by rule: schemas in many styles, and requests that seldom repeat the words of the schema."""
import json
import re

import catalogue
import grammar
import values
import words

INTEGERS, NUMBERS = {"count", "small", "percentage", "year"}, {"amount"}

VERBS = """open unlock|close shut|start begin launch|stop end halt|move shift push carry|remove delete erase clear|create make build produce|find search locate seek|check verify test examine|send ship forward dispatch
show display present|count tally|update change modify adjust|lock secure|clean wash tidy|repair fix mend|buy order purchase|sell offer|paint colour|cut trim slice|mix blend stir|fill load stock|empty drain|lift raise hoist|lower drop sink
rotate turn spin|copy duplicate clone|rename relabel|sort arrange order|measure gauge weigh|record log note|read fetch get|write store save|hide cover conceal|book reserve|cancel revoke|approve accept confirm|reject refuse deny|assign give hand
connect link join|split divide separate|merge combine unite|pause suspend hold|resume continue|activate enable|deactivate disable|inspect survey|heat warm|cool chill|charge power|paint coat|report announce|pack wrap|print output|call ring
visit see|guard watch monitor|calibrate tune|replace swap exchange|borrow lend rent|return|dig plough|catch trap|throw toss|burn|bake roast|teach train|draw sketch|plant sow|scan check|encrypt scramble|decode decrypt|parse analyse|compile build
render draw|validate check|export|import|publish post|archive store|restore recover|schedule plan|invite ask|praise thank|warn alert|pay|greet welcome""".replace("\n", "|").split("|")
VERBS = [group.split() for group in VERBS]
OBJECTS = """box crate container|car vehicle automobile|boat ship vessel|picture image photo|document paper file|house building home|road street way|shop store market|friend contact|task job duty|letter note|machine device engine|computer machine pc|garden yard
child kid|doctor physician|teacher tutor|worker employee|customer client buyer|animal creature beast|dog hound|horse pony|stone rock|tree plant|field meadow|river stream|hill mountain|sea ocean|wind breeze|song tune track|film movie|game match|book volume title
lesson class course|exam test|dish meal food|drink beverage|cake pie|bread loaf|fruit apple|coat jacket|shoe boot|ring jewel|coin money|gift present|card ticket|key token|door gate|window pane|wall fence|floor ground|roof top|lamp light|bed couch|chair seat
clock watch|phone mobile|radio receiver|screen monitor display|cable wire|battery cell|pump valve|tank vessel|pipe tube|wheel tyre|brake pedal|sensor probe|robot drone|camera lens|signal alarm|report summary|chart graph plot|table sheet|row record entry
column field|account profile|user member|team group crew|project plan|budget fund|invoice bill|order purchase|delivery shipment cargo|package bundle|contract deal|offer quote|meeting session|room hall chamber|bus coach|train|plane aircraft|hotel inn|tour trip
map plan|weather climate|storm gale|fire flame|water liquid|oil fuel|metal iron|wood timber|glass|cloth fabric|rope cord|tool instrument|knife blade|hammer|nail screw|bridge crossing|tunnel|station stop|harbour port|castle fort|farm ranch|village hamlet
server host node|database store|query search|branch fork|commit change|backup copy|script program|function routine|model network|image container|cluster group|queue list|cache buffer|log journal|password secret|certificate licence|message text|comment remark
recipe formula|medicine drug pill|patient case|lab sample|planet world|star sun|rocket missile|satellite probe|puzzle riddle|dragon monster|sword weapon|potion brew|spell charm|quest mission""".replace("\n", "|").split("|")
OBJECTS = [group.split() for group in OBJECTS]
# keys, kind of value, how a request says it without the key
ROLES = [
    ("city location place town site where region area", "place", ["in {}", "at {}", "near {}", "from {}", "over in {}"]),
    ("recipient to receiver contact person user customer", "name", ["for {}", "to {}", "and give it to {}", "on behalf of {}"]),
    ("count quantity number n amount copies times repeat", "small", ["{} times", "{} of them", "{} pieces", "{} in all", "x{}"]),
    ("minutes duration length timeout period wait", "small", ["for {} minutes", "during {} minutes", "{} minutes long"]),
    ("hours duration_hours span", "small", ["for {} hours", "{} hours"]),
    ("date day when on due deadline start_date", "date", ["on {}", "for {}", "by {}", "{}"]),
    ("time at start_time hour", "time", ["at {}", "from {} on", "by {}"]),
    ("colour color shade tint", "colour", ["in {}", "{} please", "and make it {}"]),
    ("level percent intensity strength power share", "percentage", ["at {} percent", "to {}%", "at level {}", "to {}"]),
    ("heat temperature warmth celsius", "small", ["at {} degrees", "to {} degrees", "at {} °C"]),
    ("speed velocity pace rate", "count", ["at {} km/h", "at speed {}", "with {} per hour"]),
    ("size format scale", "small/medium/large/huge/tiny", ["in {}", "{} size", "the {} one", "as {}"]),
    ("priority urgency importance", "low/normal/high/critical", ["with {} priority", "it is {}", "as {}", "({})"]),
    ("mode method style kind type", "fast/slow/safe/full/quick/deep", ["in {} mode", "the {} way", "as {}", "{}"]),
    ("name title label called", "phrase", ["called {}", "named {}", "with the name {}", "\"{}\"", "titled {}"]),
    ("id identifier key ref reference code number", "code", ["{}", "number {}", "no. {}", "with the id {}", "{}"]),
    ("serial serial_number token tag", "code", ["{}", "marked {}", "with serial {}"]),
    ("path file filename source document", "path", ["{}", "in {}", "from {}", "at {}"]),
    ("output target dest save_to", "path", ["into {}", "to {}", "and save it as {}"]),
    ("url link address page", "url", ["from {}", "at {}", "{}"]),
    ("email mail contact_email", "email", ["for {}", "to {}", "and mail it to {}"]),
    ("message text comment reason note description", "text", ["saying {}", "with the words {}", "because {}", ": {}", "\"{}\""]),
    ("language lang locale", "language", ["in {}", "into {}"]),
    ("price budget cost limit max_price", "amount", ["for {} euros", "for at most {}", "under {}", "for {}"]),
    ("weight mass kilos", "amount", ["of {} kg", "weighing {}", "with {} kilos"]),
    ("year season edition", "year", ["of {}", "from {}", "in {}"]),
    ("query term pattern keyword search", "word", ["with {}", "about {}", "containing {}", "for {}"]),
    ("tags labels categories keywords", "[word]", ["tagged {}", "with the tags {}", "under {}"]),
    ("members people names participants", "[person]", ["with {}", "for {}", "together with {}"]),
    ("unit units measure", "unit", ["in {}", "measured in {}"]),
    ("phone number mobile", "phone", ["at {}", "on {}"]),
    ("command code expression script", "snippet", ["with {}", ": {}", "using {}"]),
    ("material substance", "wood/steel/glass/paper/stone/wool/plastic", ["made of {}", "of {}", "in {}"]),
]
KEYED = ["{k} {v}", "{k} {v}", "the {k} is {v}", "with {k} {v}", "{k}={v}", "{k}: {v}", "where {k} is {v}", "with the {k} {v}"]
FRAMES = ["{verb} the {object} {parts}", "{verb} the {object} {parts}", "{verb} a {object} {parts}", "{verb} {object} {parts}", "please {verb} the {object} {parts}", "(can|could|would|will) you {verb} (the|a|my) {object} {parts}", "i (need|want) you to {verb} (the|a|that) {object} {parts}", "i (want|need|would like|have) to {verb} (the|a|my) {object} {parts}",
          "{parts}: {verb} the {object}", "the {object} {parts}, {verb} it", "(go and|now|just|quickly|then|kindly) {verb} the {object} {parts}", "{object}: {verb} {parts}", "(it is time to|let us|let's|time to) {verb} the {object} {parts}", "a {object} {parts} please", "(i need|i want|give me|we need|get me) (a|the) {object} {parts}", "{object} {parts}", "{verb} my {object} {parts}", "somebody should {verb} the {object} {parts}", "{verb} this {object} {parts}"]
# Nouns for what can be looked up of anything.
QUALITIES = "status state price size owner age colour weight version name address rating level score capacity length date origin history speed limit category type summary details position value cost rank code quality condition budget deadline members contents description quota temperature height".split()
LOOKUPS = ["what is the {q} of [the] [{object}] {v}", "{q} of [the] [{object}] {v}", "{v}: {q}", "(tell|show|give) me the {q} of [the] [{object}] {v}", "what {q} has [the] [{object}] {v}", "(which|what) {q} does [the] [{object}] {v} have", "i need the {q} (of|for) [{object}] {v}", "[the] [{object}] {v}, what is its {q}", "do you know the {q} of {v}", "look up the {q} of [{object}] {v}", "i'd like to know the {q} of [{object}] {v}", "{v}'s {q}", "find out the {q} for [{object}] {v}"]


def _name(rng, parts):
    """Words of a name in one of the usual styles."""
    style = rng.random()
    if style < 0.5:
        return "_".join(parts)
    if style < 0.72:
        return parts[0] + "".join(p.capitalize() for p in parts[1:])
    if style < 0.82:
        return "-".join(parts)
    if style < 0.88:
        return "".join(p.capitalize() for p in parts)
    if style < 0.93:
        return ".".join(parts)
    return "".join(parts)


class Parameter:
    def __init__(self, rng, keys, kind, noun):
        # A key that nobody has seen can only be copied from the schema.
        self.odd = rng.random() < 0.12
        self.key, self.kind = rng.choice([rng.choice(words.ENGLISH), words.invented(rng), values.word(rng)]) if self.odd else rng.choice(keys), kind
        if "_" in self.key and rng.random() < 0.25:
            self.key = _name(rng, self.key.split("_"))
        self.is_list = kind.startswith("[")
        self.choices = kind.split("/") if "/" in kind else None
        base = kind.strip("[]")
        json_type = "integer" if base in INTEGERS else "number" if base in NUMBERS else "boolean" if base == "flag" else "string"
        if json_type == "integer" and rng.random() < 0.12:
            json_type = "number"
        entry = {"type": json_type}
        if self.choices and rng.random() < 0.7:
            entry["enum"] = self.choices if rng.random() < 0.7 else rng.sample(self.choices, len(self.choices))
        if self.is_list:
            entry = {"type": "array", "items": entry}
        elif json_type == "integer" and rng.random() < 0.08:
            entry["minimum"] = rng.choice([0, 1])
        if rng.random() < 0.4:
            spoken = re.sub(r"(?<=[a-z])(?=[A-Z])|[_.-]", " ", self.key).lower()
            entry["description"] = rng.choice([f"The {spoken}", f"{spoken} of the {noun}", spoken.capitalize(), f"{spoken}, e.g. {self.shown(rng, self.value(rng))}", f"Which {spoken} to use", f"{spoken} as {json_type}", f"The {spoken} of the {noun}.", "required", f"the {noun}'s {spoken}"])
        self.schema = entry

    def _one(self, rng):
        if self.choices:
            return rng.choice(self.choices)
        value = values.KINDS[self.kind.strip("[]")](rng)
        # What ends a request ends no value.
        return value.rstrip(".") if isinstance(value, str) else value

    def value(self, rng):
        return [self._one(rng) for _ in range(rng.randint(2, 4))] if self.is_list else self._one(rng)

    def shown(self, rng, value):
        if isinstance(value, bool):
            return rng.choice(["true", "yes", "on"] if value else ["false", "no", "off"])
        if isinstance(value, list):
            texts = [str(v) for v in value]
            return rng.choice([", ".join(texts), ", ".join(texts[:-1]) + " and " + texts[-1], ", ".join(texts[:-1]) + " and " + texts[-1]])
        return str(value)


EXTRAS = [("unit", {"type": "string", "enum": ["celsius", "fahrenheit"]}), ("limit", {"type": "integer"}), ("verbose", {"type": "boolean"}), ("format", {"type": "string", "enum": ["json", "text"]}), ("page", {"type": "integer", "default": 1}), ("dry_run", {"type": "boolean", "default": False}),
          ("timeout", {"type": "number"}), ("language", {"type": "string"}), ("options", {"type": "object", "properties": {"deep": {"type": "boolean"}}}), ("callback", {"type": ["string", "null"]}), ("comment", {"type": "string", "description": "optional"}), ("user_id", {"type": "string"})]


class Tool:
    """`asks` are wordings with {0}, {1}... for the parameters."""

    def __init__(self, rng, concept, name, description, parameters, asks, results):
        self.concept, self.name, self.parameters, self.asks, self.results = concept, name, parameters, asks, results
        properties = {p.key: p.schema for p in parameters}
        required = list(properties)
        if rng.random() < 0.2:
            key, extra = rng.choice(EXTRAS)
            properties.setdefault(key, extra)
        schema = {"type": "object", "properties": properties}
        if required and rng.random() < 0.85:
            schema["required"] = required
        if rng.random() < 0.15:
            schema["additionalProperties"] = False
        function = {"name": name}
        if rng.random() < 0.94:
            function["description"] = description
        function["parameters"] = schema
        if rng.random() < 0.07:
            function["strict"] = True
        self.definition = {"type": "function", "function": function}

    def ask(self, rng):
        """(text, arguments, whether the text begins with a value)"""
        template = grammar.wording(rng, self.asks)
        arguments, shown = {}, {}
        for i, parameter in enumerate(self.parameters):
            slot = "{%d}" % i
            if slot not in template:
                continue
            value = parameter.value(rng)
            arguments[parameter.key] = value
            text = parameter.shown(rng, value)
            if isinstance(value, str) and rng.random() < 0.06 and f'"{slot}"' not in template:
                text = rng.choice(['"{}"', "'{}'", "`{}`"]).format(text)
            shown[slot] = text
        text = re.sub(r"\{\d\}", lambda match: shown[match[0]], template)
        return text, arguments, template.startswith(("{", '"'))


def _sentence(rng, text):
    text = text[0].upper() + text[1:]
    return text + rng.choice(["", "", ".", "."])


def _words(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_.\- ]+", " ", name).lower().split()


def _slots(rng, spec, noun):
    out = []
    for part in spec.split():
        keys, kind = part.split(":")
        out.append(Parameter(rng, keys.split("|"), kind, noun))
    keys = [p.key for p in out]
    return out if len(set(keys)) == len(keys) else _slots(rng, spec, noun)


# What people try first, and the share of it among the tools.
EVERYDAY = 0.15
_FIRST = ("weather", "time", "stock price", "file content", "translate", "send_", "set_timer", "set_alarm", "create_reminder", "create_event", "calculate", "add|", "multiply", "search_web", "play_music", "switch_light", "convert_", "find_flights", "book_table", "write_file", "user profile")
EVERYDAY_ATTRIBUTES = [a for a in catalogue.ATTRIBUTES if a[0].startswith(_FIRST)]
EVERYDAY_ACTIONS = [a for a in catalogue.ACTIONS if a[0].startswith(_FIRST)]


def from_attribute(rng, entries=catalogue.ATTRIBUTES):
    concept, spec, asks = rng.choice(entries)
    names = concept.split("|")
    noun, other = rng.choice(names), rng.choice(names)
    parts = noun.replace(" of ", " ").replace(" a ", " ").split()
    before = rng.choice(["get", "get", "get", "find", "lookup", "fetch", "show", "query", "check", "read", "", "", "search", "retrieve", "load"])
    after = rng.choice(["", "", "", "", "", "lookup", "info", "tool", "api", "service"]) if not before else ""
    parameters = _slots(rng, spec, other.split()[-1])
    given = rng.choice(["", "", f" for a {parameters[0].key}", f" by {parameters[0].key}", f" of a {parameters[0].key}", f" given the {parameters[0].key}"]).replace("_", " ")
    description = _sentence(rng, rng.choice([f"get the {other}", f"returns the {other}", f"{other}", f"look up the {other}", f"find the {other}", f"use this for the {other}", f"gives you the {other}", f"the {other}", f"tells the {other}", f"retrieve {other} data"]) + given)
    return Tool(rng, concept, _name(rng, [p for p in (before, *parts, after) if p]), description, parameters, asks, [_words(names[0])[-1], *rng.sample(QUALITIES, rng.choice([0, 0, 1, 2]))])


def from_action(rng, entries=catalogue.ACTIONS):
    names, description, spec, asks, result = rng.choice(entries)
    name = _name(rng, _words(rng.choice(names.split("|"))))
    parameters = _slots(rng, spec, _words(names.split("|")[0])[-1])
    if rng.random() < 0.05:
        name = _name(rng, [words.invented(rng)] * 1 + rng.choice([[], ["tool"], [words.invented(rng)]]))
    return Tool(rng, names, name, _sentence(rng, grammar.expand(rng, description)), parameters, asks, rng.choice([[result], [result], [result, rng.choice(QUALITIES)], [rng.choice(["status", "ok", "success", "result", "id"])]]))


def _object(rng):
    return rng.choice(OBJECTS) if rng.random() < 0.65 else [words.noun(rng)]


def made_up(rng):
    """A verb, an object and up to three roles."""
    verbs, objects = rng.choice(VERBS), _object(rng)
    if rng.random() < 0.15:
        verbs = [rng.choice([rng.choice(words.ENGLISH), words.invented(rng)])]
    verb, thing = rng.choice(verbs), rng.choice(objects)
    roles, keys = [], set()
    for role in rng.sample(ROLES, rng.choice([0, 1, 1, 1, 1, 2, 2, 2, 3])):
        parameter = Parameter(rng, role[0].split(), role[1], thing)
        if parameter.key not in keys:
            keys.add(parameter.key)
            roles.append((parameter, role[2]))
    asks = []
    for _ in range(3):
        keyed = rng.random() < 0.4
        said = [rng.choice(KEYED).format(k=p.key.replace("_", " "), v="{%d}" % i) if p.odd or keyed else rng.choice(phrases).replace("{}", "{%d}" % i) for i, (p, phrases) in enumerate(roles)]
        order = rng.sample(said, len(said)) if rng.random() < 0.3 else said
        text = rng.choice(FRAMES).replace("{parts}", rng.choice([" ", " ", ", ", " and "]).join(order)).replace("{verb}", rng.choice(verbs)).replace("{object}", rng.choice(objects))
        asks.append(re.sub(r"\s+([,:?])", r"\1", text).strip(" ,:"))
    parts = rng.choice([[verb, thing], [verb, thing], [verb, thing], [thing, verb], [verb, "the", thing], [thing, rng.choice(verbs)]])
    verb, thing = rng.choice(verbs), rng.choice(objects)
    description = _sentence(rng, rng.choice([f"{verb} the {thing}", f"{verb} a {thing}", f"can {verb} the {thing}", f"use it to {verb} a {thing}", f"{verb}s {thing}s", f"lets you {verb} a {thing}", f"tool to {verb} some {thing}", f"this function will {verb} a {thing} for the user"]))
    return Tool(rng, (verbs[0], objects[0]), _name(rng, parts), description, [p for p, _ in roles], asks, [rng.choice(["status", "result", "id", "value", "count", "state", "answer", *QUALITIES]) for _ in range(rng.choice([1, 1, 2]))])


def made_up_lookup(rng):
    """Some quality of some object, by whatever names it."""
    quality, objects = rng.choice(QUALITIES), _object(rng)
    thing = rng.choice(objects)
    key = rng.choice([thing, thing, "id", "name", f"{thing}_id", f"{thing}_name", "number", "key", "what"])
    parameter = Parameter(rng, [key], rng.choice(["code", "code", "anything", "word", "name", "place", "phrase", "count"]), thing)
    asks = [ask.replace("{q}", quality).replace("{object}", rng.choice(objects)).replace("{v}", "{0}") for ask in rng.sample(LOOKUPS, 3)]
    parts = rng.choice([["get", thing, quality], ["get", quality], [thing, quality], ["find", thing, quality], [quality, "of", thing], ["lookup", thing], ["fetch", quality], [thing, "info"], ["query", thing, quality]])
    shown = rng.choice(objects)
    description = _sentence(rng, rng.choice([f"get the {quality} of a {shown}", f"{quality} of a {shown}", f"returns the {quality} of the {shown}", f"look up a {shown}'s {quality}", f"which {quality} a {shown} has", f"{shown} {quality}"]))
    return Tool(rng, (quality, objects[0]), _name(rng, parts), description, [parameter], asks, [quality])


def any_tool(rng):
    if rng.random() < EVERYDAY:
        if rng.random() < 0.25:  # the weather first of all
            return from_attribute(rng, EVERYDAY_ATTRIBUTES[:1])
        return from_attribute(rng, EVERYDAY_ATTRIBUTES) if rng.random() < 0.35 else from_action(rng, EVERYDAY_ACTIONS)
    return rng.choices([from_attribute, from_action, made_up, made_up_lookup], [30, 32, 26, 12])[0](rng)


def offered(rng, n):
    """n tools of different names that do different things."""
    tools, concepts = {}, set()
    while len(tools) < n:
        tool = any_tool(rng)
        if tool.concept not in concepts and tool.name not in tools:
            concepts.add(tool.concept)
            tools[tool.name] = tool
    return list(tools.values())


if __name__ == "__main__":
    import random
    r = random.Random(4)
    for _ in range(60):
        t = any_tool(r)
        print(json.dumps(t.definition["function"])[:400])
        for _ in range(2):
            print("     ", *t.ask(r)[:2])
