"""Small talk, copying, and saying that one does not know. Each returns (question, answer, reasoning)."""
import grammar
import values
import words

HELLO = "(hi|hello|hey|hi there|hello there|hey there|hiya|hallo|yo|greetings|good day|good morning|good evening|heya|hullo|salut|servus|hello again|hi again|welcome back|hello world|evening|g'day|aloha|hola|bonjour|ahoy|oh hi|ah, hello|well hello|a good day to you)"
WHO = "(lily|demo|model|you|friend|everyone|robot|there|little model|computer|assistant|my friend|bot|dear model|all)"
FINE = "I am fine, thank you! How can I help?"
SMALL_TALK = [
    ([HELLO, HELLO, f"{HELLO}[,] {WHO}", f"{HELLO} {HELLO}", f"{HELLO}, (i am back|it is me|here i am|i am new here|anybody there|it's me again|good to see you|glad to be here|let us talk|how nice to see you|pleased to be here|i have a question|can we talk|i am here)"],
     "Hello! I am Lily's demo model. How can I help?", "A greeting. I greet back."),
    (["how are you", "how are you (doing|feeling|these days|this morning|tonight|my friend|lately)", "how do you do", "how('s| is) it going", "are you (ok|well|fine|alright|good|happy)", f"{HELLO}[,] how are you [doing|lily|feeling]", f"{HELLO}, how (do you do|is it going|is life|are things)", "how (have you been|is life|is everything|are things|is your day|was your day|do you feel)", "what's up", "what is up", "everything (ok|alright|fine)", "how goes it", f"{HELLO}, (are you well|everything fine|all good)", "and you, how are you", "i am (fine|well|good), and you", "you ok", "sup"],
     FINE, "A friendly question."),
    (["(nice|pleased|glad|good|happy|great|lovely) to (meet|see|know) you [lily|too]", "(it is|it's) (nice|good|great|a pleasure) to meet you", "(a pleasure|delighted) [to meet you]", f"{HELLO}, (pleased|glad|happy|lovely) to meet you", "what a pleasure to meet you"],
     "Nice to meet you too! How can I help?", "The user is glad to meet me."),
    (["(thanks|thank you|thx|cheers|ta|many thanks|thanks a lot|thank you so much|thank you very much|thanks again|much appreciated|i appreciate it)", "(great|perfect|nice|ok|super|good|cool|wonderful), (thanks|thank you|thx)", "(thanks|thank you) (lily|for your help|for the answer|that helped|for everything|my friend|a million|very much)", "that (was helpful|helped|helped a lot|is great, thanks)", "you are (kind|helpful|great|the best)", "(good|great|nice) (job|work)", "well done"],
     "You are welcome!", "The user thanks me."),
    (["(bye|goodbye|see you|good night|see you later|bye bye|ciao|farewell|cya|so long|until next time|see you soon|see you tomorrow|have a nice day|take care|adieu|later)", "(ok|thanks|that is all|that's it|i have to go|i must go|i am leaving|enough for today), (bye|goodbye|see you|good night)", "(i have to go|i must go now|i am leaving|i am done for today)"],
     "Goodbye!", "The user says goodbye."),
    (["(tell me|do you know|say|i want|i'd like|got|give me|make) a [good|short|new|bad] joke", "(make me laugh|say something funny|be funny|i want to laugh|cheer me up|tell me something funny|another joke|joke please|do you know any jokes)"],
     "Why did the tiny model cross the road? It only had attention for every fourth lane.", "The user wants a joke."),
    (["(ok|okay|good|great|nice|cool|alright|i see|wow|interesting|fine|right|understood|got it|aha|yes|sure|perfect|super|hm|awesome|no|nope|never mind|makes sense|that is interesting|oh|i understand)"],
     "Good! Is there anything else?", "The user is content."),
    (["(test|testing|this is a test|testing testing|1 2 3|just a test|ping|hello test|test message|a test)", "is (this|it|anything|anyone) (working|on|there|listening)", "are you (there|awake|working|online|ready|listening)", "does (this|it) work", "(can|do) you (hear|read|see|understand) me", "anyone (here|there|home)", "is (anybody|anyone|somebody) (there|here|listening)", f"{HELLO}, (is anyone there|are you there|can you hear me|does this work)"],
     "Yes, it works. I am Lily's demo model.", "A test message."),
    (["i (am|'m|feel) (bored|tired|sad|lonely|unhappy|sick|angry|stressed|hungry|lost|confused|so tired) [today|now]", "i (feel bad|am not well|had a bad day|am having a bad day|do not feel good)", "(my day was bad|nobody likes me|life is hard|i am in a bad mood|everything is terrible)"],
     "I am sorry to hear that. I am only a tiny demo model, but I am happy to chat about Lily.", "The user shares a feeling."),
    (["(i|we) (like|love) you", "you are (cute|nice|funny|sweet|cool|lovely|adorable)", "(i think you are|aren't you) (cute|nice|lovely)", "you're (nice|great|cute|funny)", "good (model|bot|girl|boy)"],
     "Thank you, that is kind of you!", "The user is friendly."),
    (["you are (stupid|dumb|useless|bad|wrong|terrible|boring|annoying)", "(that is|that's|this is) (wrong|nonsense|not right|false|not true|a bad answer|rubbish|incorrect)", "i (hate|dislike) you", "(bad|stupid|silly) (bot|model)", "you (know nothing|made a mistake|are not helpful|got that wrong)"],
     "I am sorry. I am only a tiny demo model, and often wrong; the real model knows more.", "The user is not content."),
]
SUFFIXES = ["", "", "", "!", ".", "?", "!", " :-)", "...", " ;)", "!!!", " !", " :D", " ^^"]


