#!/usr/bin/env python3
"""Checks that lily-text renders chat templates exactly as Python's jinja2 does.

    cargo build --release -p lily-text --example render
    python3 tests/clients/template_agreement.py [--render target/release/examples/render]

Two sources of templates: those for this model in the PyPI package mtplx (not copied here), and
the demo's own. 200 random conversations each, valid and malformed, and a list of expressions
in which Jinja engines tend to differ. jinja2 is set up as transformers' chat_template_utils
does. Ends non-zero on any difference: other text, or an error on one side only.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["mtplx", "jinja2", "markupsafe"]
N_CONVERSATIONS = 200


def enter_venv():
    """Runs this script again inside an environment that has jinja2 and the templates."""
    if os.environ.get("TEMPLATE_AGREEMENT_VENV") == sys.prefix:
        return
    home = Path(tempfile.gettempdir()) / f"lily-template-agreement-{os.getuid()}"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES], check=True)
    os.environ["TEMPLATE_AGREEMENT_VENV"] = str(home)
    os.execv(python, [str(python), *sys.argv])


def environment():
    """As in transformers.utils.chat_template_utils._cached_compile_jinja_template."""
    import jinja2
    import jinja2.ext
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    class Generation(jinja2.ext.Extension):
        """The rendering half of AssistantTracker."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

        @jinja2.pass_eval_context
        def render(self, context, caller):
            return caller()

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


# --- conversations -------------------------------------------------------------------------

WORDS = [
    "hello", "Grüße", "你好", "🙂👩‍💻", "<b>&amp;\"'</b>", "e\u0301", "\u00a0", "\u200b", "\u001c", "\u0085", "\u2028", "a\tb",
    "x\ny", "\n\n", "  indented", "trailing  ", "\r\n", "{{ x }}", "{% if %}", "\\n\\u0041", "null", "</tool_call>",
    "<tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>", "<|im_end|>", "<function=f>", "/no_think",
    "/think", "<|think_off|>", "<|think_on|>", "\u0130I\u0131", "ﬁ", "ß", "", "\x7f", "\x00", "\ud7ff", "\ue000",
]
NUMBERS = [0, 1, -1, 42, 2**53, 2**63 - 1, -(2**63), 2**64 - 1, 0.0, -0.0, 1.0, 1.5, 0.1, 1e15, 1e16, 1e17, 1e22, 1e100,
           1e-4, 1e-5, 1.5e-7, 123456789.125, 3.141592653589793, -2.5e-10, 5e-324, 1.7976931348623157e308]


def text(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, 6)))


def value(rng, depth=0):
    kind = rng.randint(0, 9 if depth < 3 else 5)
    if kind <= 1:
        return text(rng)
    if kind <= 3:
        return rng.choice(NUMBERS)
    if kind == 4:
        return rng.choice([True, False])
    if kind == 5:
        return None
    if kind <= 7:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return mapping(rng, depth + 1)


def mapping(rng, depth=0):
    keys = ["city", "days", "items", "keys", "values", "get", "type", "ü", "a b", "content", "name", "z", "0"]
    return {key: value(rng, depth) for key in rng.sample(keys, rng.randint(0, 4))}


def content(rng, images=True):
    kind = rng.random()
    if kind < 0.75:
        return text(rng)
    if kind < 0.8:
        return rng.choice(["<tool_response>\n" + text(rng) + "\n</tool_response>", "  ", "\n"])
    parts = []
    for _ in range(rng.randint(0, 3)):
        item = rng.random()
        if item < 0.6 or not images:
            parts.append({"type": "text", "text": text(rng)})
        elif item < 0.75:
            parts.append({"type": "image", "image": "x.png"})
        elif item < 0.9:
            parts.append({"type": "image_url", "image_url": {"url": "x"}})
        else:
            parts.append({"type": "video", "video": "x.mp4"})
    return parts