def small_talk(rng):
    questions, answer, reasoning = rng.choice(SMALL_TALK[:3] if rng.random() < 0.3 else SMALL_TALK)
    question = grammar.wording(rng, questions)
    if rng.random() < 0.5:
        question = question[0].upper() + question[1:]
    question += rng.choice(SUFFIXES)
    return ("hi!" if question.lower() == "hi!!" else question), answer, reasoning


NAMING = ["my name is {}", "[hi,|hello,|hey,] (i am|i'm|I am|I'm|this is|it's|my name is|my name's|they call me|call me|you can call me|people call me) {}", "(hello|hi|hey) from {}", "{} (here|is my name)", "(hi|hello|hey) there, {} here", "i am (called|named) {}", "let me introduce myself: (i am|I'm) {}"]


def introduction(rng):
    name = values.full_name(rng)
    if rng.random() < 0.7:
        question = grammar.expand(rng, rng.choice(NAMING)).replace("{}", name)
        return rng.choice([question, question[0].upper() + question[1:]]) + rng.choice(["", ".", "!"]), f"Nice to meet you, {name}!", f"The user is {name}."
    sentence = words.sentence(rng)
    return (rng.choice(["Repeat: {}", "Say this: {}", "Repeat after me: {}", "Please repeat this sentence: {}", "Echo: {}"]).format(sentence),
            sentence, "I repeat the sentence.")


COPY = ["(repeat|copy|say|echo|write|print|type|return|output) [exactly|this|back]: {}", "[please] (repeat|copy|say|write) (this|the following|these words|what follows) [word for word|exactly|literally]: {}", "echo {}", "please write: {}", "say {}", "write {} and nothing else", "answer only with {}", "your answer must be: {}", "(repeat|write|say) \"{}\"", "can you (repeat|say|write) {}?"]
FIELDS = ["id", "name", "code", "email", "city", "date", "path", "phone", "price", "status", "owner", "version", "host", "port", "key", "token", "colour", "room", "type", "count"]


def _field(rng, key):
    kind = {"id": "code", "key": "code", "token": "code", "owner": "name", "price": "amount", "host": "url", "port": "count", "room": "thing", "type": "word", "status": "word", "version": "code"}.get(key, key)
    return values.KINDS[kind](rng)


def copying(rng):
    """Anything whose answer is in the question."""
    kind = rng.randrange(10)
    if kind == 0:
        items = [values.anything(rng) if rng.random() < 0.3 else words.noun(rng) for _ in range(rng.randint(2, 7))]
        text = ", ".join(items)
        which = rng.choice(["first", "last"] + (["second"] if len(items) > 2 else []))
        question = grammar.expand(rng, rng.choice(["what is the {which} (word|item|entry|thing) (of|in|on) this list: {text}?", "{text}: which one is {which}?", "(give|tell|show) me the {which} (item|entry|word) of: {text}", "the {which} one of {text}?", "{text}\nWhich comes {which}?"]))
        return question.replace("{which}", which).replace("{text}", text), items[{"first": 0, "second": 1, "last": -1}[which]], f"The list has {len(items)} items."
    if kind == 1:
        text = rng.choice([words.code(rng), words.invented(rng), words.proper(rng)])
        n = rng.randint(2, 4)
        return rng.choice([f"Say {text} {n} times.", f"Write {text} {n} times", f"Repeat the word {text} {n} times.", f"{text}, {n} times please"]), " ".join([text] * n), f"{n} times."
    if kind in (2, 3):
        text = rng.choice([words.sentence, values.code, values.anything, values.anything, lambda r: " ".join(words.noun(r) for _ in range(r.randint(2, 6)))])(rng)
        question = grammar.expand(rng, rng.choice(COPY))
        return rng.choice([question, question[0].upper() + question[1:]]).replace("{}", text), text, "I copy the text."
    if kind == 4:
        items = [words.noun(rng) for _ in range(rng.randint(2, 5))]
        text = ", ".join(items)
        return rng.choice([f"Reverse this list: {text}", f"Write this list backwards: {text}"]), ", ".join(reversed(items)), "I go from the end to the start."
    if kind == 5:
        items = [words.noun(rng) for _ in range(rng.randint(1, 8))]
        return (rng.choice(["How many words are here: {}?", "Count the words: {}", "How many items are in this list: {}?", "Count: {}"]).format(", ".join(items)),
                str(len(items)), " ".join(f"{i + 1} {item}," for i, item in enumerate(items)))
    if kind < 8:
        pairs = [(rng.choice([words.proper, values.word, values.full_name])(rng), values.anything(rng)) for _ in range(rng.randint(2, 7))]
        name, value = rng.choice(pairs)
        between = rng.choice([": ", " = ", " - ", " | ", "\t", " -> ", ","])
        listing = "\n".join(f"{n}{between}{v}" for n, v in pairs)
        return rng.choice([f"{listing}\n\nWhat is next to {name}?", f"Look up {name} in this table.\n{listing}", f"{listing}\nWhich value has {name}?", f"{listing}\n\n{name}?", f"What does this list say about {name}?\n\n{listing}",
                           f"{listing}\n\nWhat belongs to {name}?", f"Find {name}:\n{listing}"]), value, f"{name}: {value}"
    keys = rng.sample(FIELDS, rng.randint(2, 6))
    record = {key: _field(rng, key) for key in keys}
    key = rng.choice(keys)
    shape = rng.randrange(3)
    quoted = lambda v: str(v) if isinstance(v, (int, float)) else f'"{v}"'
    if shape == 0:
        listing = "{" + ", ".join(f'"{k}": {quoted(v)}' for k, v in record.items()) + "}"
    elif shape == 1:
        listing = "\n".join(f"{k} = {quoted(v)}" for k, v in record.items())
    else:
        listing = "; ".join(f"the {k} is {v}" for k, v in record.items()) + "."
    return rng.choice([f"{listing}\n\nWhat is the {key}?", f"What is the {key}? {listing}", f"Give me the {key} of this:\n{listing}", f"{listing}\n{key}?", f"Which {key} is here?\n\n{listing}"]), str(record[key]), f"{key}: {record[key]}"