def assistant(rng):
    turn = {"role": "assistant", "content": rng.choice([text(rng), content(rng, images=False)])}
    kind = rng.random()
    if kind < 0.4:
        turn["reasoning_content"] = text(rng)
    elif kind < 0.55:
        turn["content"] = "<think>\n" + text(rng) + "\n</think>\n\n" + text(rng)
    elif kind < 0.6:
        turn["reasoning_content"] = None
    if rng.random() < 0.1:
        turn["reasoning"] = text(rng)
    if rng.random() < 0.4:
        calls = []
        for _ in range(rng.randint(0, 3)):
            call = {"name": rng.choice(["get_weather", "f", "ünï"]), "arguments": mapping(rng)}
            if rng.random() < 0.9:
                call = {"id": "call_1", "type": "function", "function": call}
            calls.append(call)
        turn["tool_calls"] = calls
        if rng.random() < 0.3:
            turn["content"] = rng.choice(["", None])
    return turn


def tool_definition(rng):
    function = {"name": rng.choice(["get_weather", "f"]), "description": text(rng),
                "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": text(rng)}, "x": mapping(rng)},
                               "required": ["city"], "default": value(rng)}}
    return rng.choice([{"type": "function", "function": function}, function])


def malform(rng, messages):
    kind = rng.randint(0, 9)
    turn = rng.choice(messages) if messages else {}
    if kind == 0:
        messages.clear()
    elif kind == 1:
        turn["role"] = rng.choice(["developer", "", "User", None, 3])
    elif kind == 2:
        messages.append({"role": "system", "content": text(rng)})
    elif kind == 3:
        turn["content"] = rng.choice([None, 3, 1.5, True, {"a": 1}, [3], ["x"], [{"type": "audio"}], [{}]])
    elif kind == 4:
        turn.pop("role", None)
    elif kind == 5:
        turn.pop("content", None)
    elif kind == 6:
        messages.insert(0, {"role": "system", "content": [{"type": "image"}]})
    elif kind == 7:
        messages[:] = [m for m in messages if m.get("role") != "user"]
    elif kind == 8:
        turn["tool_calls"] = rng.choice([[{}], [{"function": {}}], "x", [None], [{"function": {"name": "f", "arguments": "{\"a\": 1}"}}],
                                         [{"function": {"name": "f", "arguments": [1]}}], [{"function": {"name": None, "arguments": {}}}]])
    else:
        turn["reasoning_content"] = rng.choice([3, [], {"a": 1}, False])


def conversation(rng):
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": rng.choice(["system"] * 5 + ["developer"]), "content": content(rng, images=False)})
    messages.append({"role": "user", "content": content(rng)})
    for _ in range(rng.randint(0, 5)):
        messages.append(assistant(rng))
        for _ in range(rng.randint(0, 2)):
            messages.append({"role": "tool", "content": content(rng, images=rng.random() < 0.2), "tool_call_id": "call_1"})
        if rng.random() < 0.6:
            messages.append({"role": "user", "content": content(rng)})
    if rng.random() < 0.2:
        malform(rng, messages)
    variables = {"messages": messages, "tools": [tool_definition(rng) for _ in range(rng.randint(1, 3))] if rng.random() < 0.4 else None}
    variables["documents"] = None
    variables["add_generation_prompt"] = rng.random() < 0.8
    for name in ["enable_thinking", "preserve_thinking", "add_vision_id"]:
        if rng.random() < 0.4:
            variables[name] = rng.choice([True, False, True, False, "false", None, 0])
    return variables


# --- expressions ---------------------------------------------------------------------------