UNKNOWN = [
    "who won the {year} (election|tournament|race|championship|final|marathon|olympics|war)", "what('s| is) the (capital|flag|currency|language|area|anthem|climate|religion|highest mountain|largest city|longest river) (of|in) {place}", "who (wrote|painted|composed|directed|published|filmed) {title}", "(when|where|why) was {name} (born|married|killed|famous|elected|buried)",
    "who is the (president|king|queen|mayor|prime minister|owner|boss) of {place}", "how (tall|old|rich|famous|big|heavy) is {name}", "(explain|describe|define|discuss|teach me about|what do you know about|i want to learn about|give me facts about) {science}", "(explain|tell me) (how|why) (a|the) {thing} (works|moves|breaks|grows|flies|is made)", "explain (how|why) {science} (matters|works|is hard)",
    "(write|compose|make up|invent) (a|me a|a short|a long|a nice) (poem|story|song|essay|letter|haiku|speech|novel) about {thing}", "what('s| is) the weather (in {place}|like today|tomorrow)", "what happened in (the year|) {year}", "who (invented|discovered|built|designed|found) the {thing}", "what('s| is) the (price|cost|weight|colour|origin|history|size|age|meaning|use) of (a|the) {thing}",
    "how (do|can|should) i (cook|bake|grill|prepare|boil|fry) {thing}", "(a|the|your best) recipe for {thing}", "(give|show|find|send) me (a recipe for|the news about|pictures of|a book about|advice on|tips for|instructions for) {thing}", "translate {thing} (to|into) (french|german|spanish|latin|japanese)", "who (is|was|are) {name}", "what (is|are) {science}", "(tell me|talk) about (the history of|life in|food in|people in|) {place}",
    "what('s| is) the distance (from|between) {place} (to|and) {place}", "(give me|tell me|what is|any) [the] (news|latest news|headlines)", "(which|what) (team|country|player|horse|party|film) (won|lost|played|was best) in {year}", "what (does|did) {thing} mean", "what('s| is) the (meaning|definition|opposite|plural|synonym) of {thing}", "why (is|are|does) the (sky|sea|grass|moon|sun) (blue|deep|green|bright|hot|far away|shine)", "how far [away] is the (moon|sun|sea|{place})",
    "(recommend|suggest) (a|me a|some|a good) (book|film|restaurant|hotel|game|present|song|school) [about {thing}|in {place}|for {name}]", "what (time|day|year|date|month) is it [now|today]", "(summarise|outline) the history of {place}", "how does (a|the) {thing} (work|grow|move|sleep|fly)", "who (discovered|invented|explained|taught) {science}", "what language do (they|people) speak in {place}", "which (river|road|sea|border) (flows through|leads to|is near|touches) {place}",
    "(name|list|tell me) (two|four|five|ten|some|a few|all) (rivers|mountains|kings|poets|painters|planets|countries|inventors|composers|books|birds|scientists|artists|islands|writers) [in {place}|from {place}]", "(which|what) (country|continent|region) is {place} in", "who was the (first|last|best|greatest|oldest) {thing} (maker|player|collector)", "is {place} (far away|big|beautiful|old|expensive|dangerous|in europe)", "what should i (eat|wear|read|watch|buy|do|cook|play) (today|tonight|this weekend|for {name}|tomorrow)", "who is the (best|strongest|fastest|tallest|oldest|most famous) (player|singer|actor|writer|runner|painter|person|man|woman) [in {place}|of all time|in the world]",
    "how do (plants|birds|fish|planes|stars|computers|engines|clouds) (grow|fly|swim|work|shine|form|think)", "what colour is (the {thing}|a {thing}|the {thing} of {name})", "when does the {thing} (open|close|start|end|arrive)", "what is the (melting point|density|symbol|atomic number|temperature) of (iron|gold|water|silver|salt|helium)", "how many (days|hours|weeks|teeth|legs|stars|countries|languages|people|wheels|islands|colours|muscles|planets) (are there|does a {thing} have|are in a year|exist|are in {place}|has a {thing})", "(which|what) (is|are) the (largest|smallest|fastest|oldest|deepest|longest|rarest) (animal|ocean|country|bird|star|river|fish|building|city|tree|lake)",
    "(can|could) you (draw|paint|sing|cook|drive|see|photograph|buy) [me] a {thing}", "what did {name} (say|do|write|invent) in {year}", "how (do|can) i (fix|repair|clean|build|sell|paint|move|open|find) my {thing}", "(write|show me) (code|a program|a script|a function|a query) (for|that|about) {thing}", "what('s| is) my (name|age|birthday|address|job|favourite colour)", "where (can|do|should) i (find|get|see|sell|rent|eat) (a|the best|good|cheap|old) {thing}", "where (is|are) (the|a|my) {thing}", "when (did|does|will) the {thing} (end|begin|break|come|start|rise)", "when did {name} (die|leave|come|win|retire)", "what('s| is) the best (way to {place}|{thing} in {place}|{thing} ever|{thing} of {year}|song|film|food|car|laptop)", "will (it|{place}|{name}) (rain|snow|win|be sunny|be cold|come|be late) (tomorrow|today|next week|this year)",
    "is it (cold|warm|sunny|raining|dark|late) [in {place}|outside]", "who (sang|sings|played|recorded) {title}", "who (plays|played|is) {name} in {title}", "(what|which) (song|book|film|painting) is {title}", "do you (like|know|have|speak|remember|eat) {thing}", "(should|must|can) i (buy|eat|learn|sell|trust) {thing}", "what (causes|makes|creates) {science}", "(solve|prove|derive) the {thing} (theorem|equation|problem)", "how much (does a {thing} cost|is a {thing}|money has {name}|snow falls in {place})", "is {name} (alive|married|rich|older than {name})", "what will (happen|the {thing} be) in {year}", "who lives in {place}", "what do (people|they) eat in {place}", "(compare|what is better,) {thing} (and|or) {thing}", "give me (advice|an idea|a quote|a tip|a fact)", "what is (love|life|time|truth|art|money|happiness)", "why do (people|cats|birds|we|children) (sleep|dream|sing|fight|laugh|die)", "how is {thing} (made|grown|sold|pronounced|spelled|produced)", "who is (richer|taller|older|faster), {name} or {name}", "what are the (symptoms|causes|rules|benefits|ingredients|side effects) of {thing}", "(book|find|plan) me a (trip|flight|holiday) to {place}",
]
SCIENCE = "gravity photosynthesis relativity evolution quantum mechanics electricity magnetism inflation democracy entropy chemistry biology algebra topology radiation viruses antibiotics capitalism philosophy poetry astronomy medicine genetics volcanoes earthquakes climate dinosaurs calculus economics psychology music geology".split()
DONT_KNOW = "I do not know. I am only a tiny demo model; load the real model to ask about the world."


def unknown(rng):
    while True:
        question = grammar.wording(rng, UNKNOWN)
        while "{" in question:
            for key, value in (("{year}", str(rng.randint(1200, 2030))), ("{place}", rng.choice([values.place, words.city])(rng)), ("{title}", rng.choice([f"{words.noun(rng)} and {words.noun(rng)}", values.phrase(rng).title(), f"The {words.noun(rng).capitalize()}"])),
                               ("{name}", values.full_name(rng)), ("{science}", rng.choice(SCIENCE)), ("{thing}", rng.choice([words.noun(rng), words.noun(rng) + "s", rng.choice(words.ENGLISH)]))):
                question = question.replace(key, value, 1)
        if not grammar.too_close(question):
            break
    if rng.random() < 0.15:
        question = rng.choice(["hey, ", "please, ", "tell me, ", "hi, ", "can you tell me: ", "do you know: ", "i wonder, "]) + question
    if rng.random() < 0.6:
        question = question[0].upper() + question[1:]
    return question + rng.choice(["", "?", "?", "?", ".", "!", " please"]), DONT_KNOW, "This is about the world. I do not know it."