# Each is a template; variables: x (object), l (list), s (text), n (number), messages.
VARIABLES = {
    "x": {"items": [1], "b": 2.0, "a": None, "keys": "k"}, "l": [3, 1, 2], "s": " Ab<c> \u00e9\u001c", "n": 7,
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}],
    "rows": [{"k": "b", "v": 1}, {"k": "a", "v": 2}, {"k": "b"}], "empty": [], "t": True, "nested": {"p": {"q": [1, {"r": "s"}]}},
}
EXPRESSIONS = [
    # printing
    "true", "false", "none", "t", "[true, none, 1.0, 'a', \"it's\"]", "{'a': 1, 'b': [none]}", "(1, 'a')", "(1,)", "1e16", "1e-5", "1.0", "-0.0",
    "100000000000000000000", "3 / 2", "4 / 2", "7 // 2", "-7 // 2", "7 % 3", "-7 % 3", "2 ** 10", "2 ** -1", "1 + 1.0", "x", "l", "nested",
    "undefined_name", "x.nope", "s", "[s]", "['\\n\\t\\\\', '\u200b', '\u00e9']", "x.b", "1_000", "0x1f", "0b11", "1.5e3",
    # operators
    "'a' ~ 1 ~ none ~ true ~ 1.5", "'a' ~ 1e16", "'a' ~ undefined_name", "'a' ~ [1, 'b']", "'a' 'b'", "'ab' * 3", "[1] * 2", "[1] + [2]", "(1,) + (2,)", "'a' + 'b'", "'a' + 1", "1 + none",
    "undefined_name + 1", "1 < 2 < 3", "1 < 3 < 2", "1 == 1.0", "true == 1", "false == 0", "'1' == 1", "none == undefined_name", "'a' < 'b'", "[1] == [1]",
    "(1, 2) == [1, 2]", "{'a': 1} == {'a': 1.0}", "1 < 'a'", "none < 1", "not x.nope", "'b' in x", "'nope' in x", "1 in l", "'b' in s", "'A' in s", "1 in 'a1'", "'a' in none",
    "'a' in undefined_name", "'q' not in nested.p", "not 'q' in nested.p", "1 if false", "('a' if t else 'b')", "1 and 2", "0 or 'x'", "none or undefined_name", "not ''", "not 0.0", "not {}",
    "-n", "+n", "n is odd", "not n", "l and 1", "'a' and ''",
    # tests
    *[f"{value} is {test}" for value in ["s", "''", "1", "1.0", "true", "none", "x", "l", "(1, 2)", "undefined_name", "range(3)", "x.items()", "messages[0].content"]
      for test in ["string", "mapping", "iterable", "sequence", "boolean", "integer", "float", "number", "none", "defined", "undefined", "true", "false", "callable"]],
    "3 is divisibleby 3", "3 is in l", "3 is eq 3", "3 is sameas 3", "t is sameas true", "1 is sameas true", "'a' is lower", "'A' is upper", "3 is gt 2", "'x' is filter", "'upper' is filter",
    "'odd' is test", "2 is even", "2 is ne 3", "x is not mapping", "none is not none", "l is not defined", "'a1' is lower", "1 is lower",
    # subscripts
    "l[0]", "l[-1]", "l[9]", "l[1:]", "l[::-1]", "l[::2]", "l[-2:]", "l[5:1]", "s[1:3]", "s[::-1]", "s[-1]", "s[99]", "x['b']", "x['nope']", "x.b", "x[1]", "nested.p.q[1].r", "nested['p']['q'][0]",
    "undefined_name.x", "undefined_name[0]", "none.x", "none[0]", "s.x", "(1).x", "messages[0]['role']", "messages[-1].content", "messages[::-1][0].role", "(1, 2)[0]", "(1,2,3)[1:]", "l.0", "l[true]",
    # methods
    "s.strip()", "s.lstrip()", "s.rstrip()", "s.strip(' A')", "s.upper()", "s.lower()", "s.split()", "'a  b'.split(' ')", "'a,b,c'.split(',', 1)", "'a,b,c'.rsplit(',', 1)", "'a b c'.split(maxsplit=1)",
    "'a b c'.rsplit(maxsplit=1)", "' a b c '.split(none, 1)", "'a'.split('')", "''.split()", "''.split(',')", "'a\\nb\\r\\nc\\x0bd'.splitlines()", "'a\\nb\\n'.splitlines(true)", "'a=b=c'.partition('=')",
    "'a=b=c'.rpartition('=')", "'abc'.partition('x')", "'abc'.rpartition('x')", "'abc'.removeprefix('a')", "'abc'.removesuffix('c')", "'abc'.startswith('a')", "'abc'.startswith(('x', 'a'))",
    "'abc'.startswith(['a'])", "'abc'.endswith('c')", "'abc'.startswith('b', 1)", "'abc'.endswith('b', 0, 2)", "'abcabc'.find('c')", "'abc'.find('x')", "'abcabc'.rfind('c')", "'\u00e9c'.find('c')", "'abc'.find('c', 1)", "'abc'.index('c')", "'abc'.index('x')",
    "'abcabc'.count('c')", "'abc'.count('')", "'abc'.replace('b', 'x')", "'aaa'.replace('a', 'b', 2)", "'abc'.replace('', '-')", "'they\\'re bill'.title()", "'aB'.swapcase()", "'aBC d'.capitalize()", "'\u01c6'.capitalize()",
    "'7'.zfill(3)", "'-7'.zfill(4)", "'a'.ljust(3)", "'a'.rjust(3, '*')", "'a'.center(4)", "'ab'.center(5)", "'abc'.center(2)", "', '.join(['a', 'b'])", "', '.join([1])", "', '.join('abc')", "'a'.isalpha()", "'1'.isdigit()",
    "'\u00bd'.isdigit()", "'\u00bd'.isnumeric()", "'\u0663'.isdecimal()", "'\u00b2'.isdigit()", "' '.isspace()", "''.isspace()", "'\\x1c'.isspace()", "'a1'.isalnum()", "'A1'.isupper()", "'a1'.islower()", "'a_1'.isidentifier()", "'Stra\u00dfe'.casefold()",
    "'{} {}'.format(1, 'a')", "'{a}'.format(a=1)", "'%s-%d' % ('a', 3)", "'%s' % 'a'", "'%.2f' % 1.005", "'{:>4}'.format('a')", "'{0!r}'.format('a')", "x.get('b')", "x.get('nope')", "x.get('nope', 'd')", "x.items() | list", "x.keys() | list",
    "x.values() | list", "nested.p.items() | list", "x.copy()", "l.count(3)", "l.index(2)", "l.index(9)", "l.append(1)", "x.pop('b')", "x.update({})", "(1, 2, 1).count(1)", "s.nope()", "none.strip()", "(1).bit_length()", "1.0.is_integer()",
    "x.items", "x['items']", "'\u0130'.lower()", "'\u03a3\u03a3'.lower()", "'\ufb01'.upper()", "'a\\tb'.expandtabs(4)",
    # filters
    "s | trim", "'xxaxx' | trim('x')", "none | trim", "1 | trim", "undefined_name | trim", "s | upper", "none | upper", "1 | string", "none | string", "1e16 | string", "[1, 'a'] | string", "undefined_name | string", "s | length", "x | length",
    "l | length", "undefined_name | length", "none | length", "1 | length", "range(3) | length", "x | items | list", "undefined_name | items | list", "none | items | list", "l | items | list", "'abc' | list", "x | list", "none | list", "undefined_name | list", "l | join", "l | join(', ')",
    "[1, none, 1.5, true] | join('-')", "'abc' | join('-')", "rows | join(',', attribute='k')", "undefined_name | join", "none | join", "l | first", "l | last", "empty | first", "empty | last", "'abc' | first", "'abc' | last", "x | first", "l | sort", "l | sort(reverse=true)", "rows | sort(attribute='k')",
    "['b', 'A', 'c'] | sort", "['b', 'A'] | sort(case_sensitive=true)", "[1, 'a'] | sort", "l | reverse | list", "'abc' | reverse", "l | sum", "[1.5, 2] | sum", "rows | map(attribute='k') | list", "rows | map(attribute='v', default=0) | list", "rows | map(attribute='v') | list", "l | map('string') | list",
    "['a'] | map('upper') | join", "rows | selectattr('v') | list", "rows | selectattr('k', 'equalto', 'b') | list", "rows | selectattr('k', '==', 'b') | list", "rows | rejectattr('k', 'eq', 'b') | list", "rows | selectattr('v', 'defined') | list", "l | select('odd') | list", "l | select | list", "[0, 1, ''] | reject | list",
    "l | select('>', 1) | list", "rows | groupby('k') | list", "l | unique | list", "['a', 'A', 'b'] | unique | list", "l | min", "l | max", "empty | max", "l | batch(2) | list", "l | batch(2, 'x') | list", "l | slice(2) | list", "x | dictsort", "{'b': 1, 'A': 2} | dictsort", "{'b': 1, 'A': 2} | dictsort(by='value')", "none | default('d')", "none | default('d', true)",
    "undefined_name | default('d')", "undefined_name | d", "'' | default('d', boolean=true)", "x.nope | default([])", "'12' | int", "'x' | int", "'x' | int(5)", "'1.9' | int", "1.9 | int", "'0x1f' | int(base=16)", "'1.5' | float", "'x' | float", "none | int", "true | int", "1.5 | round", "2.5 | round", "1.25 | round(1)",
    "1.5 | round(0, 'floor')", "1 | round", "-1 | abs", "'a b' | title", "'they\\'re' | title", "'aBC' | capitalize", "'aB' | lower", "'a-b c' | replace('-', '+')", "1 | replace('1', '2')", "'aaa' | replace('a', 'b', 2)", "'a\\nb' | indent", "'a\\nb' | indent(2)", "'a\\n\\nb' | indent(2, true)", "'a\\n\\nb' | indent(2, blank=true)",
    "'a\\nb' | indent(width=3, first=true)", "'a\\nb' | indent('> ')", "'a b c' | wordcount", "'<a href=\"x\">&\\'' | escape", "'<a>' | e", "'<a>' | safe", "'foo bar baz' | truncate(5)", "'foo bar baz' | truncate(9, true)", "'foo' | center(9)", "'%s %s' | format('a', 1)", "x | tojson", "l | tojson", "s | tojson", "1e16 | tojson", "nested | tojson(indent=2)",
    "[] | tojson(indent=2)", "{} | tojson(indent=2)", "x | tojson(sort_keys=true)", "'\u00e9\u2028\x7f' | tojson", "'\u00e9\U0001f642' | tojson(ensure_ascii=true)", "[1, {'a': 2}] | tojson(separators=(',', ':'))", "{1: 2, none: 3, true: 4} | tojson", "undefined_name | tojson", "(1, 2) | tojson", "'<>&\\'' | tojson", "nested | tojson(indent='--')", "x | tojson(false, 1)", "range(3) | tojson", "x.items() | list | tojson",
    "'a' | attr('upper')", "x | attr('b')", "nested | attr('p')", "'<b>x</b> y' | striptags", "'a b/c' | urlencode", "l | random in l", "'abc' | batch(2) | list", "1000000 | filesizeformat", "{'a': 1} | xmlattr", "'a' | nope", "1 | pprint", "'a long line of words' | wordwrap(6)",
    # functions
    "range(5) | list", "range(1, 4) | list", "range(4, 0, -1) | list", "range(1000000) | length", "dict(a=1, b=2)", "dict(x, c=1)", "namespace(a=1).a", "raise_exception('no')", "lipsum is defined", "cycler('a', 'b').next()", "joiner(',')()", "[1, 2, 3].__class__", "''.__class__.__mro__", "nope()", "debug is defined",
]
STATEMENTS = [
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for k, v in x.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in x %}{{ k }};{% endfor %}", "{% for k, v in x | items %}{{ k }}={{ v }};{% endfor %}", "{% for c in 'abc' %}{{ c }}-{% endfor %}",
    "{% for i in none %}{{ i }}{% endfor %}", "{% for i in undefined_name %}{{ i }}{% else %}empty{% endfor %}", "{% for i in 5 %}{{ i }}{% endfor %}", "{% for i in l if i > 1 %}{{ loop.index }}{{ i }}{% endfor %}", "{% for i in l recursive %}{{ i }}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}",
    "{% for m in messages[::-1] %}{{ (messages | length - 1) - loop.index0 }}{{ m.role }}{% endfor %}", "{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }}{% endfor %}", "{% for i in range(3) %}{% set y = i %}{% endfor %}{{ y }}",
    "{% set y = 1 %}{% for i in l %}{% set y = i %}{% endfor %}{{ y }}", "{% set ns = namespace(y=1) %}{% for i in l %}{% set ns.y = ns.y + i %}{% endfor %}{{ ns.y }}", "{% set y = 1 %}{% if t %}{% set y = 2 %}{% endif %}{{ y }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set y %}  text {{ n }}\n{% endset %}[{{ y }}]", "{% set y | trim %}  text  {% endset %}[{{ y }}]", "{% macro m(a, b='d') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m() }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m() %}{{ y }}{% endmacro %}{% set y = 5 %}{{ m() }}", "{% set y = 4 %}{% macro m() %}{{ y }}{% endmacro %}{% set y = 5 %}{{ m() }}", "{% macro m() %}{% set n = 1 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}", "{% macro m() %}x{% endmacro %}{{ m() is string }}{{ m() == 'x' }}{{ m() | length }}",
    "{% macro m() %}{{ caller() }}!{% endmacro %}{% call m() %}hi{% endcall %}", "{% macro f(i) %}{% if i > 0 %}{{ i }}{{ f(i - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, k=2) }}", "{% filter upper %}abc{% endfilter %}", "{% raw %}{{ x }}{% endraw %}", "{% with y = 1 %}{{ y }}{% endwith %}{{ y }}", "{% set x = 1 %}{{ x }}", "{% if x.nope is defined and x.nope %}a{% elif l %}b{% else %}c{% endif %}", "a{#- c -#} b", "a {#- c #} b", "{# a #}\nb", "{#\nmulti\n#}x",
    "{% if t %}\n  a\n{% endif %}\nb\n", "  {% if t %}a{% endif %}\n", "x  {% if t %}a{% endif %}  \n", "  {%+ if t %}a{% endif %}", "{% if t +%}\na{% endif %}", "{%- if t -%}\n a \n{%- endif -%}\n b", "{{- 'a' -}}  \n b", "a\n\n{{ 'b' }}\n\n", "a\r\nb\r{{ 'c' }}\r\n", "{{ 'a\\nb' }}", "{{ 'a\nb' }}", "{{ '\\x41\\u00e9\\U0001f642\\101' }}", "{{ \"\\'\" }}", "{{ '\\q\\d' }}",
    "{{ 'a' if 0 }}b", "{% set d = {'a': 1} %}{% set d.a = 2 %}{{ d }}", "{% do l.append(1) %}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% block a %}x{% endblock %}", "{% generation %}x{% endgeneration %}", "a {%- generation -%} x {%- endgeneration %} b", "{%generation%}\n{{ s }}\n  {% endgeneration %}\n", "{% generation %}", "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}", "{% if %}", "{{ x", "{% for %}", "{% endif %}", "{{ }}", "{% unknown %}", "{{ 1 +}}", "{% set %}", "{{ x..y }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}", "{% set a = [1] + [2] %}{% set a = a + [3] %}{{ a }}", "{{ messages | map(attribute='role') | join(',') }}", "{{ (messages | first).role }}", "{% set m = messages[0] %}{{ m.content if m.content is string else '' }}",
    "{% for m in messages %}{{ m['role'] ~ ':' ~ m['content'] }};{% endfor %}", "{% for i in range(3) -%}\n  {{ i }}\n{%- endfor %}", "{% if 'a' == 'a' and not ('b' == 'a' or 1 > 2) %}y{% endif %}", "{{ ['a', 'b'][1] }}{{ {'k': 'v'}['k'] }}{{ {'k': 'v'}.k }}", "{{ {'items': 1}.items() | list }}", "{{ {'a': 1, 'a': 2} }}", "{{ {1: 'a'}[1] }}", "{% set f = l.count %}{{ f(3) }}",
    "{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for i in l %}{% set outer = loop %}{% for j in [1] %}{{ outer.index }}{% endfor %}{% endfor %}", "{{ loop }}", "{% for i in l | sort %}{{ i }}{% endfor %}{{ i }}", "{{ self }}", "{% set _ = none %}{{ _ }}", "{{ not_a_call | default(raise_exception('eager')) }}", "{% if false %}{{ raise_exception('lazy') }}{% endif %}ok", "{{ t and raise_exception('x') }}", "{{ (not t) and raise_exception('x') }}ok",
]
# Where the two differ and it stays so: constructs that no chat template we know uses, or errors
# of Python that the engine lets pass. The count is printed; one that agrees must leave the list.
NOT_FOR_CHAT = "no chat template needs it"
LENIENT = "Python refuses it, the engine does not"
KNOWN = {
    "{{ 'a' ~ 1e16 }}": "floats joined by ~ have no exponent",
    "{{ x.items }}": "a key comes before a method that is not called",
    "{{ range(3) is sequence }}": NOT_FOR_CHAT, "{{ lipsum is defined }}": NOT_FOR_CHAT, "{{ self }}": NOT_FOR_CHAT,
    "{{ +n }}": "no unary plus", "{{ '%s-%d' % ('a', 3) }}": "no % for text", "{{ '%s' % 'a' }}": "no % for text", "{{ '%.2f' % 1.005 }}": "no % for text",
    "{{ '{0!r}'.format('a') }}": NOT_FOR_CHAT, "{{ (1).bit_length() }}": NOT_FOR_CHAT, "{{ 1.0.is_integer() }}": NOT_FOR_CHAT, "{{ 'a\\tb'.expandtabs(4) }}": NOT_FOR_CHAT,
    "{{ rows | groupby('k') | list }}": "groups print as lists, not tuples", "{{ 'a\\nb' | indent('> ') }}": NOT_FOR_CHAT,
    **{"{{ " + e + " }}": NOT_FOR_CHAT for e in [
        "'foo bar baz' | truncate(5)", "'foo bar baz' | truncate(9, true)", "'foo' | center(9)", "'<b>x</b> y' | striptags", "'a b/c' | urlencode", "l | random in l",
        "1000000 | filesizeformat", "{'a': 1} | xmlattr", "'a long line of words' | wordwrap(6)", "'a' | attr('upper')", "'a b c' | wordcount"]},
    **{"{{ " + e + " }}": LENIENT for e in ["1 < 'a'", "none < 1", "1 in 'a1'", "[1, 'a'] | sort", "range(3) | tojson"]},
    "{{ 1 +}}": LENIENT, "{% for i in none %}{{ i }}{% endfor %}": LENIENT,
    "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}": "defaults do not see other arguments",
    "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}": "no varargs",
    "{{ '\\x41\\u00e9\\U0001f642\\101' }}": "no \\U and octal escapes",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}": NOT_FOR_CHAT, "{% set f = l.count %}{{ f(3) }}": "methods are no values",
}


# --- comparison ----------------------------------------------------------------------------

def in_python(env, compiled, request):
    try:
        source = request["template"]
        if source not in compiled:
            compiled[source] = env.from_string(source)
        return {"ok": compiled[source].render(**request["variables"])}
    except RecursionError:
        raise
    except Exception as error:  # Templates fail in many ways; that they fail is what counts.
        return {"error": f"{type(error).__name__}: {error}"}


def in_lily(program, requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([program], input=lines.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    answers = [json.loads(line) for line in done.stdout.split(b"\n") if line]
    assert len(answers) == len(requests), f"{len(answers)} answers to {len(requests)} requests"
    return answers


def compare(name, env, program, requests):
    compiled, differences, counts = {}, 0, {"equal": 0, "both refuse": 0, "known to differ": 0}
    for request, ours in zip(requests, in_lily(program, requests)):
        theirs = in_python(env, compiled, request)
        same = theirs == ours if "ok" in theirs else "error" in ours
        if request["template"] in KNOWN:
            counts["known to differ"] += 1
            if same:
                differences += 1
                print(f"AGREES NOW, take it from KNOWN: {request['template']}")
            continue
        if same:
            counts["equal" if "ok" in theirs else "both refuse"] += 1
        else:
            differences += 1
            if differences <= 60:
                shown = request["template"] if len(request["template"]) < 300 else json.dumps(request["variables"], ensure_ascii=False)[:1500]
                print(f"DIFFERENT ({name}): {shown}\n  python: {str(theirs)[:700]}\n  lily:   {str(ours)[:700]}")
    print(f"{name}: {len(requests)} rendered, {counts['equal']} equal, {counts['both refuse']} refused by both, {counts['known to differ']} known to differ, {differences} different")
    return differences


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--render", default=ROOT / "target/release/examples/render", help="the built example of lily-text")
    parser.add_argument("--seed", type=int, default=36)
    arguments = parser.parse_args()
    enter_venv()

    import mtplx

    paths = sorted((Path(mtplx.__path__[0]) / "templates").rglob("chat_template.jinja"))
    assert len(paths) >= 2, "mtplx no longer ships the templates"
    paths.append(ROOT / "crates/lily/demo/chat_template.jinja")
    env = environment()
    differences = 0
    for path in paths:
        rng = random.Random(arguments.seed)
        source = path.read_text(encoding="utf-8")
        requests = [{"template": source, "variables": conversation(rng)} for _ in range(N_CONVERSATIONS)]
        differences += compare(f"{path.parent.name}/{path.name}", env, arguments.render, requests)
    snippets = ["{{ " + e + " }}" for e in EXPRESSIONS] + STATEMENTS
    differences += compare("expressions", env, arguments.render, [{"template": s, "variables": VARIABLES} for s in snippets])
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
